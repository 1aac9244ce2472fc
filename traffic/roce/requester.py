"""The active end of a reliable connection: sends WRITEs until all is acknowledged, or READs until all has
arrived.

Pure state machines: they know indices, answers and times, no socket, no clock and no rate. `ready` and
`take` say what goes out next; events come in by the other methods. When to send is the caller's, by its rate
control.

Recovery is one of two. `go-back-n` is the specification's: the receiver takes packets in order only, and
after a negative answer everything from the missing packet on is sent again. `selective-repeat` is this
testbed's, as the specification has none: the receiver keeps what is out of order, each negative answer names
one missing packet and acknowledges nothing, and that packet alone is sent again. After a timeout both go
back.
"""

from __future__ import annotations

from collections import deque

from traffic.roce.geometry import Geometry
from traffic.roce.packets import NAK_SEQUENCE
from traffic.roce.rate import NEVER_NS

GO_BACK_N = "go-back-n"
SELECTIVE_REPEAT = "selective-repeat"

RETRIES = 7
"""So many timeouts in a row without progress end a connection; the most that the specification's retry
counter holds."""


class _Retrying:
    """The timer of both requesters: runs while an answer is due and starts anew with each progress."""

    def __init__(self, timeout_ns: int) -> None:
        self._timeout_ns = timeout_ns
        self._in_a_row = 0
        self.deadline_ns = NEVER_NS
        self.timeouts = 0
        self.failed = False

    def _answer_due(self, now_ns: int) -> None:
        if self.deadline_ns == NEVER_NS:
            self.deadline_ns = now_ns + self._timeout_ns

    def _progress(self, now_ns: int, *, more_due: bool) -> None:
        self._in_a_row = 0
        self.deadline_ns = now_ns + self._timeout_ns if more_due else NEVER_NS

    def _timed_out(self) -> None:
        self.timeouts += 1
        self._in_a_row += 1
        self.failed = self._in_a_row > RETRIES
        self.deadline_ns = NEVER_NS


class WriteRequester(_Retrying):
    """Sends a transfer as RDMA WRITEs.

    `window_packets` bounds what is sent and not acknowledged, 0 for no bound. An acknowledgement is asked
    for at least every `ack_every` packets and at each message's end.
    """

    def __init__(
        self, geometry: Geometry, *, recovery: str, timeout_ns: int, window_packets: int, ack_every: int
    ) -> None:
        super().__init__(timeout_ns)
        self._geometry = geometry
        self._count = geometry.packets
        self._selective = recovery == SELECTIVE_REPEAT
        self._window = window_packets or self._count
        self._ack_every = ack_every
        self._again: deque[int] = deque()
        self._asked = 0
        self._ask = False
        self.acknowledged = 0
        self.next = 0
        self.sent = 0
        self.retransmissions = 0
        self.naks = 0

    @property
    def done(self) -> bool:
        """Whether all is acknowledged."""
        return self.acknowledged >= self._count

    def ready(self) -> bool:
        """Whether a packet may go out."""
        if self._again:
            return True
        return self.next < self._count and self.next - self.acknowledged < self._window

    def take(self, now_ns: int) -> tuple[int, bool]:
        """Return the packet that goes out now, and whether it asks for an acknowledgement."""
        if self._again:
            index, ask = self._again.popleft(), True
        else:
            index = self.next
            self.next += 1
            ask = self._ask or (index + 1) % self._ack_every == 0
            self._ask = False
        ask = ask or index + 1 == self._geometry.message_end(index)
        if index < self.sent:
            self.retransmissions += 1
        else:
            self.sent = index + 1
        if ask:
            self._asked = max(self._asked, index + 1)
            self._answer_due(now_ns)
        return index, ask

    def on_acknowledge(self, psn: int, syndrome: int, now_ns: int) -> None:
        """An ACK or NAK arrived; what is out of date is ignored."""
        index = self._geometry.index(psn, self.acknowledged)
        if syndrome == NAK_SEQUENCE:
            self._on_nak(index, now_ns)
        elif self.acknowledged <= index < self.sent:
            self._advance(index + 1, now_ns)

    def _on_nak(self, index: int, now_ns: int) -> None:
        if not self.acknowledged <= index < self.sent:
            return
        self.naks += 1
        if self._selective:
            if index not in self._again:
                self._again.append(index)
            return
        if index > self.acknowledged:
            self._advance(index, now_ns)
        self.next = index
        self._ask = True

    def _advance(self, upto: int, now_ns: int) -> None:
        self.acknowledged = upto
        self.next = max(self.next, upto)
        while self._again and self._again[0] < upto:
            self._again.popleft()
        self._progress(now_ns, more_due=self._asked > upto)

    def on_deadline(self, now_ns: int) -> None:
        """No answer came in time: go back to what was not acknowledged, or give up."""
        self._timed_out()
        self._again.clear()
        self.next = self.acknowledged
        self._asked, self._ask = self.acknowledged, True


