"""Runs transfers as RoCEv2 over UDP sockets in the hosts' namespaces, all from one event loop.

The counterpart of `traffic.tcp_replay` with the same interface. Each host has one socket at port 4791
where all arrives (one for each of its NICs); what a queue pair sends leaves by a socket of its own,
whose port is the queue pair's (ECMP's entropy) at both ends. The loop wakes at most every `tick_ns`:
what arrived or fell due meanwhile is dealt with together, and a sender that wakes late catches up, so
that rates are exact and single packets up to a tick late. With 0 it wakes for each.
"""

from __future__ import annotations

import heapq
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import count
from typing import Any

from traffic.exact_time import exact_timers, sleep_until_ns
from traffic.roce import packets
from traffic.roce.ends import Frame
from traffic.roce.packets import BadPacket
from traffic.roce.pairs import Lanes, Pair, PairMaker, Settings, outcome
from traffic.roce.rate import NEVER_NS
from traffic.roce.requester import ReadRequester, WriteRequester
from traffic.roce.sockets import CE, Poller, Receiver, dropped, wire_socket
from traffic.tcp_replay import CONNECT_LEAD_NS, Flow

LINGER_NS = 200_000
"""How long after the last transfer notifications are still taken, in undilated time."""

_EPOLLIN, _EPOLLOUT = 1, 4


