"""The serving system of the hosts: queues before prefill, the hand-over, admission to decoding. Pure.

A state machine in which nothing waits and nothing is sent: `now` is passed in, what the network must do comes
out as actions, and who runs it says when a request's KV has landed. The plan runs it against ideal transfer
times, the lab's traffic program against the real ones.

A request is scheduled `lead_ns` before it arrives: a prefill host is chosen and, as Mooncake's conductor
does, the decode host at the same moment, so that connections stand before there is KV. Prefill hosts serve
first come, first served. What lands is admitted where a slot of the decode host is free, at the next step of
its batch (continuous batching, Yu et al., Orca, OSDI 2022); its first token comes a step later.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from traffic.jobs import OPEN_LOOP, SHORTEST_QUEUE, Job, Serving


@dataclass
class Course:
    """What has become of a request: its hosts, what is moved, and when it passed each point (ns)."""

    job: Job
    prefill_host: str = ""
    decode_host: str = ""
    store_host: str = ""
    bytes: int = 0
    cached_blocks: int = 0
    arrival_ns: int | None = None
    prefill_start_ns: int | None = None
    prefill_end_ns: int | None = None
    landed_ns: int | None = None
    admitted_ns: int | None = None
    first_token_ns: int | None = None
    ended_ns: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class Open:
    """Open the connections of a request: where from, where to and how much stands in its course."""

    course: Course


@dataclass(frozen=True)
class Release:
    """The first `done` of `steps` equal parts of a request's KV may leave from `time_ns` on."""

    course: Course
    time_ns: int
    done: int
    steps: int


@dataclass(frozen=True)
class Ask:
    """The decode host asks for a request's KV at `time_ns`."""

    course: Course
    time_ns: int


Action = Open | Release | Ask

Chooser = Callable[["Course", int], tuple[str, int]]
"""Returns the decode host of a request at a moment (ns), and how many of its blocks are there already."""


@dataclass
class _PrefillHost:
    """Free slots, who waits, and the prefill time of all that was scheduled here and has not ended."""

    free: int
    waiting: deque[Course] = field(default_factory=deque)
    outstanding_ns: int = 0
    outstanding: int = 0


@dataclass
class _DecodeHost:
    """Answers in the batch, who waits for a slot, and a moment at which a step began."""

    active: int = 0
    waiting: deque[Course] = field(default_factory=deque)
    step_began_ns: int = 0


