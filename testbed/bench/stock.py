"""Runs inside the lab: the plan's fabric as somebody would build it with stock Mininet. For the bench.

Mininet 2.3 as it is distributed: `Host`, `OVSSwitch`, `TCLink` with rate, delay and queue length, its
own limits of open files. Less than the testbed's lab: no controller and no rules, no static neighbours,
no marking, nothing read back. Rates are the highest that `TCLink` takes (1 Gbit/s).
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

from testbed.lab.mininet_net import PlanTopo
from testbed.lab.ovs import start_daemons
from testbed.lab.system import power_off
from testbed.plan.codec import from_json
from testbed.plan.model import Plan
from testbed.record import layout
from testbed.run.inside import Progress

with warnings.catch_warnings():
    # Mininet 2.3 reads Open vSwitch's version with distutils, which Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from mininet.link import TCLink
    from mininet.net import Mininet
    from mininet.node import Host, OVSSwitch

LINK = {"bw": 1000, "delay": "1us", "max_queue_size": 1000}


class StockTopo(PlanTopo):
    """The plan's topology, whose links have the parameters that `TCLink` knows."""

    def addLink(self, *ends: str, **names: Any) -> Any:  # Mininet's name
        """Add a cable with a rate, a delay and a queue."""
        return super().addLink(*ends, **names, **LINK)


def bring_up(plan: Plan, log_dir: Path, progress: Progress) -> None:
    """Start Open vSwitch as the testbed does, then build and start the network in Mininet's own way."""
    progress("open vswitch")
    start_daemons(log_dir)
    progress("hosts and links")
    net = Mininet(topo=StockTopo(plan=plan), host=Host, switch=OVSSwitch, link=TCLink, controller=None)
    progress("switches")
    net.start()
    progress("up")


def main() -> None:
    """Bring up the plan of the job named on the command line and switch the guest off."""
    job_dir = Path(sys.argv[1])
    record = Path(json.loads((job_dir / "job.json").read_text())["record"])
    plan = from_json((record / layout.PLAN).read_text())
    result: dict[str, Any] = {"status": layout.COMPLETE, "reason": None}
    try:
        bring_up(plan, record / layout.LOGS, Progress(job_dir / "progress.log"))
    except Exception as error:  # noqa: BLE001 - whatever it is must reach the person outside
        reason = f"stock Mininet: {type(error).__name__}: {error}"
        result = {"status": layout.FAILED, "error": "LabError", "reason": reason}
    (job_dir / "result.json").write_text(json.dumps(result) + "\n")
    power_off()


if __name__ == "__main__":
    main()
