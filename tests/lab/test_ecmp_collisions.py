"""How often hashed flows meet on one spine: as often as the birthday formula says.

n flows from n leaves to one leaf over m spines miss each other with probability m!/((m-n)! m^n) when the
hash is even and every leaf's is its own. Over S seeds the number with a collision is then binomial.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.scenario import load_scenario
from testbed.validation.ecmp import bounds, chance, text_of
from tests.support.command import predicted_paths, run, write_scenario

SEEDS = 400
RUNS = 20

PAIRS = [(2, 2), (4, 4), (4, 8)]


def collides(paths: list[str]) -> bool:
    return len({path.split()[2] for path in paths}) < len(paths)


def plans(folder: Path, flows: int, spines: int, seeds: int, *sets: str) -> list[Plan]:
    scenario = load_scenario(str(write_scenario(folder, text_of(flows, spines))), sets)
    return [build_plan(scenario, seed=seed, backend="uml", clock="virtual") for seed in range(1, seeds + 1)]


@pytest.mark.parametrize(
    ("count", "share", "expected"),
    # 0 and 20 of 20 fair coins have a probability of 1e-6; 2 and 18 or worse 2.0e-4, 3 and 17 1.29e-3.
    [(20, 0.5, (3, 17)), (4, 0.5, (0, 4)), (20, 1.0, (20, 20))],
)
def test_the_bound_itself(count: int, share: float, expected: tuple[int, int]) -> None:
    assert bounds(count, share) == expected


def test_the_formula_itself() -> None:
    assert [chance(flows, spines) for flows, spines in PAIRS] == [1 / 2, 1 - 24 / 256, 1 - 1680 / 4096]
    assert chance(3, 2) == 1


@pytest.mark.parametrize(("flows", "spines"), PAIRS)
def test_collisions_over_many_seeds(tmp_path: Path, flows: int, spines: int) -> None:
    found = sum(collides(predicted_paths(plan)) for plan in plans(tmp_path, flows, spines, SEEDS))
    fewest, most = bounds(SEEDS, chance(flows, spines))
    assert fewest <= found <= most


def test_one_hash_for_all_leaves_is_far_outside(tmp_path: Path) -> None:
    # The teeth of the above: leaves that hash alike, and only the destination, send all flows one way.
    polarised = plans(tmp_path, 4, 8, 20, "routing.policy=polarised")
    assert sum(collides(predicted_paths(plan)) for plan in polarised) == 20
    assert bounds(20, chance(4, 8))[1] < 20


# ---- whole runs -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured() -> dict[int, list[str]]:
    """The paths of a run by its seed; each seed is run when it is first asked for."""
    return {}


@pytest.mark.parametrize("seed", range(1, RUNS + 1))
def test_every_run_takes_the_predicted_paths(
    tmp_path: Path, measured: dict[int, list[str]], seed: int
) -> None:
    done = run(tmp_path / "record", write_scenario(tmp_path, text_of(4, 4)), "--seed", str(seed))
    measured[seed] = done.paths
    assert done.paths == predicted_paths(done.record.plan)
    assert len(done.paths) == done.summary["transfers"]["completed"] == 4
    assert done.summary["fidelity"]["valid"] is True


def test_collisions_over_whole_runs(measured: dict[int, list[str]]) -> None:
    if len(measured) < RUNS:
        pytest.skip("announced: a part of the runs alone says nothing of their number")
    fewest, most = bounds(RUNS, chance(4, 4))
    assert fewest <= sum(map(collides, measured.values())) <= most
