"""What a person reads in the terminal: the plan, and the table at the end of a run.

Text only, at most 80 columns; nothing is computed here that is not in the plan or the summary.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.checks import Result
from testbed.plan.model import Plan, Workload
from testbed.report.numbers import (
    format_bytes,
    format_count,
    format_factor,
    format_ms,
    format_ns,
    format_percent,
    format_rate,
)
from testbed.report.pauses import PLAN_HEAD, plan_rows, sentence
from testbed.report.requests import bars, scaled_words
from testbed.report.settings import workload_rows
from testbed.report.stretches import worst_link
from testbed.run.needs import Needs
from topologies.model import SEGMENTS

WIDTH = 80
ALL_LINKS = "  all: mean use of all links of a stretch, idle ones and the way back included"
LISTED = 12
"""So many transfers of a plan are listed one by one."""


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "  ", gap: str = "  "
) -> list[str]:
    """Return aligned lines: the first column to the left, the others to the right, `gap` between two."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = []
    for row in (head, *rows):
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append((indent + gap.join(cells)).rstrip())
    return lines


def plan_text(plan: Plan, needs: Needs | None = None) -> str:
    """Return what `testbed plan` prints; of a run's `needs` where they are given."""
    lines = [
        f"{plan.scenario}, seed {plan.seed}, {plan.backend} with the {plan.clock} clock",
        *textwrap.wrap(plan.description, WIDTH - 2, initial_indent="  ", subsequent_indent="  "),
        "",
        *_fabric_lines(plan),
        "",
        *_queue_lines(plan),
        *_pause_lines(plan),
        "",
        *_transfer_lines(plan),
    ]
    if plan.workload is not None:
        lines += ["", *_workload_lines(plan.workload)]
    if plan.background:
        lines += ["", *_background_lines(plan)]
    lines += ["", f"  ideal end of the last transfer  {format_ns(plan.ideal_last_end_ns)}"]
    if needs is not None:
        lines += textwrap.wrap(
            _needs_text(plan, needs), WIDTH - 2, initial_indent="  ", subsequent_indent="  "
        )
    return "\n".join(lines)


def _needs_text(plan: Plan, needs: Needs) -> str:
    """Say what a run takes of the machine; the figures are estimates."""
    memory = ""
    if plan.backend == "uml":
        memory = f"{format_bytes(needs.touched_bytes)} of memory (a guest with {needs.memory_mib:,} MiB), "
    record, seconds = format_bytes(needs.record_bytes), format_ns(needs.real_s * 1e9)
    return f"a run needs about {memory}{record} on disk and {seconds} of real time on two cores"


def _fabric_lines(plan: Plan) -> list[str]:
    rows = []
    for leaf in plan.topology.switches_of("leaf"):
        nics = [nic for nic in plan.topology.nics.values() if nic.leaf == leaf.name]
        names = " ".join(f"{nic.name}({nic.ip})" for nic in nics) or "no hosts"
        rows += textwrap.wrap(
            f"{leaf.name}: {names}", WIDTH - 2, initial_indent="  ", subsequent_indent="         "
        )
    spines = ", ".join(switch.name for switch in plan.topology.switches_of("spine"))
    words = [f"spines: {spines}", f"routing: {plan.routing.words}", f"controller on {plan.framework}"]
    for line in words:
        rows += textwrap.wrap(line, WIDTH - 2, initial_indent="  ", subsequent_indent="         ")
    return rows


def _queue_lines(plan: Plan) -> list[str]:
    links = {link.name: link for link in plan.topology.all_links}
    kinds: dict[tuple[str, ...], int] = {}
    for queue in plan.queues:
        link = links[queue.link]
        marks = ("-", "-", "-")
        if queue.marking:
            marks = (format_bytes(queue.kmin_bytes), format_bytes(queue.kmax_bytes), f"{queue.pmax:g}")
        limit = format_bytes(queue.limit_bytes)
        row = (link.segment, format_rate(link.rate_bps), format_ns(link.delay_ns), *marks, limit)
        kinds[row] = kinds.get(row, 0) + 1
    rows = [[row[0], str(count), *row[1:]] for row, count in sorted(kinds.items(), key=_path_order)]
    return table(["queues of", "links", "rate", "delay", "K_min", "K_max", "P_max", "limit"], rows)


def _pause_lines(plan: Plan) -> list[str]:
    rows = plan_rows(plan)
    return ["", *table(PLAN_HEAD, rows)] if rows else []


def _path_order(item: tuple[tuple[str, ...], int]) -> int:
    return SEGMENTS.index(item[0][0])


