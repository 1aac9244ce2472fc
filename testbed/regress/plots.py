"""Charts with axes as inline SVG: lines with their spread, steps, and points with a front.

Unlike the report's charts, which are stretched to the page and labelled in HTML, these are drawn to scale
with their words inside. Colours come from the page's style: class `s0` is the first series, and so on.
Called by the pages of the comparison and the sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from testbed.report import svg
from testbed.report.axes import round_ticks

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 88, 18, 12, 48
COLOURS = 6
"""Series beyond so many begin with the first colour again."""

ALIKE = 0.02
"""Values that differ by less of the largest are shown from zero in any case, as what they are: alike."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """Points of one name. `spread` has the lowest and highest y of each; `steps` joins them by steps."""

    name: str
    points: tuple[Point, ...]
    spread: tuple[Point, ...] = ()
    joined: bool = True
    marked: bool = True
    steps: bool = False
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Axis:
    """A title and how to write a value. With `names`, values are 0, 1, ... and stand for these
    words. Not `from_zero`: the axis spans what the values do."""

    title: str
    write: Callable[[float], str]
    names: tuple[str, ...] = ()
    from_zero: bool = True


@dataclass(frozen=True)
class _Scale:
    """Where a value stands along an axis, in pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


def chart(series: Sequence[Series], x: Axis, y: Axis, label: str) -> Markup:
    """Return a chart of all series. `label` is what a reader who cannot see it is told."""
    xs = [point[0] for one in series for point in one.points]
    ys = [
        value
        for one in series
        for point in (*one.points, *((0, high) for _, high in one.spread))
        for value in point[1:]
    ]
    lows = [low for one in series for low, _ in one.spread]
    across = _scale(x, xs, LEFT, WIDTH - RIGHT)
    up = _scale(y, [*ys, *lows], HEIGHT - BOTTOM, TOP)
    drawn = [_series(one, number % COLOURS, across, up) for number, one in enumerate(series)]
    return svg.element(
        "svg", *_frame(x, y, across, up), *drawn,
        viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label, class_="chart",
    )  # fmt: skip


def _scale(axis: Axis, values: Sequence[float], start: float, end: float) -> _Scale:
    if axis.names:
        return _Scale(-0.5, len(axis.names) - 0.5, start, end)
    low, high = min(values, default=0.0), max(values, default=1.0)
    if axis.from_zero or high - low < ALIKE * abs(high):
        return _Scale(min(low, 0.0), (high or 1.0) * 1.06, start, end)
    pad = (high - low) * 0.08
    return _Scale(low - pad, high + pad, start, end)


def _frame(x: Axis, y: Axis, across: _Scale, up: _Scale) -> list[Markup]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [svg.element("path", d=f"M{LEFT} {TOP}V{bottom}H{right}", class_="axis")]
    for value in round_ticks(up.low, up.high, 6):
        at = up.at(value)
        parts += [
            svg.element("path", d=f"M{LEFT} {at}H{right}", class_="grid"),
            _text(y.write(value), LEFT - 8, at + 4, "end"),
        ]
    ticks = (
        list(enumerate(x.names))
        if x.names
        else [(v, x.write(v)) for v in round_ticks(across.low, across.high, 7)]
    )
    for value, word in ticks:
        at = across.at(value)
        parts.append(svg.element("path", d=f"M{at} {bottom}v5", class_="axis"))
        parts.append(_text(word, at, bottom + 19, "middle"))
    middle = (TOP + bottom) / 2
    parts.append(_text(x.title, (LEFT + right) / 2, HEIGHT - 8, "middle", "title"))
    parts.append(_text(y.title, 14, middle, "middle", "title", transform=f"rotate(-90 14 {middle:g})"))
    return parts


def _text(words: str, x: float, y: float, anchor: str, kind: str = "", **more: str) -> Markup:
    text = Markup("{}").format(words)
    return svg.element("text", text, x=x, y=y, text_anchor=anchor, class_=kind or None, **more)


def _series(one: Series, colour: int, across: _Scale, up: _Scale) -> Markup:
    spots = [(across.at(x), up.at(y)) for x, y in one.points]
    parts = []
    if one.joined and len(spots) > 1:
        parts.append(svg.element("path", d=_line(spots, steps=one.steps), class_="line"))
    for (x, _), (low, high) in zip(spots, one.spread, strict=False):
        whisker = f"M{x} {up.at(low)}V{up.at(high)}M{x - 4:g} {up.at(low)}h8M{x - 4:g} {up.at(high)}h8"
        parts.append(svg.element("path", d=whisker, class_="spread"))
    if one.marked:
        for number, (x, y) in enumerate(spots):
            note = one.labels[number] if number < len(one.labels) else one.name
            parts.append(svg.element("circle", svg.title(note), cx=x, cy=y, r=4))
    return svg.element("g", *parts, class_=f"s{colour}")


def _line(spots: Sequence[Point], *, steps: bool) -> str:
    first, *rest = spots
    form = "H{0:g}V{1:g}" if steps else "L{0:g} {1:g}"
    return f"M{first[0]:g} {first[1]:g}" + "".join(form.format(x, y) for x, y in rest)
