"""What is free on the paths between hosts, from the counters of the switches' own queues.

The rate that is free on a link is its rate less what it sent between the last two readings. A path crosses
one of several spines, and which one is the hash's secret: the links to them are one bundle, and so are those
from them, but for a sender whose spine is pinned. Called by `testbed.run.serving`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from testbed.lab.netlink import NETLINK_ROUTE, Netlink, qdisc_dump_request
from testbed.plan.model import Plan
from testbed.record import layout
from testbed.run.queues import QueueReader

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
        self._bundles: dict[tuple[str, str], list[tuple[str, tuple[str, ...]]]] = {}

    def read(self, now_ns: int) -> Callable[[str, str], list[tuple[str, float]]]:
        """Read the counters and return the function that tells what a path goes through, and what is free."""
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

    def between(self, src: str, dst: str) -> list[tuple[str, float]]:
        """Return the bundles of links between two hosts' NICs and what was free on each, in bits/s."""
        if (src, dst) not in self._bundles:
            self._bundles[src, dst] = self._bundled(src, dst)
        return [(name, sum(self._free[link] for link in links)) for name, links in self._bundles[src, dst]]

    def _bundled(self, src: str, dst: str) -> list[tuple[str, tuple[str, ...]]]:
        paths = self._plan.topology.candidate_paths(src, dst)  # over the first NIC of both
        pinned = {pin.spine for pin in self._plan.routing.pinned if pin.src == src and pin.dst in (None, dst)}
        likely = [path for path in paths if pinned & set(path[1].split("-"))] or list(paths)
        steps = zip(*(path[1:] for path in likely), strict=True)
        bundles = [tuple(dict.fromkeys(step)) for step in steps]
        return [(" ".join(links), links) for links in bundles]
