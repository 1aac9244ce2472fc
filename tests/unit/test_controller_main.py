"""The controller's command, as far as it comes without a switch."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controller.errors import ControllerError
from controller.framework import FRAMEWORKS, VARIABLE, prepare, selected
from controller.main import write_json

ROOT = Path(__file__).parents[2]
DOCUMENT = {
    "format_version": 2,
    "policy": "ecmp",
    "hash_fields": ["ipv4_src"],
    "hash_seed": 1,
    "pinned": [],
    "least_loaded": None,
    "switches": [{"name": "leaf1", "dpid": 1, "tier": "leaf", "index": 1}],
    "hosts": [],
    "links": [],
}


def run(folder: Path, document: Any, *options: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    (folder / "controller.json").write_text(json.dumps(document))
    (folder / "ready.json").write_text('{"switches": {}}')  # of an earlier run
    command = [sys.executable, "-m", "controller.main", "--framework", "os-ken", *options]
    command += ["--document", str(folder / "controller.json"), "--ready", str(folder / "ready.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=15)
    return done, json.loads((folder / "ready.json").read_text())


def test_a_bad_document_is_exit_2(tmp_path: Path) -> None:
    done, ready = run(tmp_path, {**DOCUMENT, "policy": "spray"})
    expected = "ecmp, pinned, polarised, least-loaded"
    message = f"{tmp_path}/controller.json: policy: 'spray' is not known, expected {expected}"
    assert done.returncode == 2
    assert done.stderr == f"controller: {message}\n"
    assert ready == {"error": message}


def test_a_port_in_use_is_exit_3(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done, ready = run(tmp_path, DOCUMENT, "--port", str(port))
    message = f"cannot listen on 127.0.0.1:{port}: Address already in use"
    assert done.returncode == 3
    assert done.stderr == f"controller: {message}\n"
    assert ready == {"error": message}


def test_no_switch_in_time_is_exit_3(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    done, ready = run(tmp_path, DOCUMENT, "--port", str(port), "--timeout", "0.25")
    assert done.returncode == 3
    assert ready == {"error": "after 0.25 s: leaf1 did not connect"}


def test_another_framework_is_a_usage_error(tmp_path: Path) -> None:
    done, _ = run(tmp_path, DOCUMENT, "--framework", "pox")
    assert done.returncode == 2
    assert "argument --framework: invalid choice: 'pox' (choose from 'os-ken', 'ryu')" in done.stderr


@pytest.mark.parametrize("name", sorted(FRAMEWORKS))
def test_the_variable_chooses_the_framework(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(VARIABLE, name)
    assert selected() is FRAMEWORKS[name]


def test_there_is_no_framework_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ControllerError) as caught:
        selected()
    assert str(caught.value) == "KV_TESTBED_FRAMEWORK is '', expected os-ken or ryu"


def test_a_framework_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ControllerError) as caught:
        prepare(FRAMEWORKS["ryu"])
    assert str(caught.value) == f"ryu is not installed for {sys.executable}"


def test_a_file_appears_as_a_whole(tmp_path: Path) -> None:
    write_json(tmp_path / "ready.json", {"a": 1})
    write_json(tmp_path / "ready.json", {"b": 2})
    assert json.loads((tmp_path / "ready.json").read_text()) == {"b": 2}
    assert os.listdir(tmp_path) == ["ready.json"]
