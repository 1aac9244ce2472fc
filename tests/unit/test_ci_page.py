"""The workflows to copy: valid YAML, commands that parse, and the repository's own beside them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.cli import build_parser
from testbed.regress.check import EXIT_CODES
from testbed.regress.limits import parse_limit
from testbed.scenario import load_scenario

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "ci.md").read_text()
OWN = (ROOT / ".github" / "workflows" / "regression.yml").read_text()
SCENARIO, GITHUB, GITLAB = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SHELL = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def texts(value: Any) -> list[str]:
    """Every text in a YAML document."""
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) else []


def commands(lines: list[str]) -> list[list[str]]:
    """The arguments of every call of the testbed in shell lines."""
    calls = re.findall(r"\.venv/bin/testbed ([^;|#\n]*)", "\n".join(lines))
    return [shlex.split(call) for call in calls]


@pytest.mark.parametrize("text", [GITHUB, GITLAB, OWN], ids=["github", "gitlab", "own"])
def test_a_workflow_checks_compares_and_caches(text: str) -> None:
    document = yaml.safe_load(text)
    found = commands(texts(document))
    assert [words[0] for words in found].count("check") == 2
    assert [words[0] for words in found].count("compare") == 1
    for words in found:
        options = build_parser().parse_args(words)
        for limit in getattr(options, "fail_if", []):
            parse_limit(limit)
    assert "KV_KERNEL_CACHE" in text
    assert "kernel-cache" in str(document)
    assert any("compare.md" in one and ("body" in one) for one in texts(document))


def test_own_and_copied_workflow_do_the_same() -> None:
    own, copied = (yaml.safe_load(text)["jobs"]["check"] for text in (OWN, GITHUB))
    assert own["container"] == copied["container"]
    assert own["env"] == copied["env"]
    names = [step.get("name") or step.get("uses") for step in own["steps"]]
    theirs = [step.get("name") or step.get("uses") for step in copied["steps"]]
    # The copy fetches the testbed as well, and speaks of settings.
    assert [str(name).replace("scenarios", "settings") for name in names] == [
        name for at, name in enumerate(map(str, theirs)) if at != 2
    ]


@pytest.mark.parametrize("line", [line for block in SHELL for line in block.splitlines()])
def test_commands_parse(line: str) -> None:
    (words,) = commands([line])
    build_parser().parse_args(words)


def test_the_scenario_of_the_page_loads(tmp_path: Path) -> None:
    path = tmp_path / "our-pod.yaml"
    path.write_text(SCENARIO)
    assert len(load_scenario(str(path)).expect) == 4
    line, told = re.findall(r"^our-pod\.yaml:(\d+): expected (.*), measured", PAGE, re.MULTILINE)[0]
    assert SCENARIO.splitlines()[int(line) - 1] == f"  - {told}"


def test_the_outcomes_are_those_of_the_check() -> None:
    rows = re.findall(r"^\| (\d) \| `([A-Za-z ]+)` \|", PAGE, re.MULTILINE)
    assert [(word, int(code)) for code, word in rows] == list(EXIT_CODES.items())


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGE)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
