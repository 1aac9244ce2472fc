"""Trace files: every format's rows, how a format is recognised, and what damaged files are refused with."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.plan.plain_yaml import load_yaml
from traffic.traces import FORMATS, nixl, recognise
from traffic.traces.files import LINE_BYTES_MAX, lines
from traffic.traces.rows import Reading, Row, TraceError, Unusable

DATA = Path(__file__).resolve().parents[1] / "data" / "traces"
S = 10**9
MS = 10**6
READING = Reading(load_yaml=load_yaml)


def rows(path: Path | str, name: str = "auto", reading: Reading = READING) -> list[Row | Unusable]:
    chosen = recognise(str(path)) if name == "auto" else FORMATS[name]
    return list(chosen.read(str(path), reading))


def written(folder: Path, text: str | bytes, name: str = "trace") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(path: Path, name: str = "auto") -> str:
    with pytest.raises(TraceError) as caught:
        rows(path, name)
    return str(caught.value).replace(str(path), "FILE").replace(str(path.parent), "DIR")


# ---- what each field becomes ----------------------------------------------------------


def test_mooncake() -> None:
    assert rows(DATA / "mooncake.jsonl") == [
        Row(1, 0, 1500, 12, (0, 1, 2)),
        Row(2, 0, 700, 3, (0, 3)),
        Row(3, 3 * S, 1024, 1, (0, 1)),
        Row(4, 3 * S, 1, 40, (4,)),
        Unusable(5, 3 * S, "no output tokens (a failed request)"),
        Row(6, 6 * S, 512, 7, (0,)),
        Unusable(7, 6 * S, "no prompt tokens"),
        Row(8, 12 * S, 3000, 20, (0, 1, 2, 7, 8, 9)),
        Row(9, 12 * S, 3000, 20, (0, 1, 2, 7, 8, 9)),
    ]


def test_azure_with_seven_decimals_and_carriage_returns() -> None:
    first, second, third = rows(DATA / "azure-2023.csv")
    assert isinstance(first, Row)
    assert isinstance(third, Row)
    assert (first.line, first.prompt_tokens, first.output_tokens, first.prefix_blocks) == (2, 4808, 10, ())
    assert second.at_ns == (first.at_ns or 0) + 52 * MS
    # 5 h 42 min 56.02004 s to midnight, and then a tenth of a microsecond.
    assert third.at_ns - first.at_ns == (5 * 3600 + 42 * 60 + 56) * S + 20_040_100
    assert (third.prompt_tokens, third.output_tokens) == (110, 27)


def test_azure_with_offsets_a_byte_order_mark_and_another_column() -> None:
    found = rows(DATA / "azure-2024.csv")
    start_ns = (found[1].at_ns or 0) - 1 * S
    times = [None if row.at_ns is None else row.at_ns - start_ns for row in found]
    assert times == [9_930_000, 1 * S, 2_500_000_000, 3 * S, None]
    assert [type(row) for row in found] == [Row, Row, Unusable, Row, Unusable]
    assert isinstance(found[4], Unusable)
    assert found[4].reason == "an empty field"


def test_burstgpt() -> None:
    assert rows(DATA / "burstgpt.csv") == [
        Row(2, 5 * S, 472, 18),
        Row(3, 45 * S, 1087, 230),
        Unusable(4, 45 * S, "no prompt tokens"),
        Unusable(5, 45 * S, "no output tokens (a failed request)"),
        Row(6, 45_500 * MS, 417, 276),
    ]


def test_splitwise() -> None:
    assert rows(DATA / "splitwise.csv") == [
        Row(2, 250 * MS, 4096, 32),
        Row(3, 1 * S, 2048, 8),
        Unusable(4, 1_500 * MS, "a batch that is not 1"),
        Row(5, 2 * S, 1000, 1),
    ]


def cell(line: int, at_ns: int, size: int, src: int, dst: int) -> Row:
    return Row(line, at_ns, 0, 0, kv_bytes=size, ranks=(src, dst))


@pytest.mark.parametrize("path", [DATA / "nixl", DATA / "nixl" / "metadata.yaml"], ids=["folder", "file"])
def test_nixl(path: Path) -> None:
    assert rows(path) == [
        cell(1, 500 * MS, 2**20, 0, 2),
        cell(2, 500 * MS, 1536, 1, 3),
        Unusable(0, 750 * MS, "a pattern of storage only"),
        cell(2, 1_750 * MS, 7, 0, 3),
        cell(3, 1_750 * MS, 3, 1, 1),
        cell(3, 1_750 * MS, 100, 1, 2),
        cell(4, 1_750 * MS, 2048, 2, 3),
        cell(1, 3_750 * MS, 2**20, 0, 2),
        cell(2, 3_750 * MS, 1536, 1, 3),
    ]
    assert nixl.ranks_of(str(path), READING) == 4


def test_what_is_written_for_nixl_is_read_again(tmp_path: Path) -> None:
    cells = [(5, 0, 2, 100), (5, 1, 3, 7), (5, 0, 2, 11), (2 * S + 1, 1, 2, 2**40)]
    for name, text in nixl.files(cells, 4):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert rows(tmp_path) == [
        cell(1, 5, 100, 0, 2),
        cell(2, 5, 7, 1, 3),
        cell(1, 5, 11, 0, 2),
        cell(2, 2 * S + 1, 2**40, 1, 2),
    ]


def test_nothing_is_written_for_nixl_as_an_empty_list() -> None:
    assert dict(nixl.files([], 4)) == {"metadata.yaml": "traffic_patterns: []\n"}


def test_another_unit_and_another_block_where_they_are_declared(tmp_path: Path) -> None:
    path = written(
        tmp_path, '{"timestamp": 1.5, "input_length": 40, "output_length": 1, "hash_ids": [7, 8, 9]}'
    )
    assert rows(path, reading=Reading(S, 16)) == [Row(1, 1_500 * MS, 40, 1, (7, 8, 9), 16)]
    table = written(tmp_path, "Timestamp,Request tokens,Response tokens\n250,1,1\n")
    assert rows(table, reading=Reading(MS)) == [Row(2, 250 * MS, 1, 1)]


def test_a_row_without_hashes_has_no_prefix(tmp_path: Path) -> None:
    path = written(tmp_path, '{"timestamp": 1, "input_length": 40, "output_length": 1}\n')
    assert rows(path) == [Row(1, 1 * MS, 40, 1, ())]


# ---- files ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mooncake.jsonl", "azure-2023.csv", "azure-2024.csv", "burstgpt.csv"])
def test_gzip_a_mark_carriage_returns_and_blank_lines_change_nothing(name: str, tmp_path: Path) -> None:
    plain = (DATA / name).read_bytes().removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").rstrip(b"\n")
    expected = rows(DATA / name)
    variants = {
        "plain": plain,
        "mark": b"\xef\xbb\xbf" + plain,
        "crlf": plain.replace(b"\n", b"\r\n") + b"\r\n\r\n",
        "packed": gzip.compress(plain + b"\n\n", mtime=0),
        "packed.gz": gzip.compress(b"\xef\xbb\xbf" + plain, mtime=0),
    }
    for variant, content in variants.items():
        assert rows(written(tmp_path, content, variant)) == expected, variant


def test_each_format_is_recognised_by_its_structure() -> None:
    names = {
        "mooncake.jsonl": "mooncake",
        "azure-2023.csv": "azure",
        "azure-2024.csv": "azure",
        "burstgpt.csv": "burstgpt",
        "splitwise.csv": "splitwise",
        "nixl": "nixl",
        "nixl/metadata.yaml": "nixl",
    }
    assert {name: recognise(str(DATA / name)).name for name in names} == names
    assert set(names.values()) == set(FORMATS)


def test_large_and_small_numbers_recognise_nothing(tmp_path: Path) -> None:
    """Seconds in Mooncake's fields are not guessed: without `unit_ns` they are milliseconds."""
    path = written(tmp_path, '{"timestamp": 1700000000.5, "input_length": 5, "output_length": 1}\n')
    assert rows(path) == [Row(1, 1_700_000_000_500_000, 5, 1)]


