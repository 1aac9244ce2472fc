"""Hostile input, one case for each number: every kind of file and text that the testbed reads from somebody.

A case is made of valid input by `tests.support.mutate` and given to the code that reads it. It may be
accepted or refused; anything else is a defect: another exception, a warning, a refusal without its place, a
case that takes long. Called by tests/unit/test_hostile_input.py, and by hand for a long search:
`python -m tests.support.hostile scenario record --cases 100000`.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import yaml

from testbed import cli
from testbed.analysis import transfer_losses, write_outputs
from testbed.checks import evaluate
from testbed.errors import InputError
from testbed.plan.build import build_plan
from testbed.plan.codec import from_json, to_json
from testbed.record import layout
from testbed.record.reader import Record
from testbed.regress.compare import compare
from testbed.regress.compare_page import page
from testbed.regress.compare_text import compare_text, markdown
from testbed.regress.golden import difference, read_golden
from testbed.regress.grid import build_grid, parse_vary
from testbed.regress.limits import broken, parse_limit
from testbed.report import write_report
from testbed.scenario import load_scenario
from testbed.scenario.dump import scenario_yaml
from testbed.screen import printable
from testbed.terminal import plan_text, summary_text
from tests.support import mutate
from tests.support.synthetic import CASES, reseal, write_record

DATA = Path(__file__).resolve().parents[1] / "data"
SCENARIOS = Path(cli.__file__).parent / "scenarios"
SHIPPED = (str(SCENARIOS), os.path.relpath(SCENARIOS))
CASE_SECONDS = 10
"""A case that takes longer hangs; the slowest that are none take a second."""

HOSTS_MAX, REQUESTS_MAX = 100, 500
"""Larger plans are right and slow: they are loaded and not built."""

Case = tuple[Callable[[], object], tuple[str, ...]]
"""What is to be done, and the places one of which a refusal begins with."""


class Slow(BaseException):
    """A case did not end in time."""


# ---- scenarios and what the command line says of them ---------------------------------


@cache
def _scenario_texts() -> tuple[str, ...]:
    files = [*sorted(SCENARIOS.glob("*.yaml")), *sorted((DATA / "scenarios/good").glob("*.yaml"))]
    return tuple(file.read_text() for file in files)


def scenario(rng: Random, folder: Path) -> Case:
    """A scenario file."""
    text = rng.choice(_scenario_texts())
    if rng.random() < 0.6:
        text = mutate.yaml_text(mutate.mutated(yaml.safe_load(text), rng), rng)
    if rng.random() < 0.5:
        text = mutate.lines_mutated(text, rng)
    path = folder / "scenario.yaml"
    path.write_bytes(
        mutate.bytes_mutated(mutate.encoded(text), rng) if rng.random() < 0.2 else mutate.encoded(text)
    )
    # What it extends is another place of the same kind.
    return lambda: _planned(str(path)), (str(folder), *SHIPPED)


def _planned(name: str, *sets: str) -> None:
    loaded = load_scenario(name, sets)
    hosts, requests = loaded.hosts, loaded.workload.requests
    if hosts.prefill.count + hosts.decode.count + hosts.store.count > HOSTS_MAX:
        return
    if loaded.fabric.leaves * loaded.fabric.spines > HOSTS_MAX:
        return
    if requests is not None and (requests.kind != "trace" and requests.count > REQUESTS_MAX):
        return
    plan = build_plan(loaded, seed=1, backend="uml", clock="real" if loaded.dilation > 1 else "virtual")
    assert from_json(to_json(plan)) == plan
    plan_text(plan).encode()
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(scenario_yaml(loaded))
        file.flush()
        assert build_plan(load_scenario(file.name), seed=1, backend="uml", clock=plan.clock) == plan


@cache
def _keys() -> tuple[str, ...]:
    trees = [yaml.safe_load(text) for text in _scenario_texts()]
    paths = [".".join(map(str, path)) for tree in trees for path in mutate.places(tree)]
    return tuple(dict.fromkeys(paths))


def override(rng: Random, folder: Path) -> Case:
    """What follows --set."""
    key, value = rng.choice(_keys()), mutate.odd_value(rng)
    text = f"{key}={value if isinstance(value, str) else json.dumps(value)}"
    text = mutate.text_nudged(text, rng) if rng.random() < 0.5 else text
    sets = ("expect=[]", text)
    return lambda: _planned(rng.choice(("incast", "roce-incast", "scheduler-skew")), *sets), (
        "--set",
        *SHIPPED,
    )


def vary(rng: Random, folder: Path) -> Case:
    """What follows --vary."""
    values = ",".join(str(mutate.odd_value(rng)) for _ in range(rng.randint(1, 3)))
    text = rng.choice(("transport.dcqcn=hpcc,off", "fabric.mtu=1500,4200", f"{rng.choice(_keys())}={values}"))
    text = mutate.text_nudged(text, rng) if rng.random() < 0.7 else text

    def act() -> None:
        varied = parse_vary(text)
        if len(varied.values) < 8:
            build_grid("incast", [varied], [1], folder, overrides=("workload.requests.count=2",))

    return act, ("--vary", "--set", *SHIPPED)


EXPECTATIONS = (
    *(
        "verdict.segment == dest-leaf",
        "transfers.slowdown.p99 < 1.2 * ideal",
        "ttft_ms.p99 < 40ms + 2 * (3ms - 1ms)",
    ),
    *("links.leaf3-d1.queue_bytes.max <= 8mb", "verdict.link == null", "fidelity.valid == true"),
    *("ttft_ms.by_pair.p1->d1.p99 > 0.5 * ttft_ms.p50", "transfers.completed == transfers.count"),
)


@cache
def _summary() -> Any:
    return json.loads((DATA / "goldens/incast-1.json").read_text())["summary"]


def expectation(rng: Random, folder: Path) -> Case:
    """An expectation of a scenario."""
    text = rng.choice(EXPECTATIONS)
    for _ in range(rng.randint(1, 3)):
        text = mutate.text_nudged(text, rng)
    summary = mutate.mutated(_summary(), rng) if rng.random() < 0.3 else _summary()

    def act() -> None:
        path = folder / "scenario.yaml"
        document = {"name": "small", "extends": "incast", "expect": [text]}
        path.write_bytes(mutate.encoded(json.dumps(document)))
        printable("\n".join(map(str, evaluate(load_scenario(str(path)).expect, summary)))).encode()

    return act, (str(folder),)


def limit(rng: Random, folder: Path) -> Case:
    """What follows --fail-if."""
    text = rng.choice(
        ("ttft_ms.p99 > +5%", "verdict.segment changed", "run.queue_max_bytes < -2mb", "a.b > 1e3")
    )
    for _ in range(rng.randint(1, 3)):
        text = mutate.text_nudged(text, rng)
    records = [_record(folder, name) for name in ("incast", "hot-spine")]
    return lambda: broken([parse_limit(text)], compare(*records)), ("--fail-if",)


WORDS = (
    *(
        "list",
        "plan",
        "report",
        "clean",
        "compare",
        "incast",
        "--json",
        "--debug",
        "--seed",
        "7",
        "-1",
        "1e3",
    ),
    *(
        "--set",
        "--backend",
        "uml",
        "native",
        "--clock",
        "real",
        "virtual",
        "--nixl",
        "--",
        "-",
        "--help",
        "-h",
    ),
    *(
        "fabric.mtu=1500",
        "name=x",
        "=",
        "--out",
        "--set=",
        "--se",
        "--bogus",
        "--seed=0x1",
        "\u0663",
        "9" * 400,
    ),
)


def command(rng: Random, folder: Path) -> Case:
    """A command line of the commands that start nothing."""
    words = [rng.choice(("list", "plan", "report", "clean", "compare", "--debug", "bogus"))]
    words += [
        rng.choice((*WORDS, *mutate.TEXTS, str(folder), str(folder / "none")))
        for _ in range(rng.randint(0, 6))
    ]
    words = [word.replace("--debug", "--json") for word in words]
    # A folder of nobody's: what `clean` and --nixl find or make is inside.
    words = [word if not word.startswith((".", "/", "~")) else str(folder) for word in words]
    return lambda: _called(words), ("",)


def _called(words: list[str]) -> None:
    screen, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(errors):
        try:
            code = cli.main(words)
        except SystemExit as end:  # --help
            code = end.code if isinstance(end.code, int) else 1
    assert code in (0, 2, 3), (words, code, errors.getvalue())
    assert "Traceback" not in errors.getvalue()
    assert code == 0 or errors.getvalue().startswith("testbed: "), (words, errors.getvalue())


# ---- files that a scenario names ------------------------------------------------------


def _workload(folder: Path, requests: dict[str, Any], **other: Any) -> Path:
    document = {
        "name": "traced",
        "fabric": {"hosts_per_leaf": 4},
        "hosts": {"prefill": {"count": 2}, "decode": {"count": 2}},
        "workload": {"model": "llama-3.1-8b", "requests": requests, "scale": {"bytes": "1/1000"}, **other},
    }
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(document))
    return path


def _damaged(text: str, rng: Random) -> bytes:
    for _ in range(rng.randint(0, 2)):
        text = mutate.lines_mutated(text, rng)
    raw = mutate.encoded(text)
    return mutate.bytes_mutated(raw, rng) if rng.random() < 0.5 else raw


MOONCAKE = "".join(
    json.dumps({"timestamp": 3000 * k, "input_length": 700, "output_length": 3, "hash_ids": [0, k]}) + "\n"
    for k in range(6)
)
TABLES = {
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    + "".join(f"2023-11-16 18:15:4{k}.6805900,{100 + k},{9 + k}\n" for k in range(6)),
    "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    + "".join(f"{5 + k},ChatGPT,{472 + k},{18 + k},490,Conversation log\n" for k in range(6)),
    "splitwise": "request_id,request_type,arrival_timestamp,batch_size,prompt_size,token_size\n"
    + "".join(f"{k},2,{k / 10},1,{800 + k},{20 + k}\n" for k in range(6)),
}


def trace(rng: Random, folder: Path) -> Case:
    """A trace of one of the formats that are one file."""
    name = rng.choice(("mooncake", *TABLES))
    text = TABLES.get(name, MOONCAKE)
    if name == "mooncake" and rng.random() < 0.6:
        rows = mutate.mutated([json.loads(line) for line in text.splitlines()], rng)
        text = "".join(json.dumps(row) + "\n" for row in (rows if isinstance(rows, list) else [rows]))
    (folder / "trace").write_bytes(_damaged(text, rng))
    requests = {"kind": "trace", "path": "trace", "format": rng.choice((name, "auto", *TABLES))}
    if rng.random() < 0.3:
        requests |= {"tick": "spread"}
    path = _workload(folder, requests)
    return lambda: _planned(str(path)), (str(folder),)


def matrices(rng: Random, folder: Path) -> Case:
    """NIXL's folder of traffic matrices."""
    (folder / "matrices").mkdir()
    patterns = [
        {"matrix_file": f"matrices/matrix_{k}.txt", "sleep_before_launch_sec": 0.1 * k} for k in range(3)
    ]
    value = (
        mutate.mutated({"traffic_patterns": patterns}, rng)
        if rng.random() < 0.7
        else {"traffic_patterns": patterns}
    )
    text = mutate.yaml_text(value, rng)
    (folder / "metadata.yaml").write_bytes(
        _damaged(text, rng) if rng.random() < 0.5 else mutate.encoded(text)
    )
    for k in range(3):
        matrix = "0 0 1M 2K\n0 0 0 1.5G\n0 0 0 0\n0 0 0 0\n"
        raw = _damaged(matrix, rng) if rng.random() < 0.4 else matrix.encode()
        (folder / f"matrices/matrix_{k}.txt").write_bytes(raw)
    path = _workload(folder, {"kind": "trace", "path": ".", "format": rng.choice(("nixl", "auto"))})
    return lambda: _planned(str(path)), (str(folder),)