class Engine:
    """Runs the jobs of `serving`. `choose` places them, `on_landed` and `on_ended` hear of each.

    `partial` False leaves out the releases before the last: who only wants the end of each prefill saves
    an event for every layer.
    """

    def __init__(
        self,
        serving: Serving,
        choose: Chooser,
        *,
        on_landed: Callable[[Course], None] = lambda course: None,
        on_ended: Callable[[Course], None] = lambda course: None,
        partial: bool = True,
    ) -> None:
        self._serving = serving
        self._choose = choose
        self._on_landed, self._on_ended = on_landed, on_ended
        self._partial = partial
        self.courses = {job.id: Course(job) for job in serving.jobs}
        self.open = len(serving.jobs)
        """Requests whose first token is not yet known of."""
        self._prefill = {name: _PrefillHost(serving.prefill_slots) for name in serving.prefill_hosts}
        self._decode = {name: _DecodeHost() for name in serving.decode_hosts}
        self._events: list[tuple[int, int, Callable[[Course, int], None], Course]] = []
        self._order = count()
        self._actions: list[Action] = []
        self._scheduled = 0
        self._clients: dict[int, deque[Course]] = {}
        for course in self.courses.values():
            if course.job.client == OPEN_LOOP:
                self._expect(course, course.job.arrival_ns)
            else:
                self._clients.setdefault(course.job.client, deque()).append(course)
        for courses in self._clients.values():
            first = courses.popleft()
            self._expect(first, first.job.arrival_ns)

    @property
    def pulls(self) -> bool:
        """Whether decode hosts ask for the KV."""
        return self._serving.handover.pull

    @property
    def next_ns(self) -> int | None:
        """When something happens next by itself, None when only the network can bring news."""
        return self._events[0][0] if self._events else None

    def advance(self, now_ns: int) -> list[Action]:
        """Let everything happen that is due by `now_ns`; return what the network must do, in order."""
        while self._events and self._events[0][0] <= now_ns:
            time_ns, _, happen, course = heapq.heappop(self._events)
            happen(course, time_ns)
        actions, self._actions = self._actions, []
        return actions

    def landed(self, request: int, now_ns: int) -> None:
        """Say that all KV of a request is at its decode host. `advance` follows."""
        self._land(self.courses[request], now_ns)

    def failed(self, request: int, now_ns: int, reason: str) -> None:
        """Give a request up: its answer will never be decoded."""
        course = self.courses[request]
        course.error = reason
        self.open -= 1
        self._on_landed(course)
        self._leave(course, now_ns)

    def give_up(self, reason: str) -> None:
        """Give up all requests whose first token is not yet known of; nothing may follow."""
        for course in self.courses.values():
            if course.first_token_ns is None and course.error is None:
                course.error = reason
                self.open -= 1

    # ---- one event after the other ----------------------------------------------------

    def _at(self, time_ns: int, happen: Callable[[Course, int], None], course: Course) -> None:
        heapq.heappush(self._events, (time_ns, next(self._order), happen, course))

    def _expect(self, course: Course, arrival_ns: int, now_ns: int | None = None) -> None:
        course.arrival_ns = arrival_ns
        ahead_ns = arrival_ns - self._serving.lead_ns
        self._at(ahead_ns if now_ns is None else max(now_ns, ahead_ns), self._schedule, course)

    def _schedule(self, course: Course, now_ns: int) -> None:
        job, serving = course.job, self._serving
        course.prefill_host = self._prefill_host()
        host = self._prefill[course.prefill_host]
        host.outstanding += 1
        host.outstanding_ns += job.prefill_ns
        course.decode_host, course.cached_blocks = self._choose(course, now_ns)
        course.bytes = job.bytes_beyond(course.cached_blocks)
        if serving.handover.store:
            course.store_host = serving.store_hosts[self._scheduled % len(serving.store_hosts)]
        self._scheduled += 1
        if course.bytes:
            self._actions.append(Open(course))
        assert course.arrival_ns is not None
        self._at(max(now_ns, course.arrival_ns), self._arrive, course)

    def _prefill_host(self) -> str:
        """Round-robin, which also breaks ties between queues that are equally short."""
        hosts = self._serving.prefill_hosts
        turn = self._scheduled % len(hosts)
        if self._serving.prefill_policy != SHORTEST_QUEUE:
            return hosts[turn]

        def load(name: str) -> tuple[int, int]:
            host = self._prefill[name]
            return host.outstanding_ns, host.outstanding

        return min(hosts[turn:] + hosts[:turn], key=load)

    def _arrive(self, course: Course, now_ns: int) -> None:
        host = self._prefill[course.prefill_host]
        if host.free:
            host.free -= 1
            self._begin_prefill(course, now_ns)
        else:
            host.waiting.append(course)

    def _begin_prefill(self, course: Course, now_ns: int) -> None:
        job, handover = course.job, self._serving.handover
        course.prefill_start_ns = now_ns
        steps = handover.steps(job.prompt_tokens)
        if self._partial and course.bytes and not handover.pull:
            for done in range(1, steps):
                self._at(now_ns + job.prefill_ns * done // steps, self._releaser(done, steps), course)
        self._at(now_ns + job.prefill_ns, self._end_prefill, course)

    def _releaser(self, done: int, steps: int) -> Callable[[Course, int], None]:
        def release(course: Course, now_ns: int) -> None:
            self._actions.append(Release(course, now_ns, done, steps))

        return release

    def _end_prefill(self, course: Course, now_ns: int) -> None:
        course.prefill_end_ns = now_ns
        host = self._prefill[course.prefill_host]
        host.outstanding -= 1
        host.outstanding_ns -= course.job.prefill_ns
        if host.waiting:
            self._begin_prefill(host.waiting.popleft(), now_ns)
        else:
            host.free += 1
        if not course.bytes:
            self._land(course, now_ns)
        elif self._serving.handover.pull:
            self._actions.append(Ask(course, now_ns))
        else:
            steps = self._serving.handover.steps(course.job.prompt_tokens)
            self._actions.append(Release(course, now_ns, steps, steps))

    def _land(self, course: Course, now_ns: int) -> None:
        course.landed_ns = now_ns
        self._on_landed(course)
        host, slots = self._decode[course.decode_host], self._serving.decode_slots
        if slots and host.active >= slots:
            host.waiting.append(course)
        else:
            self._admit(course, self._next_step(host, now_ns))

    def _next_step(self, host: _DecodeHost, now_ns: int) -> int:
        """Return when the batch of a host takes in a newcomer: at once if it is empty."""
        step_ns = self._serving.step_ns
        if not host.active or not step_ns:
            host.step_began_ns = now_ns
        steps = -(-(now_ns - host.step_began_ns) // step_ns) if step_ns else 0
        return host.step_began_ns + steps * step_ns

    def _admit(self, course: Course, step_ns: int) -> None:
        self._decode[course.decode_host].active += 1
        self.open -= 1
        course.admitted_ns = step_ns
        course.first_token_ns = step_ns + self._serving.step_ns
        tokens = max(1, course.job.output_tokens)
        self._at(step_ns + tokens * self._serving.step_ns, self._end, course)

    def _end(self, course: Course, now_ns: int) -> None:
        course.ended_ns = now_ns
        host = self._decode[course.decode_host]
        host.active -= 1
        if host.waiting:
            self._admit(host.waiting.popleft(), now_ns)
        self._leave(course, now_ns)

    def _leave(self, course: Course, now_ns: int) -> None:
        self._on_ended(course)
        following = self._clients.get(course.job.client)
        if following:
            nxt = following.popleft()
            self._expect(nxt, now_ns + nxt.job.arrival_ns, now_ns)
