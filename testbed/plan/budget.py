"""Which dilation a machine needs for a scenario on a real clock: what the plan demands of what it can do.

Called by `testbed plan`. What a machine can do is measured by `testbed.run.calibrate`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from testbed.plan.model import Plan

ACKS_PER_PACKET = 0.5
"""Linux acknowledges every second full segment."""

FORWARD_SHARE = 0.1
"""The part of its budget that a machine may be asked to use. The budget is a mean over a run in which all
processors were busy; a run is only valid when each single packet leaves on time, and with a tenth it was
(docs/native.md has the runs), with a quarter the gaps between departures were off."""

SAMPLE_SHARE = 0.1
"""The part of an interval that taking its sample may last: the rest is the lab's."""


@dataclass(frozen=True)
class Budget:
    """What a machine can do when nothing holds it back.

    `hops_per_s`: packets, counted once for each link they cross. `sample_s`: the time from one sample of
    all queues to the next. `at`: when it was measured.
    """

    hops_per_s: float
    sample_s: float
    at: str

    @property
    def words(self) -> str:
        """The budget for a person."""
        reading = f"all queues read in {self.sample_s * 1e3:.2g} ms"
        return f"{self.hops_per_s:,.0f} packets over a link a second, {reading}"


def hops_per_scenario_s(plan: Plan) -> float:
    """Return the packets over a link, ACKs included, that a second of the scenario's busiest time asks for.

    All hosts that take part are taken to be busy at once: as fast as the NICs of the senders together, or
    those of the receivers, whichever is less. Each packet crosses the longest path.
    """
    sources, targets = ({getattr(t, end) for t in plan.transfers} for end in ("src", "dst"))
    nics = [link for link in plan.topology.links if link.src in sources | targets]
    busiest_bps = min(sum(nic.rate_bps for nic in nics if nic.src in hosts) for hosts in (sources, targets))
    leaf = {host.name: host.leaf for host in plan.topology.hosts}
    links = max(2 if leaf[t.src] == leaf[t.dst] else 4 for t in plan.transfers)
    return busiest_bps / 8 / (plan.mtu + 14) * links * (1 + ACKS_PER_PACKET)


def least_dilation(plan: Plan, budget: Budget) -> float:
    """Return the dilation from which on this machine should keep up with the plan: 1, 2 or 5 times 10^n."""
    forwarding = hops_per_scenario_s(plan) / (budget.hops_per_s * FORWARD_SHARE)
    sampling = budget.sample_s / (plan.measure.interval_ns / 1e9 * SAMPLE_SHARE)
    return _round_up(max(forwarding, sampling, 1.0))


def _round_up(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if value <= step * power * (1 + 1e-9))


def advice(plan: Plan, budget: Budget | None) -> str:
    """Return the sentence of `testbed plan` on the dilation of a plan with a real clock."""
    if budget is None:
        return (
            f"dilation {plan.dilation:g}; what this machine can keep up with is not known: "
            "`testbed doctor --budget` measures it"
        )
    least = least_dilation(plan, budget)
    if plan.dilation >= least:
        return f"dilation {plan.dilation:g}; this machine should keep up from {least:g} on ({budget.words})"
    return (
        f"dilation {plan.dilation:g} is too small for this machine: expect a run that is not valid; "
        f"use dilation: {least:g} ({budget.words})"
    )
