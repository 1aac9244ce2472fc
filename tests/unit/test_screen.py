"""What a program may be started with: streams that are closed, or that cannot show every character."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.analysis import write_outputs
from testbed.record.reader import Record
from tests.support.synthetic import incast, write_record

LIMIT_S = 60
COMMAND = [sys.executable, "-m", "testbed.cli"]

LOOK = """\
import os, sys
from testbed.screen import open_streams
open_streams()
print("out")
print("error", file=sys.stderr)
assert sys.stdin.read() == ""
next_file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
sys.exit(next_file if all(os.get_inheritable(number) for number in range(3)) else 1)
"""


@pytest.mark.parametrize(
    ("redirections", "seen"),
    [("<&- >&- 2>&-", ""), ("<&- 2>&-", "out\n"), ("<&- >&-", ""), ("</dev/null", "out\n")],
)
def test_closed_streams_lead_nowhere_and_no_file_takes_their_place(
    tmp_path: Path, redirections: str, seen: str
) -> None:
    file = tmp_path / "file"
    words = ["sh", "-c", f'exec "$0" "$@" {redirections}', sys.executable, "-c", LOOK, str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert (done.returncode, done.stdout, file.read_text()) == (3, seen, "")
    assert done.stderr == ("" if "2>" in redirections else "error\n")


def test_a_record_is_shown_in_ascii_where_there_is_nothing_else(tmp_path: Path) -> None:
    record = write_record(tmp_path / "run", incast(senders=2, size=4 << 20))
    write_outputs(Record.open(record))
    done = subprocess.run(
        [*COMMAND, "report", str(record)], env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert "2 of 2 done  8.39 MB" in done.stdout.decode("ascii")


def test_what_an_encoding_lacks_is_spelt_out() -> None:
    words = "from testbed.screen import open_streams\nopen_streams()\nprint('caf\\xe9')"
    done = subprocess.run(
        [sys.executable, "-c", words], env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True, check=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.stdout == b"caf\\xe9\n"