def table(rng: Random, folder: Path) -> Case:
    """A prefill profile, or a distribution of lengths."""
    requests: dict[str, Any] = {"kind": "burst", "count": 4, "prompt_tokens": 100}
    if rng.random() < 0.5:
        text = "tokens,ms\n1,2\n100,30.5\n1000,400\n"
        path = _workload(folder, requests, prefill={"profile": "table"})
    else:
        text = "# tokens, share\n1 0\n10,20\n100 60\n1000 100\n"
        path = _workload(folder, {**requests, "prompt_tokens": {"cdf": "table"}})
    (folder / "table").write_bytes(_damaged(text, rng))
    return lambda: _planned(str(path)), (str(folder),)


CONFIG = {
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096,
    "torch_dtype": "bfloat16", "text_config": {"head_dim": 128, "layer_types": ["full_attention", "mamba"]},
    "kv_lora_rank": None, "qk_rope_head_dim": 64,
}  # fmt: skip


def config(rng: Random, folder: Path) -> Case:
    """A model's config.json."""
    text = json.dumps(mutate.mutated(CONFIG, rng, 4))
    (folder / "config.json").write_bytes(_damaged(text, rng) if rng.random() < 0.4 else mutate.encoded(text))
    requests = {"kind": "burst", "count": 4, "prompt_tokens": 100}
    path = _workload(folder, requests, model={"config": "config.json"})
    return lambda: _planned(str(path)), (str(folder),)


