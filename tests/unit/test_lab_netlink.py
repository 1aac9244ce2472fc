"""Netlink messages against bytes worked out by hand from the kernel's structs, and against captures."""

from __future__ import annotations

import errno
import struct

import pytest

from testbed.errors import LabError
from testbed.lab.netlink import (
    TCMSG,
    Command,
    HtbClass,
    Netlink,
    attribute,
    attributes,
    fifo_options,
    htb_options,
    messages,
    netem_options,
    qdisc_dump_request,
    red_options,
)
from tests.support.lab import FakeNetlink, captured, datagrams

RED = {"kmin_bytes": 100_000, "kmax_bytes": 400_000, "max_p": 0.1, "limit_bytes": 8_000_000}
DONE = struct.pack("=IHHIIi", 20, 3, 2, 1, 0, 0)


def parts(data: bytes, start: int = 0) -> dict[int, bytes]:
    return {kind: data[first:last] for kind, first, last in attributes(data, start, len(data))}


class FakeSocket:
    """Keeps what is sent and answers with the given datagrams."""

    def __init__(self, *answers: bytes) -> None:
        self.sent: list[bytes] = []
        self.answers = list(answers)

    def send(self, message: bytes) -> None:
        self.sent.append(message)

    def recv(self, _size: int) -> bytes:
        return self.answers.pop(0)

    def recv_into(self, view: memoryview) -> int:
        answer = self.answers.pop(0)
        view[: len(answer)] = answer
        return len(answer)


def netlink_on(socket: FakeSocket) -> Netlink:
    netlink = object.__new__(Netlink)
    netlink._socket = socket  # type: ignore[assignment]
    netlink._buffer = bytearray(1 << 16)
    return netlink


@pytest.mark.parametrize(
    ("payload", "encoded"),
    [
        (b"", "04000100"),
        (b"a", "0500010061000000"),
        (b"abcd", "0800010061626364"),
        (b"abcde", "090001006162636465000000"),
    ],
)
def test_attributes_are_padded_to_four_bytes(payload: bytes, encoded: str) -> None:
    assert attribute(1, payload).hex() == encoded
    assert parts(attribute(1, payload) + attribute(2, b"x")) == {1: payload, 2: b"x"}


def test_a_damaged_attribute_ends_the_list() -> None:
    assert parts(attribute(1, b"abcd") + b"\0\0\0\0" + attribute(2, b"x")) == {1: b"abcd"}


def test_flags_in_an_attribute_kind_are_left_out() -> None:
    assert parts(attribute(0x8002, b"nest")) == {2: b"nest"}


def test_red_options_byte_by_byte() -> None:
    # struct tc_red_qopt: limit, qth_min, qth_max; Wlog 0, Plog 32, Scell_log 0, flags 0.
    parameters = "14000100" + "00127a00" + "a0860100" + "801a0600" + "00200000"
    idle = "04010200" + "1f" * 256
    probability = "08000300" + "9a999919"  # 429496730 of 2**32 - 1
    flags = "0c000400" + "09000000" + "09000000"  # ECN 1 and NODROP 8: value and selector
    assert red_options(**RED).hex() == parameters + idle + probability + flags  # type: ignore[arg-type]


@pytest.mark.parametrize(("share", "encoded"), [(1.0, 0xFFFFFFFF), (0.5, 0x80000000), (1e-9, 4)])
def test_the_marking_probability_is_a_fraction_of_32_bits(share: float, encoded: int) -> None:
    options = red_options(kmin_bytes=1, kmax_bytes=2, max_p=share, limit_bytes=3)
    assert struct.unpack("=I", parts(options)[3]) == (encoded,)


def test_the_kernel_gives_red_back_as_it_was_asked() -> None:
    index = captured("interfaces.json")["leaf2-d1"]
    sent = parts(red_options(kmin_bytes=100_000, kmax_bytes=400_000, max_p=1 / 9, limit_bytes=8_000_000))
    found = {}
    for datagram in datagrams("first-dump"):
        for _, start, end in messages(memoryview(datagram), len(datagram)):
            message = parts(datagram[:end], start + TCMSG.size)
            if message.get(1) == b"red\0" and TCMSG.unpack_from(datagram, start)[1] == index:
                found = parts(message[2])
    # Kernels since 5.7 repeat the flags in the old field: ECN alone, NODROP has no place there.
    assert found[1][:12] == sent[1][:12]
    assert (found[1][12], found[1][15]) == (0, 1)
    assert (found[3], found[4][:4]) == (sent[3], sent[4][:4])


