"""Charts of a comparison or a sweep as one SVG file, for a README: sharp, light and dark, without a page."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from markupsafe import Markup

from testbed.regress.compare_page import Figure
from testbed.regress.plots import HEIGHT, WIDTH
from testbed.report import svg

HEAD = 56
NAME = 210
"""Heights and widths of what stands above the charts."""

SHOWN = 2
"""So many charts stand side by side."""

_RULES = (
    "text { font: 12px system-ui, sans-serif; } .paper { fill: var(--page); } "
    ".head { font-size: 15px; font-weight: 600; }"
)


def picture(figures: Sequence[Figure], names: Sequence[str], label: str) -> str:
    """Return the SVG document of the first figures; `names` are those of the series that they all have."""
    shown = figures[:SHOWN]
    width, height = WIDTH * len(shown), HEIGHT + HEAD
    parts = [svg.element("rect", width=width, height=height, class_="paper")]
    for number, figure in enumerate(shown):
        inner = svg.element("svg", figure.drawing, x=number * WIDTH, y=HEAD, width=WIDTH, height=HEIGHT)
        parts += [_text(figure.title, number * WIDTH + 20, 24, "head"), inner]
    for number, name in enumerate(names):
        at = 20 + number * NAME
        line = svg.element("path", d=f"M{at} 42h24", class_="line")
        parts.append(svg.element("g", line, _text(name, at + 32, 46, "title"), class_=f"s{number} chart"))
    style = svg.element("style", Markup(_style()))
    whole = svg.element(
        "svg", style, *parts, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}",
        role="img", aria_label=label,
    )  # fmt: skip
    return f"{whole}\n"


def _style() -> str:
    """Return the colours of the report and the rules of charts; what speaks of pages is left out."""
    report = resources.files("testbed.report").joinpath("report.css").read_text(encoding="utf-8")
    own = resources.files("testbed.regress").joinpath("regress.css").read_text(encoding="utf-8")
    colours = report[report.index(":root {") : report.index("* { box-sizing")]
    charts = [line for line in own.splitlines() if line.startswith((".s", ".chart "))]
    return "\n".join([colours, "svg path { fill: none; }", *charts, _RULES])


def _text(words: str, x: float, y: float, kind: str) -> Markup:
    return svg.element("text", Markup("{}").format(words), x=x, y=y, class_=kind, fill="var(--text)")
