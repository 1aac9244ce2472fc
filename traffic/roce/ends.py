"""The two ends of a transfer's queue pairs: the one that has the data and the one where it lands.

Each puts a state machine (requester or responder), packets and, at the source, a rate together. Pure but for
the payload's memory: packets and times in, packets out. Which socket they leave by is the caller's.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from hashlib import shake_128
from zlib import crc32

from traffic.roce import packets
from traffic.roce.dcqcn import NotificationPoint
from traffic.roce.geometry import Geometry
from traffic.roce.icrc import ICRC_BYTES, join_all, shift_tables
from traffic.roce.packets import FRAME_HEADER, Framer, Packet
from traffic.roce.rate import RateControl
from traffic.roce.requester import ReadRequester, WriteRequester
from traffic.roce.responder import ReadResponder, WriteResponder

MEMORY_KEY = 0x1234
_CHUNKS = 61
"""The payload repeats after so many packets: a prime number, so that no other lengths of a transfer fit
it."""

Frame = tuple[bytes, memoryview, bytes]
"""What is sent: headers, payload with padding, ICRC."""


class Pattern:
    """The memory that transfers are read from: random bytes, the same in every run, with the CRC of each
    piece."""

    def __init__(self, mtu: int) -> None:
        self._mtu = mtu
        self._bytes = memoryview(shake_128(b"payload").digest(_CHUNKS * mtu))
        self._pieces = [self._bytes[number * mtu : (number + 1) * mtu] for number in range(_CHUNKS)]
        self._crcs = [crc32(piece) for piece in self._pieces]
        self.tables = shift_tables(mtu)

    def piece(self, transfer: int, index: int, length: int) -> tuple[memoryview, int]:
        """Return a packet's payload, padded with zeros to four bytes, and its CRC."""
        number = (index + 7 * transfer) % _CHUNKS
        if length == self._mtu:
            return self._pieces[number], self._crcs[number]
        padded = bytes(self._pieces[number][:length]) + bytes(-length % 4)
        return memoryview(padded), crc32(padded)


@dataclass
class Counts:
    """What became of one transfer; times in nanoseconds of the run's clock, None for never.

    `not_landed` are data packets that arrived and were dropped: old ones, those behind a gap with go-back-N,
    and those whose length is not that of their place.
    """

    packets_sent: int = 0
    packets_received: int = 0
    not_landed: int = 0
    ce_packets: int = 0
    cnps_sent: int = 0
    cnps_received: int = 0
    first_ce_ns: int | None = None
    first_cnp_ns: int | None = None
    sent_at_first_cnp: int | None = None
    shortest_cnp_gap_ns: int | None = None
    last_cnp_ns: int | None = field(default=None, repr=False)


class Lane:
    """A stretch that a host's queue pairs share, as its NIC: `free_ns` is when what was sent has left it."""

    def __init__(self, rate_bps: float) -> None:
        self.ns_per_byte = 8e9 / rate_bps
        self.free_ns = 0.0


