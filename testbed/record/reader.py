"""Opens a record directory and gives its facts in the scenario's own time.

The lab's clock runs `dilation` times slower than the scenario's; the division is done here, once, so that
nobody after this module meets a laboratory time. Bytes, packets, marks and backlogs are the same in both.

It computes no result (`testbed.analysis` does) and changes nothing in the directory. Called by the
analysis, the report, the checks and the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from testbed import strict_json
from testbed.errors import InputError
from testbed.plan.codec import from_json
from testbed.plan.model import Plan
from testbed.record import codec, layout, shape
from testbed.record.codec import Damage, Int64Array
from testbed.record.outcomes import Outcome, parse_outcomes, unknown_outcome
from testbed.record.paths import measured_paths
from testbed.record.pauses import NO_PAUSES, Pausings, parse_deadlock, parse_pauses
from testbed.record.rails import nic_and_rails, own_backlog, sends_at_its_rate
from testbed.record.requests import NOTHING_SERVED, Served, parse_served
from testbed.record.sound import check_plan
from testbed.screen import shortened

_Value = TypeVar("_Value")

WRONG_MAX = 500


@dataclass(frozen=True, eq=False)
class LinkSeries:
    """The samples of one link's queue, oldest first, as int64 arrays of one length.

    `time_ns` is scenario time since the workload's start and may begin below 0. `backlog_bytes` is what
    stood in the queue at that instant; `bytes`, `packets`, `drops` and `ce_marks` count up from 0 at the
    first sample.
    """

    time_ns: Int64Array
    backlog_bytes: Int64Array
    bytes: Int64Array
    packets: Int64Array
    drops: Int64Array
    ce_marks: Int64Array


@dataclass(frozen=True, eq=False)
class SampleGroup:
    """Links that are sampled together. `rows` has a time (laboratory ns) and then each link's fields."""

    name: str
    links: tuple[str, ...]
    rows: Int64Array


@dataclass(frozen=True, eq=False)
class Progress:
    """All progress rows, sorted by transfer and then by time (scenario ns)."""

    transfer_id: Int64Array
    time_ns: Int64Array
    bytes_received: Int64Array


@dataclass(frozen=True, eq=False)
class Departures:
    """Every packet that left a link, in order: arrays as `testbed.record.layout.DEPARTURE_FIELDS` has them,
    times in scenario ns. `lost` packets are not among them."""

    time_ns: Int64Array
    frame_bytes: Int64Array
    ecn: Int64Array
    source: Int64Array
    sequence: Int64Array
    lost: int


