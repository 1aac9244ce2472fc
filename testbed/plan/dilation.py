"""The plan as the lab's real clock sees it: everything slower by the plan's dilation. Light to import.

Called by the lab before it brings anything up. Analysis converts measured times back.
"""

from __future__ import annotations

from dataclasses import replace

from testbed.plan.model import BackgroundFlow, Plan, Roce, Transfer, Transport
from topologies.model import Link, Topology
from traffic.jobs import Job, Serving
from traffic.roce.dcqcn import Parameters


def dilated(plan: Plan) -> Plan:
    """Return `plan` with rates divided, and delays, times, timers and deadline multiplied, by its dilation.

    Bytes, packets, thresholds and limits stay, so that queues and windows in packets are the same. The
    real-time deadline stays as well: it bounds the person's waiting. `dilation` keeps its value.
    """
    k = plan.dilation
    if k == 1:
        return plan
    return replace(
        plan,
        topology=_topology(plan.topology, k),
        transport=_transport(plan.transport, k),
        routing=replace(plan.routing, poll_ns=_times(plan.routing.poll_ns, k)),
        transfers=tuple(_transfer(transfer, k) for transfer in plan.transfers),
        background=tuple(_background(flow, k) for flow in plan.background),
        measure=replace(
            plan.measure,
            interval_ns=_times(plan.measure.interval_ns, k),
            progress_ns=_times(plan.measure.progress_ns, k),
        ),
        deadline=replace(plan.deadline, scenario_ns=_times(plan.deadline.scenario_ns, k)),
        ideal_last_end_ns=_times(plan.ideal_last_end_ns, k),
        serving=plan.serving and _serving(plan.serving, k),
        pausing=plan.pausing and replace(plan.pausing, deadlock_ns=_times(plan.pausing.deadlock_ns, k)),
    )


def _times(value: int, k: float) -> int:
    return round(value * k)


def _slowed(rate_bps: int, k: float) -> int:
    # A rate of 0 means unlimited, so nothing else may become 0.
    return max(1, round(rate_bps / k)) if rate_bps else 0


def _transport(transport: Transport, k: float) -> Transport:
    roce = None if transport.roce is None else _roce(transport.roce, k)
    return replace(transport, rto_min_ns=_times(transport.rto_min_ns, k), roce=roce)


def _roce(roce: Roce, k: float) -> Roce:
    dcqcn = None if roce.dcqcn is None else _dcqcn(roce.dcqcn, k)
    return replace(
        roce,
        ack_timeout_ns=_times(roce.ack_timeout_ns, k),
        tick_ns=_times(roce.tick_ns, k),
        dcqcn=dcqcn,
    )


def _dcqcn(own: Parameters, k: float) -> Parameters:
    """All timers k times as long and all rates a k-th, bytes as they are: the same fixed point, k times
    slower."""
    return replace(
        own,
        cnp_interval_ns=_times(own.cnp_interval_ns, k),
        alpha_timer_ns=_times(own.alpha_timer_ns, k),
        rate_timer_ns=_times(own.rate_timer_ns, k),
        cut_interval_ns=_times(own.cut_interval_ns, k),
        additive_bps=_slowed(own.additive_bps, k),
        hyper_bps=_slowed(own.hyper_bps, k),
        min_rate_bps=_slowed(own.min_rate_bps, k),
    )


def _topology(topology: Topology, k: float) -> Topology:
    links, stages = (tuple(_link(link, k) for link in some) for some in (topology.links, topology.stages))
    return replace(topology, links=links, stages=stages)


def _link(link: Link, k: float) -> Link:
    return replace(link, rate_bps=_slowed(link.rate_bps, k), delay_ns=_times(link.delay_ns, k))


def _transfer(transfer: Transfer, k: float) -> Transfer:
    return replace(
        transfer,
        start_ns=_times(transfer.start_ns, k),
        ideal_ns=_times(transfer.ideal_ns, k),
        pace_bps=_slowed(transfer.pace_bps, k),
    )


def _serving(serving: Serving, k: float) -> Serving:
    return replace(
        serving,
        handover=replace(serving.handover, pace_bps=_slowed(serving.handover.pace_bps, k)),
        staleness_ns=_times(serving.staleness_ns, k),
        step_ns=_times(serving.step_ns, k),
        slo_ttft_ns=_times(serving.slo_ttft_ns, k),
        lead_ns=_times(serving.lead_ns, k),
        jobs=tuple(_job(job, k) for job in serving.jobs),
    )


def _job(job: Job, k: float) -> Job:
    return replace(job, arrival_ns=_times(job.arrival_ns, k), prefill_ns=_times(job.prefill_ns, k))


def _background(flow: BackgroundFlow, k: float) -> BackgroundFlow:
    return replace(
        flow,
        rate_bps=_slowed(flow.rate_bps, k),
        start_ns=_times(flow.start_ns, k),
        duration_ns=_times(flow.duration_ns, k),
    )
