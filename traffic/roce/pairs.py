"""The queue pairs of a run's transfers: how they are carried, how they are made, what became of each.

Called by `traffic.roce.replay`, which moves their packets.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from traffic.roce import packets
from traffic.roce.dcqcn import NotificationPoint, Parameters, ReactionPoint
from traffic.roce.ends import Counts, Frame, Lane, Pattern, Sink, Source
from traffic.roce.geometry import Geometry
from traffic.roce.packets import Framer, StateCache
from traffic.roce.rate import NEVER_NS, FixedRate, RateControl
from traffic.roce.requester import ReadRequester, WriteRequester
from traffic.roce.responder import ReadResponder, WriteResponder
from traffic.roce.sockets import CE, CONTROL_TOS, ECT0, data_socket
from traffic.tcp_replay import Flow

ACK_EVERY = 16
"""An acknowledgement is asked for at least every so many packets; less often is fewer packets, more often
frees a window and its memory earlier."""

GPU_SHIFT = 16
_FIRST_QP = 0x100
QUEUE_PAIRS_MAX = (1 << GPU_SHIFT) - 1 - _FIRST_QP
"""Queue pairs of one host: their numbers stand below their GPU's."""

_SPREAD = 0x9E3779
"""Sequence numbers start this far apart from one transfer to the next: some wrap early in every run."""

Lanes = Sequence[tuple[str, int]]
"""Names and rates of what a flow's source shares with others, its NIC first."""


@dataclass(frozen=True)
class Settings:
    """How all transfers of a run are carried. `dcqcn` None is no congestion control.

    `window_bytes` 0 is no window; `tick_ns` 0 no joining of what happens close together. Times are lab times,
    and with `exact` its clock is virtual: a sleep ends when it should.
    """

    mtu: int
    read: bool
    recovery: str
    message_bytes: int
    window_bytes: int
    ack_timeout_ns: int
    tick_ns: int
    dcqcn: Parameters | None
    name: str
    exact: bool = False


@dataclass
class Pair:
    """The two ends of a transfer and their sockets."""

    flow: Flow
    source: Source
    sink: Sink
    counts: Counts
    out: socket.socket
    back: socket.socket
    to_sink: tuple[str, int]
    to_source: tuple[str, int]
    pending: Frame | None = None
    armed_ns: float = NEVER_NS
    timer_ns: float = NEVER_NS
    closed: bool = False


