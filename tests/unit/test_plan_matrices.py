"""A plan written as NIXL's matrices is, read again, the same transfers."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.cli import main
from testbed.errors import InputError
from testbed.plan.build import build_plan
from testbed.plan.matrices import write_matrices
from testbed.plan.model import Plan
from testbed.scenario import load_scenario

HOSTS = ("hosts.prefill.count=2", "hosts.decode.count=2", "hosts.gpus_per_host=2")


def plan_of(*overrides: str) -> Plan:
    scenario = load_scenario("incast", (*HOSTS, *overrides))
    return build_plan(scenario, seed=3, backend="uml", clock="virtual")


def facts(plan: Plan) -> list[tuple[object, ...]]:
    first_ns = min(one.start_ns for one in plan.transfers)
    ends = [(one.start_ns - first_ns, one.src, one.src_gpu, one.dst, one.dst_gpu) for one in plan.transfers]
    return sorted((*where, one.bytes) for where, one in zip(ends, plan.transfers, strict=True))


@pytest.mark.parametrize("window", ["0us", "3ms"])
def test_written_and_read_again(window: str, tmp_path: Path) -> None:
    plan = plan_of(f"workload.requests.window={window}", "workload.requests.count=13")
    patterns = write_matrices(plan, tmp_path / "out")
    again = plan_of(f"workload.requests={{kind: trace, path: {tmp_path}/out}}")
    assert facts(again) == facts(plan)
    assert len(again.transfers) == 13
    # Without a window all start together: as many patterns as the busiest pair has transfers.
    assert patterns == (4 if window == "0us" else 13)


def test_the_command_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    command = ["plan", "incast", "--backend", "uml", "--nixl", str(out)]
    assert main(command) == 0
    assert sorted(path.name for path in out.iterdir()) == ["matrices", "metadata.yaml"]
    row = (out / "matrices" / "matrix_0.txt").read_text().splitlines()[0]
    assert row == "0 0 0 0 0 0 0 0 67108864"
    capsys.readouterr()
    assert main(command) == 2
    assert capsys.readouterr().err == f"testbed: {out}: is not empty; give a new folder\n"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as caught:
        write_matrices(plan_of(), tmp_path / "file" / "out")
    assert str(caught.value) == f"{tmp_path}/file/out: cannot be written: Not a directory"