@dataclass(frozen=True, eq=False, repr=False)
class Record:
    """An opened record. Make one with `Record.open`.

    `paths` maps a transfer's id to the links its data took (None: not measured). `link_names` are the sampled
    links in the plan's order. `problems` has a sentence for each thing that is missing, damaged or changed,
    and `damage` those of them that came after the run. With a serving engine, `served` has its requests, and
    the plan's transfers are those it made.
    """

    path: Path
    plan: Plan
    manifest: Mapping[str, Any]
    environment: Mapping[str, Any]
    facts: Mapping[str, Any]
    background: Any
    tcp_counters: Mapping[str, Mapping[str, int]]
    roce_counters: Mapping[str, Any]
    outcomes: tuple[Outcome, ...]
    served: Served
    paths: Mapping[int, tuple[str, ...] | None]
    groups: tuple[SampleGroup, ...]
    all_progress: Progress
    problems: tuple[str, ...]
    damage: tuple[str, ...] = ()
    pausings: Pausings = NO_PAUSES

    @classmethod
    def open(cls, path: Path | str, *, verify: bool = True) -> Record:
        """Open the record directory `path`.

        A record that is damaged, or of a run that did not end, opens as far as it can and says what is
        wrong in `problems`. `verify` compares every raw file with the manifest's size and SHA-256. Raises
        InputError when the directory is no record, has no readable plan, or has a format this version does
        not know.
        """
        return _open(cls, Path(path), verify)

    @cached_property
    def link_names(self) -> tuple[str, ...]:
        """The links that were sampled, in the plan's order."""
        return tuple(link.name for link in self.plan.topology.all_links if link.name in self._columns)

    def series(self, link: str) -> LinkSeries:
        """Return the samples of `link`, empty when it was not sampled; KeyError when no link is called so.

        A NIC and the rails before it hold one queue between them, see `testbed.record.rails`.
        """
        self.plan.topology.link(link)
        if link not in self._columns:
            return LinkSeries(*(np.empty(0, np.int64) for _ in range(1 + len(layout.SAMPLE_FIELDS))))
        times, fields = self._fields(link)
        nic, rails = nic_and_rails(self.plan.topology, link)
        if nic is not None and nic.name in self._columns:
            waiting = [self._fields(rail.name)[1][0] for rail in rails if rail.name in self._columns]
            sent, held = self._fields(nic.name)[1][1], self.pausings.held.get(nic.name)
            full = sends_at_its_rate(nic, times, sent, held)
            fields[0] = own_backlog(link == nic.name, full, fields[0], waiting)
        fields[1:] -= fields[1:, :1]
        return LinkSeries(times, *fields)

    def _fields(self, link: str) -> tuple[Int64Array, Int64Array]:
        group, column = self._columns[link]
        return self.sample_times(group), codec.columns(group.rows, column, len(layout.SAMPLE_FIELDS))

    def totals(self, link: str) -> dict[str, int]:
        """Return what each counter of `link` rose by over the whole record, without reading the samples
        between.

        Keys are the counters of `LinkSeries`; all are 0 for a link that was not sampled.
        """
        if link not in self._columns:
            return dict.fromkeys(layout.SAMPLE_FIELDS[1:], 0)
        group, column = self._columns[link]
        rise = group.rows[-1] - group.rows[0]
        return {name: int(rise[column + 1 + at]) for at, name in enumerate(layout.SAMPLE_FIELDS[1:])}

    @cached_property
    def stray_drops(self) -> Mapping[str, int]:
        """How many packets were lost outside the queues, by place; empty where none was."""
        if not (self.path / layout.STRAY_DROPS).exists():
            return {}
        try:
            return _fitted_mapping(self.path, layout.STRAY_DROPS, shape.COUNTERS)
        except Damage as damage:
            return {str(damage): 1}

    @cached_property
    def processors(self) -> tuple[tuple[int, float], ...]:
        """When a second ended (laboratory ns) and how idle it was; on a real clock only."""
        if not (self.path / layout.PROCESSORS).exists():
            return ()
        try:
            rows = codec.read_json(self.path, layout.PROCESSORS)
            return tuple((int(moment), float(idle)) for moment, idle in rows)
        except (Damage, TypeError, ValueError, OverflowError):
            return ((0, 0.0),)

    def departures(self, link: str) -> Departures:
        """Return every packet that left `link`; InputError when they were not recorded, or not readably."""
        name = layout.departure_rows(link)
        try:
            header = _fitted_mapping(self.path, layout.departure_header(link), shape.DEPARTURES)
            rows, _ = codec.open_rows(self.path, name, len(layout.DEPARTURE_FIELDS))
        except Damage as damage:
            raise InputError(f"{self.path}: no departures of {link}: {damage}") from None
        times = _scenario_times(rows[:, 0], self.plan.dilation)
        size, ecn, source, sequence = np.array(rows[:, 1:].T, np.int64)
        return Departures(times, size, ecn, source, sequence, int(header.get("lost", 0)))

    def sample_times(self, group: SampleGroup) -> Int64Array:
        """Return when the rows of `group` were taken, in scenario nanoseconds. Not to be written to."""
        return self._sample_times[group.name]

    @cached_property
    def _sample_times(self) -> dict[str, Int64Array]:
        """The times of each group, which all of its links share."""
        found = {}
        for group in self.groups:
            times = _scenario_times(codec.columns(group.rows, 0, 1)[0], self.plan.dilation)
            times.flags.writeable = False
            found[group.name] = times
        return found

    def progress(self, transfer_id: int) -> tuple[Int64Array, Int64Array]:
        """Return when (scenario ns) how many bytes of a transfer had arrived; empty when nothing is known."""
        rows = self.all_progress
        first, last = np.searchsorted(rows.transfer_id, [transfer_id, transfer_id + 1])
        return rows.time_ns[first:last], rows.bytes_received[first:last]

    @cached_property
    def _columns(self) -> dict[str, tuple[SampleGroup, int]]:
        width = len(layout.SAMPLE_FIELDS)
        return {
            link: (group, 1 + number * width)
            for group in self.groups
            for number, link in enumerate(group.links)
            if len(group.rows)
        }


def _open(cls: type[Record], folder: Path, verify: bool) -> Record:
    manifest, plan, damage = _manifest_and_plan(folder)
    if verify:
        damage += codec.differences(folder, manifest.get("files"))
    problems = list(damage)
    served = _Reader(folder, plan, problems).served()
    if plan.serving is not None:
        plan = replace(plan, transfers=served.transfers)
    reader = _Reader(folder, plan, problems)
    return cls(
        path=folder,
        plan=plan,
        manifest=manifest,
        environment=reader.environment(),
        facts=reader.attempt(lambda: _fitted_mapping(folder, layout.FACTS, shape.FACTS), {}),
        background=reader.background(),
        tcp_counters=reader.attempt(
            lambda: _fitted_mapping(folder, layout.TCP_COUNTERS, shape.TCP_COUNTERS), {}
        ),
        roce_counters=reader.roce_counters(),
        outcomes=reader.outcomes(),
        served=served,
        paths=reader.paths(),
        groups=reader.groups(),
        all_progress=reader.progress(),
        pausings=reader.pausings(),
        problems=tuple(dict.fromkeys(problems)),
        damage=tuple(damage),
    )


