"""Presets of the path inside a host: computed rates, what is shared, the landing's cost, the page."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.scenario.rails import PRESETS, effective_rate_bps, page, pcie_rate_bps

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("name", "rate_bps", "latency_ns", "shared"),
    [
        ("gdr-same-switch", 454_420_000_000, 230, False),
        ("gdr-same-numa", 266_000_000_000, 1230, False),
        ("gdr-other-numa", 123_000_000_000, 1430, True),
        ("host-bounce", 133_600_000_000, 7000, True),
        ("pcie-gen3-x8", 56_802_000_000, 230, False),
        ("pcie-gen3-x16", 113_605_000_000, 230, False),
        ("pcie-gen4-x8", 113_605_000_000, 230, False),
        ("pcie-gen4-x16", 227_210_000_000, 230, False),
        ("pcie-gen5-x8", 227_210_000_000, 230, False),
        ("pcie-gen5-x16", 454_420_000_000, 230, False),
    ],
)
def test_preset(name: str, rate_bps: int, latency_ns: int, shared: bool) -> None:
    preset = PRESETS[name]
    assert (preset.name, preset.rate_bps, preset.latency_ns, preset.shared) == (
        name,
        rate_bps,
        latency_ns,
        shared,
    )


def test_the_presets_are_these() -> None:
    assert list(PRESETS) == [
        *("gdr-same-switch", "gdr-same-numa", "gdr-other-numa", "host-bounce"),
        *("pcie-gen3-x8", "pcie-gen3-x16", "pcie-gen4-x8", "pcie-gen4-x16", "pcie-gen5-x8", "pcie-gen5-x16"),
    ]


def test_nobody_changes_a_preset() -> None:
    with pytest.raises(TypeError, match="^'mappingproxy' object does not support item assignment$"):
        cast(Any, PRESETS)["host-bounce"] = PRESETS["gdr-same-numa"]
    with pytest.raises(FrozenInstanceError, match="^cannot assign to field 'rate_bps'$"):
        cast(Any, PRESETS["host-bounce"]).rate_bps = 1


@pytest.mark.parametrize("name", PRESETS)
def test_both_numbers_of_a_preset_have_a_source(name: str) -> None:
    rate, latency = PRESETS[name].source.split(" Latency: ")
    sourced = re.compile(r"https://|[\w-]+/[\w-]+, [\w/.-]+|^Rate: computed, .+ GT/s x |as gdr-same-switch")
    assert rate.startswith("Rate: ")
    assert sourced.search(rate)
    assert sourced.search(latency)
    assert PRESETS[name].meaning[-1] != "."


@pytest.mark.parametrize(("generation", "measured_bps"), [(5, 452_560_000_000), (3, 114_320_000_000)])
def test_the_formula_is_within_one_percent_of_what_was_measured_on_x16(
    generation: int, measured_bps: int
) -> None:
    """56.57 GB/s between GPUs on PCIe 5.0, 14.29 GB/s from NIC to GPU on 3.0: the page names the sources."""
    assert abs(pcie_rate_bps(generation, 16) - measured_bps) < 0.01 * measured_bps


def test_a_generation_that_packs_its_data_differently_is_refused() -> None:
    with pytest.raises(KeyError, match="^6$"):
        pcie_rate_bps(6, 16)


@pytest.mark.parametrize(
    ("rate_bps", "block_bytes", "block_cost_ns", "effective_bps"),
    [
        (100_000_000_000, 65_536, 0, 100_000_000_000),
        (8_000_000_000, 8_000, 2_000, 6_400_000_000),  # 8 us to arrive, 2 us to be placed
        (100_000_000_000, 100_000, 8_000, 50_000_000_000),  # as long to place as to arrive
        (3_000_000_000, 1, 1, 2_181_818_181),  # 8 bits in 8/3 + 1 ns, rounded down
        (1_000_000_000, 1, 10**18, 0),
    ],
)
def test_effective_rate(rate_bps: int, block_bytes: int, block_cost_ns: int, effective_bps: int) -> None:
    assert effective_rate_bps(rate_bps, block_bytes, block_cost_ns) == effective_bps


@given(st.integers(1, 10**12), st.integers(1, 2**40), st.integers(0, 10**12))
def test_effective_rate_is_bytes_over_arrival_plus_cost(
    rate_bps: int, block_bytes: int, cost_ns: int
) -> None:
    bits = 8 * block_bytes
    exact = bits / (Fraction(bits, rate_bps) + Fraction(cost_ns, 10**9))
    assert 0 <= exact - effective_rate_bps(rate_bps, block_bytes, cost_ns) < 1


@pytest.mark.parametrize("arguments", [(0, 1, 1), (1, 0, 1), (1, 1, -1)])
def test_effective_rate_of_nothing_is_refused(arguments: tuple[int, int, int]) -> None:
    message = "^needs a positive rate, a positive block and a cost that is not negative$"
    with pytest.raises(ValueError, match=message):
        effective_rate_bps(*arguments)


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "rails.md").read_text() == page()


def test_the_page_has_a_row_and_a_source_for_each_preset() -> None:
    for name in PRESETS:
        assert len(re.findall(rf"^\| `{name}` \|(?:[^|\n]+\|){{4}}$", page(), re.MULTILINE)) == 1
        assert len(re.findall(rf"^\* `{name}`: Rate: ", page(), re.MULTILINE)) == 1