class RoceReplay:
    """Runs flows to their end; `prepare`, `run`, `outcomes` and `close_open` as `tcp_replay.Replay` has them.

    `lanes` and `gpus` are by flow: what its source shares with others, and which GPU it is for, which stands
    in the first byte of the sink's queue pair number. `progress` is told
    (time since the epoch, flow, bytes landed) every `progress_ns`.
    """

    def __init__(
        self,
        flows: Sequence[Flow],
        settings: Settings,
        *,
        lanes: Mapping[int, Lanes],
        gpus: Mapping[int, int],
        namespace: Callable[[str], AbstractContextManager[None]],
        progress: Callable[[tuple[int, int, int]], None],
        progress_ns: int,
        dilation: float = 1,
    ) -> None:
        self._flows = sorted(flows, key=lambda flow: flow.id)
        self._settings = settings
        self._namespace = namespace
        self._maker = PairMaker(settings, lanes, gpus, namespace)
        self._progress, self._progress_ns = progress, progress_ns
        self._lead_ns = round(CONNECT_LEAD_NS * dilation)
        self._linger_ns = round(LINGER_NS * dilation)
        self._poller = Poller()
        self._receiver = Receiver()
        self._pairs: list[Pair] = []
        self._wires: dict[int, tuple[str, socket.socket]] = {}
        self._blocked: dict[int, Pair] = {}
        self._heap: list[tuple[float, int, Callable[[int], None]]] = []
        self._order = count()
        self._bad: Counter[str] = Counter()
        self._told: dict[int, int] = {}
        self._open = len(flows)
        self._epoch = 0
        self._busy = False

    # ---- setting up -------------------------------------------------------------------

    def prepare(self) -> None:
        """Open all sockets and put the queue pairs into their state."""
        ends = {(end.host, end.ip, end.device) for flow in self._flows for end in (flow.src, flow.dst)}
        for host, ip, device in sorted(ends):
            with self._namespace(host):
                wire = wire_socket(ip, packets.ROCE_PORT, device)
            self._wires[wire.fileno()] = (ip, wire)
            self._poller.register(wire.fileno(), _EPOLLIN)
        self._pairs = [self._maker.make(flow) for flow in self._flows]

    # ---- the loop ---------------------------------------------------------------------

    def run(self, epoch_ns: int, end_ns: int) -> bool:
        """Run all flows, with times counted from `epoch_ns`; return False at `end_ns` if some remain."""
        self._epoch = epoch_ns
        exact_timers()
        for pair in self._pairs:
            self._at(epoch_ns + pair.flow.start_ns - self._lead_ns, partial(self._open_way, pair))
            self._at(epoch_ns + pair.flow.start_ns, partial(self._start, pair))
        self._at(epoch_ns + self._progress_ns, self._tell_progress)
        now = time.monotonic_ns()
        while self._open:
            if now >= end_ns:
                return False
            now = self._turn(now, end_ns)
        linger_ns = now + self._linger_ns
        while now < linger_ns:
            now = self._turn(now, linger_ns)
        return True

    def _turn(self, before: int, end_ns: int) -> int:
        """Wait for the next thing to do, no less than a tick, do all that there is to do, return the time."""
        wake = self._heap[0][0] if self._heap else end_ns
        earliest = before + self._settings.tick_ns
        if earliest > before and (self._busy or wake <= earliest):
            sleep_until_ns(earliest)
            # Virtual time is what was slept until; asking for it is a system call.
            now = earliest if self._settings.exact else time.monotonic_ns()
            ready = self._poller.wait(0)
        else:
            ready = self._poller.wait(int(min(wake, end_ns)) - before)
            now = time.monotonic_ns()
        self._busy = bool(ready)
        for descriptor in ready:
            if descriptor in self._wires:
                self._receive(*self._wires[descriptor], now)
            else:
                self._unblock(descriptor, now)
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2](now)
        return now

    def _at(self, moment_ns: float, action: Callable[[int], None]) -> None:
        heapq.heappush(self._heap, (moment_ns, next(self._order), action))

    def _open_way(self, pair: Pair, _now: int) -> None:
        """Both ends send an answer that is out of date, as a connection's set-up would send its messages."""
        self._send(pair.out, pair.source.opening(), pair.to_sink)
        self._send(pair.back, pair.sink.opening(), pair.to_source)

    def _start(self, pair: Pair, now: int) -> None:
        if pair.flow.error is None:
            pair.flow.begun_ns = now
            self._serve(pair, now)

    def _tell_progress(self, now: int) -> None:
        for pair in self._pairs:
            self._note(pair, now)
        self._at(now + self._progress_ns - (now - self._epoch) % self._progress_ns, self._tell_progress)

    def _note(self, pair: Pair, now: int) -> None:
        received = pair.sink.received
        if received != self._told.get(pair.flow.id, 0):
            self._told[pair.flow.id] = received
            self._progress((now - self._epoch, pair.flow.id, received))

    # ---- packets ----------------------------------------------------------------------

    def _receive(self, ip: str, wire: socket.socket, now: int) -> None:
        touched: dict[int, Pair] = {}
        for address, tos, data in self._receiver.take(wire):
            state = self._maker.states.get((ip, address))
            if state is None:
                self._bad["peer"] += 1
                continue
            try:
                packet = packets.parse(data, state[len(data)])
            except BadPacket as bad:
                self._bad[str(bad)] += 1
                continue
            target = self._maker.targets.get((ip, packet.qp))
            if target is None:
                self._bad["queue pair"] += 1
                continue
            pair, at_sink = target
            touched[pair.flow.id] = pair
            self._deliver(pair, at_sink, packet, tos, now)
        for pair in touched.values():
            if pair.flow.begun_ns is not None and not pair.closed:
                self._serve(pair, now)

    def _deliver(self, pair: Pair, at_sink: bool, packet: packets.Packet, tos: int, now: int) -> None:
        if not at_sink:
            answer = pair.source.on_packet(packet, now)
            if answer is not None:
                self._send(pair.out, answer, pair.to_sink)
            return
        flow, sink = pair.flow, pair.sink
        for answer in sink.on_packet(packet, now, marked=tos & CE == CE):
            self._send(pair.back, answer, pair.to_source)
        flow.received = sink.received
        if flow.first_byte_ns is None and sink.received:
            flow.first_byte_ns = now
        if sink.done and flow.end_ns is None:
            flow.end_ns = now
            self._note(pair, now)

    def _serve(self, pair: Pair, now: int) -> None:
        """Let a transfer send what may be sent now and see to it that it is looked at again in time."""
        source, sink = pair.source, pair.sink
        while (request := sink.request(now)) is not None:
            self._send(pair.back, request, pair.to_source)
        if pair.out.fileno() not in self._blocked:
            while source.machine.ready() and source.due_ns(now) <= now:
                if not self._transmit(pair, source.emit(now, self._settings.tick_ns)):
                    break
            else:
                if source.machine.ready():
                    self._arm(pair, source.wake_ns(now))
        requester = sink.machine if isinstance(sink.machine, ReadRequester) else source.machine
        assert isinstance(requester, ReadRequester | WriteRequester)
        if requester.deadline_ns < pair.timer_ns:
            pair.timer_ns = requester.deadline_ns
            self._at(pair.timer_ns, partial(self._on_deadline, pair, requester))
        if requester.failed:
            self._fail(pair, "no answer after all retries")
        elif sink.done and requester.done:
            self._close(pair)

    def _arm(self, pair: Pair, moment_ns: float) -> None:
        if moment_ns < pair.armed_ns:
            pair.armed_ns = moment_ns
            self._at(moment_ns, partial(self._on_due, pair, moment_ns))

    def _on_due(self, pair: Pair, moment_ns: float, now: int) -> None:
        if pair.armed_ns == moment_ns:
            pair.armed_ns = NEVER_NS
            if not pair.closed:
                self._serve(pair, now)

    def _on_deadline(self, pair: Pair, requester: ReadRequester | WriteRequester, now: int) -> None:
        pair.timer_ns = NEVER_NS
        if pair.closed:
            return
        if requester.deadline_ns <= now:
            requester.on_deadline(now)
        self._serve(pair, now)

    def _transmit(self, pair: Pair, frame: Frame) -> bool:
        """Send a data packet; False when the NIC takes no more, and then it is kept."""
        try:
            pair.out.sendmsg(frame, (), 0, pair.to_sink)
        except BlockingIOError:
            pair.pending = frame
            self._blocked[pair.out.fileno()] = pair
            self._poller.register(pair.out.fileno(), _EPOLLOUT)
            return False
        return True

    def _unblock(self, descriptor: int, now: int) -> None:
        pair = self._blocked.pop(descriptor, None)
        if pair is None:
            return
        self._poller.unregister(descriptor)
        frame, pair.pending = pair.pending, None
        if frame is not None and self._transmit(pair, frame) and not pair.closed:
            self._serve(pair, now)

    def _send(self, sock: socket.socket, data: bytes, to: tuple[str, int]) -> None:
        try:
            sock.sendto(data, to)
        except BlockingIOError:
            self._bad["answer not sent"] += 1

    # ---- closing ----------------------------------------------------------------------

    def _fail(self, pair: Pair, reason: str) -> None:
        pair.flow.error = reason
        self._close(pair)

    def _close(self, pair: Pair) -> None:
        pair.closed = True
        self._open -= 1

    def close_open(self, reason: str) -> None:
        """Give up all flows that have not ended, with `reason`."""
        for pair in self._pairs:
            if not pair.closed:
                self._fail(pair, reason)

    def outcomes(self) -> list[dict[str, Any]]:
        """Return what became of each flow, in order of id, times relative to the epoch."""
        return [outcome(pair, self._settings.name, self._epoch) for pair in self._pairs]

    def counters(self) -> dict[str, Any]:
        """Return what belongs to no transfer: bad packets by what was wrong, and packets that sockets
        lost."""
        lost = {ip: number for ip, wire in self._wires.values() if (number := dropped(wire))}
        return {"bad_packets": dict(sorted(self._bad.items())), "lost_at_sockets": lost}
