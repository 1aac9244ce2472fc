"""What a scenario inherits and has replaced goes; what is written side by side stays, to be refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from testbed.errors import InputError
from testbed.scenario import Scenario, load_scenario
from testbed.scenario.dump import scenario_yaml
from testbed.scenario.models import Requests

BASE = """\
name: base
workload:
  model: qwen3-8b
  requests: {kind: burst, count: 6, window: 1ms, kv_bytes: 1mib}
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text(BASE)
    return tmp_path


def requests_of(scenario: Scenario) -> Requests:
    assert scenario.workload.requests is not None
    return scenario.workload.requests


def extended(folder: Path, workload: str, *overrides: str) -> Scenario:
    (folder / "top.yaml").write_text(f"extends: base.yaml\nname: top\nworkload: {workload}\n")
    return load_scenario("top.yaml", overrides)


def written(scenario: Scenario) -> dict[str, object]:
    data: dict[str, object] = yaml.safe_load(scenario_yaml(scenario))["workload"]["requests"]
    return data


def test_keys_of_the_kind_before_go_and_keys_of_both_stay(base: Path) -> None:
    scenario = extended(base, "{requests: {kind: poisson, interval: 2ms}}")
    assert written(scenario) == {"kind": "poisson", "count": 6, "kv_bytes": "1mib", "interval": "2ms"}
    assert requests_of(scenario).count == 6


def test_a_window_means_another_thing_in_another_kind(base: Path) -> None:
    scenario = extended(base, "{requests: {kind: trace, path: t.jsonl}}")
    assert written(scenario) == {"kind": "trace", "path": str(base / "t.jsonl")}
    assert requests_of(scenario).span_ns == (0, None)


def test_the_command_line_goes_before_the_files(base: Path) -> None:
    scenario = load_scenario("base.yaml", ["workload.requests.kind=trace", "workload.requests.path=t.jsonl"])
    assert written(scenario) == {"kind": "trace", "path": str(base / "t.jsonl")}
    scenario = load_scenario("base.yaml", ["workload.requests.prompt_tokens=7"])
    both = {"window": {"to": "1ms"}, "prompt_tokens": {"fixed": 7}}
    assert written(scenario) == {"kind": "burst", "count": 6, **both}


def test_of_two_sizes_the_later_one_stays(base: Path) -> None:
    scenario = extended(base, "{requests: {prompt_tokens: 512}}")
    assert requests_of(scenario).kv_bytes is None
    scenario = extended(base, "{requests: {prompt_tokens: 512}}", "workload.requests.kv_bytes=1kib")
    assert (requests_of(scenario).kv_bytes, requests_of(scenario).prompt_tokens) == (1024, None)


def test_a_model_is_replaced_whole(base: Path) -> None:
    scenario = extended(base, "{model: {layers: 2, latent_dim: 3}}")
    assert scenario.workload.model is not None
    assert (scenario.workload.model.name, scenario.workload.model.latent_dim) == (None, 3)
    (base / "middle.yaml").write_text(
        "extends: top.yaml\nname: middle\nworkload: {model: {name: qwen3-8b}}\n"
    )
    model = load_scenario("middle.yaml").workload.model
    assert model is not None
    assert (model.name, model.layers, model.latent_dim) == ("qwen3-8b", None, None)


def test_a_dimension_alone_changes_the_others_model(base: Path) -> None:
    (base / "dims.yaml").write_text(BASE.replace("qwen3-8b", "{layers: 2, kv_heads: 3, head_dim: 4}"))
    model = load_scenario("dims.yaml", ["workload.model.layers=9"]).workload.model
    assert model is not None
    assert (model.layers, model.kv_heads, model.head_dim) == (9, 3, 4)


def test_what_stands_in_the_same_file_or_after_the_kind_is_refused(base: Path) -> None:
    with pytest.raises(InputError) as caught:
        extended(base, "{requests: {kind: poisson, interval: 2ms, window: 1ms}}")
    assert str(caught.value) == (
        "top.yaml:3: workload.requests.window: is not for kind poisson; "
        "leave it out, or set requests.kind to burst or trace"
    )
    with pytest.raises(InputError) as caught:
        extended(base, "{requests: {kind: poisson, interval: 2ms}}", "workload.requests.cv=3")
    assert str(caught.value) == (
        "--set workload.requests.cv=3: workload.requests.cv: is not for kind poisson; "
        "leave it out, or set requests.kind to gamma"
    )


def test_the_same_kind_again_keeps_what_is_the_kinds(base: Path) -> None:
    scenario = extended(base, "{requests: {count: 9}}")
    assert written(scenario) == {"kind": "burst", "count": 9, "window": {"to": "1ms"}, "kv_bytes": "1mib"}


def test_a_key_of_a_mapping_that_was_written_short(base: Path) -> None:
    model = load_scenario("base.yaml", ["workload.model.name=qwen3-32b"]).workload.model
    assert model is not None
    assert model.name == "qwen3-32b"
    window = requests_of(load_scenario("base.yaml", ["workload.requests.window.from=200us"])).span_ns
    assert window == (200_000, 1_000_000)
