"""Captures: the file as scapy reads it, the filter, and links that there are none of."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from scapy.utils import PcapNgReader

from testbed.cli import main
from testbed.record import layout
from testbed.run.capture import SNAPLEN_MAX, outgoing_filter
from testbed.run.pcapng import PcapngWriter


def test_the_file_is_read_by_another_program(tmp_path: Path) -> None:
    path = tmp_path / "link.pcapng"
    with PcapngWriter(path, "leaf1-p1", snaplen=100, comment="seed 1") as writer:
        writer.packet(12_000_000_003, b"abc", 1500)
        writer.packet(12_000_000_340, b"defgh", 5)
        writer.close(13_000_000_000, received=2, dropped=0)
    with PcapNgReader(str(path)) as reader:
        read = [(packet.load, packet.wirelen, packet.time) for packet in map(_raw, reader)]
    assert [(data, length) for data, length, _ in read] == [(b"abc", 1500), (b"defgh", 5)]
    assert [f"{time:.9f}" for _, _, time in read] == ["12.000000003", "12.000000340"]


def _raw(packet: object) -> object:
    from scapy.packet import Raw

    made = Raw(bytes(packet))  # type: ignore[call-overload]
    made.wirelen, made.time = packet.wirelen, packet.time  # type: ignore[attr-defined]
    return made


def test_the_file_ends_with_what_was_seen_and_lost(tmp_path: Path) -> None:
    path = tmp_path / "link.pcapng"
    PcapngWriter(path, "leaf1-p1", snaplen=100, comment="").close(5, received=7, dropped=3)
    statistics = path.read_bytes()[-60:]
    assert struct.pack("<HHQ", 4, 8, 7) in statistics
    assert struct.pack("<HHQ", 5, 8, 3) in statistics


def test_the_filter_keeps_what_leaves_and_cuts_it() -> None:
    steps = [struct.unpack_from("=HBBI", outgoing_filter(128), 8 * number) for number in range(4)]
    assert steps == [(0x28, 0, 0, 0xFFFFF004), (0x15, 0, 1, 4), (0x06, 0, 0, 128), (0x06, 0, 0, 0)]


def test_a_capture_has_its_place_in_the_record() -> None:
    assert layout.capture("leaf1-p1") == "raw/capture-leaf1-p1.pcapng"
    assert SNAPLEN_MAX == 65_535


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--capture", "leaf3-d2"],
            "--capture leaf3-d2: is no cable of incast; one is p1-leaf1; did you mean",
        ),
        (["--snaplen", "10"], "'10' is no whole number from 64 to 65535"),
    ],
)
def test_what_cannot_be_captured_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "incast", *words]) == 2
    assert said in capsys.readouterr().err
