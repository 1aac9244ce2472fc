"""When every transfer would end if the fabric shared its capacity perfectly (max-min fair).

A fluid model: at every moment the active transfers have max-min fair rates over the resources source
host link, source leaf's uplinks in sum, destination leaf's downlinks in sum and destination host link,
found by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2): all rates rise together,
and those through a resource that is full stay as they are. No transfer is faster than the slowest link
of its own path. It knows no packets, no protocol and no hash; a run cannot beat it by more than
rounding. Called by `testbed.plan.build`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NS_PER_S = 1e9
_EQUAL = 1e-12
"""Two levels that differ by less are equal but for rounding."""

_TOLERANCE_BITS = 1e-3
"""Float noise in a transfer's bits: far below one bit, far above rounding errors."""


@dataclass(frozen=True)
class Flow:
    """A transfer for the fluid model.

    `resources` index the capacities; flows with the same resources and cap form a class. `bits` are on
    the wire, `cap_bps` is the slowest link of the path, `delay_ns` the path's propagation delay.
    """

    resources: tuple[int, ...]
    cap_bps: float
    bits: float
    start_ns: int
    delay_ns: int


def ideal_last_end_ns(flows: Sequence[Flow], capacities_bps: Sequence[float]) -> int:
    """Return when the last bit of the last of `flows` arrives, in nanoseconds, rounded up; 0 of none."""
    ends = ideal_ends_ns(flows, capacities_bps)
    # A nanosecond that float noise alone has begun is not counted.
    return math.ceil(max(ends, default=0.0) - 1e-3)


def ideal_ends_ns(flows: Sequence[Flow], capacities_bps: Sequence[float]) -> list[float]:
    """Return when the last bit of each of `flows` arrives, in nanoseconds."""
    fluid = _Fluid(flows, capacities_bps)
    order = sorted(range(len(flows)), key=lambda index: flows[index].start_ns)
    position = 0
    while position < len(order) or fluid.active:
        arrival_ns = float(flows[order[position]].start_ns) if position < len(order) else math.inf
        if arrival_ns > fluid.next_end_ns:
            fluid.advance(fluid.next_end_ns)
        else:
            fluid.advance(arrival_ns)
            while position < len(order) and flows[order[position]].start_ns == arrival_ns:
                fluid.add(order[position])
                position += 1
        fluid.share()
    return fluid.ends_ns


class _Fluid:
    """The state of the model between two events.

    All flows of a class have the same rate at all times, so one number per class, the bits each of its
    flows has been given since the beginning (`given`), replaces a counter per flow: a flow that begins
    at `given` g ends when `given` reaches g + its bits.
    """

    def __init__(self, flows: Sequence[Flow], capacities_bps: Sequence[float]) -> None:
        self.flows = flows
        keys = {key: number for number, key in enumerate(dict.fromkeys(map(_class_of, flows)))}
        self.class_of = [keys[_class_of(flow)] for flow in flows]
        self.capacities = np.array([*capacities_bps, math.inf], dtype=float)
        self.caps = np.array([cap for _, cap in keys], dtype=float)
        self.uses = _rows([resources for resources, _ in keys], len(capacities_bps))
        self.counts = np.zeros(len(keys))
        self.given = np.zeros(len(keys))
        self.rates = np.zeros(len(keys))
        self.goals: list[list[tuple[float, int]]] = [[] for _ in keys]
        self.next_goal = np.full(len(keys), math.inf)
        self.now_ns = 0.0
        self.next_end_ns = math.inf
        self.next_class = 0
        self.active = 0
        self.ends_ns = [0.0] * len(flows)

    def add(self, index: int) -> None:
        """Let flow `index` begin now."""
        number = self.class_of[index]
        heapq.heappush(self.goals[number], (self.given[number] + self.flows[index].bits, index))
        self.next_goal[number] = self.goals[number][0][0]
        self.counts[number] += 1
        self.active += 1

    def advance(self, until_ns: float) -> None:
        """Serve all flows at their rates until `until_ns` and take out those that end."""
        self.given += self.rates * ((until_ns - self.now_ns) / NS_PER_S)
        self.now_ns = until_ns
        if until_ns >= self.next_end_ns:
            # Exactly, or rounding of a late `now_ns` could put off the same end for ever.
            self.given[self.next_class] = self.next_goal[self.next_class]
        for number in np.flatnonzero(self.next_goal - self.given <= self._noise()):
            self._end_flows(int(number))

    def _noise(self) -> Floats:
        # `given` grows over the whole run: its last binary digits grow with it.
        return np.maximum(_TOLERANCE_BITS, self.given * 1e-12)

    def _end_flows(self, number: int) -> None:
        goals, reached = self.goals[number], self.given[number] + self._noise()[number]
        while goals and goals[0][0] <= reached:
            _, index = heapq.heappop(goals)
            self.ends_ns[index] = self.now_ns + self.flows[index].delay_ns
            self.counts[number] -= 1
            self.active -= 1
        self.next_goal[number] = goals[0][0] if goals else math.inf

    def share(self) -> None:
        """Find the max-min fair rates of the active classes, and so when the next flow will end."""
        active = np.flatnonzero(self.counts)
        rates = fair_rates(self.uses[active], self.counts[active], self.caps[active], self.capacities)
        self.rates[:] = 0.0
        self.rates[active] = rates
        if not active.size:
            self.next_end_ns = math.inf
            return
        left_s = (self.next_goal[active] - self.given[active]) / rates
        self.next_class = int(active[left_s.argmin()])
        self.next_end_ns = self.now_ns + float(left_s.min()) * NS_PER_S


