"""The few shapes the report draws, as inline SVG text.

Charts are stretched to the width of the page (`preserveAspectRatio="none"`), so they hold shapes only: words
and figures stand beside them as HTML and stay sharp at every width. One unit of a chart's x axis is one bin
of time; y runs from 0 at the top to `height`. Called by the chart modules of `testbed.report`.

A curve is written as steps relative to the point before it, with equal bins joined: `M0 480h3v-12h1`. The
page's script reads the values under the cursor back from exactly this form.
"""

from __future__ import annotations

import numpy as np
from markupsafe import Markup, escape

from testbed.report.binning import Floats, Ints


def element(tag: str, *content: Markup, **attributes: object) -> Markup:
    """Return one element with escaped attribute values; one that is None or False is left out.

    In attribute names `_` stands for `-`, and one at the end for nothing (`class_`).
    """
    written = Markup("").join(
        Markup(' {}="{}"').format(name.rstrip("_").replace("_", "-"), value)
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    inner = Markup("").join(content)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), written, inner)


def drawing(width: float, height: float, label: str, *content: Markup, **attributes: object) -> Markup:
    """Return an SVG that fills its box. `label` is what a reader who cannot see it is told."""
    return element(
        "svg",
        *content,
        viewBox=f"0 0 {width:g} {height:g}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        **attributes,
    )


def title(text: str) -> Markup:
    """Return the note a browser shows when the pointer rests on a shape."""
    return Markup("<title>{}</title>").format(escape(text))


def to_pixels(values: Floats, top: float, height: int) -> Ints:
    """Turn values from 0 to `top` into whole y positions from `height` (0) to 0 (`top` and above).

    What is above 0 is at least one unit high, so that it shows.
    """
    if top <= 0:
        return np.full(len(values), height, dtype=np.int64)
    raised = np.clip(np.rint(values / top * height), 0, height).astype(np.int64)
    raised[(values > 0) & (raised == 0)] = 1
    return height - raised


def steps(levels: Ints) -> str:
    """Return the path of a step curve that is `levels[i]` high from x = i to i + 1."""
    changes = np.flatnonzero(np.diff(levels)) + 1
    starts = np.concatenate(([0], changes))
    widths = np.diff(np.concatenate((starts, [len(levels)])))
    rises = np.diff(levels[starts])
    parts = [f"M0 {levels[0]}h{widths[0]}"]
    parts += [f"v{rise}h{width}" for rise, width in zip(rises.tolist(), widths[1:].tolist(), strict=True)]
    return "".join(parts)


def filled_steps(levels: Ints, height: int) -> str:
    """Return the path of the area under a step curve, down to y = `height`."""
    return f"{steps(levels)}V{height}H0z"


def runs(counts: Ints) -> str:
    """Return whole numbers as text, equal neighbours joined: `0*120 7 0*3`."""
    starts = np.concatenate(([0], np.flatnonzero(np.diff(counts)) + 1))
    lengths = np.diff(np.concatenate((starts, [len(counts)])))
    pairs = zip(counts[starts].tolist(), lengths.tolist(), strict=True)
    return " ".join(str(value) if length == 1 else f"{value}*{length}" for value, length in pairs)


def ticks(heights: Ints, base: float) -> str:
    """Return the path of upright marks from `base` up, in the middle of each bin whose height is not 0."""
    return "".join(f"M{at + 0.5:g} {base:g}v{-heights[at]}" for at in np.flatnonzero(heights).tolist())
