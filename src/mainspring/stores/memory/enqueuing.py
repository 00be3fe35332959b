"""What becomes of a batch of new jobs: found out first, so that nothing is written if one of them may not be."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from mainspring.core.command import CancelJob
from mainspring.core.job import WAITING, Job, JobId
from mainspring.core.machine import command, first_state
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.errors import Conflict
from mainspring.stores.memory.settling import settle
from mainspring.stores.memory.tables import Tables
from mainspring.stores.memory.uniques import UniqueName
from mainspring.stores.records import Enqueued, JobView, NewJob, Settlement, When


class Insertion(NamedTuple):
    """A job that is to be taken in, and the one that it replaces."""

    view: JobView
    replaces: JobId | None


class Plan:
    """The answers for a batch, and what has to be done for them to be true.

    `may_raise=False` answers with the job that has the unique key even where a new one says RAISE.
    """

    def __init__(self, tables: Tables, new: Sequence[NewJob], now: datetime, *, may_raise: bool = True) -> None:
        self._tables = tables
        self._now = now
        self._may_raise = may_raise
        self._ids: set[JobId] = set()
        self._taken: dict[UniqueName, JobId] = {}  # by earlier jobs of the batch
        self.insertions: list[Insertion] = []
        self.answers = tuple(self._answer(one) for one in new)

    def write(self) -> None:
        for new, replaced in self.insertions:
            if replaced:
                change = command(self._tables.rows[replaced].job, CancelJob(), self._now)
                settle(self._tables, Settlement(change=change), self._now)
            self._tables.insert(new)

    def _answer(self, new: NewJob) -> Enqueued:
        if new.id in self._tables.rows or new.id in self._ids:
            return Enqueued(id=new.id, fresh=False)
        holder = self._holder(new, new.unique) if new.unique else None
        if new.unique and holder:
            if new.unique.on_conflict is OnConflict.RAISE and self._may_raise:
                raise Conflict(str(new.task), new.unique.key, str(holder))
            if new.unique.on_conflict is not OnConflict.REPLACE or not self._waits(holder):
                return Enqueued(id=holder, fresh=False)
        self._ids.add(new.id)
        if new.unique:
            self._taken[new.task, new.unique.key] = new.id
        self.insertions.append(Insertion(_view(new, self._now), holder))
        return Enqueued(id=new.id, fresh=True)

    def _holder(self, new: NewJob, unique: UniqueKey) -> JobId | None:
        name = new.task, unique.key
        return self._taken.get(name) or self._tables.uniques.taken_by(name, self._now)

    def _waits(self, job: JobId) -> bool:
        row = self._tables.rows.get(job)  # a job that was pruned can have its key still
        return job in self._ids or (row is not None and row.job.state in WAITING)


def _view(new: NewJob, now: datetime) -> JobView:
    """Make a job as it begins."""
    run_at = _instant(new.run_at, now)
    job = Job(
        id=new.id,
        task=new.task,
        state=first_state(run_at, now),
        run_at=run_at,
        backoff=new.backoff,
        max_attempts=new.max_attempts,
        queue=new.queue,
        priority=new.priority,
        loss_limit=new.loss_limit,
        expires_at=None if new.expires is None else _instant(new.expires, now),
        retention=new.retention,
        of_schedule=new.facts.slot is not None,
    )
    return JobView(
        job=job,
        payload=new.payload,
        enqueued_at=now,
        facts=new.facts,
        timeout=new.timeout,
        key=new.key,
        unique=new.unique,
    )


def _instant(when: When, now: datetime) -> datetime:
    return when.astimezone(UTC) if isinstance(when, datetime) else now + when
