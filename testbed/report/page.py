"""The report: one HTML file that a browser opens without a network, made from a record.

Collects what the other modules of this package prepare and fills the template; it computes no result of its
own (`testbed.analysis` does). Called by the command line, after a run and for `testbed report`.

The page's content policy allows no request of any kind and no script but the page's own, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from testbed.analysis import TransferLoss
from testbed.record import layout
from testbed.record.files import write_whole
from testbed.record.reader import Record
from testbed.report import (
    chain,
    follow,
    headline,
    heatmap,
    linkchart,
    links,
    numbers,
    pauses,
    requests,
    settings,
    stretches,
    transfers,
)
from topologies.model import SEGMENTS

TEMPLATE = "report.html.j2"
STYLE = "report.css"
SCRIPT = "report.js"

_FORMATS = {
    "bytes": numbers.format_bytes,
    "count": numbers.format_count,
    "factor": numbers.format_factor,
    "ms": numbers.format_ms,
    "ns": numbers.format_ns,
    "percent": numbers.format_percent,
    "rate": numbers.format_rate,
}


def write_report(record: Record, summary: Mapping[str, Any], losses: Sequence[TransferLoss]) -> Path:
    """Write `report.html` into the record's directory and return its path; see `render_report`.

    The file appears complete or not at all.
    """
    target = record.path / layout.REPORT
    write_whole(target, render_report(record, summary, losses))
    return target


def render_report(record: Record, summary: Mapping[str, Any], losses: Sequence[TransferLoss]) -> str:
    """Return the page of a record as HTML.

    `summary` is the document of `summary.json`, in scenario milliseconds, bytes and fractions. `losses` may
    be empty: bars then have one colour.
    """
    window, groups = links.group_links(record, summary)
    rows = transfers.transfer_rows(record, losses)
    followed = follow.follow(rows, losses)
    script = _asset(SCRIPT)
    return _template().render(
        style=Markup(_asset(STYLE)),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        record=record,
        plan=record.plan,
        summary=summary,
        fidelity=headline.fidelity(summary),
        figures=headline.figures(summary),
        stretches=stretches.stretches(summary),
        verdict_text=_spaced(summary["verdict"]["text"]),
        lost_ns=sum(amount for row in rows for amount in row.lost_ns.values()),
        ideal_ns=sum(row.transfer.ideal_ns for row in rows if row.fct_ns is not None),
        window=window,
        ticks=links.time_ticks(window),
        groups=groups,
        charted={row.link.name for group in groups for row in (*group.loaded, *group.quiet)},
        sizes=linkchart,
        pause_text=pauses.sentence(summary["pauses"]),
        pause_rows=pauses.rows(summary),
        timeline=transfers.draw_timeline(rows, window),
        cdf=transfers.draw_cdf(rows),
        slowest=transfers.slowest(rows),
        naive=_spaced(summary["verdict"].get("naive", {}).get("text", "")),
        chain=chain.chain(record, summary),
        places=stretches.PLACE,
        followed=followed,
        followed_ids={one.row.transfer.id for one in followed},
        heatmap=heatmap.heatmap(summary),
        by_decode=transfers.decode_rows(summary),
        ttft_bars=requests.bars(summary),
        ttft_parts=requests.PARTS,
        scaled=requests.scaled_words(summary),
        tables=(*settings.setting_tables(record.plan), settings.environment_table(record.environment)),
        queues=settings.queue_kinds(record.plan),
        table=_table(summary),
        segments=SEGMENTS,
        formats=_FORMATS,
        checks=summary["fidelity"].get("checks", ()),
    )


def _spaced(text: str) -> str:
    """Keep a percent sign on the line of its number."""
    return text.replace(" %", f"{numbers.UNIT_SPACE}%")


def _table(summary: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return all links with their figures, worst first."""
    return sorted(summary["links"].items(), key=lambda entry: links.badness(entry[1]), reverse=True)


@cache
def _asset(name: str) -> str:
    return resources.files("testbed.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _template() -> jinja2.Template:
    """Prepare the template: all text is escaped, and a name it does not know is an error."""
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= _FORMATS
    return environment.from_string(_asset(TEMPLATE))