def _manifest_and_plan(folder: Path) -> tuple[dict[str, Any], Plan, list[str]]:
    """Return both, and what is wrong with the manifest: with a plan beside it, what is left can be read."""
    try:
        return _manifest(folder), read_plan(folder), []
    except Damage as damage:
        try:
            return {}, read_plan(folder), [str(damage)]
        except InputError:
            raise InputError(f"{folder}: this is no record of a run: {damage}") from None


def _manifest(folder: Path) -> dict[str, Any]:
    manifest = _fitted_mapping(folder, layout.MANIFEST, shape.MANIFEST)
    version = manifest.get("format_version")
    if version != layout.FORMAT_VERSION:
        raise InputError(
            f"{folder}: the record has format {version}; this version of testbed reads "
            f"format {layout.FORMAT_VERSION}"
        )
    return manifest


def read_plan(folder: Path) -> Plan:
    """Return the plan of a record as its run was given it; InputError where there is none that can be one."""
    try:
        text = codec.read_text(folder, layout.PLAN)
        strict_json.loads(text)
        plan = from_json(text)
        check_plan(plan)
        return plan
    except Damage as damage:
        raise InputError(f"{folder}: the record cannot be read: {damage}") from None
    except (InputError, ValueError) as error:
        wrong = shortened(str(error), WRONG_MAX)  # it may quote keys of any length
        raise InputError(f"{folder}: the record cannot be read: {layout.PLAN}: {wrong}") from None


