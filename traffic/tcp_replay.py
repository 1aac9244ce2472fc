"""Replays transfers over real TCP connections, all from one event loop.

Called inside the lab with every transfer's endpoints; opens each socket in its host's own network
namespace, so the connections are those of the hosts, and writes nothing but zeros: the sender loops
`sendfile` over one buffer in memory and the receiver discards in the kernel (MSG_TRUNC), so that no
byte is copied through a process. One loop serves senders and receivers: in virtual time a program's
own computing takes no time, in real time it is a few system calls for each megabyte.

Not here: what to send (the plan), measuring queues and rates (the probe).
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from traffic.exact_time import Timer
from traffic.pieces import PIECE_LEAST_BYTES

BUFFER_MAX = (1 << 30) - 1
"""The largest buffer that Linux gives a socket."""

BACKLOG = 1 << 20
"""Connections that may wait to be accepted: all that open at one moment, as far as the host's somaxconn
goes."""

CONNECT_LEAD_NS = 2_000_000
"""A connection is opened so long before its transfer starts, in undilated time."""

_TCP_TX_DELAY = 37
_TX_DELAY_US = 512
"""What Linux lets a connection have queued in its own host is a millisecond at its rate and no less than two
packets (`tcp_small_queue_check`), of real time whatever the dilation. A planned delay d raises that by
d / 2**19 us at the rate, and is obeyed by `fq` only, which no host has: so much for each further unit of
dilation makes it a millisecond of scenario time again."""
_OWN_QUEUE_BYTES = 1 << 20
"""Nor does Linux let a connection queue more than this at any rate (`tcp_limit_output_bytes`). The part that
a planned delay adds comes on top of that bound, so it must not exceed it by itself."""

_TCP_INFO_SIZE = 256
_TCPI_OPTIONS = 5
_TCPI_OPT_ECN = 8
_RETRANSMISSIONS = struct.Struct("=I")
_RETRANSMISSIONS_AT = 100
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33
_SO_MAX_PACING_RATE = 47
_MSG_TRUNC = getattr(socket, "MSG_TRUNC", 0x20)


Namespace = Callable[[str], AbstractContextManager[None]]
"""Returns a context in which sockets are opened in the namespace of the named host."""


@dataclass(frozen=True, order=True)
class Endpoint:
    """One end of a connection; its socket is bound to `device`, if one is given."""

    host: str
    ip: str
    port: int
    device: str = ""


@dataclass
class Flow:
    """A transfer and what has become of it. Times are nanoseconds of the monotonic clock.

    `pace_bps` is the rate its sender paces itself at, `priority` the socket priority of its packets,
    `service` their type of service, `window_bytes` the largest window its receiver offers,
    `send_buffer_bytes` its sender's buffer; 0 leaves each to the kernel. `nic_bps` is its NIC's rate, 0 when
    it is not known. Only the first `released` bytes may leave (None: all).
    """

    id: int
    src: Endpoint
    dst: Endpoint
    bytes: int
    start_ns: int
    pace_bps: int = 0
    priority: int = 0
    window_bytes: int = 0
    released: int | None = None
    send_buffer_bytes: int = 0
    service: int = 0
    nic_bps: int = 0
    sender: socket.socket | None = None
    receiver: socket.socket | None = None
    sent: int = 0
    received: int = 0
    wake_bytes: int = 1
    begun_ns: int | None = None
    first_byte_ns: int | None = None
    end_ns: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


def tx_delay_us(dilation: float, nic_bps: int) -> int:
    """Return the planned delay (TCP_TX_DELAY) with which a sender's own queue is as long as without dilation.

    Slow start paces at twice the rate. 0 without dilation.
    """
    delay_us = _TX_DELAY_US * (dilation - 1)
    if nic_bps:
        delay_us = min(delay_us, (_OWN_QUEUE_BYTES << 19) / (2 * nic_bps / 8))
    return round(delay_us)


class Replay:
    """Runs flows to their end. `prepare` opens listeners and early connections, `run` does the rest."""

    def __init__(
        self,
        flows: list[Flow],
        *,
        congestion_control: str,
        namespace: Namespace,
        dilation: float = 1,
        piece: int = PIECE_LEAST_BYTES,
    ) -> None:
        self._piece = piece
        self._flows = sorted(flows, key=lambda flow: (flow.start_ns, flow.id))
        self._congestion_control = congestion_control.encode()
        self._connect_lead_ns = round(CONNECT_LEAD_NS * dilation)
        self._dilation = dilation
        self._namespace = namespace
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._buffer = bytearray(piece)
        self._zeros = os.memfd_create("zeros")
        os.ftruncate(self._zeros, piece)
        self._timer = Timer(wait=False)
        self._by_sender = {(flow.src.ip, flow.src.port): flow for flow in flows}
        self._listeners: list[socket.socket] = []
        self._connected = 0
        self._started = 0
        self._open = len(flows)
        self._epoch = 0

    def prepare(self) -> None:
        """Listen at every destination."""
        for end, window in sorted(self._destinations().items()):
            with self._namespace(end.host):
                listener = self._socket(end.device)
            if window:
                # A buffer set by hand is not tuned, and tuning would raise the window again.
                listener.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, min(4 * window, BUFFER_MAX))
            self._clamp(listener, window)
            try:
                listener.bind((end.ip, end.port))
                listener.listen(BACKLOG)
            except OSError as error:
                place = f"receiver on {end.host} ({end.ip}:{end.port})"
                raise OSError(error.errno, f"{place}: {error.strerror}") from error
            self._listeners.append(listener)
            self._register(listener.fileno(), select.EPOLLIN, partial(self._accept, listener))
        self._register(self._timer.descriptor, select.EPOLLIN, self._on_timer)

    def _destinations(self) -> dict[Endpoint, int]:
        return {flow.dst: flow.window_bytes for flow in self._expected()}

    def _expected(self) -> Iterable[Flow]:
        """Flows for each destination that must listen."""
        return self._flows

    def run(self, epoch_ns: int, end_ns: int) -> bool:
        """Run all flows, with times counted from `epoch_ns`; return False at `end_ns` if some remain."""
        self._epoch = epoch_ns
        deadline = Timer(wait=False)  # epoll's own timeouts are whole milliseconds
        deadline.start(end_ns)
        self._epoll.register(deadline.descriptor, select.EPOLLIN)
        self._on_timer()
        ended = False
        while self._open and not ended:
            for descriptor, _ in self._epoll.poll():
                ended |= descriptor == deadline.descriptor
                handler = self._handlers.get(descriptor)
                if handler:
                    handler()
        deadline.close()
        return not self._open

    def outcomes(self) -> list[dict[str, Any]]:
        """Return what became of each flow, in order of id, times relative to the epoch."""
        rows = []
        for flow in sorted(self._flows, key=lambda flow: flow.id):
            row: dict[str, Any] = {
                "id": flow.id,
                "start_ns": flow.start_ns if flow.begun_ns is None else flow.begun_ns - self._epoch,
                "first_byte_ns": self._relative(flow.first_byte_ns),
                "end_ns": self._relative(flow.end_ns),
                "bytes": flow.received,
                "error": flow.error,
            }
            rows.append(row | flow.facts)
        return rows

    # ---- opening ----------------------------------------------------------------------

    def _socket(self, device: str) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        if device:
            # An address alone would not do: the route decides by which of a host's NICs a packet leaves.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._congestion_control)
        return sock

    def _connect(self, flow: Flow) -> None:
        with self._namespace(flow.src.host):
            sock = self._socket(flow.src.device)
        flow.sender = sock
        delay_us = tx_delay_us(self._dilation, flow.nic_bps)
        if delay_us:
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_TX_DELAY, delay_us)
        if flow.service:
            # ECN's bits in it are the kernel's. It sets a priority as well, so that is set after it.
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, flow.service)
        if flow.priority:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, flow.priority)
        if flow.pace_bps:
            sock.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, struct.pack("=Q", flow.pace_bps // 8))
        if flow.send_buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, flow.send_buffer_bytes)
        sock.bind((flow.src.ip, flow.src.port))
        code = sock.connect_ex((flow.dst.ip, flow.dst.port))
        if code not in (0, errno.EINPROGRESS):
            self._fail(flow, f"connect: {os.strerror(code)}")

    def _accept(self, listener: socket.socket) -> None:
        sock, (ip, port) = listener.accept()
        sock.setblocking(False)
        flow = self._by_sender.get((ip, port))
        if flow is None:
            sock.close()
            return
        flow.receiver = sock
        self._register(sock.fileno(), select.EPOLLIN, lambda: self._receive(flow))
        self._accepted(flow)

    def _accepted(self, flow: Flow) -> None:
        """Called when both ends of a flow's connection stand."""

    # ---- the clock --------------------------------------------------------------------

    def _on_timer(self) -> None:
        self._timer.clear()
        now = time.monotonic_ns() - self._epoch
        while self._connected < len(self._flows):
            flow = self._flows[self._connected]
            if flow.start_ns - self._connect_lead_ns > now:
                break
            self._connected += 1
            self._connect(flow)
        while self._started < self._connected:
            flow = self._flows[self._started]
            if flow.start_ns > now:
                break
            self._started += 1
            self._start(flow)
        self._set_timer()

    def _set_timer(self) -> None:
        moments = []
        if self._connected < len(self._flows):
            moments.append(self._flows[self._connected].start_ns - self._connect_lead_ns)
        if self._started < self._connected:
            moments.append(self._flows[self._started].start_ns)
        if moments:
            self._wake_at(min(moments))

    def _wake_at(self, moment_ns: int) -> None:
        """Set the timer to a moment after the epoch."""
        self._timer.start(self._epoch + moment_ns)

    # ---- moving bytes -----------------------------------------------------------------

    def _start(self, flow: Flow) -> None:
        flow.begun_ns = time.monotonic_ns()
        if flow.sender is not None and flow.error is None:
            self._register(flow.sender.fileno(), select.EPOLLOUT, lambda: self._send(flow))

    def _send(self, flow: Flow) -> None:
        """Hand the kernel what it takes at once, but do not ask again until it refuses.

        In virtual time a system call that fails (EAGAIN) moves the clock.
        """
        assert flow.sender is not None
        ready = flow.bytes if flow.released is None else flow.released
        try:
            count = min(self._piece, ready - flow.sent)
            flow.sent += os.sendfile(flow.sender.fileno(), self._zeros, 0, count)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(flow, f"send: {error.strerror}")
            return
        if flow.sent == ready:
            self._all_sent(flow)

    def _all_sent(self, flow: Flow) -> None:
        """Called when all that may leave has been handed to the kernel."""
        if flow.sender is not None:
            self._forget(flow.sender.fileno())

    def _receive(self, flow: Flow) -> None:
        assert flow.receiver is not None
        try:
            count = flow.receiver.recv_into(self._buffer, self._piece, _MSG_TRUNC)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(flow, f"receive: {error.strerror}")
            return
        if not count:
            self._fail(flow, "the sender closed the connection early")
            return
        flow.received += count
        if flow.first_byte_ns is None:
            flow.first_byte_ns = time.monotonic_ns()
            self._clamp(flow.receiver, flow.window_bytes)
        if flow.received >= flow.bytes:
            flow.end_ns = time.monotonic_ns()
            self._close(flow)
        else:
            wake = min(self._piece, flow.window_bytes // 4 or self._piece)
            self._wake_after(flow, min(wake, flow.bytes - flow.received))

    @staticmethod
    def _clamp(sock: socket.socket, window: int) -> None:
        """Let a receiver offer no more than `window`. To be said before the connection and once more after
        its first full segment, which is when the kernel works the largest window out for itself."""
        if window:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, window)

    def _wake_after(self, flow: Flow, count: int) -> None:
        if count != flow.wake_bytes and flow.receiver is not None:
            flow.wake_bytes = count
            flow.receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    # ---- closing ----------------------------------------------------------------------

    def _fail(self, flow: Flow, reason: str) -> None:
        flow.error = reason
        self._close(flow)

    def _close(self, flow: Flow) -> None:
        if flow.sender is not None and flow.receiver is not None:
            flow.facts = _facts(flow.sender, flow.receiver)
        for sock in (flow.sender, flow.receiver):
            if sock is not None:
                self._forget(sock.fileno())
                sock.close()
        flow.sender = flow.receiver = None
        self._open -= 1

    def _register(self, descriptor: int, events: int, handler: Callable[[], None]) -> None:
        self._handlers[descriptor] = handler
        self._epoll.register(descriptor, events)

    def _forget(self, descriptor: int) -> None:
        if self._handlers.pop(descriptor, None):
            self._epoll.unregister(descriptor)

    def _relative(self, moment_ns: int | None) -> int | None:
        return None if moment_ns is None else moment_ns - self._epoch

    def close_open(self, reason: str) -> None:
        """Give up all flows that have not ended, with `reason`."""
        for flow in self._flows:
            if flow.end_ns is None and flow.error is None:
                self._fail(flow, reason)


def _facts(sender: socket.socket, receiver: socket.socket) -> dict[str, Any]:
    """Return what the kernel says of a connection at its end: congestion control, ECN, losses."""
    info = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE).ljust(_TCP_INFO_SIZE, b"\0")
    names = [
        sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(b"\0")[0].decode()
        for sock in (sender, receiver)
    ]
    return {
        "congestion_control": {"sender": names[0], "receiver": names[1]},
        "ecn": bool(info[_TCPI_OPTIONS] & _TCPI_OPT_ECN),
        "retransmissions": _RETRANSMISSIONS.unpack_from(info, _RETRANSMISSIONS_AT)[0],
    }