def fair_rates(uses: Ints, counts: Floats, caps_bps: Floats, capacities_bps: Floats) -> Floats:
    """Return the max-min fair rate of one flow of each class.

    `uses` holds a row of resource numbers for each class, `counts` and `caps_bps` one entry for each
    class (counts above 0), `capacities_bps` one for each resource.
    """
    rates = np.zeros(len(counts))
    rising = np.arange(len(counts))
    left = capacities_bps.copy()
    while rising.size:
        level = _levels(uses[rising], counts[rising], left)
        reach, settled = _settled(uses[rising], caps_bps[rising], level)
        done = rising[settled]
        rates[done] = reach[settled]
        left -= _load(uses[done], counts[done] * rates[done], len(left))
        np.maximum(left, 0.0, out=left)
        rising = rising[~settled]
    return rates


def _levels(uses: Ints, counts: Floats, left: Floats) -> Floats:
    """Return the rate at which each resource would be full if all flows through it rose together."""
    load = _load(uses, counts, len(left))
    level = np.full(len(left), math.inf)
    np.divide(left, load, out=level, where=load > 0)
    return level


def _settled(uses: Ints, caps_bps: Floats, level: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return how far each class can rise now, and which classes rise no further later.

    Levels only grow while others settle. So a class at its cap is settled, and so are all classes of a
    resource that is the tightest for each of them. Settling every such resource at once, not only the
    tightest of all, gives the same rates in far fewer rounds.
    """
    reach = np.minimum(level[uses].min(axis=1), caps_bps)
    tightest = np.full(len(level), math.inf)
    np.minimum.at(tightest, uses.ravel(), np.repeat(reach, uses.shape[1]))
    full = tightest >= level * (1 - _EQUAL)
    return reach, (reach >= caps_bps) | full[uses].any(axis=1)


def _load(uses: Ints, values: Floats, resources: int) -> Floats:
    weights = np.repeat(values, uses.shape[1])
    return np.bincount(uses.ravel(), weights=weights, minlength=resources).astype(np.float64)


def _rows(classes: Sequence[tuple[int, ...]], filler: int) -> Ints:
    """Return one row of resources for each class, filled up with the unlimited resource `filler`."""
    width = max(map(len, classes), default=1)
    rows = [(*used, *[filler] * (width - len(used))) for used in classes]
    return np.array(rows, dtype=np.int64).reshape(len(classes), width)


def _class_of(flow: Flow) -> tuple[tuple[int, ...], float]:
    return flow.resources, flow.cap_bps
