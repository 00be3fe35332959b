"""What the mirror shows of a schedule: one row of plain text and numbers. Pure.

Instants are text in UTC, all of the same length, so that engines without a common type for them sort them alike, and so
that a column of nothing but nulls is still a column of text.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from mainspring.core.job import State
from mainspring.core.names import Name
from mainspring.core.rules import Manual
from mainspring.core.schedule import Run
from mainspring.stores.records import Look
from mainspring.stores.schedules import OPEN_SHOWN

Row: TypeAlias = dict[str, str | int | None]
"""The properties of one node, by name."""

LONGEST: Final = 1000  # characters of an error or an owner; a message may hold a whole document

UNTOLD: Final[Row] = {
    "namespace": "",
    "local": None,
    "task": None,
    "rule": None,
    "explained": None,
    "owner": None,
    "next_slot": None,
    "last_slot": None,
    "last_at": None,
    "last_state": None,
    "last_error": None,
    "open_runs": 0,
    "failures": 0,
}
"""What is said of a schedule that cannot be read here."""


class Status(StrEnum):
    """How a schedule stands, in one word: the first of these that fits."""

    UNREADABLE = "unreadable"  # this program cannot understand it; `last_error` says why
    CANCELLED = "cancelled"  # it is kept for its name only: a list says so, and a graph does not show it
    PAUSED = "paused"  # it makes no jobs until it is resumed
    OPEN = "open"  # a run of it has not ended: its job waits or runs
    FAILED = "failed"  # the last run that ended has failed
    OVER = "over"  # it will never do anything by itself again
    IDLE = "idle"  # it waits for its next slot, or to be run by hand


def row_of(look: Look, runs: Sequence[Run], now: datetime) -> Row:
    """Lay a schedule out; `runs` are its newest that made a job, the newest decision first."""
    schedule, plan = look.schedule, look.schedule.plan
    newest = runs[0] if runs else None
    ended = next((run for run in runs if run.state), None)
    return {
        "qname": str(schedule.name),
        "namespace": schedule.name.namespace,
        "local": schedule.name.local,
        "task": str(plan.template.task),
        "rule": msgspec.json.encode(plan.rule).decode(),
        "explained": plan.rule.explain(),
        "owner": _text(schedule.owner),
        "status": status_of(look, ended),
        "next_slot": _instant(schedule.next_slot),
        "last_slot": _instant(newest.slot if newest else None),
        "last_at": _instant(newest.decided_at if newest else None),
        "last_state": str(ended.state) if ended else None,
        "last_error": _text(ended.error if ended else None),
        "open_runs": len(look.open),
        "failures": failures_of(runs),
        "updated_at": _instant(now),
    }


def unreadable(qname: str, problem: str, now: datetime) -> Row:
    """Lay out a schedule of which nothing but the name is known."""
    name = Name.parse(qname)
    told = {"qname": qname, "namespace": name.namespace, "local": name.local, "status": Status.UNREADABLE.value}
    return {**UNTOLD, **told, "last_error": _text(problem), "updated_at": _instant(now)}


def status_of(look: Look, ended: Run | None) -> str:
    """Say how a schedule stands; `ended` is the newest run that has."""
    schedule = look.schedule
    if schedule.is_cancelled:
        return Status.CANCELLED.value
    if schedule.paused:
        return Status.PAUSED.value
    if look.open:
        return Status.OPEN.value
    if ended and ended.state is State.FAILED:
        return Status.FAILED.value
    if schedule.is_over and not isinstance(schedule.plan.rule, Manual):
        return Status.OVER.value
    return Status.IDLE.value


def failures_of(runs: Sequence[Run]) -> int:
    """Count the runs in a row that failed, from the newest on; one that is open or was cancelled says nothing."""
    count = 0
    for run in runs:
        if run.state is State.SUCCEEDED:
            break
        count += run.state is State.FAILED
    return count


def may_change_unseen(look: Look, row: Row) -> bool:
    """Say whether runs may end, begin anew and end again without the look being another.

    A failed or cancelled run does when an operator retries its job; beyond the runs that a look names, any does.
    """
    return row["last_state"] not in {None, State.SUCCEEDED.value} or len(look.open) >= OPEN_SHOWN


def same(one: Row, other: Row) -> bool:
    """Say whether two rows tell the same, whenever they were made."""
    return {**one, "updated_at": None} == {**other, "updated_at": None}


def _instant(instant: datetime | None) -> str | None:
    return None if instant is None else instant.astimezone(UTC).isoformat(timespec="microseconds")


def _text(text: str | None) -> str | None:
    """Keep what every engine takes: halves of surrogate pairs have no place in UTF-8, and would fail a whole batch."""
    return None if text is None else text[:LONGEST].encode("utf-8", "replace").decode("utf-8")
