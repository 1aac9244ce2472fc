"""What is kept of a packet that leaves, how often a tap is looked at, and reading the rows again."""

from __future__ import annotations

import json
import struct
from array import array
from pathlib import Path

import numpy as np
import pytest
from scapy.layers.inet import IP, TCP  # type: ignore[import-untyped]
from scapy.layers.l2 import ARP, Ether  # type: ignore[import-untyped]

from testbed.errors import InputError
from testbed.lab.tap import OUTGOING_ONLY, SNAP_BYTES, Departure, departure
from testbed.record import layout
from testbed.record.reader import Record
from testbed.run.departures import LOOK_MAX_NS, SLOTS, look_ns
from tests.support.synthetic import incast, write_record

PACKET = bytes(
    Ether() / IP(src="10.1.2.3", tos=0x0B) / TCP(sport=20_000, dport=5_000, seq=0xFEDCBA98) / bytes(100)
)


def test_of_a_packet_time_size_mark_source_and_sequence_are_kept() -> None:
    found = departure(memoryview(PACKET[:SNAP_BYTES]), len(PACKET), 123)
    assert found == Departure(123, 154, 3, 0x0A010203, 0xFEDCBA98)


def test_other_protocols_have_a_time_and_a_size() -> None:
    packet = bytes(Ether() / ARP())
    assert departure(memoryview(packet), len(packet), 5) == Departure(5, 42, 0, 0, 0)


def test_the_filter_lets_outgoing_packets_through_only() -> None:
    # In the words of linux/filter.h: load the type, keep so many bytes if it is PACKET_OUTGOING.
    load, jump, keep, drop = OUTGOING_ONLY
    assert load == (0x30, 0, 0, struct.unpack("=I", struct.pack("=i", -0x1000 + 4))[0])
    assert jump == (0x15, 0, 1, 4)
    assert (keep[3], drop[3]) == (SNAP_BYTES, 0)


@pytest.mark.parametrize("rate_bps", [100_000_000, 10_000_000_000, 400_000_000_000])
def test_a_ring_is_looked_at_before_it_is_full(rate_bps: int) -> None:
    smallest_ns = 64 * 8 * 1e9 / rate_bps
    assert look_ns(rate_bps) / smallest_ns <= SLOTS / 2
    assert look_ns(rate_bps) <= LOOK_MAX_NS
    assert look_ns(1_000_000) == LOOK_MAX_NS


def write(folder: Path, rows: list[tuple[int, ...]], lost: int = 0) -> None:
    (folder / layout.departure_rows("leaf3-d1")).write_bytes(array("q", sum(rows, ())).tobytes())
    header = {"format_version": 1, "link": "leaf3-d1", "rows": len(rows), "lost": lost}
    (folder / layout.departure_header("leaf3-d1")).write_text(json.dumps(header))


def test_departures_are_read_again(tmp_path: Path) -> None:
    folder = write_record(tmp_path / "run", incast(senders=2))
    write(folder, [(-5, 66, 0, 1, 7), (12, 4214, 3, 2, 8)], lost=4)
    found = Record.open(folder).departures("leaf3-d1")
    assert found.time_ns.tolist() == [-5, 12]
    assert found.frame_bytes.tolist() == [66, 4214]
    assert found.ecn.tolist() == [0, 3]
    assert (found.source.tolist(), found.sequence.tolist()) == ([1, 2], [7, 8])
    assert found.lost == 4
    assert found.time_ns.dtype == np.int64


def test_departures_that_were_not_recorded_are_refused(tmp_path: Path) -> None:
    folder = write_record(tmp_path / "run", incast(senders=2))
    with pytest.raises(InputError) as caught:
        Record.open(folder).departures("leaf3-d1")
    assert (
        str(caught.value) == f"{folder}: no departures of leaf3-d1: raw/departures-leaf3-d1.json is missing"
    )
