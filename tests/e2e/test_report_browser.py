"""The report in a real browser: no console error, no request, and hover, zoom, choice and sorting work.

Chromium is driven by its command line alone. Where an action is needed, a copy of the page without its
content policy gets a script that acts as a person would and leaves what it saw in the document.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis import summarise, transfer_losses
from testbed.record.reader import Record
from testbed.report import write_report
from tests.support import synthetic

PACKAGE = "chromium"
OPTIONS = (
    "--headless",
    "--no-sandbox",  # the sandbox refuses root, which CI often is
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--hide-scrollbars",
    "--virtual-time-budget=2000",
)
TIME_LIMIT_S = 90
CONSOLE = re.compile(r"INFO:CONSOLE.*\"(.*)\"")

ACT = """
const said = {};
const box = (node) => node.getBoundingClientRect();
const at = (node, kind, share) => node.dispatchEvent(new PointerEvent(kind, {
  bubbles: true, pointerId: 1, pointerType: "mouse", button: 0,
  clientX: box(node).left + share * box(node).width, clientY: box(node).top + 2 }));
Element.prototype.setPointerCapture = () => {};   // there is no real pointer to capture
"""


def browse(page: Path, profile: Path, *options: str) -> tuple[str, list[str]]:
    """Open a page; return the document as it is afterwards and the lines of its console."""
    browser = shutil.which(PACKAGE) or shutil.which("chromium-browser")
    if browser is None:
        pytest.fail(f"the browser is missing: install the package {PACKAGE}")
    command = [browser, *OPTIONS, f"--user-data-dir={profile}", "--dump-dom", *options, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=True)
    return done.stdout, CONSOLE.findall(done.stderr)


def act(page: Path, folder: Path, script: str, *options: str) -> dict[str, Any]:
    """Run `script` in a copy of the page; return what it put into `said`."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text(encoding="utf-8"))
    report = "document.body.setAttribute('data-said', JSON.stringify(said));"
    copy = folder / "acted.html"
    copy.write_text(text.replace("</body>", f"<script>{{{ACT}{script}\n{report}}}</script></body>"), "utf-8")
    document, console = browse(copy, folder / "profile", *options)
    assert console == []
    found = re.search(r'data-said="([^"]*)"', document)
    assert found, "the script did not reach its end"
    said: dict[str, Any] = json.loads(html.unescape(found[1]))
    return said


@pytest.fixture(scope="module")
def incast(tmp_path_factory: pytest.TempPathFactory) -> Path:
    record = Record.open(synthetic.write_record(tmp_path_factory.mktemp("incast"), synthetic.incast()))
    return write_report(record, summarise(record), transfer_losses(record))


def test_the_page_as_written_runs_without_a_console_line(incast: Path, tmp_path: Path) -> None:
    document, console = browse(incast, tmp_path)
    assert console == []
    assert '<div class="tools">' in document  # the script ran to its end: it shows the tools last


