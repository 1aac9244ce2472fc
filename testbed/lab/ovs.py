"""Open vSwitch's two daemons, as the lab's own: database, sockets and logs in the lab's folders."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import LabError
from testbed.lab.system import run, wait_until

RUN_DIR = Path("/run/openvswitch")
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")

CORES_COUNTED_AFTER_S = 10.5
"""Open vSwitch counts its processors no earlier than 10 s after boot; before, it makes no handler
threads and loses every packet that has no flow yet (COUNT_CPU_UPDATE_TIME_MS in ovs-thread.c)."""

TOOL_TIMEOUT_S = 100
"""How long ovs-vsctl and its like may wait for a daemon: by default they wait for ever for a dead one."""

FLOW_IDLE_MS = 1_000_000_000
"""How long an unused datapath flow is kept: the flows are read after the run to see the paths."""

FLOWS_AT_FIRST = 5_000
"""Datapath flows for which nothing needs to be said: Open vSwitch takes 10,000 at first (`udpif_create`)."""

_OWN_TMP = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /tmp && exec "$@"', "sh"]
"""ovsdb-server makes temporary files in /tmp whatever TMPDIR says, and the lab's root is read-only."""


@dataclass(frozen=True)
class Daemons:
    """The running daemons."""

    ovsdb: subprocess.Popen[bytes]
    vswitchd: subprocess.Popen[bytes]

    def check(self) -> None:
        """Raise LabError when one of them has ended."""
        for name, process in (("ovsdb-server", self.ovsdb), ("ovs-vswitchd", self.vswitchd)):
            if process.poll() is not None:
                raise LabError(f"{name} ended with status {process.returncode}; see its log in the record")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Raise what `check` raises as soon as a daemon ends, whatever is waited for in the block.

        Without its database ovs-vswitchd reads the clock without end, and in virtual time, where that is all
        that moves it, no timeout comes in a person's time.
        """
        before = signal.signal(signal.SIGCHLD, lambda number, frame: self.check())
        try:
            yield
        finally:
            signal.signal(signal.SIGCHLD, before)

    def stop(self) -> None:
        """End both daemons."""
        for process in (self.vswitchd, self.ovsdb):
            process.terminate()
        for process in (self.vswitchd, self.ovsdb):
            process.wait()


def start_daemons(log_dir: Path) -> Daemons:
    """Start ovsdb-server and ovs-vswitchd and return once both answer."""
    os.environ.update(
        OVS_RUNDIR=str(RUN_DIR), OVS_DBDIR=str(RUN_DIR), OVS_SYSCONFDIR=str(RUN_DIR), OVS_LOGDIR=str(RUN_DIR)
    )
    os.environ["OVS_CTL_TIMEOUT"] = str(TOOL_TIMEOUT_S)
    RUN_DIR.mkdir(parents=True, exist_ok=True)
    database, db_socket = RUN_DIR / "conf.db", RUN_DIR / "db.sock"
    run(["ovsdb-tool", "create", str(database), str(SCHEMA)])
    ovsdb = _start(["ovsdb-server", str(database), f"--remote=punix:{db_socket}"], log_dir)
    wait_until(db_socket.exists, 10, "ovsdb-server's socket")
    run(
        [
            "ovs-vsctl", "--no-wait", "init", "--", "set", "Open_vSwitch", ".",
            f"other_config:max-idle={FLOW_IDLE_MS}",
        ]
    )  # fmt: skip
    time.sleep(max(0.0, CORES_COUNTED_AFTER_S - time.monotonic()))
    vswitchd = _start(["ovs-vswitchd", f"unix:{db_socket}"], log_dir)
    wait_until(lambda: any(RUN_DIR.glob("ovs-vswitchd.*.ctl")), 10, "ovs-vswitchd's socket")
    return Daemons(ovsdb, vswitchd)


def _start(command: list[str], log_dir: Path) -> subprocess.Popen[bytes]:
    log = log_dir / f"{command[0]}.log"
    with log.open("wb") as output:
        return subprocess.Popen(
            [*_OWN_TMP, *command, "--pidfile", "--no-chdir", "-vconsole:info", "-vsyslog:off", "-vfile:off"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def stop_inactivity_probes(bridges: list[str]) -> None:
    """Let an idle controller connection be idle: in virtual time every wake-up is real work.

    Open vSwitch 3.1 ignores the setting when it is made together with the controller's address.
    """
    command = ["ovs-vsctl"]
    for bridge in bridges:
        command += ["--", "set", "Controller", bridge, "inactivity_probe=0"]
    run(command)


def allow_flows(count: int) -> None:
    """Let the datapath keep so many flows, once there are bridges.

    Above its limit Open vSwitch forgets flows after 100 ms without a packet, and with them the paths, and
    above twice the limit sends packet after packet through its slow path.
    """
    if count <= FLOWS_AT_FIRST:
        return
    limit = 2 * count
    run(["ovs-vsctl", "set", "Open_vSwitch", ".", f"other_config:flow-limit={limit}"])
    # The setting is only a bound: the limit in force grows towards it, twice a second by a thousand.
    run(["ovs-appctl", "upcall/set-flow-limit", str(limit)])


def datapath_flows() -> str:
    """Return all flows of the kernel datapath, with interface names."""
    return run(["ovs-appctl", "dpctl/dump-flows", "-m", "--names"])


def version() -> str:
    """Return Open vSwitch's version, e.g. `3.1.0`."""
    return run(["ovs-vsctl", "--version"]).splitlines()[0].split()[-1]
