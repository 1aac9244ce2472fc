"""What is free on the paths between hosts, from the counters of the switches' own queues.

The rate that is free on a link is its rate less what it sent between the last two readings. A path crosses
one of several spines, and which one is the hash's secret: what is free over it is the mean of what is free
over each, but for a sender whose spine is pinned. Called by `testbed.run.serving`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from statistics import fmean

from testbed.lab.netlink import NETLINK_ROUTE, Netlink, qdisc_dump_request
from testbed.plan.model import Plan
from testbed.record import layout
from testbed.run.probe import QueueReader

LEAST_SHARE = 0.05
"""A link that is full still gives a newcomer its share: no estimate is below this part of its rate."""

_BYTES = layout.SAMPLE_FIELDS.index("bytes")


class FreeRates:
    """Reads the counters of all switch ports and tells what was free between two readings."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._rates_bps = {link.name: link.rate_bps for link in plan.topology.links}
        switches = {switch.name for switch in plan.topology.switches}
        names = [link.name for link in plan.topology.links if link.src in switches]
        links = {socket.if_nametoindex(name): name for name in names}
        self._reader = QueueReader(Netlink(NETLINK_ROUTE), "red", links, qdisc_dump_request())
        self._sent: dict[str, int] = {}
        self._read_ns = 0
        self._free: dict[str, float] = dict.fromkeys(names, 0.0)

    def read(self, now_ns: int) -> Callable[[str, str], float]:
        """Read the counters and return the function that tells what is free from host to host, in bits/s."""
        values = self._reader.read()
        width = len(layout.SAMPLE_FIELDS)
        sent = {name: values[at * width + _BYTES] for at, name in enumerate(self._reader.names)}
        passed_ns = max(now_ns - self._read_ns, 1)
        for name, counted in sent.items():
            used_bps = (counted - self._sent.get(name, counted)) * 8e9 / passed_ns
            rate_bps = self._rates_bps[name]
            self._free[name] = max(rate_bps - used_bps, LEAST_SHARE * rate_bps)
        self._sent, self._read_ns = sent, now_ns
        return self.between

    def between(self, src: str, dst: str) -> float:
        """Return the rate that was free on the way from `src` to `dst`, its own NIC not looked at."""
        paths = self._plan.topology.candidate_paths(src, dst)  # over the first NIC of both
        pinned = {pin.spine for pin in self._plan.routing.pinned if pin.src == src and pin.dst in (None, dst)}
        likely = [path for path in paths if any(spine in path[1] for spine in pinned)] or list(paths)
        return fmean(min(self._free[name] for name in path[1:]) for path in likely)
