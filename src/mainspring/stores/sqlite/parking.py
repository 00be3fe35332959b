"""Parked jobs: waiting jobs whose key has no free place, outside of the indexes that claims read.

A claim parks the blocked jobs that it meets, so that no later claim reads them. Whatever gives a place of their key back, or
changes its gate, unparks the first of them in the same transaction; claims do so when the rate of a key has opened.

Invariant at the end of every transaction: while a key has a free place, the first waiting job of each of its lanes is
claimable, or its rate has opened and the next claim of its task unparks it. So a claim that takes one job of a key takes
the first. Other claimable jobs of a key may be newer than its parked jobs. So a claim that takes several jobs of a key, or
has places of the key left, compares its last job with the first parked job of each lane, and unparks those in front
(`claim._unpark_more`).
"""

from collections.abc import Collection, Iterable, Sequence
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
_KEYS: Final = statement("parked_keys_of_task")
_OPEN: Final = statement("parked_keys_open")
_NEXT: Final = statement("parked_keys_next")


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


def unpark(session: Session, task: str, key: str, count: int) -> None:
    """Make the first parked jobs of a key claimable, so many of each lane."""
    for lane in lanes_of(session, task, key):
        unpark_in(session, lane, task, key, count)


def unpark_in(session: Session, lane: int, task: str, key: str, count: int) -> None:
    """Make the first parked jobs of a lane and key claimable."""
    rank = session.lanes.rank(session, lane)
    numbers = session.rows(_PARKED, (lane, key, count))
    session.run_many(_UNPARK, [(rank, number) for (number,) in numbers])
    if len(numbers) < count:
        session.run(_DROP_KEY, (task, key, lane))


def first_parked(session: Session, task: str, key: str) -> list[Parked]:
    """Return the first parked job of a key in each of its lanes."""
    return [Parked(*row) for row in session.rows(_FIRST, (task, key))]


def lanes_of(session: Session, task: str, key: str) -> list[int]:
    """Return the lanes in which jobs of a key may be parked."""
    return [lane for (lane,) in session.rows(_LANES, (task, key))]


def keys_of(session: Session, task: str) -> list[str]:
    """Return the keys of a task that jobs may be parked for."""
    return [key for (key,) in session.rows(_KEYS, (task,))]


def opened(session: Session, gates: Iterable[Gate]) -> list[tuple[str, str]]:
    """Return the (task, key)s with parked jobs whose rate has opened."""
    return [
        (gate.name, key)
        for gate in gates
        for (key,) in session.rows_by_name(
            _OPEN, {"task": gate.name, "now": session.now, "longest": session.now + span_micros(gate.longest_wait)}
        )
    ]


def openings(session: Session, task: str, limit: int) -> list[Opening]:
    """Return when rates of keys with parked jobs open, the earliest first."""
    return [Opening(*row) for row in session.rows(_NEXT, (task, limit))]
