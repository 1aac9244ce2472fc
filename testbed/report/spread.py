"""The page of several seeds: each figure's median, interval and every seed's value as a dot.

One HTML file without scripts, in the report's look. Called by `testbed run --seeds`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from markupsafe import Markup

from testbed.report.numbers import significant
from testbed.report.svg import drawing, element, title

WIDTH, HEIGHT = 400, 24
HEAD = ("figure", "median", "interval", "least", "largest", "each seed")


def spread_page(spread: Mapping[str, Any]) -> str:
    """Return the page of a spread as `testbed.repeat.spread.Seeds.as_json` gives it."""
    style = resources.files("testbed.report").joinpath("report.css").read_text(encoding="utf-8")
    seeds = spread["seeds"]
    named = ", ".join(f"{name} in {count}" for name, count in spread["verdicts"].items())
    rows = Markup("").join(_row(figure, seeds) for figure in spread["figures"])
    head = Markup("").join(element("th", Markup.escape(name)) for name in HEAD)
    words = Markup(
        "<p>Seeds {} to {}. The verdict names {}.</p><p>The interval holds the median of all seeds "
        "with the confidence that stands beside it (order statistics).</p>"
    ).format(min(seeds), max(seeds), named)
    invalid = spread["not_valid"]
    if invalid:
        words += Markup('<p class="alert">Not valid: seeds {}.</p>').format(", ".join(map(str, invalid)))
    body = Markup("<h1>{}: {} seeds</h1>{}<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(
        spread["scenario"], len(seeds), words, head, rows
    )
    return str(
        Markup(
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{}</title>'
            "<style>{}</style></head><body>{}</body></html>\n"
        ).format(f"{spread['scenario']}, {len(seeds)} seeds", Markup(style), body)
    )


def _row(figure: Mapping[str, Any], seeds: Sequence[int]) -> Markup:
    values = figure["values"]
    interval = f"{significant(figure['low'])} to {significant(figure['high'])}"
    cells = [
        figure["figure"],
        significant(figure["median"]),
        f"{interval} ({100 * figure['confidence']:.3g} %)",
        significant(min(values)),
        significant(max(values)),
    ]
    texts = Markup("").join(element("td", Markup.escape(cell)) for cell in cells)
    return element("tr", texts, element("td", _dots(figure, seeds)))


def _dots(figure: Mapping[str, Any], seeds: Sequence[int]) -> Markup:
    """Draw every seed's value from the least to the largest, the interval as a bar behind them."""
    values = figure["values"]
    least, most = min(values), max(values)

    def at(value: float) -> float:
        return round(10 + (WIDTH - 20) * ((value - least) / (most - least) if most > least else 0.5), 1)

    low, high = at(figure["low"]), at(figure["high"])
    bar = element("rect", x=low, y=6, width=max(high - low, 1), height=12, fill="var(--rule)")
    line = element("rect", x=at(figure["median"]) - 1, y=2, width=2, height=20, fill="var(--accent)")
    dots = [
        element("circle", title(f"seed {seed}: {value:g}"), cx=at(value), cy=12, r=3, fill="var(--soft)")
        for seed, value in zip(seeds, values, strict=False)
    ]
    label = f"{figure['figure']}: {significant(least)} to {significant(most)}"
    return drawing(WIDTH, HEIGHT, label, bar, line, *dots, style=f"width:{WIDTH}px;height:{HEIGHT}px")