class Source:
    """The end that has the data: the requester of WRITEs, or the responder of READs."""

    def __init__(
        self,
        transfer: int,
        geometry: Geometry,
        machine: WriteRequester | ReadResponder,
        framer: Framer,
        rate: RateControl,
        pattern: Pattern,
        lanes: list[Lane],
        counts: Counts,
    ) -> None:
        self._transfer = transfer
        self._geometry = geometry
        self.machine = machine
        self._framer = framer
        self.rate = rate
        self._pattern = pattern
        self._lanes = lanes
        self._counts = counts
        self._next_ns = 0.0

    # ---- when -------------------------------------------------------------------------

    def due_ns(self, now_ns: int) -> float:
        """Return when the next packet may leave, by the rate and by what shares the NIC."""
        self._follow_rate(now_ns)
        due = self._next_ns
        for lane in self._lanes:
            due = max(due, lane.free_ns)
        return due

    def wake_ns(self, now_ns: int) -> float:
        """Return when to look again: the next packet's time, or earlier where the rate changes before it."""
        due = self.due_ns(now_ns)
        return min(due, max(self.rate.next_change_ns, now_ns + 1)) if due == self._next_ns else due

    def _follow_rate(self, now_ns: int) -> None:
        """Let the rate change as it is due; what is left of the wait for the next packet scales with it."""
        while self.rate.next_change_ns <= now_ns:
            change_ns, before = self.rate.next_change_ns, self.rate.rate_bps
            self.rate.advance(change_ns)
            self._rescale(change_ns, before)

    def _rescale(self, now_ns: int, before_bps: float) -> None:
        if self._next_ns > now_ns:
            self._next_ns = now_ns + (self._next_ns - now_ns) * before_bps / self.rate.rate_bps

    # ---- packets ----------------------------------------------------------------------

    def emit(self, now_ns: int, lateness_ns: int) -> Frame:
        """Return the next packet. What was due up to `lateness_ns` ago is counted from when it was due."""
        if isinstance(self.machine, WriteRequester):
            frame = self._write(*self.machine.take(now_ns))
        else:
            frame = self._response(*self.machine.take())
        size = FRAME_HEADER + len(frame[0]) + len(frame[1]) + ICRC_BYTES
        start = max(self.due_ns(now_ns), float(now_ns - lateness_ns))
        self._next_ns = start + size * 8e9 / self.rate.rate_bps
        for lane in self._lanes:
            lane.free_ns = max(lane.free_ns, start) + size * lane.ns_per_byte
        self.rate.on_sent(size, now_ns)
        self._counts.packets_sent += 1
        return frame

    def _write(self, index: int, ask: bool) -> Frame:
        geometry = self._geometry
        opcode = geometry.write_opcode(index)
        extension = b""
        if index % geometry.per_message == 0:
            size = min(geometry.message_bytes, geometry.size - index * geometry.mtu)
            extension = packets.RETH.pack(index * geometry.mtu, MEMORY_KEY, size)
        if index + 1 == geometry.packets:
            extension += packets.IMMEDIATE.pack(self._transfer)
        return self._framed(opcode, index, ask, extension)

    def _response(self, index: int, start: int, end: int) -> Frame:
        opcode = self._geometry.read_opcode(index, start, end)
        extension = b""
        if opcode != packets.READ_MIDDLE:
            assert isinstance(self.machine, ReadResponder)
            extension = packets.AETH.pack(packets.ACK << 24 | self.machine.requests & packets.PSN_MASK)
        return self._framed(opcode, index, False, extension)

    def _framed(self, opcode: int, index: int, ask: bool, extension: bytes) -> Frame:
        length = self._geometry.payload(index)
        payload, crc = self._pattern.piece(self._transfer, index, length)
        padded = len(payload)
        tables = self._pattern.tables if length == self._geometry.mtu else None
        head, tail = self._framer.head(
            opcode, self._geometry.psn(index), ack_request=ask, extension=extension, pad=padded - length,
            payload_crc=crc, padded=padded, tables=tables,
        )  # fmt: skip
        return head, payload, tail

    def opening(self) -> bytes:
        """Return a packet that says nothing new, for the switches to learn the way before the first data."""
        return self._framer.acknowledge(self._geometry.psn(-1), packets.ACK, 0)

    def on_packet(self, packet: Packet, now_ns: int) -> bytes | None:
        """Take an answer, a request or a notification; return what to answer at once."""
        if packet.opcode == packets.CNP:
            self._on_cnp(now_ns)
        elif packet.opcode == packets.ACKNOWLEDGE and isinstance(self.machine, WriteRequester):
            self.machine.on_acknowledge(packet.psn, packet.syndrome, now_ns)
            self.rate.on_ack(now_ns)
        elif packet.opcode == packets.READ_REQUEST and isinstance(self.machine, ReadResponder):
            nak = self.machine.on_request(packet.psn, packet.length)
            if nak is not None:
                return self._framer.acknowledge(self._geometry.psn(nak[0]), nak[1], 0)
        return None

    def _on_cnp(self, now_ns: int) -> None:
        counts = self._counts
        counts.cnps_received += 1
        if counts.first_cnp_ns is None:
            counts.first_cnp_ns = now_ns
            counts.sent_at_first_cnp = self._geometry.mtu * counts.packets_sent
        self._follow_rate(now_ns)
        before = self.rate.rate_bps
        self.rate.on_cnp(now_ns)
        self._rescale(now_ns, before)

    def checksum(self) -> int:
        """Return the CRC over the whole payload, as sent."""
        geometry = self._geometry
        pieces = (
            self._pattern.piece(self._transfer, index, geometry.payload(index))
            for index in range(geometry.packets)
        )
        return join_all((crc, len(piece)) for piece, crc in pieces)


