"""Do hashed flows meet on a spine as often as the birthday formula says?

n flows from n leaves to one leaf over m spines, each leaf with a seed of its own. Paths are those the rules
foretell; that runs take them is measured as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import comb, perm

from controller.document import controller_document, parse_document
from controller.prediction import Prediction
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.record.reader import Record
from testbed.scenario import load_scenario
from testbed.signals import scratch_folder
from testbed.validation.bench import Bench
from testbed.validation.cases import Case
from testbed.validation.rows import Row, about, between

SEEDS = 400
FALSE_ALARM = 1e-3
"""How often a right hash would be refused by a row, had the seeds been drawn at random."""

SIGMAS = 3.3
"""The same for a mean over many seeds."""

PAIRS = ((2, 2), (2, 4), (3, 4), (4, 4), (2, 8), (4, 8), (8, 8), (8, 16))
FORMULA = "1 - m!/((m-n)! m^n)"
WHY = f"binomial bounds over {SEEDS} seeds, false alarm 1 in 1,000"

TEXT = """\
name: tiny
fabric:
  leaves: {leaves}
  spines: {spines}
  hosts_per_leaf: 1
  host_link: {{rate: 100gbit, delay: 1us}}
  fabric_link: {{rate: 100gbit, delay: 1us}}
hosts: {{prefill: {{count: {flows}}}, decode: {{count: 1}}}}
workload: {{requests: {{count: {flows}, kv_bytes: 64kib}}}}
measure: {{interval: 5us, progress: 10us}}
"""
"""All is over after some 20 us, so queues are sampled often."""


def text_of(flows: int, spines: int) -> str:
    """Return the scenario: a leaf for each flow, and one for the receiver."""
    return TEXT.format(leaves=flows + 1, spines=spines, flows=flows)


def chance(flows: int, spines: int) -> float:
    """Return the probability that at least two of the flows meet."""
    return 1 - perm(spines, flows) / float(spines**flows)


def used(flows: int, spines: int) -> float:
    """Return the expected number of spines that carry a flow."""
    return spines * (1 - (1 - 1 / spines) ** flows)


def bounds(count: int, share: float) -> tuple[int, int]:
    """Return the fewest and the most of `count` that chance leaves possible, at FALSE_ALARM."""
    weights = [comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(count + 1)]
    inside = [
        k
        for k in range(count + 1)
        if sum(weights[: k + 1]) > FALSE_ALARM / 2 and sum(weights[k:]) > FALSE_ALARM / 2
    ]
    return inside[0], inside[-1]


def spines_of(plan: Plan) -> list[str]:
    """Return the spine that the rules foretell for each transfer of the plan."""
    prediction = Prediction(parse_document(controller_document(plan)))
    found = []
    for transfer in plan.transfers:
        fields: dict[str, int | str] = {
            "ipv4_src": plan.topology.host(transfer.src).ip,
            "ipv4_dst": plan.topology.host(transfer.dst).ip,
            "ip_proto": 6,
            "tcp_src": transfer.src_port,
            "tcp_dst": transfer.dst_port,
        }
        found.append(prediction.spine_of(fields) or "")
    return found


def plans(flows: int, spines: int, seeds: Sequence[int]) -> list[Plan]:
    """Return the plan of each seed."""
    with scratch_folder("validate") as folder:
        path = folder / "scenario.yaml"
        path.write_text(text_of(flows, spines))
        scenario = load_scenario(str(path))
    return [build_plan(scenario, seed=seed, backend="uml", clock="virtual") for seed in seeds]


def table(_bench: Bench, _seeds: int) -> list[Row]:
    """Return, for each number of flows and spines, how often flows meet and how many spines are used."""
    rows = []
    for flows, spines in PAIRS:
        found = [spines_of(plan) for plan in plans(flows, spines, range(1, SEEDS + 1))]
        share = sum(len(set(each)) < flows for each in found) / SEEDS
        low, high = bounds(SEEDS, chance(flows, spines))
        name, what = f"ecmp.table.{flows}-over-{spines}", f"{flows} flows over {spines} spines: "
        expected = f"{100 * chance(flows, spines):.4g} %"
        rows.append(
            Row(
                f"{name}.collision",
                what + "share of seeds in which any two meet",
                100 * share,
                100 * low / SEEDS,
                100 * high / SEEDS,
                "%",
                expected,
                WHY,
                FORMULA,
            )
        )
        counts = [len(set(each)) for each in found]
        mean = sum(counts) / SEEDS
        spread = _deviation(counts) / SEEDS**0.5
        rows.append(
            about(
                f"{name}.used",
                what + "mean number of spines used",
                mean,
                used(flows, spines),
                "",
                floor=SIGMAS * spread,
                why="3.3 standard errors of the mean",
                source="m (1 - (1 - 1/m)^n)",
            )
        )
    return rows


def _deviation(values: Sequence[int]) -> float:
    mean = sum(values) / len(values)
    return float((sum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1)) ** 0.5)


RUNS = 5


def taken(bench: Bench, seeds: int) -> list[Row]:
    """Return how many transfers took the path that the rules foretell."""
    wrong = total = 0
    for seed in range(1, max(RUNS, seeds) + 1):
        record = bench.run(text_of(4, 4), seed=seed)
        foretold = [_path(record, number, spine) for number, spine in enumerate(spines_of(record.plan))]
        wrong += sum(record.paths.get(number) != path for number, path in enumerate(foretold))
        total += len(foretold)
    return [
        about(
            "ecmp.taken",
            f"of {total} transfers in {max(RUNS, seeds)} runs, those on another path than foretold",
            wrong,
            0,
            "",
            why="a hash has no chance in it",
            source="Open vSwitch's hash, computed apart",
        )
    ]


def _path(record: Record, number: int, spine: str) -> tuple[str, ...]:
    topology, transfer = record.plan.topology, record.plan.transfers[number]
    src, dst = topology.host(transfer.src), topology.host(transfer.dst)
    nodes = [src.name, src.leaf, *([spine, dst.leaf] if spine else []), dst.name]
    return tuple(f"{a}-{b}" for a, b in pairwise(nodes))


def slowdown(bench: Bench, _seeds: int) -> list[Row]:
    """Return how much longer two flows take that share a spine."""
    scene = (
        text_of(2, 2)
        .replace("kv_bytes: 64kib", "kv_bytes: 16mib")
        .replace("count: 1}", "count: 2, leaves: [3]}")
    )
    scene = scene.replace("hosts_per_leaf: 1", "hosts_per_leaf: 2").replace("interval: 5us", "interval: 20us")
    scene = scene.replace("{count: 2}, decode", "{count: 2, leaves: [1, 2], layout: spread}, decode")
    pinned = "routing={policy: pinned, pinned: [{from: p1, spine: 1}, {from: p2, spine: 1}]}"
    record = bench.valid(scene, [pinned])
    slowest = max(
        (outcome.end_ns or 0) / plan.ideal_ns
        for outcome, plan in zip(record.outcomes, record.plan.transfers, strict=True)
    )
    return [
        between(
            "ecmp.slowdown",
            "slowdown of two flows that share a spine, each to a host of its own",
            slowest,
            1.98,
            2.02,
            "",
            why="1 %, as for shaping",
            source="n flows on one link take n times as long",
        )
    ]


CASES = (
    Case("ecmp.table", "collisions against the birthday formula", table, quick=True),
    Case("ecmp.taken", "runs take the foretold paths", taken),
    Case("ecmp.slowdown", "a pair on one path", slowdown),
)
