"""The whole page, made from synthetic records with a known culprit."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.analysis import summarise, transfer_losses
from testbed.record import layout
from testbed.record.reader import Record
from testbed.report import render_report, write_report
from testbed.report.links import group_links
from testbed.report.settings import queue_kinds
from testbed.report.stretches import stretches
from tests.support import synthetic

VOID = {"meta", "input", "br", "link", "img"}


class Outline(HTMLParser):
    """Collects what a browser would build, and notes tags that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.faults: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[tuple[str, str]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("h1", "h2", "h3"):
            self.headings.append((tag, ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self.open and self.open[-1] in ("h1", "h2", "h3"):
            tag, before = self.headings[-1]
            self.headings[-1] = (tag, before + data)


def outline(page: str) -> Outline:
    parsed = Outline()
    parsed.feed(page)
    parsed.close()
    return parsed


@pytest.fixture(scope="module")
def incast(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return Record.open(synthetic.write_record(tmp_path_factory.mktemp("incast"), synthetic.incast()))


def page_of(record: Record, summary: dict[str, Any] | None = None) -> str:
    return render_report(record, summary or summarise(record), transfer_losses(record))


def test_the_page_is_well_formed_and_has_its_parts_in_order(incast: Record) -> None:
    parsed = outline(page_of(incast))
    assert parsed.faults == []
    assert parsed.open == []
    assert [text for tag, text in parsed.headings if tag == "h2"] == [
        "Where the time was lost",
        "What happened when",
        "Queues and utilisation",
        "Application",
        "All links",
        "Settings",
    ]
    verdict = summarise(incast)["verdict"]["text"].replace(" %", "\N{NO-BREAK SPACE}%")
    assert [text for tag, text in parsed.headings if tag == "h1"] == [verdict]


def test_the_page_asks_for_nothing_and_runs_only_its_own_script(incast: Record) -> None:
    page = page_of(incast)
    parsed = outline(page)
    assert [tag for tag, attributes in parsed.tags if "src" in attributes] == []
    assert {attributes["href"][0] for _, attributes in parsed.tags if attributes.get("href")} == {"#"}
    assert "url(" not in page
    assert "@import" not in page
    script = re.search(r"<script>(.*)</script>", page, re.DOTALL)
    assert script
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert [a["content"] for t, a in parsed.tags if a.get("http-equiv") == "Content-Security-Policy"] == [
        policy
    ]


def test_without_its_script_the_page_still_has_charts_and_tables(incast: Record) -> None:
    page = re.sub(r"<script>.*</script>", "", page_of(incast), flags=re.DOTALL)
    parsed = outline(page)
    labels = [a["aria-label"] for tag, a in parsed.tags if tag == "svg" and a.get("role") == "img"]
    assert "Queue of leaf3-d1: peak 195\N{NO-BREAK SPACE}kB at" in " ".join(label or "" for label in labels)
    assert [a for tag, a in parsed.tags if tag == "div" and a.get("class") == "tools"] == [
        {"class": "tools", "hidden": None}
    ]
    assert all(a.get("scope") for tag, a in parsed.tags if tag == "th")


def test_every_link_has_a_row_in_the_table_and_every_used_one_a_chart(incast: Record) -> None:
    page = page_of(incast)
    parsed = outline(page)
    links = summarise(incast)["links"]
    assert [page.count(f'<tr><th scope="row">{name}</th>') for name in links] == [1] * 30
    used = {name for name, figures in links.items() if figures["bytes"]}
    assert {a["data-link"] for _, a in parsed.tags if "data-link" in a} == used
    assert len([a for tag, a in parsed.tags if a.get("data-kind") == "queue"]) == len(used)
    assert "Carried nothing: leaf1-p1, leaf1-p2," in page


def test_loaded_links_are_open_and_quiet_ones_folded(incast: Record) -> None:
    _, groups = group_links(incast, summarise(incast))
    assert [group.segment for group in groups] == ["source-rail", "source-leaf", "spine", "dest-leaf"]
    assert [row.link.name for group in groups for row in group.loaded if row.opened] == ["leaf3-d1"]
    assert sum(len(group.quiet) + len(group.idle) for group in groups) == len(incast.plan.topology.links) - 1


def test_the_link_that_the_verdict_names_comes_first_among_equals(tmp_path: Path) -> None:
    record = Record.open(synthetic.write_record(tmp_path, synthetic.CASES["two-culprits"]()))
    summary = summarise(record)
    opened = [row.link.name for row in group_links(record, summary)[1][0].loaded if row.opened]
    assert (opened[0], len(opened)) == ("p4g1-p4", 3)
    others = [part | {"link": "p6g1-p6"} for part in summary["verdict"]["culprits"][:1]]
    other = summary | {"verdict": summary["verdict"] | {"culprits": others}}
    assert group_links(record, other)[1][0].loaded[0].link.name == "p6g1-p6"


def test_a_stretch_shows_its_peak_beside_the_mean_that_hides_it(incast: Record) -> None:
    parts = {part.segment: part for part in stretches(summarise(incast))}
    assert list(parts) == ["source-rail", "source-leaf", "spine", "dest-leaf", "dest-landing", "sender"]
    accused = parts["dest-leaf"]
    assert accused.accused
    assert accused.worst == "leaf3-d1"
    assert accused.utilisation is not None
    assert accused.queue is not None
    assert accused.utilisation.peak == pytest.approx(1.0, abs=0.001)
    assert accused.utilisation.mean == pytest.approx(1 / 9, rel=0.01)  # one of nine downlinks carries it all
    assert accused.queue.peak_bar == 1.0
    assert parts["dest-landing"].worst is None


def test_the_link_that_the_verdict_names_is_shown_as_the_worst_of_its_stretch(incast: Record) -> None:
    summary = summarise(incast)
    summary["verdict"]["link"] = "leaf1-p1"
    assert [part.worst for part in stretches(summary) if part.segment == "dest-leaf"] == ["leaf1-p1"]


def test_a_baseline_accuses_nobody(tmp_path: Path) -> None:
    record = Record.open(synthetic.write_record(tmp_path, synthetic.baseline()))
    parsed = outline(page_of(record))
    assert [a.get("class") for tag, a in parsed.tags if tag == "h1"] == [None]
    assert not any("accused" in (a.get("class") or "").split() for _, a in parsed.tags)


@pytest.mark.parametrize("name", sorted(synthetic.CASES))
def test_every_kind_of_run_makes_a_page(name: str, tmp_path: Path) -> None:
    record = Record.open(synthetic.write_record(tmp_path, synthetic.CASES[name]()))
    assert outline(page_of(record)).faults == []


def test_text_of_a_scenario_never_becomes_markup(tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)>\"'</script><script>alert(2)</script>"
    record = Record.open(synthetic.write_record(tmp_path, synthetic.incast()))
    # No record of such names is read; the page does not rely on that.
    names = {"scenario": hostile, "description": hostile, "expectations": (hostile,), "framework": hostile}
    record = replace(record, plan=replace(record.plan, **names))
    summary = summarise(record)
    summary["verdict"]["text"] = hostile
    summary["fidelity"] = {
        "valid": False,
        "reasons": [hostile],
        "checks": [{"name": hostile, "ok": False, "detail": hostile}],
    }
    parsed = outline(page_of(record, summary))
    assert parsed.faults == []
    assert [tag for tag, _ in parsed.tags if tag in ("img", "script")] == ["script"]
    assert "".join(parsed.text).count(hostile) == 10  # each place that shows it, once


def test_an_invalid_measurement_says_so_before_any_number(incast: Record) -> None:
    summary = summarise(incast)
    summary["fidelity"] = {"valid": False, "reasons": ["samples came late"]}
    page = page_of(incast, summary)
    assert "Not valid: do not rely on the numbers of this page." in page
    assert page.index("<li>samples came late</li>") < page.index('<dl class="figures">')
    assert "Valid: every check" in page_of(incast)


def test_transfers_that_did_not_complete_are_named(tmp_path: Path) -> None:
    folder = synthetic.write_record(tmp_path, synthetic.incast())

    def cut(outcomes: list[dict[str, Any]]) -> None:
        outcomes[3] |= {"end_ns": None, "error": "connection reset"}

    synthetic.edit_json(folder, layout.OUTCOMES, cut)
    page = page_of(Record.open(folder))
    assert "1 of 8 did not complete" in page
    assert page.count('<td colspan="3" class="alert">connection reset</td>') == 1
    assert page.count('<rect class="unfinished"') == 1


def test_a_record_without_samples_or_outcomes_still_makes_a_page(tmp_path: Path) -> None:
    folder = synthetic.write_record(tmp_path, synthetic.incast(), layout.FAILED, "the lab did not come up")
    for name in (
        *(folder / layout.RAW).glob("samples-*"),
        folder / layout.OUTCOMES,
        folder / layout.PROGRESS,
    ):
        name.unlink()
    page = page_of(Record.open(folder))
    parsed = outline(page)
    assert parsed.faults == []
    assert "This link was not sampled." in page
    assert "No transfer completed." in page
    assert "The record itself has faults:" in page


def test_queues_that_are_alike_share_a_row(incast: Record) -> None:
    kinds = queue_kinds(incast.plan)
    assert [kind.segment for kind in kinds] == ["source-rail", "source-leaf", "spine", "dest-leaf"]
    assert sum(len(kind.links) for kind in kinds) == len(incast.plan.queues)
    assert kinds[1].names == "leaf1-spine1, leaf1-spine2, leaf2-spine1, leaf2-spine2 and 2 more"


def test_versions_and_times_of_the_machine_are_shown(incast: Record) -> None:
    page = page_of(incast)
    assert '<tr><th scope="row">wall_clock.boot_s</th><td>1.5</td></tr>' in page
    assert '<tr><th scope="row">versions.testbed</th><td>0</td></tr>' in page


def test_the_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = synthetic.write_record(tmp_path, synthetic.incast())
    record = Record.open(folder)
    summary, losses = summarise(record), transfer_losses(record)
    path = write_report(record, summary, losses)
    assert path == folder / "report.html"
    before = path.read_text(encoding="utf-8")
    assert before.endswith("</html>\n")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OSError, match="No space left on device"):
        write_report(record, summary, losses)
    assert path.read_text(encoding="utf-8") == before
    assert list(folder.glob("report.html*")) == [path]


def test_the_page_is_the_same_each_time(incast: Record) -> None:
    assert page_of(incast) == page_of(incast)


def noisy_samples(folder: Path, rows: int) -> None:
    """Give every link `rows` samples of noise over the run's time, with a spike in one of them."""
    generator = np.random.default_rng(7)
    for group in (layout.FABRIC, layout.HOSTS):
        header = json.loads((folder / layout.samples_header(group)).read_text())
        table = np.empty((rows, layout.sample_columns(len(header["links"]))), dtype="<i8")
        table[:, 0] = np.linspace(-200_000, 11_100_000, rows)
        for number in range(len(header["links"])):
            column = 1 + 5 * number
            table[:, column] = generator.integers(0, 400_000, rows)
            table[:, column + 1] = np.cumsum(generator.integers(0, 2 * 12_500 * 11_300 // rows, rows))
            table[:, column + 2] = table[:, column + 1] // 4214
            table[:, column + 3] = np.cumsum(generator.random(rows) < 0.01)
            table[:, column + 4] = np.cumsum(generator.random(rows) < 0.3)
        table.tofile(folder / layout.samples_rows(group))
        synthetic.edit_json(folder, layout.samples_header(group), lambda value: value | {"rows": rows})


def test_thirty_links_of_noise_stay_below_a_megabyte(tmp_path: Path) -> None:
    folder = synthetic.write_record(tmp_path, synthetic.incast())
    noisy_samples(folder, 40_000)
    record = Record.open(folder)
    assert len(record.link_names) == 30
    window, groups = group_links(record, summarise(record))
    assert sum(len(group.loaded) for group in groups) == 30
    assert window.bins == 566
    page = page_of(record)
    assert len(page.encode()) < 1_000_000


@pytest.mark.timeout(60)
def test_a_million_samples_take_seconds(tmp_path: Path) -> None:
    folder = synthetic.write_record(tmp_path, synthetic.incast())
    noisy_samples(folder, 35_000)  # times 30 links
    record = Record.open(folder)
    summary, losses = summarise(record), transfer_losses(record)
    begun = time.process_time()
    render_report(record, summary, losses)
    # About 0.6 s where it was written; a floor for slow machines, not a benchmark.
    assert time.process_time() - begun < 10