MOONCAKE = {"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}


def changed(**changes: object) -> str:
    return "\n" + json.dumps({**MOONCAKE, **changes}) + "\n"


BAD_LINES = {
    "no-json": (
        "{]",
        "is no JSON object: Expecting property name enclosed in double quotes, column 2",
    ),
    "a-list": ("[1]", "is no JSON object (found [1])"),
    "deep": ("[" * 100_000, None),
    "no-field": (
        '{"timestamp": 1}',
        "has no 'input_length'; a row has timestamp, input_length, output_length",
    ),
    "text-time": (
        changed(timestamp="2024-01-01").strip(),
        "timestamp is no number of 0 or more (found 2024-01-01)",
    ),
    "negative": (changed(timestamp=-1).strip(), "timestamp is no number of 0 or more (found -1)"),
    "true": (changed(timestamp=True).strip(), "timestamp is no number of 0 or more (found True)"),
    "nan": (changed(timestamp=float("nan")).strip(), "timestamp is no number of 0 or more (found nan)"),
    "half": (changed(input_length=1.5).strip(), "input_length is no whole number of 0 or more (found 1.5)"),
    "object": (changed(hash_ids={"a": 1}).strip(), "hash_ids is no list of whole numbers (found {'a': 1})"),
    "words": (
        changed(hash_ids=["a", "b"]).strip(),
        "hash_ids is no list of whole numbers (found ['a', 'b'])",
    ),
    "blocks": (
        changed(hash_ids=[1] * 38).strip(),
        "has 38 hash_ids, and 600 tokens are 2 blocks of 512; block_tokens says how many tokens a block has",
    ),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_line_that_is_no_row_of_mooncake(name: str, tmp_path: Path) -> None:
    text, wrong = BAD_LINES[name]
    path = written(tmp_path, json.dumps(MOONCAKE) + "\n\n" + text)
    found = refusal(path)
    assert found.startswith("FILE:3: ")
    if wrong is not None:
        assert found == f"FILE:3: {wrong}"


AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (AZURE + "16.11.2023 18:17,1,1", "FILE:3: TIMESTAMP is no date with a time (found 16.11.2023 18:17)"),
        (
            AZURE + "2023-02-29 18:17:03,1,1",
            "FILE:3: TIMESTAMP is a date that does not exist (found 2023-02-29 18:17:03)",
        ),
        (
            AZURE + "2023-11-16 24:00:00,1,1",
            "FILE:3: TIMESTAMP is a date that does not exist (found 2023-11-16 24:00:00)",
        ),
        (AZURE + "2023-11-16 18:17:03,1", "FILE:3: has 2 fields, and the header 3"),
        (AZURE + "2023-11-16 18:17:03,1,1,1", "FILE:3: has 4 fields, and the header 3"),
        (
            AZURE + "2023-11-16 18:17:03,x,1",
            "FILE:3: ContextTokens is no whole number of 0 or more (found x)",
        ),
        (
            AZURE + "2023-11-16 18:17:03,1,-5",
            "FILE:3: GeneratedTokens is no whole number of 0 or more (found -5)",
        ),
        (AZURE + '2023-11-16 18:17:03,"1,1', "FILE:3: is no row of CSV: unexpected end of data"),
        (
            "Timestamp,Request tokens,Response tokens\n1_0,1,1\n",
            "FILE:2: Timestamp is no number of 0 or more (found 1_0)",
        ),
        ("", "FILE: is empty"),
        ("\n\n", "FILE: is empty"),
    ],
)
def test_a_row_that_is_none_of_its_table(text: str, message: str, tmp_path: Path) -> None:
    assert refusal(written(tmp_path, text)) == message


