"""A scenario, a trace or a record of somebody else cannot run a command, write outside its folder, or read
what it does not name; and what is printed or written of it stays what it is.
"""

from __future__ import annotations

import csv
import gzip
import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from testbed import cli
from testbed.analysis import transfer_losses, write_outputs
from testbed.errors import InputError
from testbed.lab.kernels import PROJECT
from testbed.plan.build import build_plan
from testbed.record import layout
from testbed.record.files import write_whole
from testbed.record.reader import Record
from testbed.record.writer import RecordWriter, in_use
from testbed.regress.compare import compare
from testbed.regress.compare_text import markdown
from testbed.repeat.again import open_record
from testbed.report import write_report
from testbed.scenario import load_scenario
from testbed.screen import cell
from tests.support.synthetic import edit_json, incast, write_record

TRACE = '{"timestamp": 0, "input_length": 10, "output_length": 1}\n'
SECRET = "the-secret-of-another-file"
ESCAPE = "\x1b]0;owned\x07\x1b[31m"
SCRIPT = "</script><script>alert(1)</script>"


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return write_record(tmp_path / "record", incast(senders=2, size=1 << 20))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")
    return path


def scenario(folder: Path, requests: dict[str, Any] | None = None, **other: Any) -> Path:
    workload = {"model": "llama-3.1-8b", "requests": requests or {"count": 2, "kv_bytes": "1mib"}}
    document = {"name": "small", "hosts": {"prefill": {"count": 2}}, "workload": workload, **other}
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(document))
    return path


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        act()
    return str(caught.value)


def planned(path: Path | str) -> None:
    build_plan(load_scenario(str(path)), seed=1, backend="uml", clock="virtual")


# ---- no end and no waiting ------------------------------------------------------------


def endless(folder: Path) -> Iterator[tuple[str, str]]:
    """Paths that cannot be read to an end, and what is said of each."""
    os.mkfifo(folder / "pipe")
    yield str(folder / "pipe"), "it is a pipe, and has to be a plain file"
    for device in ("/dev/zero", "/dev/full"):
        yield device, "it is a device, and has to be a plain file"
    yield "/proc/self/fd", "Is a directory"


def test_a_scenario_is_a_plain_file(tmp_path: Path) -> None:
    for path, why in endless(tmp_path):
        assert refusal(lambda path=path: load_scenario(path)) == f"{path}: cannot be read: {why}"


@pytest.mark.parametrize(
    ("requests", "other"),
    [
        ({"kind": "trace", "format": "mooncake", "path": "PATH"}, {}),
        ({"kind": "trace", "path": "PATH"}, {}),
        ({"count": 2, "prompt_tokens": {"cdf": "PATH"}}, {}),
        ({"count": 2, "prompt_tokens": 10}, {"model": {"config": "PATH"}}),
        ({"count": 2, "prompt_tokens": 10}, {"prefill": {"profile": "PATH"}}),
    ],
)
def test_whatever_a_scenario_names_is_a_plain_file(
    tmp_path: Path, requests: dict[str, Any], other: dict[str, Any]
) -> None:
    for path, _ in endless(tmp_path):
        text = json.dumps(
            {"name": "small", "workload": {"model": "llama-3.1-8b", "requests": requests, **other}}
        )
        file = tmp_path / "scenario.yaml"
        file.write_text(text.replace("PATH", path))
        message = refusal(lambda file=file: planned(file))
        assert "plain file" in message or "directory" in message or "is a folder" in message, message
        assert path in message or str(file) in message


