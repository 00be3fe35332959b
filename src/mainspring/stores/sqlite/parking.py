"""Parked jobs: waiting jobs whose key has no free place, outside of the indexes that claims read.

A claim parks the blocked jobs that it meets, so that no later claim reads them. Whatever gives a place of their key back, or
changes a waiting job of it, unparks the first of them in the same transaction. When the rate of a key has opened, or its gate has
changed, the next claims of the task do so, for a limited number of keys each.

Invariant at the end of every transaction: while a key has a free place, the first waiting job of each of its lanes is
claimable, or the key is among the opened ones, which the next claims of its task unpark. So a claim that has unparked the
jobs of all opened keys, and takes one job of a key, takes the first. Other claimable jobs of a key may be newer than its
parked jobs. So a claim that takes several jobs of a key, that has places of the key left, or that has left opened keys to
the next claim, compares its last job with the first parked job of each lane, and unparks those in front
(`claim._unpark_more`).
"""

from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from mainspring.core.limits import Gate
from mainspring.stores.sqlite.lanes import Lane
from mainspring.stores.sqlite.rows import span_micros
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_PARK: Final = statement("jobs_park")
_FIRST: Final = statement("parked_first")
_PARKED: Final = statement("jobs_parked")
_UNPARK: Final = statement("jobs_unpark")
_SET_KEY: Final = statement("parked_key_set")
_DROP_KEY: Final = statement("parked_key_drop")
_ANY: Final = statement("parked_keys_any")
_LANES: Final = statement("parked_key_lanes")
_TASKS: Final = statement("parked_tasks")
_OPEN: Final = statement("parked_keys_open")
_OPEN_ALL: Final = statement("parked_keys_open_all")
_NEXT: Final = statement("parked_keys_next")
_MAX_OPENED: Final = 1000
"""Opened keys whose jobs one claim unparks at most; it leaves the others to the next one. A key takes about 20 µs under the
write lock, and each job of it 6 µs."""


class Blocked(NamedTuple):
    """A due job whose key has no free place."""

    number: int
    lane: Lane
    key: str


class Parked(NamedTuple):
    """The position of the first parked job of a lane and key."""

    lane: int
    run_at: int
    id: bytes


class Opened(NamedTuple):
    """A key of which jobs may start, and since when."""

    at: int
    task: str
    key: str


class Opening(NamedTuple):
    """When the rate of a key allows the next start of a job in a lane."""

    lane: int
    at: int


def has_parked_keys(session: Session) -> bool:
    """Return whether any job may be parked. Usually none is, and no key has to be looked up."""
    return bool(session.rows(_ANY))


def park(session: Session, jobs: Sequence[Blocked]) -> None:
    """Park jobs. When their keys open has to be written after that (`set_opening`)."""
    session.run_many(_PARK, [(job.key, job.number) for job in jobs])


def set_opening(session: Session, task: str, key: str, lanes: Collection[int], opens_at: int | None) -> None:
    """Write when the rate of a key opens; None if a place has to be given up first."""
    session.run_many(_SET_KEY, [(task, key, lane, opens_at) for lane in lanes])


def unpark(session: Session, task: str, key: str, lanes: Iterable[int], count: int) -> int:
    """Make the first parked jobs of a key claimable, so many of each of its lanes; returns how many these are."""
    found = {lane: unpark_in(session, lane, task, key, count) for lane in lanes}
    set_opening(session, task, key, [lane for lane, one in found.items() if one.has_more], None)
    return sum(one.jobs for one in found.values())


class Unparked(NamedTuple):
    """Jobs of a lane and key that were made claimable."""

    jobs: int
    has_more: bool


def unpark_in(session: Session, lane: int, task: str, key: str, count: int) -> Unparked:
    """Make the first parked jobs of a lane and key claimable."""
    rank = session.lanes.rank(session, lane)
    numbers = session.rows(_PARKED, (lane, key, count + 1))
    session.run_many(_UNPARK, [(rank, number) for (number,) in numbers[:count]])
    if len(numbers) > count:
        return Unparked(count, has_more=True)
    session.run(_DROP_KEY, (task, key, lane))
    return Unparked(len(numbers), has_more=False)


def first_parked(session: Session, task: str, key: str) -> list[Parked]:
    """Return the first parked job of a key in each of its lanes."""
    return [Parked(*row) for row in session.rows(_FIRST, (task, key))]


def lanes_of(session: Session, task: str, key: str) -> list[int]:
    """Return the lanes in which jobs of a key may be parked."""
    return [lane for (lane,) in session.rows(_LANES, (task, key))]


def open_all(session: Session, task: str) -> None:
    """Count all keys of a task among the opened ones: its gate has changed."""
    session.run(_OPEN_ALL, (task,))


def tasks(session: Session) -> list[str]:
    """Return the tasks with keys that have opened, or that time opens."""
    return [task for (task,) in session.rows(_TASKS)]


def opened(session: Session, gates: Iterable[Gate]) -> tuple[list[tuple[str, str]], bool]:
    """Return the (task, key)s that have opened, those that did so first if they are many, and whether there are more."""
    found: list[Opened] = []
    for gate in gates:
        longest = session.now + span_micros(gate.longest_wait)
        values = {"task": gate.name, "now": session.now, "longest": longest, "limit": _MAX_OPENED + 1}
        found += [Opened(at, gate.name, key) for key, at in session.rows_by_name(_OPEN, values)]
    found.sort(key=attrgetter("at"))
    return list(dict.fromkeys((one.task, one.key) for one in found[:_MAX_OPENED])), len(found) > _MAX_OPENED


def openings(session: Session, task: str, limit: int) -> list[Opening]:
    """Return when rates of keys with parked jobs open, the earliest first."""
    return [Opening(*row) for row in session.rows(_NEXT, (task, limit))]
