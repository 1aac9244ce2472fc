"""Colours of the page are readable in both themes and on paper (WCAG 2.2: text 4.5, shapes 3)."""

from __future__ import annotations

import re
from importlib import resources

import pytest

STYLE = resources.files("testbed.report").joinpath("report.css").read_text(encoding="utf-8")
TEXT = ("text", "soft", "accent", "good", "bad")
SHAPES = (
    "ce",
    "drop",
    "use",
    "level",
    "alone",
    "source-rail",
    "source-leaf",
    "spine",
    "dest-leaf",
    "dest-landing",
    "sender",
)


def themes() -> list[dict[str, str]]:
    blocks = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    return [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block)) for block in blocks]


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_of_black_on_white() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_there_are_three_themes_with_the_same_names() -> None:
    light, dark, paper = themes()
    assert set(light) == set(dark) == set(paper)


@pytest.mark.parametrize("theme", range(3), ids=["light", "dark", "paper"])
@pytest.mark.parametrize("ground", ["page", "panel"])
def test_everything_stands_out_from_its_ground(theme: int, ground: str) -> None:
    colours = themes()[theme]
    low = {name: contrast(colours[name], colours[ground]) for name in TEXT}
    assert {name: value for name, value in low.items() if value < 4.5} == {}
    low = {name: contrast(colours[name], colours[ground]) for name in SHAPES}
    assert {name: value for name, value in low.items() if value < 3} == {}
