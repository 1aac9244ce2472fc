"""Which ports are held when: the decisions of pauses (PFC), without a clock, a queue or a port of their own.

Backlogs go in, orders come out. Called by `testbed.run.pauser`, which reads the ones and carries out the
others. Imports nothing that is not needed inside the lab.

The rule. A queue that reaches XOFF holds the ports that fill it until it is down to XON. They are those of
its feeders (the plan's transfers say which packets go where) that have sent anything since it was last empty;
one that begins later is held then. A port held by several queues goes on when all have let go. An order takes
effect after a delay. Packets cross a link between switches in no time in the lab, so its pause takes the
link's delay twice: the way of the pause, and of what was under way. What a host has sent is on its way for
longer than that already, so its pause takes effect at once (see docs/pfc.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from testbed.plan.model import PausePoint, Plan

LOOK_LEAST_NS = 1_000
"""Not more often than this is looked, so this is the longest a queue can be beyond a threshold unnoticed."""
LOOK_MOST_NS = 50_000
HELD_LOOK_NS = 5_000
"""How often is looked while a queue is beyond XOFF, for ports that begin to fill it then."""


@dataclass(frozen=True)
class Order:
    """At `time_ns` the queue of link `by` holds the port of `link`, or lets it go."""

    time_ns: int
    link: str
    by: str
    held: bool


class Pauses:
    """The state of all pauses of a fabric. Times are lab nanoseconds."""

    def __init__(self, plan: Plan) -> None:
        assert plan.pausing is not None
        self._links = {link.name: link for link in plan.topology.all_links}
        self._nics = set(plan.topology.nics)
        self._points = [point for point in plan.pausing.points if point.feeders]
        self._deadlock_ns = plan.pausing.deadlock_ns
        self._least_ns = round(LOOK_LEAST_NS * plan.dilation)
        self._most_ns = round(LOOK_MOST_NS * plan.dilation)
        self._held_ns = round(HELD_LOOK_NS * plan.dilation)
        self._fill_bps = {point.link: self._rates_bps(point.feeders) for point in self._points}
        self._holds: dict[str, set[str]] = {}  # by queue: the ports it holds
        self._at_empty: dict[str, Mapping[str, int]] = {}
        self._before: Mapping[str, int] = {}
        self._circle_since: int | None = None

    def _rates_bps(self, links: tuple[str, ...]) -> int:
        return sum(self._links[name].rate_bps for name in links)

    @property
    def watched(self) -> tuple[str, ...]:
        """The links whose backlogs `look` wants."""
        return tuple(point.link for point in self._points)

    def look(self, now_ns: int, backlogs: Mapping[str, int], sent: Mapping[str, int]) -> list[Order]:
        """Return what follows from the backlogs (bytes, of every watched link) at `now_ns`.

        `sent` has the bytes that links have sent so far, as far as that is known.
        """
        orders = [
            order
            for point in self._points
            for order in self._decide(point, now_ns, backlogs[point.link], sent)
        ]
        self._before = sent
        self._circle_since = (self._circle_since or now_ns) if self.circle() else None
        return orders

    def _decide(
        self, point: PausePoint, now_ns: int, backlog: int, sent: Mapping[str, int]
    ) -> Iterator[Order]:
        held = self._holds.get(point.link)
        if held is not None and backlog <= point.xon_bytes:
            del self._holds[point.link]
            yield from (self._order(now_ns, name, point.link, False) for name in sorted(held))
        elif backlog >= point.xoff_bytes:
            since = self._at_empty.get(point.link, {}) if held is None else self._before
            held = self._holds.setdefault(point.link, set())
            for name in point.feeders:
                if name not in held and (name not in sent or sent[name] > since.get(name, 0)):
                    held.add(name)
                    yield self._order(now_ns, name, point.link, True)
        if backlog == 0:
            self._at_empty[point.link] = sent

    def _order(self, now_ns: int, name: str, by: str, held: bool) -> Order:
        link = self._links[name]
        delay_ns = 0 if link.src in self._nics else 2 * link.delay_ns
        return Order(now_ns + delay_ns, name, by, held)

    def next_look_ns(self, now_ns: int, backlogs: Mapping[str, int]) -> int:
        """Return by when the backlogs must be seen again, so that no queue crosses a threshold unnoticed."""
        held = set().union(*self._holds.values()) if self._holds else set()
        soonest = min(self._crossing_ns(point, backlogs[point.link], held) for point in self._points)
        return now_ns + max(self._least_ns, min(soonest, self._most_ns))

    def _crossing_ns(self, point: PausePoint, backlog: int, held: set[str]) -> int:
        """Return how long a queue needs at least to its next threshold."""
        drain_bps = 0 if point.link in held else self._links[point.link].rate_bps
        if point.link in self._holds:
            falling = _time_ns(backlog - point.xon_bytes, drain_bps, self._most_ns)
            return min(falling, self._held_ns)
        return _time_ns(point.xoff_bytes - backlog, self._fill_bps[point.link] - drain_bps, self._most_ns)

    def circle(self) -> tuple[str, ...]:
        """Return ports that hold each other in a circle, each held by the next; empty when there are none."""
        after: dict[str, list[str]] = {}
        for by in sorted(self._holds):
            for name in self._holds[by]:
                after.setdefault(name, []).append(by)
        standing = set(after)
        while free := {name for name in standing if standing.isdisjoint(after[name])}:
            standing -= free
        way = sorted(standing)[:1]
        while way:
            following = next(by for by in after[way[-1]] if by in standing)
            if following in way:
                break
            way.append(following)
        return tuple(way[way.index(following) :]) if way else ()

    def deadlock(self, now_ns: int) -> tuple[str, ...]:
        """Return the ports of a circle that has stood for the plan's `deadlock_ns`; empty when none has."""
        if self._circle_since is None or now_ns - self._circle_since < self._deadlock_ns:
            return ()
        return self.circle()


def _time_ns(amount_bytes: int, rate_bps: int, otherwise_ns: int) -> int:
    """Return how long `amount_bytes` take at `rate_bps`, `otherwise_ns` where that is no rate."""
    return amount_bytes * 8_000_000_000 // rate_bps if rate_bps > 0 else otherwise_ns
