"""A thousand flows over four uplinks: the kernel's datapath spreads them as the published hash says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.command import SMALL, Run, predicted_paths, run, write_scenario

FLOWS = 1_000
UPLINKS = 4
MANY = (
    SMALL.split("workload:")[0]
    .replace("spines: 2", "spines: 4")
    .replace("prefill: {count: 2}", "prefill: {count: 1}")
    + """\
workload:
  requests: {kind: burst, count: 1000, window: 20ms, kv_bytes: 1kib}
measure: {interval: 200us, progress: 1ms}
"""
)

CHI_SQUARE_LIMIT = 21.11
"""Three degrees of freedom: exceeded by chance once in 10,000 (chi-square's 0.9999 quantile)."""


def many(folder: Path, seed: int) -> Run:
    folder.mkdir()
    return run(folder / "record", write_scenario(folder, MANY), "--seed", str(seed))


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Run]:
    folder = tmp_path_factory.mktemp("hashing")
    return {seed: many(folder / str(seed), seed) for seed in (1, 2)}


@pytest.mark.parametrize("seed", [1, 2])
def test_spread_is_even_up_to_chance(seeds: dict[int, Run], seed: int) -> None:
    counts = Counter(path.split()[1] for path in seeds[seed].paths)
    assert set(counts) == {f"leaf1-spine{number}" for number in range(1, UPLINKS + 1)}
    expected = FLOWS / UPLINKS
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < CHI_SQUARE_LIMIT


@pytest.mark.parametrize("seed", [1, 2])
def test_every_path_is_the_predicted_one(seeds: dict[int, Run], seed: int) -> None:
    assert len(seeds[seed].paths) == FLOWS
    assert seeds[seed].paths == predicted_paths(seeds[seed].record.plan)


def test_the_same_seed_gives_the_same_paths(seeds: dict[int, Run], tmp_path: Path) -> None:
    again = many(tmp_path / "again", 1)
    assert again.paths == seeds[1].paths
    assert (again.out / "transfers.csv").read_bytes() == (seeds[1].out / "transfers.csv").read_bytes()


def test_another_seed_gives_other_paths(seeds: dict[int, Run]) -> None:
    same = sum(a == b for a, b in zip(seeds[1].paths, seeds[2].paths, strict=True))
    # Independent hashes agree on one flow in four; five standard deviations (13.7) are never met.
    assert same == pytest.approx(FLOWS / UPLINKS, abs=5 * 13.7)


def test_every_transfer_arrives(seeds: dict[int, Run]) -> None:
    assert [done.summary["transfers"]["completed"] for done in seeds.values()] == [FLOWS, FLOWS]