@pytest.mark.parametrize("name", ["/proc/kmsg", "/proc/self/pagemap", "/proc/self/mem"])
def test_files_of_the_kernel_do_not_keep_it_waiting(tmp_path: Path, name: str) -> None:
    path = scenario(tmp_path, {"kind": "trace", "path": name})
    done = subprocess.run(
        [sys.executable, "-m", "testbed.cli", "plan", str(path)],
        env={"PYTHONPATH": str(PROJECT)}, capture_output=True, text=True, timeout=15,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert re.match(rf"testbed: ({name}|{path}:1)", done.stderr), done.stderr


@pytest.mark.parametrize("name", [layout.MANIFEST, layout.PLAN, layout.OUTCOMES, layout.PROGRESS])
def test_a_record_with_a_pipe_in_it_is_no_trap(record: Path, name: str) -> None:
    (record / name).unlink()
    os.mkfifo(record / name)
    try:
        problems = Record.open(record).problems
    except InputError as error:
        problems = (str(error),)
    assert any(f"{name} cannot be read: it is a pipe" in problem for problem in problems), problems
    assert not in_use(record)


def test_a_packed_trace_does_not_fill_the_machine(tmp_path: Path) -> None:
    failed = '{"timestamp": 0, "input_length": 10, "output_length": 0}\n'
    (tmp_path / "bomb").write_bytes(gzip.compress(failed.encode() * 200_000))
    path = scenario(tmp_path, {"kind": "trace", "format": "mooncake", "path": "bomb"})
    message = refusal(lambda: planned(path))
    assert re.fullmatch(rf"{tmp_path}/bomb:\d+: comes after more than 100 times the packed size; .*", message)
    (tmp_path / "bomb").write_bytes(gzip.compress(b"\n" * 10**7))
    message = refusal(lambda: planned(path))
    assert message == f"{tmp_path}/bomb:10001: is blank, as are the 10000 lines above it"


# ---- nothing is read that is not named ------------------------------------------------


def matrices(folder: Path, file: str) -> Path:
    (folder / "metadata.yaml").write_text(json.dumps({"traffic_patterns": [{"matrix_file": file}]}))
    return scenario(folder, {"kind": "trace", "format": "nixl", "path": "."})


@pytest.mark.parametrize("way", ["../secret", "/PATH", "link", "inner/../../secret"])
def test_a_matrix_lies_in_its_folder(tmp_path: Path, secret: Path, way: str) -> None:
    folder = tmp_path / "trace"
    (folder / "inner").mkdir(parents=True)
    (folder / "link").symlink_to(secret)
    name = str(secret) if way == "/PATH" else way
    message = refusal(lambda: planned(matrices(folder, name)))
    where = f"{folder}/metadata.yaml: traffic_patterns[0] has a matrix outside the folder"
    assert message.startswith(where)
    assert SECRET not in message


@pytest.mark.parametrize("name", [layout.PLAN, layout.MANIFEST, layout.OUTCOMES, layout.FACTS])
@pytest.mark.parametrize("of_what", ["file", "folder"])
def test_a_record_holds_its_own_files(record: Path, secret: Path, name: str, of_what: str) -> None:
    moved = record.parent / "elsewhere"
    part = record / name if of_what == "file" or "/" not in name else record / layout.RAW
    part.rename(moved)
    part.symlink_to(moved)
    try:
        problems = Record.open(record).problems
    except InputError as error:
        problems = (str(error),)
    assert any(f"{name} leads out of the record" in problem for problem in problems), problems


@pytest.mark.parametrize("name", ["../secret", "raw/../../secret", "{secret}"])
def test_a_manifest_names_the_records_own_files(record: Path, secret: Path, name: str) -> None:
    manifest = json.loads((record / layout.MANIFEST).read_text())
    outside = name.format(secret=secret)
    manifest["files"][outside] = {"bytes": secret.stat().st_size, "sha256": "0" * 64}
    (record / layout.MANIFEST).write_text(json.dumps(manifest))
    assert f"{outside} leads out of the record" in Record.open(record).problems


# ---- nothing is written outside, and nothing is run -----------------------------------


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "/tmp/x", "-rf", "a b", "$(id)", "x;id", "a\n", ".", "x" * 49]
)
def test_the_name_of_a_scenario_is_that_of_one_folder(tmp_path: Path, name: str) -> None:
    path = scenario(tmp_path, name=name)
    assert refusal(lambda: load_scenario(str(path))).startswith(f"{path}:1: name: is no valid name")


def test_a_link_in_a_record_is_replaced_and_not_written_through(record: Path, secret: Path) -> None:
    outputs = (layout.SUMMARY, layout.TRANSFERS, layout.REPORT)
    for name in outputs:
        (record / name).symlink_to(secret)
    for name in (*outputs, layout.MANIFEST):
        (record / f"{name}.part").symlink_to(secret)
    (record / ".lock").symlink_to(secret)
    assert cli.main(["report", str(record), "--json"]) == 0
    assert secret.read_text() == f"{SECRET}\n"
    assert not any((record / name).is_symlink() for name in outputs)


def test_a_run_into_the_record_of_a_stranger_writes_there_alone(record: Path, secret: Path) -> None:
    folder = secret.parent / "folder"
    folder.mkdir()
    (folder / "kept").touch()
    for name in (layout.RAW, layout.LOGS, ".lab"):
        subprocess.run(["rm", "-rf", str(record / name)], check=True)
        (record / name).symlink_to(folder)
    (record / layout.SCENARIO).unlink()
    (record / layout.SCENARIO).symlink_to(secret)
    plan = (record / layout.PLAN).read_text()
    writer = RecordWriter.create(record, scenario="name: incast\n", plan=plan)
    assert (record / layout.RAW).lstat().st_mode & 0o170000 == 0o040000  # a folder, and no link to one
    writer.finish(layout.COMPLETE, None, {})
    assert [path.name for path in folder.iterdir()] == ["kept"]
    assert secret.read_text() == f"{SECRET}\n"