def test_a_script_that_is_not_the_page_s_own_does_not_run(incast: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.html"
    text = incast.read_text(encoding="utf-8")
    foreign.write_text(text.replace("</body>", "<script>document.title = 'ran'</script></body>"), "utf-8")
    document, console = browse(foreign, tmp_path / "profile")
    assert "<title>incast, seed 1: testbed report</title>" in document
    assert len(console) == 1
    assert "violates the following Content Security Policy directive" in console[0]


def test_the_page_requests_nothing(incast: Path, tmp_path: Path) -> None:
    said = act(incast, tmp_path, "said.n = performance.getEntriesByType('resource').length;")
    assert said == {"n": 0}


def test_hover_reads_out_the_values_that_were_measured(incast: Path, tmp_path: Path) -> None:
    said = act(
        incast,
        tmp_path,
        """
        const link = document.querySelector('[data-link="leaf3-d1"]');
        at(link.querySelector(".plot"), "pointermove", 0.5);
        said.readout = link.querySelector("[data-readout]").textContent;
        said.time = document.querySelector('[data-tool="time"]').textContent;
        said.cursor = document.getElementById("report").style.getPropertyValue("--cursor");
        """,
    )
    # The toy's queue swings between 105 and 195 kB, a quarter of its packets is marked.
    pattern = r"5\.4\d ms: queue max 1\d\d kB, mean 1\d\d kB; utilisation (99\.\d|100) %; CE \d+; drops 0"
    assert re.fullmatch(pattern, said["readout"]), said["readout"]
    assert said["time"] == said["readout"].split(":")[0]
    assert 49 < float(said["cursor"].rstrip("%")) < 51


def test_dragging_zooms_all_charts_and_a_double_click_shows_the_whole_run(
    incast: Path, tmp_path: Path
) -> None:
    said = act(
        incast,
        tmp_path,
        """
        const plot = document.querySelector('[data-link="leaf3-d1"] .plot');
        const views = () => [...new Set([...document.querySelectorAll(".plot:not([data-own]) svg")]
          .map((svg) => svg.getAttribute("viewBox").split(" ").filter((_, n) => n % 2 === 0).join(" ")))];
        const tool = (name) => document.querySelector(`[data-tool="${name}"]`);
        const range = () => ["from", "to"].map((name) => Number(tool(name).value));
        said.before = views();
        at(plot, "pointerdown", 0.25); at(plot, "pointermove", 0.4);
        said.selecting = document.getElementById("report").className;
        at(plot, "pointerup", 0.5);
        said.zoomed = views();
        said.range = range();
        said.labels = [...document.querySelector("[data-times]").children].map((label) => label.textContent);
        plot.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
        said.after = views();
        document.querySelector('[data-tool="from"]').value = "2";
        document.querySelector('[data-tool="to"]').value = "3";
        document.querySelector('[data-tool="to"]').dispatchEvent(new Event("change"));
        said.typed = range();
        """,
    )
    bins = float(said["before"][0].split()[1])
    assert said["before"] == said["after"] == [f"0 {bins:g}"]
    assert len(said["zoomed"]) == 1
    left, width = map(float, said["zoomed"][0].split())
    assert (left / bins, width / bins) == pytest.approx((0.25, 0.25), abs=0.01)
    assert "selecting" in said["selecting"]
    assert said["range"] == pytest.approx([2.619, 5.456], abs=0.05)
    assert said["labels"][0] == "3 ms"
    assert said["typed"] == pytest.approx([2, 3], abs=0.001)


def test_links_are_chosen_by_name_and_segment(incast: Path, tmp_path: Path) -> None:
    said = act(
        incast,
        tmp_path,
        """
        const shown = () => [...document.querySelectorAll("details.link")]
          .filter((link) => link.offsetParent !== null).map((link) => link.dataset.link);
        const groups = () => [...document.querySelectorAll(".group")].filter((group) => !group.hidden).length;
        const set = (name, kind, value) => {
          const tool = document.querySelector(`[data-tool="${name}"]`);
          tool.value = value; tool.dispatchEvent(new Event(kind));
        };
        set("filter", "input", "spine2-");
        said.named = shown(); said.groups = groups();
        set("filter", "input", "");
        set("segment", "change", "dest-leaf");
        said.segment = shown();
        set("segment", "change", "");
        said.all = groups();
        document.querySelector('[data-tool="fold"]').click();
        said.folded = document.querySelectorAll("details.link[open]").length;
        document.querySelector('[data-tool="open"]').click();
        said.opened = [...document.querySelectorAll("details.link[open]")].map((link) => link.dataset.link);
        """,
    )
    assert said["named"] == ["spine2-leaf3"]
    assert said["groups"] == 1
    assert said["segment"] == ["leaf3-d1"]
    assert said["all"] == 4
    assert said["folded"] == 0
    assert said["opened"] == ["leaf3-d1"]


def test_transfers_are_followed_one_by_one(incast: Path, tmp_path: Path) -> None:
    said = act(
        incast,
        tmp_path,
        """
        const shown = () => [...document.querySelectorAll(".followed")]
          .filter((figure) => figure.offsetParent !== null).map((figure) => figure.id);
        const choice = document.querySelector('[data-follow="choice"]');
        const [slower, faster] = document.querySelectorAll(".chooser button");
        said.visible = choice.offsetParent !== null;
        said.first = shown(); said.disabled = [slower.disabled, faster.disabled];
        choice.value = "6"; choice.dispatchEvent(new Event("change"));
        said.chosen = shown();
        faster.click();
        said.next = [choice.value, shown(), slower.disabled, faster.disabled];
        choice.selectedIndex = 1; choice.dispatchEvent(new Event("change"));
        said.slowest = [slower.disabled, faster.disabled];
        choice.value = ""; choice.dispatchEvent(new Event("change"));
        said.again = shown();
        location.hash = "#transfer-5";
        window.dispatchEvent(new Event("hashchange"));
        said.linked = [choice.value, shown()];
        """,
    )
    assert said == {
        "visible": True,
        "first": ["transfer-0", "transfer-1", "transfer-2"],
        "disabled": [True, False],
        "chosen": ["transfer-6"],
        "next": ["7", ["transfer-7"], False, True],
        "slowest": [True, False],
        "again": ["transfer-0", "transfer-1", "transfer-2"],
        "linked": ["5", ["transfer-5"]],
    }


def test_the_chart_of_moments_and_those_of_single_transfers_keep_their_own_time(
    incast: Path, tmp_path: Path
) -> None:
    said = act(
        incast,
        tmp_path,
        """
        const views = () => [...document.querySelectorAll("[data-own] svg")]
          .map((svg) => svg.getAttribute("viewBox")).join();
        said.before = views();
        const plot = document.querySelector('[data-link="leaf3-d1"] .plot');
        at(plot, "pointerdown", 0.25); at(plot, "pointermove", 0.4); at(plot, "pointerup", 0.5);
        said.after = views();
        """,
    )
    assert said["before"] == said["after"]
    assert len(said["before"].split(",")) == 1 + 1 + 8  # completion, moments, transfers


def test_the_table_sorts_by_number_and_by_name(incast: Path, tmp_path: Path) -> None:
    said = act(
        incast,
        tmp_path,
        """
        const table = [...document.querySelectorAll("[data-sortable]")].pop();
        const heads = [...table.tHead.rows[0].cells];
        const first = () => [...table.tBodies[0].rows].slice(0, 3).map((row) => row.cells[0].textContent);
        heads[3].querySelector("button").click();
        said.bytes = first(); said.sort = heads[3].getAttribute("aria-sort");
        heads[0].querySelector("button").click(); heads[0].querySelector("button").click();
        said.names = first(); said.others = heads.filter((head) => head.hasAttribute("aria-sort")).length;
        """,
    )
    assert said["bytes"][0] == "leaf3-d1"
    assert set(said["bytes"][1:]) == {"spine1-leaf3", "spine2-leaf3"}
    assert said["sort"] == "descending"
    assert said["names"] == ["d1-leaf3", "leaf1-p1", "leaf1-p2"]
    assert said["others"] == 1


def test_everything_can_be_reached_by_keyboard(incast: Path, tmp_path: Path) -> None:
    said = act(
        incast,
        tmp_path,
        """
        said.unreachable = [...document.querySelectorAll("button, input, select, summary, a[href]")]
          .filter((node) => node.tabIndex < 0).length;
        const slider = document.querySelector('[data-tool="cursor"]');
        slider.value = 10; slider.dispatchEvent(new Event("input"));
        said.readout = document.querySelector("[data-readout]").textContent !== "\\u00a0" ||
          document.querySelector("details[open] > [data-readout]").textContent.includes("queue max");
        said.spoken = slider.getAttribute("aria-valuetext");
        const inputs = [...document.querySelectorAll("input, select")];
        said.unnamed = inputs.filter((node) => !node.labels.length).length;
        """,
    )
    assert said["unreachable"] == said["unnamed"] == 0
    assert said["readout"] is True
    assert said["spoken"].endswith("\N{MICRO SIGN}s")


@pytest.mark.parametrize("width", [640, 1366])
def test_the_page_is_never_wider_than_its_window(width: int, incast: Path, tmp_path: Path) -> None:
    said = act(
        incast,
        tmp_path,
        "said.over = document.documentElement.scrollWidth - innerWidth; said.width = innerWidth;",
        f"--window-size={width},900",
    )
    assert said == {"over": 0, "width": width}


def test_a_link_in_the_address_is_opened_where_it_was_folded(incast: Path, tmp_path: Path) -> None:
    said = act(
        incast,
        tmp_path,
        """
        location.hash = "#link-spine1-leaf3";
        window.dispatchEvent(new Event("hashchange"));
        const link = document.querySelector('[data-link="spine1-leaf3"]');
        said.open = link.open; said.seen = link.offsetParent !== null;
        """,
    )
    assert said == {"open": True, "seen": True}
