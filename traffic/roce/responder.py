"""The passive end of a reliable connection: takes WRITEs and answers them, or serves READs.

Pure state machines, the counterparts of `traffic.roce.requester`, which says what the two kinds of recovery
are.
"""

from __future__ import annotations

from collections import deque

from traffic.roce.geometry import Geometry
from traffic.roce.packets import ACK, NAK_SEQUENCE
from traffic.roce.requester import SELECTIVE_REPEAT

NAKS_AT_ONCE = 64
"""With selective repeat, one gap is answered by so many NAKs at most; a timeout finds the rest."""

Answer = tuple[int, int]
"""Index of the packet that an answer names, and the syndrome."""


class WriteResponder:
    """Receives a transfer as RDMA WRITEs."""

    def __init__(self, geometry: Geometry, *, recovery: str) -> None:
        self._geometry = geometry
        self._count = geometry.packets
        self._selective = recovery == SELECTIVE_REPEAT
        self._landed = bytearray(self._count)
        self._highest = 0
        self._nak_sent = False
        self.expected = 0
        self.naks = 0
        self.duplicates = 0

    @property
    def done(self) -> bool:
        """Whether all has arrived."""
        return self.expected >= self._count

    @property
    def messages(self) -> int:
        """How many messages are complete (the MSN of an answer)."""
        per_message = self._geometry.per_message
        return -(-self._count // per_message) if self.done else self.expected // per_message

    def on_data(self, psn: int, *, ack_request: bool) -> tuple[int | None, list[Answer]]:
        """Return the index of a packet whose payload is new and wanted, else None, and the answers to
        send."""
        index = self._geometry.index(psn, self.expected)
        if index >= self._count or index < -self._count:
            return None, []
        if index < self.expected or self._landed[index]:
            self.duplicates += 1
            return None, self._answers(ack_request)
        if self._selective:
            return index, self._out_of_order(index, ack_request)
        if index > self.expected:
            return None, self._missing()
        self.expected += 1
        self._nak_sent = False
        return index, self._answers(ack_request)

    def _answers(self, ack_request: bool) -> list[Answer]:
        return [(self.expected - 1, ACK)] if ack_request else []

    def _missing(self) -> list[Answer]:
        """One NAK for a gap: the specification lets a responder repeat it only after it is filled."""
        if self._nak_sent:
            return []
        self._nak_sent = True
        self.naks += 1
        return [(self.expected, NAK_SEQUENCE)]

    def _out_of_order(self, index: int, ack_request: bool) -> list[Answer]:
        self._landed[index] = 1
        gap = range(self._highest, index)[:NAKS_AT_ONCE]
        self.naks += len(gap)
        self._highest = max(self._highest, index + 1)
        while self.expected < self._count and self._landed[self.expected]:
            self.expected += 1
        return [(missing, NAK_SEQUENCE) for missing in gap] + self._answers(ack_request)


class ReadResponder:
    """Serves the READs of a transfer."""

    def __init__(self, geometry: Geometry, *, recovery: str) -> None:
        self._geometry = geometry
        self._selective = recovery == SELECTIVE_REPEAT
        self._jobs: deque[tuple[int, int]] = deque()
        self._current: tuple[int, int] | None = None
        self._at = self._tail = 0
        self.expected = 0
        self.requests = 0
        self.sent = 0
        self.retransmissions = 0

    def ready(self) -> bool:
        """Whether a response waits to go out."""
        return self._current is not None or bool(self._jobs)

    def on_request(self, psn: int, length: int) -> Answer | None:
        """Take a request for `length` bytes; return the NAK when one before it is missing.

        A request that was here before is served again: with go-back-N in the place of all that comes after
        it, with selective repeat after the one being served. What no transfer has is ignored.
        """
        start = self._geometry.index(psn, self.expected)
        end = start + -(-length // self._geometry.mtu)
        if start > self.expected:
            return self.expected, NAK_SEQUENCE
        if not 0 <= start < end <= self._geometry.packets:
            return None
        self.requests += 1
        self._take_on(start, end)
        self.expected = max(self.expected, end)
        return None

    def _take_on(self, start: int, end: int) -> None:
        if self._selective and start < self.expected:
            self._jobs.appendleft((start, end))
            return
        if start < self._tail:
            self._jobs.clear()
            self._current = None
        self._tail = end
        self._jobs.append((start, end))

    def take(self) -> tuple[int, int, int]:
        """Return the packet that goes out now, and the range of its request."""
        if self._current is None:
            self._current = self._jobs.popleft()
            self._at = self._current[0]
        (start, end), index = self._current, self._at
        self._at += 1
        if self._at == end:
            self._current = None
        if index < self.sent:
            self.retransmissions += 1
        else:
            self.sent = index + 1
        return index, start, end