class Sink:
    """The end where the data lands: the responder of WRITEs, or the requester of READs.

    Without a `notifier` marked packets are counted only.
    """

    def __init__(
        self,
        geometry: Geometry,
        machine: WriteResponder | ReadRequester,
        framer: Framer,
        notifier: NotificationPoint | None,
        counts: Counts,
    ) -> None:
        self._geometry = geometry
        self.machine = machine
        self._framer = framer
        self._notifier = notifier
        self._counts = counts
        self._crcs = array("I", bytes(4 * geometry.packets))
        self.received = 0

    @property
    def done(self) -> bool:
        """Whether all of the transfer has landed."""
        return self.machine.done

    def on_packet(self, packet: Packet, now_ns: int, *, marked: bool) -> list[bytes]:
        """Take a data packet or an answer; return what to send back at once."""
        answers: list[bytes] = []
        if isinstance(self.machine, WriteResponder):
            if packet.opcode in packets.WRITES:
                answers = self._on_write(self.machine, packet)
        elif packet.opcode in packets.READ_RESPONSES:
            index = self.machine.on_response(packet.psn, now_ns) if self._fits(packet) else None
            self._land(index, packet)
        elif packet.opcode == packets.ACKNOWLEDGE and packet.syndrome == packets.NAK_SEQUENCE:
            self.machine.on_nak(packet.psn)
        self._counts.packets_received += 1
        if marked:
            answers += self._on_marked(now_ns)
        return answers

    def _fits(self, packet: Packet) -> bool:
        """Whether a packet has the payload of its place; what lies outside of the transfer is not judged
        here."""
        index = self._geometry.index(packet.psn, self.machine.expected)
        return not 0 <= index < self._geometry.packets or packet.payload == self._geometry.payload(index)

    def _on_write(self, machine: WriteResponder, packet: Packet) -> list[bytes]:
        index: int | None = None
        answers: list[tuple[int, int]] = []
        if self._fits(packet):
            index, answers = machine.on_data(packet.psn, ack_request=packet.ack_request)
        self._land(index, packet)
        return [
            self._framer.acknowledge(self._geometry.psn(named), syndrome, machine.messages & packets.PSN_MASK)
            for named, syndrome in answers
        ]

    def _land(self, index: int | None, packet: Packet) -> None:
        if index is None:
            self._counts.not_landed += 1
            return
        self._crcs[index] = packet.payload_crc
        self.received += packet.payload

    def _on_marked(self, now_ns: int) -> list[bytes]:
        counts = self._counts
        counts.ce_packets += 1
        if counts.first_ce_ns is None:
            counts.first_ce_ns = now_ns
        if self._notifier is None or not self._notifier.on_ce(now_ns):
            return []
        if counts.last_cnp_ns is not None:
            gap = now_ns - counts.last_cnp_ns
            counts.shortest_cnp_gap_ns = min(gap, counts.shortest_cnp_gap_ns or gap)
        counts.last_cnp_ns = now_ns
        counts.cnps_sent += 1
        return [self._framer.cnp()]

    def request(self, now_ns: int) -> bytes | None:
        """Return the next READ request that may go out, None when there is none."""
        if not isinstance(self.machine, ReadRequester) or not self.machine.ready():
            return None
        start, end = self.machine.take(now_ns)
        mtu = self._geometry.mtu
        length = min(end * mtu, self._geometry.size) - start * mtu
        return self._framer.read_request(self._geometry.psn(start), start * mtu, MEMORY_KEY, length)

    def opening(self) -> bytes:
        """Return a packet that says nothing new, for the switches to learn the way."""
        return self._framer.acknowledge(self._geometry.psn(-1), packets.ACK, 0)

    def checksum(self) -> int:
        """Return the CRC over the whole payload, as it landed; 0 while packets are missing."""
        if not self.done:
            return 0
        geometry = self._geometry
        lengths = ((crc, -(-geometry.payload(index) // 4) * 4) for index, crc in enumerate(self._crcs))
        return join_all(lengths)