def _transfer_lines(plan: Plan) -> list[str]:
    rows = [
        [
            f"{transfer.id}",
            f"{_nic(plan, transfer.src, transfer.src_nic)} -> {_nic(plan, transfer.dst, transfer.dst_nic)}",
            format_bytes(transfer.bytes),
            format_ns(transfer.start_ns),
            f"{transfer.src_port}",
            format_ns(transfer.ideal_ns),
        ]
        for transfer in plan.transfers[:LISTED]
    ]
    lines = table(["transfer", "from, to", "bytes", "start", "port", "alone"], rows)
    more = len(plan.transfers) - LISTED
    total = format_bytes(sum(transfer.bytes for transfer in plan.transfers))
    rest = f" ({more} more not listed)" if more > 0 else ""
    lines.append(f"  {format_count(len(plan.transfers))} transfers, {total} in all{rest}")
    if plan.crossing:
        lines.append(f"  {format_count(len(plan.crossing))} of them over a NIC that is not their GPU's own")
    return lines


def _nic(plan: Plan, host: str, number: int) -> str:
    return plan.topology.host(host).nic(number).name


def _workload_lines(workload: Workload) -> list[str]:
    lines = []
    for name, text in workload_rows(workload):
        lines += textwrap.wrap(text, WIDTH - 2, initial_indent=f"  {name:11} ", subsequent_indent=" " * 14)
    return lines


def _background_lines(plan: Plan) -> list[str]:
    rows = [
        [
            f"{flow.id}",
            f"{_nic(plan, flow.src, flow.src_nic)} -> {_nic(plan, flow.dst, flow.dst_nic)}",
            flow.protocol,
            format_rate(flow.rate_bps) if flow.rate_bps else "as fast as it goes",
            format_ns(flow.start_ns),
            format_ns(flow.duration_ns),
        ]
        for flow in plan.background
    ]
    return table(["background", "from, to", "protocol", "rate", "start", "for"], rows)


def summary_text(summary: Mapping[str, Any], results: Sequence[Result], record: Path) -> str:
    """Return the table at the end of a run."""
    head = f"{summary['scenario']}, seed {summary['seed']}, {summary['backend']}, {summary['clock']} clock"
    lines = [
        head,
        "",
        *textwrap.wrap(summary["verdict"]["text"], WIDTH - 2, initial_indent="  ", subsequent_indent="  "),
        "",
        *_transfers_block(summary["transfers"]),
        "",
        *_requests_block(summary),
        *_stretches(summary),
        "",
        *_roce(summary["roce"]),
        *_fidelity(summary["fidelity"]),
        *(_paused(summary["pauses"]) or _pfc_risk(summary["events"]["xoff"])),
    ]
    lines += [f"  {'holds' if result.ok else 'FAILS':11} {_result(result)}" for result in results]
    return "\n".join([*lines, f"  report      {record / 'report.html'}"])


def _result(result: Result) -> str:
    return result.expectation + ("" if result.ok else f" (measured: {result.measured})")


def _transfers_block(transfers: Mapping[str, Any]) -> list[str]:
    fct, slowdown = transfers["fct_ms"], transfers["slowdown"]
    rows = [
        [
            f"{transfers['completed']} of {transfers['count']} done",
            format_bytes(transfers["bytes"]),
            format_ms(fct["p50"]),
            format_ms(fct["p99"]),
            format_factor(slowdown["p99"]),
            format_ms(transfers["last_end_ms"]),
            format_ms(transfers["ideal_last_end_ms"]),
        ]
    ]
    return table(["transfers", "bytes", "FCT p50", "p99", "slowdown p99", "last end", "ideal"], rows)


def _requests_block(summary: Mapping[str, Any]) -> list[str]:
    """Return the table of decode hosts and a line of what the hand-over did; nothing without requests."""
    rows = [
        [
            bar.name,
            f"{bar.count}",
            *(format_ms(bar.ttft_ms[point]) for point in ("p50", "p95", "p99")),
            *(format_ms(part.mean_ms) for part in bar.parts),
        ]
        for bar in bars(summary)
    ]
    if not rows:
        return []
    requests = summary["requests"]
    alone, measured, slo = requests["isolated_ms"], requests["contended_ms"], requests["slo"]
    lines = [
        f"{requests['connector']}, {requests['placement']}: "
        f"{format_percent(requests['exposed_share'])} of TTFT is exposed hand-over",
        f"hand-over p50 {format_ms(measured['p50'])}, alone {format_ms(alone['p50'])}; "
        f"p99 {format_ms(measured['p99'])}, alone {format_ms(alone['p99'])}",
    ]
    if requests["jain"] is not None:
        lines.append(f"Jain's index {requests['jain']:.3f}")
    if slo:
        lines[-1] += f"; {format_percent(slo['attained'])} within {format_ms(slo['ttft_ms'])}"
    if scaled := scaled_words(summary):
        lines += textwrap.wrap(f"scaled: {scaled}", WIDTH - 2)
    head = ["TTFT", "n", "p50", "p95", "p99", "wait", "prefill", "KV", "landing", "admit", "step"]
    return [*narrow(head, rows), *(f"  {line}" for line in lines), ""]


