"""The summary of a record, and the two files made from it.

`summary.json` and the tables depend on the record alone, not on the machine: the same record gives the
same bytes. Called by the command line after a run, by the report and by the checks.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.analysis.blame import limiting_links
from testbed.analysis.events import events
from testbed.analysis.fidelity import fidelity
from testbed.analysis.links import fabric_utilisation, summarise_links
from testbed.analysis.losses import SENDER, TransferLoss, off_path, transfer_losses
from testbed.analysis.nics import nic_use
from testbed.analysis.pauses import summarise_pauses
from testbed.analysis.requests import (
    requests_csv,
    requests_of,
    summarise_request_ttft,
    summarise_requests,
)
from testbed.analysis.roce import summarise_roce
from testbed.analysis.stats import NS_PER_MS, rounded
from testbed.analysis.transfers import summarise_transfers, summarise_ttft
from testbed.analysis.verdict import verdict
from testbed.analysis.workload import summarise_workload
from testbed.plan.model import Transfer
from testbed.record import layout
from testbed.record.files import write_whole
from testbed.record.outcomes import Outcome
from testbed.record.reader import Record
from testbed.screen import cell
from topologies.model import SEGMENTS

FORMAT_VERSION = 1

_LOSS_COLUMNS = tuple(f"lost_{name.replace('-', '_')}_ms" for name in (*SEGMENTS, SENDER))
TRANSFER_COLUMNS = (
    "id", "src", "dst", "bytes", "start_ms", "first_byte_ms", "end_ms", "fct_ms", "ideal_ms", "slowdown",
    "lost_ms", "unavoidable_ms", *_LOSS_COLUMNS, "path", "congestion_control", "retransmissions", "error",
)  # fmt: skip
"""Columns of `transfers.csv`. What is not known is empty; `path` has its links separated by blanks."""


def summarise(record: Record) -> dict[str, Any]:
    """Return the contents of `summary.json`: times in scenario milliseconds, floats to 9 significant
    digits."""
    return _summary(record, transfer_losses(record))


def write_outputs(record: Record, losses: Sequence[TransferLoss] | None = None) -> dict[str, Any]:
    """Write `summary.json`, `transfers.csv` and, with a serving engine, `requests.csv` into the record's
    directory and return the summary. `losses` are the record's, where somebody has them already.

    Each file appears whole or not at all. OSError when the directory cannot be written.
    """
    losses = transfer_losses(record) if losses is None else losses
    summary = _summary(record, losses)
    text = json.dumps(summary, indent=2, sort_keys=True, allow_nan=False) + "\n"
    write_whole(record.path / layout.SUMMARY, text)
    write_whole(record.path / layout.TRANSFERS, transfers_csv(record, losses))
    if record.plan.serving is not None:
        table = requests_csv(record, requests_of(record, losses))
        write_whole(record.path / layout.REQUESTS_TABLE, table)
    return summary


def transfers_csv(record: Record, losses: Sequence[TransferLoss]) -> str:
    """Return a line for each transfer of the plan, in its order, under a line of column names."""
    by_id = {loss.id: loss for loss in losses}
    lines = io.StringIO()
    writer = csv.DictWriter(lines, TRANSFER_COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for transfer, outcome in zip(record.plan.transfers, record.outcomes, strict=True):
        path = " ".join(record.paths.get(transfer.id) or ())
        row = {**_basics(transfer, outcome), **_loss_fields(by_id.get(transfer.id)), "path": path}
        writer.writerow({name: cell(value) for name, value in row.items()})
    return lines.getvalue()


def _summary(record: Record, losses: Sequence[TransferLoss]) -> dict[str, Any]:
    plan = record.plan
    transfers, links = summarise_transfers(record), summarise_links(record)
    for name, entry in links.items():
        entry["lost_ms"] = math.fsum(loss.by_link.get(name, 0.0) for loss in losses) / NS_PER_MS
    cables = {link.name for link in plan.topology.links}
    fabric: dict[str, Any] = {
        "utilisation": fabric_utilisation(links),
        "limiting_links": limiting_links(losses, record.paths),
    }
    if nics := nic_use(plan.topology, links):
        fabric["nics"] = nics
    requests = requests_of(record, losses)
    judged = verdict(losses, links, fabric, transfers["slowdown"], cables)
    summary: dict[str, Any] = rounded(
        {
            "format_version": FORMAT_VERSION,
            "scenario": plan.scenario,
            "seed": plan.seed,
            "backend": plan.backend,
            "clock": plan.clock,
            "dilation": plan.dilation,
            "transfers": transfers,
            "ttft_ms": summarise_request_ttft(record, requests) if plan.serving else summarise_ttft(record),
            **({"requests": summarise_requests(record, requests)} if plan.serving else {}),
            **summarise_workload(plan),
            "links": links,
            "fabric": fabric,
            "pauses": summarise_pauses(record, off_path(record, losses)),
            "verdict": judged,
            "roce": summarise_roce(record),
            "events": events(record, losses, judged["link"]),
            "fidelity": fidelity(record),
        }
    )
    return summary


def _basics(transfer: Transfer, outcome: Outcome) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": transfer.id,
        "src": transfer.src,
        "dst": transfer.dst,
        "bytes": transfer.bytes,
        "start_ms": _ms(outcome.start_ns),
        "first_byte_ms": _ms(outcome.first_byte_ns),
        "end_ms": _ms(outcome.end_ns),
        "ideal_ms": _ms(transfer.ideal_ns),
        "congestion_control": outcome.sender_congestion_control or "",
        "retransmissions": outcome.retransmissions,
        "error": outcome.error or "",
    }
    return fields


def _loss_fields(loss: TransferLoss | None) -> Mapping[str, str]:
    if loss is None:
        return {}
    parts = [loss.by_segment[name] for name in (*SEGMENTS, SENDER)]
    return {
        "fct_ms": _ms(loss.fct_ns),
        "slowdown": f"{loss.fct_ns / loss.ideal_ns:.6f}",
        "lost_ms": _ms(loss.lost_ns),
        "unavoidable_ms": _ms(loss.unavoidable_ns),
        **{name: _ms(part) for name, part in zip(_LOSS_COLUMNS, parts, strict=True)},
    }


def _ms(time_ns: float | None) -> str:
    return "" if time_ns is None else f"{time_ns / NS_PER_MS:.6f}"