def test_whole_numbers_with_a_point_are_whole(tmp_path: Path) -> None:
    table = written(tmp_path, "Timestamp,Request tokens,Response tokens\n1,7.0,3.\n")
    assert rows(table) == [Row(2, 1 * S, 7, 3)]


def test_a_file_that_is_not_what_was_declared() -> None:
    path = DATA / "burstgpt.csv"
    with pytest.raises(TraceError) as caught:
        rows(path, "azure")
    assert str(caught.value) == (
        f"{path}:1: has no column 'TIMESTAMP' (found Timestamp, Model, Request tokens, Res...)"
    )


def test_a_file_of_no_known_format(tmp_path: Path) -> None:
    assert refusal(written(tmp_path, "\nwhen,prompt,answer\n1,2,3\n")) == (
        "FILE:1: has no format that is known (found when,prompt,answer); the fields are "
        "mooncake: timestamp, input_length, output_length; azure: TIMESTAMP, ContextTokens, GeneratedTokens; "
        "burstgpt: Timestamp, Request tokens, Response tokens; "
        "splitwise: arrival_timestamp, prompt_size, token_size, batch_size; nixl: traffic_patterns"
    )
    odd = refusal(written(tmp_path, "when\rprompt,answer\n1,2\n"))
    assert odd.startswith("FILE:1: has no format that is known (found when\\rprompt,answer); ")
    assert refusal(tmp_path) == "FILE: is a folder without metadata.yaml; of folders only NIXL's are read"