def test_the_other_qdiscs_byte_by_byte() -> None:
    # struct tc_htb_glob: version 3, rate2quantum 10, defcls, debug, direct_pkts.
    assert htb_options(default_class=0x2A).hex() == "18000200" + "030000000a0000002a000000" + "00" * 8
    assert fifo_options(8_000_000).hex() == "00127a00"
    # struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter; then TCA_NETEM_LATENCY64.
    parameters = "00000000" + "80969800" + "00" * 16
    latency = "0c000a00" + "a00f000000000000"
    assert netem_options(delay_ns=4_000, limit_packets=10_000_000).hex() == parameters + latency


def test_a_rate_class_byte_by_byte() -> None:
    options = parts(HtbClass(1_250_000, 1_250_001, 6_400, 12_800, 1514).options())
    # struct tc_ratespec: cell_log, linklayer, overhead, cell_align, mpu, rate.
    rate, ceil = "0001000000000000" + "d0121300", "0001000000000000" + "d1121300"
    # buffer and cbuffer in units of 64 ns, quantum, level, prio.
    assert options[1].hex() == rate + ceil + "64000000c8000000ea050000" + "00" * 8
    assert options[6].hex() == "d012130000000000"
    assert options[7].hex() == "d112130000000000"


def test_a_rate_above_four_gigabytes_per_second_stands_in_64_bits() -> None:
    wanted = HtbClass(50_000_000_000, 49_000_000_000, 64, 128, 9014)
    options = wanted.options()
    assert parts(options)[1][8:12] == b"\xff\xff\xff\xff"
    assert HtbClass.parse(memoryview(options), 0, len(options)) == wanted


def test_a_rate_in_64_bits_counts_wherever_it_stands() -> None:
    wanted = HtbClass(50_000_000_000, 49_000_000_000, 64, 128, 9014)
    options = wanted.options()
    first = 4 + 12 + 12 + 20
    turned = options[first:] + options[:first]
    assert HtbClass.parse(memoryview(turned), 0, len(turned)) == wanted


def test_a_small_rate_is_read_from_32_bits_where_the_kernel_gives_no_more() -> None:
    wanted = HtbClass(1_250_000, 1_250_001, 6_400, 12_800, 1514)
    short = wanted.options()[: 4 + 12 + 12 + 20]
    assert HtbClass.parse(memoryview(short), 0, len(short)) == wanted


def test_the_classes_of_a_real_port() -> None:
    netlink = FakeNetlink(datagrams("class-dump"))
    # The second class in the dump is the marking queue's own and has no rate.
    assert netlink.htb_classes(9) == [HtbClass(12_500_000_000, 12_500_000_000, 64, 64, 4214)]
    # RTM_GETTCLASS, REQUEST | DUMP; struct tcmsg with interface 9.
    header = "240000002a0001030100000000000000"
    assert netlink.asked[0].hex() == header + "0000000009000000" + "00" * 12


def test_the_delays_of_a_real_lab() -> None:
    interfaces = captured("interfaces.json")
    found = FakeNetlink(datagrams("first-dump")).netem_delays_ns()
    assert found == {interfaces["delay-near"]: 2_000, interfaces["delay-far"]: 4_000}


def test_the_request_for_all_qdiscs() -> None:
    assert qdisc_dump_request().hex() == "24000000260001030100000000000000" + "00" * 20


def test_a_dump_is_read_to_its_end() -> None:
    first, second = datagrams("first-dump")[:2]
    socket = FakeSocket(first, second, DONE, b"of the next dump")
    answers = [bytes(view[:length]) for view, length in netlink_on(socket).request(b"request")]
    assert answers == [first, second, DONE]
    assert socket.sent == [b"request"]


def test_a_dump_may_end_in_the_datagram_that_has_its_last_message() -> None:
    first = datagrams("first-dump")[0] + DONE
    socket = FakeSocket(first, b"of the next dump")
    assert len(list(netlink_on(socket).request(b""))) == 1