class ReadRequester(_Retrying):
    """Fetches a transfer by RDMA READs, one for each message.

    `window_packets` bounds what is asked for and has not arrived, 0 for no bound; a request is for a whole
    message.
    """

    def __init__(self, geometry: Geometry, *, recovery: str, timeout_ns: int, window_packets: int) -> None:
        super().__init__(timeout_ns)
        self._geometry = geometry
        self._count = geometry.packets
        self._selective = recovery == SELECTIVE_REPEAT
        self._window = window_packets or self._count
        self._again: deque[tuple[int, int]] = deque()
        self._landed = bytearray(self._count)
        self._highest = 0
        self._gap = False
        self._requested = 0
        self.expected = 0
        self.repeated = 0
        self._asked_before = 0

    @property
    def done(self) -> bool:
        """Whether all has arrived."""
        return self.expected >= self._count

    def ready(self) -> bool:
        """Whether a request may go out."""
        if self._again:
            return True
        ahead = self._requested - self.expected
        return self._requested < self._count and (not ahead or ahead < self._window)

    def take(self, now_ns: int) -> tuple[int, int]:
        """Return the first packet that the request going out now is for, and the one behind the last."""
        if self._again:
            start, end = self._again.popleft()
        else:
            start, end = self._requested, self._geometry.message_end(self._requested)
            self._requested = end
        self.repeated += start < self._asked_before
        self._asked_before = max(self._asked_before, end)
        self._answer_due(now_ns)
        return start, end

    def on_response(self, psn: int, now_ns: int) -> int | None:
        """Return the index of the packet when its payload is new and wanted, None when it is dropped."""
        index = self._geometry.index(psn, self.expected)
        if not self.expected <= index < self._count or self._landed[index]:
            return None
        if index > self.expected and not self._selective:
            if not self._gap:
                self._gap, self._requested = True, self.expected
            return None
        self._landed[index] = 1
        if index > self._highest:
            self._again.append((self._highest, index))
        self._highest = max(self._highest, index + 1)
        while self.expected < self._count and self._landed[self.expected]:
            self.expected += 1
        self._gap = False
        self._progress(now_ns, more_due=self._requested > self.expected)
        return index

    def on_nak(self, psn: int) -> None:
        """The responder misses a request before one that it got."""
        index = self._geometry.index(psn, self.expected)
        if self.expected <= index < self._requested:
            self._requested = index

    def on_deadline(self, now_ns: int) -> None:
        """No response came in time: ask again for all that is missing, or give up."""
        self._timed_out()
        self._gap = False
        self._again.clear()
        # With go-back-N nothing stands above what is expected.
        start = self.expected
        while start < self._highest:
            end = self._landed.find(1, start, self._highest)
            self._again.append((start, end))
            start = self._landed.find(0, end, self._highest)
            start = self._highest if start < 0 else start
        self._requested = max(self.expected, self._highest)