class PairMaker:
    """Makes the pairs of a run, and knows whose a packet is.

    `lanes` and `gpus` are by flow, see `replay.RoceReplay`. `targets` has the pair, and whether it is its
    sink, by address and queue pair number; `states` the checksum's state by address and packet's source.
    """

    def __init__(
        self,
        settings: Settings,
        lanes: Mapping[int, Lanes],
        gpus: Mapping[int, int],
        namespace: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._settings = settings
        self._lane_names, self._gpus = lanes, gpus
        self._namespace = namespace
        self._lanes: dict[str, Lane] = {}
        self._pattern = Pattern(settings.mtu)
        self._numbers: Counter[str] = Counter()
        self.targets: dict[tuple[str, int], tuple[Pair, bool]] = {}
        self.states: dict[tuple[str, bytes], StateCache] = {}

    def make(self, flow: Flow) -> Pair:
        own = self._settings
        first_psn = (flow.id + 1) * _SPREAD & packets.PSN_MASK
        geometry = Geometry(flow.bytes, own.mtu, own.message_bytes, first_psn)
        source_qp = self._queue_pair(flow.src.host, 0)
        sink_qp = self._queue_pair(flow.dst.host, self._gpus[flow.id])
        src, dst = socket.inet_aton(flow.src.ip), socket.inet_aton(flow.dst.ip)
        forward = StateCache(src, dst, flow.src.port)
        backward = StateCache(dst, src, flow.src.port)
        counts = Counts()
        source_machine, sink_machine = self._machines(geometry)
        lanes = [self._lane(name, rate) for name, rate in self._lane_names[flow.id]]
        source = Source(
            flow.id, geometry, source_machine, Framer(sink_qp, forward), self._rate(flow), self._pattern,
            lanes, counts,
        )  # fmt: skip
        notifier = NotificationPoint(own.dcqcn.cnp_interval_ns) if own.dcqcn else None
        sink = Sink(geometry, sink_machine, Framer(source_qp, backward), notifier, counts)
        with self._namespace(flow.src.host):
            tos = ECT0 | flow.service
            out = data_socket(flow.src.ip, flow.src.port, flow.src.device, tos=tos, priority=flow.priority)
        with self._namespace(flow.dst.host):
            back = data_socket(flow.dst.ip, flow.src.port, flow.dst.device, tos=CONTROL_TOS)
        pair = Pair(
            flow, source, sink, counts, out, back,
            (flow.dst.ip, packets.ROCE_PORT), (flow.src.ip, packets.ROCE_PORT),
        )  # fmt: skip
        port = flow.src.port.to_bytes(2, "big")
        self.states[flow.dst.ip, port + src] = forward
        self.states[flow.src.ip, port + dst] = backward
        self.targets[flow.dst.ip, sink_qp] = (pair, True)
        self.targets[flow.src.ip, source_qp] = (pair, False)
        return pair

    def _queue_pair(self, host: str, gpu: int) -> int:
        self._numbers[host] += 1
        return gpu << GPU_SHIFT | _FIRST_QP + self._numbers[host]

    def _machines(
        self, geometry: Geometry
    ) -> tuple[WriteRequester | ReadResponder, WriteResponder | ReadRequester]:
        own = self._settings
        window = max(1, own.window_bytes // own.mtu) if own.window_bytes else 0
        if own.read:
            requester = ReadRequester(
                geometry, recovery=own.recovery, timeout_ns=own.ack_timeout_ns, window_packets=window
            )
            return ReadResponder(geometry, recovery=own.recovery), requester
        every = min(ACK_EVERY, max(1, window // 2)) if window else ACK_EVERY
        writer = WriteRequester(
            geometry, recovery=own.recovery, timeout_ns=own.ack_timeout_ns, window_packets=window,
            ack_every=every,
        )  # fmt: skip
        return writer, WriteResponder(geometry, recovery=own.recovery)

    def _rate(self, flow: Flow) -> RateControl:
        line_bps = min(rate for _, rate in self._lane_names[flow.id])
        limit_bps = min(line_bps, flow.pace_bps or line_bps)
        return (
            ReactionPoint(self._settings.dcqcn, limit_bps) if self._settings.dcqcn else FixedRate(limit_bps)
        )

    def _lane(self, name: str, rate_bps: int) -> Lane:
        return self._lanes.setdefault(name, Lane(rate_bps))


def outcome(pair: Pair, name: str, epoch_ns: int) -> dict[str, Any]:
    """Return what became of a pair's flow, times relative to the epoch; `name` is its congestion control."""
    flow, counts = pair.flow, pair.counts
    source, sink = pair.source.machine, pair.sink.machine
    requester = sink if isinstance(sink, ReadRequester) else source
    assert isinstance(requester, ReadRequester | WriteRequester)
    tos = pair.out.getsockopt(socket.IPPROTO_IP, socket.IP_TOS)
    return {
        "id": flow.id,
        "start_ns": flow.start_ns if flow.begun_ns is None else flow.begun_ns - epoch_ns,
        "first_byte_ns": _relative(flow.first_byte_ns, epoch_ns),
        "end_ns": _relative(flow.end_ns, epoch_ns),
        "bytes": flow.received,
        "error": flow.error,
        "congestion_control": {"sender": name, "receiver": name},
        "ecn": tos & CE == ECT0,
        "retransmissions": source.retransmissions,
        "roce": {
            "packets_sent": counts.packets_sent,
            "packets_received": counts.packets_received,
            "not_landed": counts.not_landed,
            "timeouts": requester.timeouts,
            "naks": sink.naks if isinstance(sink, WriteResponder) else sink.repeated,
            "ce_packets": counts.ce_packets,
            "cnps_sent": counts.cnps_sent,
            "cnps_received": counts.cnps_received,
            "shortest_cnp_gap_ns": counts.shortest_cnp_gap_ns,
            "first_ce_ns": _relative(counts.first_ce_ns, epoch_ns),
            "first_cnp_ns": _relative(counts.first_cnp_ns, epoch_ns),
            "sent_at_first_cnp": counts.sent_at_first_cnp,
            "crc_sent": pair.source.checksum(),
            "crc_landed": pair.sink.checksum(),
        },
    }


def _relative(moment_ns: int | None, epoch_ns: int) -> int | None:
    return None if moment_ns is None else moment_ns - epoch_ns