def test_a_lock_that_leads_elsewhere_is_replaced(record: Path, secret: Path) -> None:
    (record / ".lock").symlink_to(secret)
    assert not in_use(record)
    plan = (record / layout.PLAN).read_text()
    RecordWriter.create(record, scenario="", plan=plan).finish(layout.COMPLETE, None, {})
    assert not (record / ".lock").is_symlink()
    assert secret.read_text() == f"{SECRET}\n"


def test_a_whole_file_is_a_new_one(tmp_path: Path, secret: Path) -> None:
    (tmp_path / "target").symlink_to(secret)
    write_whole(tmp_path / "target", "new")
    assert ((tmp_path / "target").read_text(), secret.read_text()) == ("new", f"{SECRET}\n")
    assert (tmp_path / "target").stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret", "target"]


COMMANDS = ("x; touch owned", "$(touch owned)", "`touch owned`", "../../x", "-x", "a b", "p1\n", "", "x" * 16)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("place", ["hosts", "switches", "nics"])
def test_a_plan_that_names_a_node_like_a_command_is_not_run_again(
    record: Path, place: str, name: str
) -> None:
    def rename(plan: Any) -> None:
        holder = plan["topology"]["hosts"][0]["nics"] if place == "nics" else plan["topology"][place]
        holder[0]["name"] = name

    edit_json(record, layout.PLAN, rename)
    write_whole(record / layout.SUMMARY, "{}")
    write_whole(record / layout.TRANSFERS, "")
    message = refusal(lambda: open_record(record))
    assert message.startswith(f"{record}: the record cannot be read: plan.json: there is a "), message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("framework", "../../tmp/evil"), ("backend", "x"), ("clock", "x"), ("scenario", "../../x"),
        ("dilation", 0.5), ("mtu", 0), ("expectations", ["__import__('os').system('id')"]),
    ],
)  # fmt: skip
def test_a_plan_is_one_of_testbeds(record: Path, key: str, value: Any) -> None:
    edit_json(record, layout.PLAN, lambda plan: plan.update({key: value}))
    message = refusal(lambda: Record.open(record))
    assert message.startswith(f"{record}: the record cannot be read: plan.json: plan.{key} "), message


TAGS = (
    "!!python/object/apply:os.system ['touch owned']",
    "!!python/name:os.system",
    "!!python/object/new:subprocess.Popen [[touch, owned]]",
    "!!binary aGVsbG8=",
    "!include /etc/passwd",
)


@pytest.mark.parametrize("tag", TAGS)
def test_yaml_makes_no_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tag: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "scenario.yaml"
    path.write_text(f"name: small\ndescription: {tag}\n")
    assert refusal(lambda: load_scenario(str(path))).startswith("scenario.yaml:2: ")
    (tmp_path / "metadata.yaml").write_text(f"traffic_patterns:\n- sleep_before_launch_sec: {tag}\n")
    message = refusal(lambda: planned(scenario(tmp_path, {"kind": "trace", "format": "nixl", "path": "."})))
    assert message.startswith("./metadata.yaml")
    assert not (tmp_path / "owned").exists()


def bomb(levels: int) -> str:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(rows)


def test_aliases_of_aliases_do_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(f"name: small\n{bomb(12)}\n")
    assert "aliases (*name) are not supported" in refusal(lambda: load_scenario(str(path)))
    text = f"{bomb(12)}\ntraffic_patterns:\n- sleep_before_launch_sec: *a11\n"
    (tmp_path / "metadata.yaml").write_text(text)
    message = refusal(lambda: planned(scenario(tmp_path, {"kind": "trace", "format": "nixl", "path": "."})))
    assert message == f"{tmp_path}/metadata.yaml: is not valid YAML: line 2 has an alias; write the value out"


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch owned') == 0",
        "ttft_ms.__class__ == 1",
        "().__class__.__bases__[0] == 1",
        "open('/etc/passwd').read() == x",
        "ttft_ms.p99 < 9**9**9**9",
        "ttft_ms.p99 < lambda: 0",
    ],
)
def test_an_expectation_is_parsed_and_never_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = scenario(tmp_path, expect=[text])
    assert refusal(lambda: load_scenario(str(path))).startswith("scenario.yaml:1: expect.0: ")
    assert cli.main(["compare", "a", "b", "--fail-if", text]) == 2
    assert not (tmp_path / "owned").exists()


# ---- what is shown of it --------------------------------------------------------------


class Page(HTMLParser):
    """The elements of a page, and whether a script or a handler came into it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts = 0
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


HOSTILE = f"""{SCRIPT}<img src=x onerror=alert(1)>'" onload="x"""


