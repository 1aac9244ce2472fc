"""Runs the serving engine inside the lab: its actions become TCP flows, their ends its news.

The event loop, the sockets and the moving of bytes are those of `traffic.tcp_replay`; here flows come into
being while the loop runs, and their bytes may leave in parts: as layers are computed, as chunks arrive at a
store, or once the decode host has asked. Called by `testbed.run.serving`.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from traffic.serving import Action, Ask, Course, Engine, Open, Release
from traffic.tcp_replay import Flow, Namespace, Replay

ASK_BYTES = 256
"""The message by which a decode host asks: what names the blocks, in one packet."""


@dataclass
class Pool:
    """What is `left` (bytes) of a request for several flows; each takes the next `unit` when it can."""

    left: int
    unit: int
    flows: list[ServedFlow] = field(default_factory=list)

    def take(self) -> int:
        """Take the next unit, or what is left."""
        size = min(self.unit, self.left)
        self.left -= size
        return size


@dataclass
class ServedFlow(Flow):
    """One stream of a request, or one of its two hops.

    `feeds` is the flow from the store to which what arrives here is passed on, in whole `chunk_bytes` (0: as
    it comes). `releases` are the moments (ns after the epoch) at which so many bytes could leave. Flows of
    a `pool` have as many `bytes` as they will have taken, at most all.
    """

    request: int = 0
    chunk_bytes: int = 0
    feeds: ServedFlow | None = None
    fed: bool = False
    asked: bool = False
    pool: Pool | None = None
    last_ns: int | None = None
    releases: list[tuple[int, int]] = field(default_factory=list)


FlowsOf = Callable[[Course], list[ServedFlow]]
"""Returns a request's flows; those that are fed by another come after it."""


Watch = tuple[int, Callable[[int], None]]
"""How often (ns) to look at something, and what looks at it (at ns after the epoch)."""


