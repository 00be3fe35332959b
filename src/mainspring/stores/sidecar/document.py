"""The document as it stands: its entries, already written, of which only those are written again that have changed.

It follows the tables: `follow` takes over what they remember to have changed, `text` puts the whole together. Until
`keep` all of it can be undone, as in the tables.
"""

from collections.abc import Callable, Hashable
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.job import FINISHED
from mainspring.core.schedule import Run
from mainspring.errors import ScheduleError
from mainspring.stores.circuits import Step
from mainspring.stores.memory.plans import Kept
from mainspring.stores.memory.uniques import Hold
from mainspring.stores.sidecar.form import (
    SECTIONS,
    BreakerEntry,
    Content,
    HorizonEntry,
    JobEntry,
    KeyEntry,
    QueueEntry,
    RunEntry,
    ScheduleEntry,
    entry,
    written,
)
from mainspring.stores.sidecar.journal import Journal

RUNS_KEPT: Final = 10
"""Of the runs of a schedule that are not open, so many are in the document, the newest."""

K = TypeVar("K")
V = TypeVar("V")


class Over(NamedTuple):
    """A run that is not open."""

    slot: datetime | None
    """None if it had no job."""


class Document:
    """What the file says, or will say."""

    def __init__(self, tables: Journal, written_by: str) -> None:
        self._tables = tables
        self._written_by = written_by
        self._sections: dict[str, dict[Hashable, bytes]] = {section: {} for section in SECTIONS}
        self._over: dict[str, dict[UUID, Over]] = {}  # runs in it that are not open, by schedule
        self.known_since: dict[str, datetime] = {}
        """As it was read: earlier runs of a schedule are neither in it nor in memory."""
        self._horizons: dict[str, datetime] = {}
        self._undo: list[Callable[[], object]] = []
        self._is_ours = False

    @property
    def is_changed(self) -> bool:
        return bool(self._undo)

    @property
    def keeps_something(self) -> bool:
        return bool(self._sections["kept"])

    @property
    def kept(self) -> dict[int, bytes]:
        """What is kept as it is, by a number of ours."""
        return {number: entry for number, entry in self._sections["kept"].items() if isinstance(number, int)}

    def begin(self) -> None:
        """Have a document written even if nothing changes, unless the one that was read is ours."""
        if not self._is_ours:
            self._undo.append(lambda: None)

    def load(self, content: Content, now: datetime) -> None:
        """Take over a document that was read, and fill the tables from it."""
        tables = self._tables
        self._is_ours = bool(content.version)
        self._horizons = {one.name: one.known_since for one in content.horizons}
        self.known_since = dict(self._horizons)
        for schedule in content.schedules:
            tables.plans.put(_informed(schedule.kept(), self._horizons.get(schedule.name)))
            if schedule.consecutive_failures:
                tables.plans.failures[schedule.name] = schedule.consecutive_failures
        for run in content.runs:
            tables.plans.runs.put(run.run(), run.keep_until)
        for key in content.keys:
            hold = Hold(key.job, active=False, taken_until=key.taken_until)
            tables.uniques.put(key.task, key.key, hold)
            tables.uniques.were[key.task, key.key] = None
        for job in content.jobs:
            tables.restore(job.view(), now)
        for breaker in content.breakers:
            tables.circuits.put(Step(breaker.kept()))
            tables.circuits.restore(breaker.kept(), list(breaker.changes))
        for run in content.runs:
            tables.plans.let_go(run.id, now)  # the body that it was open for ended with its process
        tables.paused.update({queue.name: queue.paused for queue in content.queues})
        self._sections["horizons"] = {one.name: entry(one) for one in content.horizons}
        self._sections["kept"] = {number: bytes(raw) for number, raw in enumerate(content.kept)}
        self.follow()
        self.keep()
        tables.keep()

    def follow(self) -> None:
        """Take over what the tables remember to have changed."""
        tables = self._tables
        tables.plans.forget_removed()
        for name in tables.plans.were:
            kept = tables.plans.kept.get(name)
            failures = tables.plans.failures.get(name, 0)
            self._write("schedules", name, ScheduleEntry.of(kept, failures) if kept else None)
        for id_, was in tables.plans.runs.were.items():
            self._follow_run(id_, was[0] if was else None)
        for job in tables.rows_were:
            row = tables.rows.get(job)
            is_open = row is not None and row.job.of_schedule and row.job.state not in FINISHED
            self._write("jobs", job, JobEntry.of(replace(row.view, progress=None)) if row and is_open else None)
        for task, key in tables.uniques.were:
            hold = tables.uniques.period((task, key))
            until = hold and hold.taken_until
            held = KeyEntry(task=task, key=key, job=hold.job, taken_until=until) if hold and until else None
            self._write("keys", (task, key), held)
        for breaker in tables.circuits.were:
            stands = tables.circuits.get(breaker)
            changes = tables.circuits.changes(breaker)
            self._write("breakers", str(breaker), BreakerEntry.of(stands, changes) if stands else None)
        for queue in {*self._sections["queues"], *tables.paused}:
            pause = tables.paused.get(str(queue))
            self._write("queues", queue, QueueEntry(name=str(queue), paused=pause) if pause else None)

    def text(self) -> bytes:
        """Return the whole document."""
        return written({section: list(self._sections[section].values()) for section in SECTIONS}, self._written_by)

    def drop(self, number: int) -> None:
        """Keep something no longer: it has been understood."""
        self._set(self._sections["kept"], number, None)

    def keep(self) -> None:
        self._undo.clear()

    def undo(self) -> None:
        for step in reversed(self._undo):
            step()
        self._undo.clear()

    def _follow_run(self, id_: UUID, was: Run | None) -> None:
        found = self._tables.plans.runs.found(id_)
        if found is None:
            self._write("runs", id_, None)
            if was:
                self._leave(str(was.schedule), id_)
            return
        run, keep_until = found
        name = str(run.schedule)
        self._write("runs", id_, RunEntry.of(run, keep_until))
        over = self._over.setdefault(name, {})
        if run.is_open:
            self._set(over, id_, None)
        elif id_ not in over:
            self._set(over, id_, Over(None if run.reason else run.slot))
            self._trim(name, over)

    def _trim(self, name: str, over: dict[UUID, Over]) -> None:
        """Let go of the oldest runs. Where their slots had jobs, none may be made again."""
        while len(over) > RUNS_KEPT:
            oldest = min(over)
            slot, known = over[oldest].slot, self._horizons.get(name)
            if slot and (known is None or slot > known):
                self._set(self._horizons, name, slot)
                self._write("horizons", name, HorizonEntry(name=name, known_since=slot))
            self._set(over, oldest, None)
            self._write("runs", oldest, None)

    def _leave(self, name: str, run: UUID) -> None:
        """Let go of a run that is past its time; with the last of a schedule that was removed goes its horizon."""
        over = self._over.get(name, {})
        self._set(over, run, None)
        if not over and name not in self._tables.plans.kept:
            self._set(self._horizons, name, None)
            self._write("horizons", name, None)

    def _write(self, section: str, key: Hashable, value: Struct | None) -> None:
        self._set(self._sections[section], key, None if value is None else entry(value))

    def _set(self, mapping: dict[K, V], key: K, value: V | None) -> None:
        """Put something in, or take it out, and remember how it was."""
        was = mapping.get(key)
        if was == value:
            return
        self._undo.append(partial(_put, mapping, key, was))
        _put(mapping, key, value)


def _put(mapping: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value


def _informed(kept: Kept, known_since: datetime | None) -> Kept:
    """Tell a schedule since when its runs are known: a backfill before that is refused."""
    if known_since is None:
        return kept
    try:
        schedule = kept.read()
    except ScheduleError:  # whoever can read it will have to know
        return kept
    if schedule.known_since is not None and schedule.known_since >= known_since:
        return kept
    return Kept.of(replace(schedule, known_since=known_since))