def hostile_record(folder: Path) -> Path:
    """A record that has markup in every text that may be free."""
    case = incast(senders=2, size=1 << 20)
    record = write_record(folder, replace(case, plan=replace(case.plan, description=HOSTILE)))
    (record / layout.ENVIRONMENT).write_text(json.dumps({HOSTILE: HOSTILE, "command": [HOSTILE]}))

    def outcomes(listed: Any) -> None:
        listed[0].update(error=HOSTILE, end_ns=None)
        listed[1]["congestion_control"] = {"sender": HOSTILE, "receiver": HOSTILE}

    edit_json(record, layout.OUTCOMES, outcomes)
    edit_json(record, layout.FACTS, lambda facts: facts["readback"].append({"where": HOSTILE, "ok": False}))
    edit_json(record, layout.TCP_COUNTERS, lambda found: found.update({HOSTILE: {"TCPMemoryPressures": 1}}))
    manifest = json.loads((record / layout.MANIFEST).read_text())
    (record / layout.MANIFEST).write_text(json.dumps({**manifest, "status": HOSTILE, "reason": HOSTILE}))
    return record


def test_the_report_escapes_whatever_a_record_says(tmp_path: Path) -> None:
    record = hostile_record(tmp_path / "record")
    opened = Record.open(record)
    losses = transfer_losses(opened)
    text = write_report(opened, write_outputs(opened, losses), losses).read_text()
    page = Page(text)
    assert (page.scripts, page.handlers) == (1, [])
    assert html.escape("<img src=x onerror=alert(1)>") in text
    assert "script-src 'sha256-" in text


def test_the_comparison_escapes_whatever_a_record_says(tmp_path: Path) -> None:
    before, after = (hostile_record(tmp_path / name) for name in ("a", "b"))
    for record in (before, after):
        found = write_outputs(Record.open(record))
        found["verdict"]["link"] = HOSTILE
        found["scenario"] = HOSTILE
        found["links"][HOSTILE] = found["links"].pop("leaf3-d1")
        write_whole(record / layout.SUMMARY, json.dumps(found))
        manifest = json.loads((record / layout.MANIFEST).read_text())
        (record / layout.MANIFEST).write_text(json.dumps({**manifest, "status": layout.COMPLETE}))
    words = ["compare", str(before), str(after), "--html", str(tmp_path / "page.html")]
    assert cli.main([*words, "--markdown", str(tmp_path / "page.md")]) == 4
    page = Page((tmp_path / "page.html").read_text())
    assert (page.scripts, page.handlers) == (0, [])
    outside_code = re.sub(r"`[^`\n]*`", "", (tmp_path / "page.md").read_text())
    assert "<" not in outside_code.replace("&lt;", "")


def test_a_terminal_is_shown_no_control_character(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = write_record(tmp_path / f"r{ESCAPE}", incast(senders=2, size=1 << 20))
    edit_json(record, layout.OUTCOMES, lambda listed: listed[0].update(error=f"{ESCAPE}\u202e", end_ns=None))
    assert cli.main(["report", str(record)]) == 0
    out = capsys.readouterr().out
    assert "\\x1b]0;owned\\x07\\x1b[31m\\u202e" in out
    assert cli.main(["report", f"none{ESCAPE}"]) == 2
    assert cli.main(["plan", f"none{ESCAPE}.yaml"]) == 2
    shown = out + capsys.readouterr().err
    assert [letter for letter in shown if not letter.isprintable() and letter not in "\n\xa0"] == []


def test_a_scenario_has_no_control_character(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    for line in (f'description: "{"a" * 3}\\e[31m"', "expect: [\"verdict.segment == '\\e[31m'\"]"):
        path.write_text(f"name: small\n{line}\n")
        assert "has characters that cannot be printed" in refusal(lambda: load_scenario(str(path)))


@pytest.mark.parametrize("start", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1"])
def test_a_table_holds_no_formula(record: Path, start: str) -> None:
    edit_json(record, layout.OUTCOMES, lambda listed: listed[0].update(error=start, end_ns=None))
    write_outputs(Record.open(record))
    with (record / layout.TRANSFERS).open(newline="") as file:
        assert next(csv.DictReader(file))["error"] == f"'{start}"


@pytest.mark.parametrize("value", ["-5", "+5%", "-1.5e-7", 7, -7, None, "p1", "leaf1-p1", ""])
def test_a_number_of_a_table_stays_one(value: object) -> None:
    assert cell(value) == value


def test_markdown_of_a_comparison_holds_no_markup(tmp_path: Path) -> None:
    records = [write_record(tmp_path / name, incast(senders=2, size=1 << 20)) for name in "ab"]
    for record in records:
        found = write_outputs(Record.open(record))
        found["scenario"] = "a|b`c`<img>[x](http://x)\x1b"
        write_whole(record / layout.SUMMARY, json.dumps(found))
    text = markdown(compare(*records), [], ("`a|", "b`"))
    assert "**a\\|b\\`c\\`&lt;img>\\[x](http://x)\\x1b**" in text
    assert "A: `'a\\|`, B: `b'`" in text