def test_a_qdisc_is_created_with_an_acknowledgement() -> None:
    socket = FakeSocket(struct.pack("=IHHIIi", 36, 2, 0, 1, 0, 0) + bytes(16))
    netlink_on(socket).add_qdisc(7, 0x00100000, 0x00010001, "bfifo", fifo_options(1000))
    # RTM_NEWQDISC, REQUEST | ACK | CREATE | EXCL; interface, handle, parent; kind; options.
    header = "38000000240005060100000000000000"
    message = "0000000007000000000010000100010000000000"
    assert socket.sent[0].hex() == header + message + "0a000100626669666f000000" + "08000200e8030000"


def test_a_class_is_a_message_of_its_own() -> None:
    socket = FakeSocket(struct.pack("=IHHIIi", 36, 2, 0, 1, 0, 0) + bytes(16))
    netlink_on(socket).add_class(7, 0x00010001, 0x00010000, "htb", b"")
    assert socket.sent[0][4:6].hex() == "2800"


def test_the_kernels_refusal_is_an_error_with_its_words() -> None:
    socket = FakeSocket(struct.pack("=IHHIIi", 36, 2, 0, 1, 0, -errno.EEXIST) + bytes(16))
    with pytest.raises(LabError) as caught:
        netlink_on(socket).add_qdisc(7, 0, 0, "red", b"")
    assert str(caught.value) == "red on interface 7: File exists"


def test_netem_loses_a_share_of_all_packets() -> None:
    options = netem_options(delay_ns=4_000, limit_packets=10, loss=0.25)
    assert options[8:12] == (2**30).to_bytes(4, "little")


def answer(number: int, code: int) -> bytes:
    """The kernel's word on message `number`: an error, or with code 0 its acknowledgement."""
    return struct.pack("=IHHIIi", 36, 2, 0, number, 0, code) + bytes(16)


COMMANDS = [Command(20, 0x600, b"abcde", "the first"), Command(24, 0, b"abcd", "the second")]


def test_commands_go_in_one_message_and_the_last_is_acknowledged() -> None:
    socket = FakeSocket(answer(2, 0))
    netlink_on(socket).apply(COMMANDS)
    # Length without padding, type, REQUEST | flags (and ACK), sequence, port.
    first = "15000000140001060100000000000000" + "6162636465000000"
    second = "14000000180005000200000000000000" + "61626364"
    assert [data.hex() for data in socket.sent] == [first + second]
    assert not socket.answers


def test_the_command_that_the_kernel_refuses_is_named() -> None:
    socket = FakeSocket(answer(1, -errno.EEXIST), answer(2, 0))
    with pytest.raises(LabError, match=r"^the first: File exists$"):
        netlink_on(socket).apply(COMMANDS)


def test_many_commands_go_in_several_messages() -> None:
    socket = FakeSocket(answer(256, 0), answer(1, 0))
    netlink_on(socket).apply([COMMANDS[1]] * 257)
    assert [len(data) for data in socket.sent] == [256 * 20, 20]


def test_limits_of_the_fifos_of_one_interface() -> None:
    index = captured("interfaces.json")
    limits = {
        name: netlink.fifo_limits(number)
        for name, number in index.items()
        for netlink in [FakeNetlink(datagrams("later-dump"))]
    }
    assert {name for name, found in limits.items() if found} == set()

    def described(ifindex: int, handle: int, kind: bytes, limit: int) -> bytes:
        body = (
            TCMSG.pack(0, ifindex, handle, 0, 0) + attribute(1, kind) + attribute(2, struct.pack("=I", limit))
        )
        return struct.pack("=IHHII", 16 + len(body), 36, 2, 1, 0) + body

    dump = b"".join(
        [
            described(7, 0x200000, b"bfifo\0", 4_000),
            described(7, 0x210000, b"bfifo\0", 5_000),
            described(8, 0x200000, b"bfifo\0", 6_000),
            described(7, 0x100000, b"pfifo\0", 100),
        ]
    )
    assert FakeNetlink([dump, DONE]).fifo_limits(7) == {0x200000: 4_000, 0x210000: 5_000}