class ServingReplay(Replay):
    """Runs an engine's requests until the first token of each is known of."""

    def __init__(
        self,
        engine: Engine,
        flows_of: FlowsOf,
        listening: Sequence[Flow],
        *,
        congestion_control: str,
        namespace: Namespace,
        dilation: float = 1,
        watch: Watch | None = None,
    ) -> None:
        super().__init__([], congestion_control=congestion_control, namespace=namespace, dilation=dilation)
        self._engine = engine
        self._flows_of = flows_of
        self._listening = listening
        self._of_request: dict[int, list[ServedFlow]] = {}
        self._open = engine.open
        self._watch = watch
        self._next_look_ns: int | None = None

    def _expected(self) -> Iterable[Flow]:
        return self._listening

    # ---- the engine -------------------------------------------------------------------

    def _on_timer(self) -> None:
        self._timer.clear()
        self._pump(time.monotonic_ns() - self._epoch)

    def _pump(self, now_ns: int) -> None:
        """Let the engine go on to `now_ns` and do what it says."""
        if self._watch is not None and (self._next_look_ns is None or now_ns >= self._next_look_ns):
            self._watch[1](now_ns)
            self._next_look_ns = now_ns + self._watch[0]
        for action in self._engine.advance(now_ns):
            self._do(action)
        self._open = self._engine.open
        moments = [moment for moment in (self._engine.next_ns, self._next_look_ns) if moment is not None]
        if self._open and moments:
            self._wake_at(min(moments))

    def _do(self, action: Action) -> None:
        if isinstance(action, Open):
            self._open_flows(action.course)
        elif isinstance(action, Release):
            for flow in self._first_hops(action.course):
                self._release(flow, flow.bytes * action.done // action.steps, action.time_ns)
        elif isinstance(action, Ask):
            for flow in self._first_hops(action.course):
                flow.asked = True
                self._ask(flow)

    def _first_hops(self, course: Course) -> list[ServedFlow]:
        return [flow for flow in self._of_request[course.job.id] if not flow.fed]

    def _open_flows(self, course: Course) -> None:
        flows = self._flows_of(course)
        self._of_request[course.job.id] = flows
        for flow in flows:
            flow.released = 0
            self._flows.append(flow)
            self._by_sender[flow.src.ip, flow.src.port] = flow
            self._connect(flow)
            if flow.sender is not None and flow.error is None and self._engine_pulls(flow):
                self._register(flow.sender.fileno(), select.EPOLLIN, self._asked_handler(flow))

    def _engine_pulls(self, flow: ServedFlow) -> bool:
        return self._engine.pulls and not flow.fed

    # ---- releasing bytes --------------------------------------------------------------

    def _release(self, flow: ServedFlow, upto: int, time_ns: int) -> None:
        """Let the first `upto` bytes of a flow leave, from `time_ns` on."""
        if upto <= (flow.released or 0) or flow.error is not None or flow.sender is None:
            return
        if flow.begun_ns is None:
            flow.begun_ns, flow.start_ns = time.monotonic_ns(), time_ns
        if flow.pool is None:
            flow.released = upto
            flow.releases.append((time_ns, upto))
        elif upto == flow.bytes and not self._take(flow):
            return
        if flow.sender.fileno() not in self._handlers:
            self._register(flow.sender.fileno(), select.EPOLLOUT, lambda: self._send(flow))

    def _take(self, flow: ServedFlow) -> int:
        """Give a flow the next descriptor of its pool; once there is none, all its flows know their bytes."""
        assert flow.pool is not None
        size = flow.pool.take()
        flow.released = (flow.released or 0) + size
        if not flow.pool.left and flow.pool.unit:
            flow.pool.unit = 0
            for one in flow.pool.flows:
                self._settle(one)
        return size

    def _settle(self, flow: ServedFlow) -> None:
        flow.bytes = flow.released or 0
        if flow.received < flow.bytes:
            self._wake_after(flow, min(self._piece, flow.bytes - flow.received))
        elif flow.sender is not None:
            flow.end_ns = flow.last_ns or time.monotonic_ns()
            self._close(flow)

    def _all_sent(self, flow: Flow) -> None:
        assert isinstance(flow, ServedFlow)
        if flow.pool is None or not self._take(flow):
            super()._all_sent(flow)

    def _accepted(self, flow: Flow) -> None:
        assert isinstance(flow, ServedFlow)
        if flow.asked:
            self._ask(flow)

    def _ask(self, flow: ServedFlow) -> None:
        """Ask for a flow over its own connection, once there is one."""
        if flow.receiver is None:
            return
        try:
            flow.receiver.send(bytes(ASK_BYTES))
        except OSError as error:
            self._fail(flow, f"ask: {error.strerror}")

    def _asked_handler(self, flow: ServedFlow) -> Callable[[], None]:
        def asked() -> None:
            assert flow.sender is not None
            try:
                flow.sender.recv(ASK_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                self._fail(flow, f"ask: {error.strerror}")
                return
            self._forget(flow.sender.fileno())
            self._release(flow, flow.bytes, time.monotonic_ns() - self._epoch)

        return asked

    def _wake_after(self, flow: Flow, count: int) -> None:
        """A store is woken by each chunk it can pass on."""
        assert isinstance(flow, ServedFlow)
        if flow.feeds is not None and flow.chunk_bytes:
            count = min(count, flow.chunk_bytes - flow.received % flow.chunk_bytes)
        super()._wake_after(flow, count)

    def _receive(self, flow: Flow) -> None:
        super()._receive(flow)
        assert isinstance(flow, ServedFlow)
        if flow.pool is not None:
            flow.last_ns = time.monotonic_ns()
        onward = flow.feeds
        if onward is not None and flow.error is None:
            whole = flow.received == flow.bytes or not flow.chunk_bytes
            ready = flow.received if whole else flow.received - flow.received % flow.chunk_bytes
            self._release(onward, ready, time.monotonic_ns() - self._epoch)

    # ---- ends -------------------------------------------------------------------------

    def _close(self, flow: Flow) -> None:
        super()._close(flow)
        assert isinstance(flow, ServedFlow)
        course = self._engine.courses[flow.request]
        if course.error is None and course.landed_ns is None:
            self._conclude(flow, course)
        self._open = self._engine.open

    def _conclude(self, flow: ServedFlow, course: Course) -> None:
        """Tell the engine when a request's last flow has ended or its first has failed."""
        flows, now_ns = self._of_request[flow.request], time.monotonic_ns() - self._epoch
        if flow.error is not None:
            self._engine.failed(flow.request, now_ns, flow.error)
            for other in flows:
                if other.end_ns is None and other.error is None:
                    self._fail(other, "another stream of its request failed")
            self._pump(now_ns)
        elif all(other.end_ns is not None for other in flows):
            ends = [other.end_ns for other in flows if other.end_ns is not None]
            self._engine.landed(flow.request, max(ends) - self._epoch)
            self._pump(now_ns)

    def close_open(self, reason: str) -> None:
        """Give up every request whose first token is not known of, with `reason`."""
        self._engine.give_up(reason)
        super().close_open(reason)

    def outcomes(self) -> list[dict[str, Any]]:
        """Return what became of each flow, with when its bytes could leave if that was not all at once."""
        flows = {flow.id: flow for flow in self._flows if isinstance(flow, ServedFlow)}
        rows = super().outcomes()
        for row in rows:
            flow = flows[row["id"]]
            row["planned_start_ns"] = flow.start_ns
            if len(flow.releases) > 1:
                row["releases"] = flow.releases
        return rows