def test_damaged_files(tmp_path: Path) -> None:
    packed = gzip.compress((AZURE + AZURE.splitlines(True)[1] * 5000).encode(), mtime=0)
    short = refusal(written(tmp_path, packed[: len(packed) // 2]), "azure")
    assert re.fullmatch(r"FILE:[0-9]+: is damaged: .*; fetch the file again", short)
    flipped = packed[:-6] + bytes([packed[-6] ^ 255]) + packed[-5:]
    assert ": is damaged: CRC check failed" in refusal(written(tmp_path, flipped), "azure")
    assert refusal(written(tmp_path, "\n".encode("utf-16"))) == "FILE:1: is not UTF-8 text"
    assert refusal(written(tmp_path, AZURE.encode() + b"\xff"), "azure") == "FILE:3: is not UTF-8 text"
    assert (
        refusal(written(tmp_path, b"{" + b" " * LINE_BYTES_MAX)) == "FILE:1: is longer than 4 MiB; no row is"
    )
    assert refusal(tmp_path / "nothing", "azure") == "FILE: cannot be read: No such file or directory"
    assert refusal(tmp_path, "azure") == "FILE: cannot be read: Is a directory"


NIXL_BAD = {
    "list": ("- 1", {}, "FILE: has no list of mappings traffic_patterns"),
    "text": ("traffic_patterns: [a]", {}, "FILE: has no list of mappings traffic_patterns"),
    "yaml": ("traffic_patterns: [", {}, None),
    "sleep": (
        "traffic_patterns: [{matrix_file: m, sleep_before_launch_sec: soon}]",
        {"m": "0"},
        "FILE: traffic_patterns[0].sleep_before_launch_sec is no number of seconds (found soon)",
    ),
    "no-file": ("traffic_patterns: [{matrix: [[0]]}]", {}, "FILE: traffic_patterns[0] has no matrix_file"),
    "absent": (
        "traffic_patterns: [{matrix_file: m}]",
        {},
        "DIR/m: cannot be read: No such file or directory",
    ),
    "wide": (
        "traffic_patterns: [{matrix_file: m}]",
        {"m": "0 0\n0\n"},
        "DIR/m:2: is no row of a square matrix of 2 ranks",
    ),
    "long": (
        "traffic_patterns: [{matrix_file: m}]",
        {"m": "0 0\n0 0\n0 0\n"},
        "DIR/m:3: is no row of a square matrix of 2 ranks",
    ),
    "short": (
        "traffic_patterns: [{matrix_file: m}]",
        {"m": "0 0\n"},
        "DIR/m:1: has 1 rows of 2: the matrix is not square",
    ),
    "unit": (
        "traffic_patterns: [{matrix_file: m}]",
        {"m": "0 1X\n0 0\n"},
        "DIR/m:1: is no size (found 1X); write a number with K, M or G",
    ),
}


@pytest.mark.parametrize("name", NIXL_BAD)
def test_matrices_that_are_none(name: str, tmp_path: Path) -> None:
    text, files, message = NIXL_BAD[name]
    for file, content in files.items():
        written(tmp_path, content, file)
    found = refusal(written(tmp_path, text, "metadata.yaml"), "nixl")
    if message is None:
        assert found.startswith("FILE: is not valid YAML: ")
    else:
        assert found == message


def test_lines_are_read_one_at_a_time(tmp_path: Path) -> None:
    """What is behind the first row is not looked at before it is asked for."""
    path = written(tmp_path, b"first\n\xff\n")
    reader: Iterator[tuple[int, str]] = lines(str(path))
    assert next(reader) == (1, "first")
    with pytest.raises(TraceError, match=r":2: is not UTF-8 text$"):
        next(reader)


def test_a_message_is_short_whatever_a_file_is_called(tmp_path: Path) -> None:
    patterns = [{"matrix_file": " " * 70_000}]
    (tmp_path / "metadata.yaml").write_text(json.dumps({"traffic_patterns": patterns}))
    assert len(refusal(tmp_path, "nixl")) < 400