# ---- what a run has left --------------------------------------------------------------


@cache
def _whole(name: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="testbed-hostile-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    record = write_record(folder / name, CASES[name]())
    write_outputs(Record.open(record))
    return record


def _record(folder: Path, name: str) -> Path:
    target = folder / name
    shutil.copytree(_whole(name), target, dirs_exist_ok=True)
    return target


RAW = (
    *(layout.MANIFEST, layout.PLAN, layout.ENVIRONMENT, layout.OUTCOMES, layout.FACTS, layout.BACKGROUND),
    *(layout.TCP_COUNTERS, layout.samples_header(layout.FABRIC), layout.samples_header(layout.HOSTS)),
)
BINARY = (layout.PROGRESS, layout.samples_rows(layout.FABRIC), layout.samples_rows(layout.HOSTS))


def record(rng: Random, folder: Path) -> Case:
    """A record, read and reported."""
    path = _record(folder, rng.choice(("incast", "slow-rail", "slow-landing")))
    for _ in range(rng.randint(1, 2)):
        _damage_record(path, rng)

    def act() -> None:
        opened = Record.open(path)
        losses = transfer_losses(opened)
        summary = write_outputs(opened, losses)
        write_report(opened, summary, losses)
        printable(summary_text(summary, evaluate(opened.plan.expectations, summary), path)).encode()

    return act, (str(path),)


def _damage_record(path: Path, rng: Random) -> None:
    kind = rng.randrange(10)
    if kind < 6:
        file = path / rng.choice(RAW)
        with contextlib.suppress(ValueError):  # it is damaged already
            value = mutate.mutated(json.loads(file.read_text()), rng)
            file.write_bytes(mutate.encoded(json.dumps(value)))
    elif kind < 8:
        file = path / rng.choice(BINARY)
        raw = bytearray(file.read_bytes())
        for _ in range(rng.randint(1, 20)):
            at = rng.randrange(len(raw) // 8 + 1) * 8
            odd = rng.choice((0, -1, 1, 2**62, -(2**62), 2**63 - 1, -(2**63), rng.randrange(10**12)))
            raw[at : at + 8] = odd.to_bytes(8, "little", signed=True)
        file.write_bytes(bytes(raw[: rng.choice((len(raw), len(raw), rng.randint(0, len(raw))))]))
    else:
        file = path / rng.choice((*RAW, layout.DATAPATH_FLOWS, layout.SCENARIO))
        file.write_bytes(_damaged(file.read_text(errors="replace"), rng))
    if rng.random() < 0.7:
        with contextlib.suppress(Exception):  # what is no manifest any more stays as it is
            reseal(path)


def comparison(rng: Random, folder: Path) -> Case:
    """Two records, one of which has a summary that no run has written."""
    before, after = _record(folder, "incast"), _record(folder, "hot-spine")
    others = (layout.MANIFEST, layout.SCENARIO, layout.TRANSFERS, layout.PLAN)
    file = after / rng.choice((layout.SUMMARY, layout.SUMMARY, *others))
    if file.suffix == ".json" and rng.random() < 0.8:
        raw = mutate.encoded(json.dumps(mutate.mutated(json.loads(file.read_text()), rng)))
    else:
        raw = _damaged(file.read_text(), rng)
    file.write_bytes(raw)

    def act() -> None:
        found = compare(before, after)
        printable(compare_text(found, [])).encode()
        names = (str(before), str(after))
        markdown(found, [], names).encode()
        page(found, [], names).encode()

    return act, (str(folder),)


def golden(rng: Random, folder: Path) -> Case:
    """A golden."""
    path, seed = folder / "golden.json", 1
    text = (DATA / "goldens/incast-1.json").read_text()
    if rng.random() < 0.7:
        text = json.dumps(mutate.mutated(json.loads(text), rng, 5))
    path.write_bytes(_damaged(text, rng) if rng.random() < 0.3 else mutate.encoded(text))

    def act() -> None:
        found = read_golden(path, "incast", seed, "virtual")
        difference(found, _summary(), {"name": "incast"}, {"kernel": "x"})

    return act, (str(path),)


TARGETS: dict[str, Callable[[Random, Path], Case]] = {
    target.__name__: target
    for target in (
        *(scenario, override, vary, expectation, limit, command, trace, matrices, table, config),
        *(record, comparison, golden),
    )
}


# ---- trying ---------------------------------------------------------------------------


def attempt(target: str, rng: Random) -> str | None:
    """Try one case: return the refusal, None when it was accepted; anything else is raised."""
    with tempfile.TemporaryDirectory(prefix="testbed-hostile-") as name, _in_time():
        act, allowed = TARGETS[target](rng, Path(name))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                act()
        except InputError as error:
            message = printable(str(error))
            assert len(message) < 5000, f"a refusal of {len(message)} characters: {message[:300]}"
            assert message.startswith(allowed), f"a refusal without its place: {message[:300]}"
            return message
    return None


@contextmanager
def _in_time() -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Slow

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, CASE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _kind(error: BaseException) -> str:
    """What failed and the last place of the testbed's that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames if "/tests/" not in frame.filename
    ]
    return f"{type(error).__name__} at {own[-1] if own else 'the test itself'}"


def main() -> None:
    """Try many cases and print each kind of defect once, with its first case."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("target", nargs="*", default=list(TARGETS))
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--memory", type=int, default=3 << 30, help="bytes of address space")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (options.memory, options.memory))
    seen: Counter[str] = Counter()
    for target in options.target:
        started, refused = time.monotonic(), 0
        for number in range(options.first, options.first + options.cases):
            try:
                refused += attempt(target, Random(f"{target}-{number}")) is not None
            except (Exception, Slow) as error:  # noqa: BLE001 - a defect may be anything
                kind = _kind(error)
                if not seen[kind]:
                    print(f"--- {target} {number}: {kind}: {str(error)[:300]}")
                    traceback.print_tb(error.__traceback__, limit=-6, file=sys.stdout)
                seen[kind] += 1
        seconds = time.monotonic() - started
        print(f"{target}: {options.cases} cases, {refused} refused, {seconds:.0f} s", flush=True)
    for kind, count in seen.most_common():
        print(f"{count:7} {kind}")


if __name__ == "__main__":
    main()