def narrow(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table with one blank between columns where two would be too wide."""
    lines = table(head, rows)
    return lines if max(map(len, lines)) <= WIDTH else table(head, rows, gap=" ")


def _stretches(summary: Mapping[str, Any]) -> list[str]:
    rows = []
    for segment in SEGMENTS:
        links = {name: link for name, link in summary["links"].items() if link["segment"] == segment}
        if not links:
            continue
        worst = worst_link(links, summary["verdict"]) or next(iter(links))
        means = [link["utilisation"]["mean"] or 0.0 for link in links.values()]
        rows.append(
            [
                segment,
                format_percent(summary["verdict"]["shares"].get(segment)),
                worst,
                format_bytes(links[worst]["queue_bytes"]["max"]),
                format_percent(links[worst]["utilisation"]["mean"]),
                format_percent(sum(means) / len(means)),
                format_count(_total(links, "ce_marks")),
                format_count(_total(links, "drops")),
            ]
        )
    rows.append(["sender", format_percent(summary["verdict"]["shares"].get("sender")), *[""] * 6])
    head = ["stretch", "lost", "worst link", "queue", "its use", "all", "marks", "drops"]
    return [*table(head, rows), ALL_LINKS]


def _roce(roce: Mapping[str, Any] | None) -> list[str]:
    """Return what a RoCE run says beside the stretches."""
    if roce is None:
        return []
    counts = f"{format_count(roce['packets_sent'])} packets, {format_count(roce['ce_packets'])} came marked"
    lines = [
        f"  RoCE        {counts}, {format_count(roce['cnps_sent'])} CNPs, {format_count(roce['naks'])} NAKs, "
        f"{format_count(roce['timeouts'])} timeouts"
    ]
    first = roce["first_cnp"]
    if first["at_ms"] is not None:
        share, queued = format_percent(first["queued_share"]), format_bytes(first["queued_bytes"])
        lines.append(
            f"  first CNP   after {format_ms(first['at_ms'])}; {queued}, {share} of all bytes, "
            f"stood at {first['queue']}"
        )
    return [*lines, ""]


def _total(links: Mapping[str, Mapping[str, Any]], counter: str) -> int | None:
    """Return the sum of a counter, None where a link's is not known."""
    counts = [link[counter] for link in links.values()]
    return None if None in counts else sum(counts)


def _paused(pauses: Mapping[str, Any]) -> list[str]:
    """Say who was paused; nothing in a fabric that drops."""
    text = sentence(pauses)
    return textwrap.wrap(text, WIDTH - 2, initial_indent="  paused      ", subsequent_indent=" " * 14)


def _pfc_risk(xoff: Mapping[str, Any] | None) -> list[str]:
    """Say how often PFC would have paused somebody; nothing where no queue watches XOFF."""
    if xoff is None:
        return []
    if not xoff["crossings"]:
        return ["  PFC risk    none: no queue reached XOFF"]
    where = xoff["link"] if xoff["links"] == 1 else f"{xoff['links']} links, first {xoff['link']},"
    times = f"{format_count(xoff['crossings'])} time{'s' if xoff['crossings'] > 1 else ''}"
    above = f"{format_ms(xoff['total_ms'])} above, {format_ms(xoff['longest_ms'])} at a stretch"
    text = f"{where} crossed XOFF {times}: {above}"
    return textwrap.wrap(text, WIDTH - 2, initial_indent="  PFC risk    ", subsequent_indent=" " * 14)


def _fidelity(fidelity: Mapping[str, Any]) -> list[str]:
    if fidelity["valid"]:
        return [f"  valid       {len(fidelity['checks'])} checks of the measurement passed"]
    lines = []
    for reason in fidelity["reasons"]:
        lines += textwrap.wrap(reason, WIDTH - 2, initial_indent="  NOT VALID   ", subsequent_indent=" " * 14)
    return lines