class _Reader:
    """Reads one part after the other and notes in `problems` what could not be read."""

    def __init__(self, folder: Path, plan: Plan, problems: list[str]) -> None:
        self._folder = folder
        self._plan = plan
        self._problems = problems

    def attempt(self, read: Callable[[], _Value], otherwise: _Value) -> _Value:
        try:
            return read()
        except Damage as damage:
            self._problems.append(str(damage))
            return otherwise

    def environment(self) -> dict[str, Any]:
        if not (self._folder / layout.ENVIRONMENT).exists():
            return {}  # no fact of the run, and written last
        return self.attempt(lambda: codec.read_mapping(self._folder, layout.ENVIRONMENT), {})

    def background(self) -> Any:
        if not self._plan.background and not (self._folder / layout.BACKGROUND).exists():
            return []
        return self.attempt(lambda: codec.read_json(self._folder, layout.BACKGROUND), [])

    def served(self) -> Served:
        """What the serving engine decided; nothing without one."""
        if self._plan.serving is None:
            return NOTHING_SERVED
        return self.attempt(
            lambda: parse_served(
                _fitted(self._folder, layout.REQUESTS, shape.REQUESTS),
                _fitted(self._folder, layout.OUTCOMES, shape.OUTCOMES),
                self._plan,
            ),
            NOTHING_SERVED,
        )

    def roce_counters(self) -> dict[str, Any]:
        if self._plan.transport.roce is None:
            return {}
        return self.attempt(
            lambda: _fitted_mapping(self._folder, layout.ROCE_COUNTERS, shape.ROCE_COUNTERS), {}
        )

    def outcomes(self) -> tuple[Outcome, ...]:
        """One for each transfer of the plan, in its order; what the file lacks counts as not completed."""
        none: dict[int, Outcome] = {}
        found = self.attempt(
            lambda: parse_outcomes(
                _fitted(self._folder, layout.OUTCOMES, shape.OUTCOMES), self._plan.dilation
            ),
            none,
        )
        missing = [transfer.id for transfer in self._plan.transfers if transfer.id not in found]
        if missing:
            self._problems.append(f"{layout.OUTCOMES} has nothing about {_some(missing)}")
        return tuple(found.get(transfer.id) or unknown_outcome(transfer) for transfer in self._plan.transfers)

    def paths(self) -> dict[int, tuple[str, ...] | None]:
        text = self.attempt(lambda: codec.read_text(self._folder, layout.DATAPATH_FLOWS), "")
        try:
            return self._through_hosts(measured_paths(text, self._plan))
        except ValueError as error:
            self._problems.append(f"{layout.DATAPATH_FLOWS} is damaged: {error}")
            return {transfer.id: None for transfer in self._plan.transfers}

    def _through_hosts(self, cables: dict[int, tuple[str, ...] | None]) -> dict[int, tuple[str, ...] | None]:
        """Return the paths with the stages inside the hosts at both ends."""
        topology = self._plan.topology
        ends = {t.id: (t.src, t.src_gpu, t.dst, t.dst_gpu) for t in self._plan.transfers}
        return {
            number: None if path is None else topology.through_hosts(*ends[number], path)
            for number, path in cables.items()
        }

    def groups(self) -> tuple[SampleGroup, ...]:
        files = (self._folder / layout.RAW).glob("*")
        # A run that was killed has rows without their header: its name says that there is a group.
        found = {layout.group_of(file.with_suffix(".json").name) for file in files}
        names = sorted(name for name in found if name is not None)
        if not names:
            self._problems.append("no queue was sampled")
        return tuple(group for name in names if (group := self._group(name)) is not None)

    def _group(self, name: str) -> SampleGroup | None:
        return self.attempt(lambda: self._sampled(name), None)

    def _sampled(self, name: str) -> SampleGroup:
        rows_name = layout.samples_rows(name)
        header = _fitted_mapping(self._folder, layout.samples_header(name), shape.SAMPLES)
        links = _links(header, layout.samples_header(name), self._plan)
        rows, left_over = codec.open_rows(self._folder, rows_name, layout.sample_columns(len(links)))
        self._note_cut(rows_name, left_over)
        if np.any(np.diff(codec.columns(rows, 0, 1)[0]) < 0):
            raise Damage(f"{rows_name} has times that go backwards")
        if header.get("rows") not in (None, len(rows)):
            self._problems.append(f"{rows_name} has {len(rows)} rows instead of {header['rows']}")
        return SampleGroup(name, links, rows)

    def progress(self) -> Progress:
        columns = len(layout.PROGRESS_FIELDS)
        rows, left_over = self.attempt(
            lambda: codec.open_rows(self._folder, layout.PROGRESS, columns),
            (np.empty((0, columns), np.int64), 0),
        )
        self._note_cut(layout.PROGRESS, left_over)
        order = np.lexsort((rows[:, 2], rows[:, 0], rows[:, 1]))
        times = _scenario_times(rows[:, 0], self._plan.dilation)
        return Progress(np.array(rows[:, 1])[order], times[order], np.array(rows[:, 2])[order])

    def pausings(self) -> Pausings:
        if self._plan.pausing is None:
            return NO_PAUSES
        return self.attempt(self._pausings, NO_PAUSES)

    def _pausings(self) -> Pausings:
        rows, left_over = codec.open_rows(self._folder, layout.PAUSES, len(layout.PAUSE_FIELDS))
        self._note_cut(layout.PAUSES, left_over)
        times = (group.rows[-1, 0] for group in self.groups() if len(group.rows))
        last_ns = int(max(times, default=0) / self._plan.dilation)
        deadlock = None
        if (self._folder / layout.DEADLOCK).exists():
            deadlock = parse_deadlock(
                _fitted_mapping(self._folder, layout.DEADLOCK, shape.DEADLOCK), self._plan
            )
        return Pausings(parse_pauses(np.array(rows), self._plan, last_ns), deadlock)

    def _note_cut(self, name: str, left_over: int) -> None:
        if left_over:
            self._problems.append(f"{name} ends within a row: {left_over} bytes left out")


def _fitted(folder: Path, name: str, wanted: shape.Shape) -> Any:
    return shape.fitted(codec.read_json(folder, name), wanted, name)


def _fitted_mapping(folder: Path, name: str, wanted: shape.Shape) -> dict[str, Any]:
    found: dict[str, Any] = shape.fitted(codec.read_mapping(folder, name), wanted, name)
    return found


def _links(header: Mapping[str, Any], name: str, plan: Plan) -> tuple[str, ...]:
    if header.get("format_version") != layout.FORMAT_VERSION:
        raise Damage(f"{name} has format {header.get('format_version')}, not {layout.FORMAT_VERSION}")
    if header.get("fields") != list(layout.SAMPLE_FIELDS):
        raise Damage(f"{name} has the fields {header.get('fields')}, not {list(layout.SAMPLE_FIELDS)}")
    links = tuple(header.get("links") or ())
    unknown = set(links) - {link.name for link in plan.topology.all_links}
    if unknown:
        raise Damage(f"{name} has links that are not in the plan: {', '.join(sorted(unknown))}")
    return links


def _some(ids: list[int]) -> str:
    shown = ", ".join(map(str, ids[:5]))
    return f"transfer {shown}" + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")


def _scenario_times(lab_ns: Int64Array, dilation: float) -> Int64Array:
    if dilation == 1:
        return np.array(lab_ns, np.int64)
    return np.rint(lab_ns / dilation).astype(np.int64)
