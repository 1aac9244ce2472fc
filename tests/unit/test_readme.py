from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed import errors
from testbed.cli import build_parser
from testbed.scenario.loader import load_scenario

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]


def fenced_commands(document: str) -> list[str]:
    """The lines of the document's fenced shell blocks, without comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)
    lines = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def subcommands() -> set[str]:
    """The subcommands of the command line, from its own parser."""
    action = next(action for action in build_parser()._actions if action.dest == "command" or action.choices)
    return set(action.choices or ())


COMMANDS = fenced_commands("README.md")


def test_the_readme_has_the_two_commands_first() -> None:
    assert COMMANDS[:2] == ["make demo", "make test"]
    assert len(COMMANDS) >= 10


@pytest.mark.parametrize("command", [line for line in COMMANDS if line.startswith("make ")])
def test_every_make_target_exists(command: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert command.split()[1] in targets


@pytest.mark.parametrize("command", [line for line in COMMANDS if "testbed " in line])
def test_every_testbed_command_is_parsed_as_written(command: str) -> None:
    program, *arguments = command.split()
    assert program == ".venv/bin/testbed"
    assert arguments[0] in subcommands()
    build_parser().parse_args(arguments)


def test_every_subcommand_is_in_the_readme() -> None:
    documented = {line.split()[1] for line in COMMANDS if "testbed " in line}
    assert documented == subcommands()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_to_a_file_leads_somewhere(document: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / document).read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_named_in_code_type_exists(document: str) -> None:
    folders = r"testbed|topologies|traffic|controller|scripts|tests|docs|\.ci"
    names = re.findall(rf"`((?:{folders})/[\w./-]*)`", (ROOT / document).read_text())
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_the_exit_codes_are_those_of_the_error_tree() -> None:
    text = (ROOT / "README.md").read_text()
    documented = {int(code) for code in re.findall(r"^\| (\d) \|", text, re.MULTILINE)}
    raised = {error.exit_code for error in vars(errors).values() if isinstance(error, type)}
    assert documented == raised | {0}


def test_the_example_scenario_is_one(tmp_path: Path) -> None:
    block = re.search(r"^```yaml\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert block is not None
    path = tmp_path / "two-decoders.yaml"
    path.write_text(block[1])
    load_scenario(str(path))
