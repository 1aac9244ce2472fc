"""The messages that close and open a port, against the kernel's structs worked out by hand."""

from __future__ import annotations

import errno
import struct
from typing import Any

import pytest

from testbed.errors import LabError
from testbed.lab.gates import GATED_PARENT, KICK_CLASS, add_gate, gate_message, tbf_options
from testbed.lab.netlink import HtbClass, Netlink, attributes, messages

LIMIT = 4_000_000


def parts(data: bytes, start: int = 0) -> dict[int, bytes]:
    return {kind: data[first:last] for kind, first, last in attributes(data, start, len(data))}


def bucket(options: bytes) -> tuple[int, int, int, int]:
    """The smallest size a packet counts as, bytes per second, bucket (ns), and the limit for a fifo."""
    found = parts(options)
    (mpu,) = struct.unpack_from("=H", found[1], 6)
    limit, ticks, _ = struct.unpack_from("=III", found[1], 24)
    (rate,) = struct.unpack("=Q", found[4])
    return mpu, rate, ticks * 64, limit


def test_a_closed_gate_never_has_tokens_for_one_packet() -> None:
    mpu, rate, bucket_ns, limit = bucket(tbf_options(closed=True, limit_bytes=LIMIT))
    assert mpu * 1e9 / rate > bucket_ns
    # tbf drops at once what is longer than its bucket.
    assert bucket_ns * rate / 1e9 > 9216 + 14
    assert limit == LIMIT


def test_an_open_gate_is_no_bottleneck() -> None:
    mpu, rate, bucket_ns, limit = bucket(tbf_options(closed=False, limit_bytes=LIMIT))
    assert mpu == 0
    assert rate * 8 >= 10 * 1_000_000_000_000
    assert bucket_ns >= 1_000_000
    assert limit == LIMIT


def test_both_states_are_described_in_messages_of_one_length() -> None:
    # The kernel leaves RATE64 out below 2^32, and the probe takes the lengths of its answers for granted.
    for closed in (True, False):
        assert bucket(tbf_options(closed=closed, limit_bytes=LIMIT))[1] >= 1 << 32


def test_closing_is_one_message_and_opening_two() -> None:
    closed, opened = (memoryview(gate_message(9, LIMIT, closed=state)) for state in (True, False))
    ((kind, start, end),) = messages(closed, len(closed))
    assert kind == 36  # RTM_NEWQDISC
    assert struct.unpack_from("=BxxxiIII", closed, start) == (0, 9, 0x300000, 0x10001, 0)
    assert parts(bytes(closed[start:end]), 20)[2] == tbf_options(closed=True, limit_bytes=LIMIT)
    gate, kick = messages(opened, len(opened))
    assert parts(bytes(opened[gate[1] : gate[2]]), 20)[2] == tbf_options(closed=False, limit_bytes=LIMIT)
    assert struct.unpack_from("=BxxxiIII", opened, kick[1]) == (0, 9, 0x310000, 0x10002, 0)
    options = parts(bytes(opened[kick[1] : kick[2]]), 20)
    assert options[1] == b"plug\0"
    assert options[2] == struct.pack("=iI", 2, 0)  # TCQ_PLUG_RELEASE_INDEFINITE


class Kernel:
    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def add_qdisc(self, index: int, handle: int, parent: int, kind: str, options: bytes) -> None:
        self.asked.append((index, handle, parent, kind))

    add_class = add_qdisc


def test_a_gate_stands_between_rate_and_queue() -> None:
    kernel = Kernel()
    assert add_gate(kernel, 9, LIMIT) == GATED_PARENT == 0x300001  # type: ignore[arg-type]
    assert kernel.asked == [
        (9, 0x300000, 0x10001, "tbf"), (9, 0x10002, 0x10000, "htb"), (9, 0x310000, 0x10002, "plug"),
    ]  # fmt: skip


def test_the_class_that_carries_nothing_is_read_back_as_it_was_made() -> None:
    options = KICK_CLASS.options()
    assert HtbClass.parse(memoryview(options), 0, len(options)) == KICK_CLASS


class Socket:
    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer

    def recv(self, _size: int, _flags: int) -> bytes:
        if self.answer is None:
            raise BlockingIOError
        return self.answer


def test_a_message_that_failed_is_told_later() -> None:
    netlink = object.__new__(Netlink)
    netlink._socket = Socket(None)  # type: ignore[assignment]
    netlink.require_no_answer()
    netlink._socket = Socket(struct.pack("=IHHIIi", 36, 2, 0, 1, 0, -errno.ENOENT))  # type: ignore[assignment]
    with pytest.raises(LabError, match="^a queue could not be changed: No such file or directory$"):
        netlink.require_no_answer()
