"""Taking over uni's rows: each becomes a schedule of its task's name, if exactly one task has that printed name.

A printed name joins namespace and local name by a dot, and either may have dots of its own; so it is never taken apart,
only compared. What has no task or two, or cannot be understood, stays in the document as it is, and is told of.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from mainspring.core.names import Name
from mainspring.core.rules import Manual, Once
from mainspring.core.schedule import Plan, Schedule, Template
from mainspring.core.steps import create
from mainspring.stores.adopting import Adoptable, Tasks
from mainspring.stores.memory.plans import Kept
from mainspring.stores.sidecar import foreign
from mainspring.stores.sidecar.document import Document
from mainspring.stores.sidecar.foreign import NotUnderstood, Row
from mainspring.stores.sidecar.journal import Journal

_MOMENT: Final = timedelta(microseconds=1)
_logger: Final = logging.getLogger("mainspring.stores")


class Unread(NamedTuple):
    """Something in the document that does nothing here."""

    row: str
    """As it stands there, JSON."""
    problem: str


class Adoption:
    """What waits to be taken over."""

    def __init__(self, document: Document, tables: Journal, store: str) -> None:
        self._document = document
        self._tables = tables
        self._store = store
        self._tried: frozenset[Name] | None = None
        self._told: set[Unread] = set()

    def is_due(self, tasks: Tasks | None) -> bool:
        """Say whether something is left that these tasks have not been held against yet."""
        return tasks is not None and self._document.keeps_something and tasks.names() != self._tried

    def adopt(self, tasks: Tasks, now: datetime) -> list[Schedule]:
        """Take over what these tasks can stand for, into tables and document."""
        adopted = []
        for number, _, found in self._judged(tasks.adoptable(), now):
            if isinstance(found, Found):
                name = str(found.schedule.name)
                self._tables.plans.put(Kept.of(found.schedule))
                if found.failures:
                    self._tables.plans.failures[name] = found.failures
                self._document.drop(number)
                adopted.append(found.schedule)
        return adopted

    def tell(self, tasks: Tasks, adopted: Iterable[Schedule], now: datetime) -> None:
        """Log what was taken over, and what was not; called once that is on the disk."""
        self._tried = tasks.names()
        for schedule in adopted:
            _logger.info(
                "%s: schedule %s was taken over; it is due at %s", self._store, schedule.name, schedule.next_at
            )
        for one in self.unread(tasks, now):
            if one not in self._told:
                self._told.add(one)
                _logger.warning("%s: a row is kept and does nothing: %s: %s", self._store, one.problem, one.row[:500])

    def unread(self, tasks: Tasks | None, now: datetime) -> tuple[Unread, ...]:
        """List what is kept in the document and does nothing, with the reason."""
        judged = self._judged(tasks.adoptable() if tasks else {}, now)
        left = sorted((number, row, found) for number, row, found in judged if isinstance(found, str))
        return tuple(Unread(row.decode(errors="backslashreplace"), found) for _, row, found in left)

    def _judged(self, known: Mapping[Name, Adoptable], now: datetime) -> Iterator[tuple[int, bytes, "Found | str"]]:
        """Say of each row what it becomes, or why it stays. Of two rows of one name the later one counts."""
        by_print: defaultdict[str, dict[Name, Adoptable]] = defaultdict(dict)
        for name, one in known.items():
            by_print[name.dotted][one.task] = one
        taken = set(self._tables.plans.kept)
        for number, row in sorted(self._document.kept.items(), reverse=True):
            try:
                found: Found | str = _found(foreign.read(row), by_print, taken, now)
            except NotUnderstood as error:
                found = str(error)
            if isinstance(found, Found):
                taken.add(str(found.schedule.name))
            yield number, row, found


class Found(NamedTuple):
    """A schedule that a row becomes."""

    schedule: Schedule
    failures: int


def _found(row: Row, by_print: Mapping[str, dict[Name, Adoptable]], taken: set[str], now: datetime) -> Found:
    if row.is_cancelled:
        raise NotUnderstood("it was cancelled")
    tasks = by_print.get(row.qname, {})
    if not tasks:
        raise NotUnderstood(f"no task is named {row.qname!r} here")
    if len(tasks) > 1:
        both = " and ".join(sorted(f"{one.namespace!r} with {one.local!r}" for one in tasks))
        raise NotUnderstood(f"{row.qname!r} may be more than one task: {both}")
    (one,) = tasks.values()
    if one.template is None:
        raise NotUnderstood(f"task {one.task} cannot be called: {one.problem}")
    if str(one.task) in taken:
        raise NotUnderstood(f"there is a schedule {one.task} already")
    return Found(_schedule(row, one.task, one.template, one.owner, now), row.consecutive_failures)


def _schedule(row: Row, name: Name, template: Template, owner: str | None, now: datetime) -> Schedule:
    """Begin a schedule where the row has stopped: what is owed since, its policy for missed slots decides."""
    rule = row.rule(now)
    fresh = create(name, Plan(rule=rule, template=template), now, owner=owner).after
    if fresh is None:
        raise NotUnderstood("it leads to no schedule")
    fire = row.next_fire
    if fire is None or isinstance(rule, Once | Manual):  # a Once that has passed is over: it may have been fired
        return fresh
    cursor = fire - _MOMENT
    return replace(fresh, cursor=cursor, created_at=min(now, cursor), next_at=rule.next(cursor))
