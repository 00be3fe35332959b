"""Search: jobs by id, the newest first, until a page is full or the time is up.

Where to look is a stream of places: those of one key, or of the lanes and states that are meant, or all. Each comes from
an index in the order of ids, a few at a time, and several are merged. The jobs at these places are read in windows, by
one statement that leaves out what is not wanted; what no statement knows is asked of `stores.searching`.

What no index has in the order of ids has to be put in order for every few places. That is tried for half of the time; where
there is too much of it, the other half goes to walking over all jobs from there.
"""

import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from heapq import merge
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Final, TypeAlias

import msgspec

from mainspring.core.job import JobId, State
from mainspring.stores.overview import Found, Search
from mainspring.stores.records import JobView
from mainspring.stores.searching import finder, says
from mainspring.stores.sqlite.numbers import given_since
from mainspring.stores.sqlite.rows import error, instant, job_id, micros, optional_micros
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement
from mainspring.stores.sqlite.trouble import INTERRUPT, code
from mainspring.stores.sqlite.views import view
from mainspring.stores.unreadable import readable

_ALL: Final = statement("search_by_id")
_OF_KEY: Final = statement("search_by_key")
_OF_LANE: Final = statement("search_by_lane")
_OF_STATE: Final = statement("search_by_state")
_OF_PARENT: Final = statement("search_by_parent")
_RUNNING: Final = statement("search_running")
_DUE: Final = statement("search_due")
_READY_LATER: Final = statement("search_ready_later")
_LANES: Final = statement("search_lanes")
_READ: Final = statement("search_read")
_PAYLOADS: Final = statement("search_payloads")
_ERRORS: Final = statement("search_errors")
_ENQUEUED_AT: Final = statement("search_enqueued_at")

_LAST: Final = b"\xff" * 17
"""Sorts after every id."""
_FEW: Final = 8
"""Places that are read first of each lane: of most of many, no more are needed."""
_SMALL: Final = 4096
"""Places that are looked at one by one rather than to ask which other index there is."""
_STEP: Final = 64
_SET_BACK: Final = 3_600_000_000
"""An hour: a clock that was set back by less hides nothing."""
_MANY: Final = 1024
"""Places that are read at once, at most, and jobs in one window: a millisecond or two, after which the clock is looked at."""
_A_MOMENT: Final = 0.02
"""Seconds that a window may take: then the next is half as wide. A payload may be as long as a quarter of a megabyte."""

_OPERATIONS: Final = 1000
"""Of SQLite's own, some 20 µs, after which a statement that has a time looks at the clock."""

Place: TypeAlias = tuple[bytes, int]
"""The id of a job, and the number that it is kept under."""

_encode: Final = msgspec.json.Encoder().encode
_id: Final = itemgetter(1)  # its place in these rows


def search(
    session: Session,
    which: Search,
    limit: int,
    after: JobId | None,
    budget: timedelta,
    *,
    preview: int | None = None,
    accept: Callable[[JobView], bool] | None = None,
) -> Found:
    began = time.monotonic()
    give_up_at = began + budget.total_seconds()
    lanes = _lanes(session, which)
    wanted = _wanted(which, lanes)
    walk_at = began + budget.total_seconds() / 2
    places = _places(session, which, lanes, _LAST if after is None else after.bytes, walk_at=walk_at)
    span = _span(session, which)
    jobs: list[JobView] = []
    looked, last, more, in_time = 0, None, False, True
    for window in _windows(places, limit):
        if last and time.monotonic() >= give_up_at:
            more, in_time = True, False
            break
        numbers = [number for _, number in window if number in span]
        fitting = _fitting(session, which, wanted, numbers, preview)
        jobs += islice(filter(accept, fitting) if accept else fitting, limit - len(jobs))
        full = len(jobs) == limit
        seen = [place for place in window if place[0] >= jobs[-1].job.id.bytes] if full else window
        looked += len(seen)
        last = seen[-1]
        if full:
            more = len(seen) < len(window) or next(places, None) is not None
            break
    return Found(
        jobs=tuple(jobs),
        after=job_id(last[0]) if last and more else None,
        looked=looked,
        back_to=readable(instant, session.rows(_ENQUEUED_AT, (last[1],))[0][0], None) if last else None,
        in_time=in_time,
    )


def _windows(places: Iterator[Place], width: int) -> Iterator[list[Place]]:
    """Put places together, as many as would fill the page at first, and then twice as many while that takes no time."""
    width = min(width, _MANY)
    while window := list(islice(places, width)):
        began = time.monotonic()
        yield window
        width = min(width * 2, _MANY) if time.monotonic() - began < _A_MOMENT else max(width // 2, 1)


def _fitting(
    session: Session, which: Search, wanted: Mapping[str, object], numbers: Sequence[int], preview: int | None
) -> Iterator[JobView]:
    """Those of some jobs that are looked for, the newest first."""
    if not (numbers := _inside(session, which, numbers)):
        return iter(())
    rows = session.rows_by_name(_READ, {**wanted, "numbers": str(numbers), "preview": preview})
    rows.sort(key=_id, reverse=True)
    return (view(session, row, preview) for row in rows)


def _inside(session: Session, which: Search, numbers: Sequence[int]) -> Sequence[int]:
    """Leave out those with another error or other arguments: to read jobs whole for that would take three times as long."""
    if which.error is not None and numbers:
        errors = session.rows(_ERRORS, (str(numbers),))
        numbers = [number for number, text in errors if says(error(text), which.error)]
    if which.argument is not None and numbers:
        has = finder(which.argument)
        numbers = [number for number, payload in session.rows(_PAYLOADS, (str(numbers),)) if has(payload)]
    return numbers


# Where to look.


def _places(session: Session, which: Search, lanes: Sequence[int], after: bytes, walk_at: float) -> Iterator[Place]:
    if which.key is not None:
        return _stream(session, _OF_KEY, {"key": which.key}, after)
    if which.parent is not None:
        children = _stream(session, _OF_PARENT, {"parent": which.parent.bytes}, after, _MANY, until=walk_at)
        return _or_else([children], after, lambda place: _stream(session, _ALL, {}, place))
    states = which.states or ((State.FAILED,) if which.cause is not None else ())  # nothing else has a cause
    newest = _newest(session, which, lanes, after)
    if not states:
        return newest
    if _names_lanes(which):
        first = list(islice(newest, _SMALL))
        if len(first) < _SMALL:
            return iter(first)
    streams = [_of_state(session, which, state, lanes, after, walk_at=walk_at) for state in set(states)]
    return (place for place, _ in groupby(merge(*streams, reverse=True)))


def _newest(session: Session, which: Search, lanes: Sequence[int], after: bytes) -> Iterator[Place]:
    """All jobs, or those of the lanes that are meant."""
    if not _names_lanes(which):
        return _stream(session, _ALL, {}, after)
    return merge(*(_stream(session, _OF_LANE, {"lane": lane}, after) for lane in lanes), reverse=True)


def _of_state(
    session: Session, which: Search, state: State, lanes: Sequence[int], after: bytes, *, walk_at: float
) -> Iterator[Place]:
    """Places among which are all jobs of a state in these lanes, and not too many others."""
    if state is State.RUNNING:
        return _stream(session, _RUNNING, {"lanes": str(lanes)}, after, _MANY)
    if state is State.READY:
        return _ready(session, which, lanes, after, walk_at=walk_at)
    if state is State.SUCCEEDED:  # as almost all have: who walks over all of them finds some soon
        return _newest(session, which, lanes, after)
    places = _stream(session, _OF_STATE, {"state": str(state)}, after)
    if not _names_lanes(which):
        return places
    first = list(islice(places, _SMALL))
    return iter(first) if len(first) < _SMALL else _in_both(chain(first, places), _newest(session, which, lanes, after))


def _in_both(one: Iterator[Place], other: Iterator[Place]) -> Iterator[Place]:
    """Find what two streams share without reading jobs, each of which may be on another page.

    Of the rest it brings a little, so that nobody waits for the next place until all have been seen.
    """
    for count, (place, same) in enumerate(groupby(merge(one, other, reverse=True))):
        if len(list(same)) > 1 or count % _STEP == 0:
            yield place


def _ready(session: Session, which: Search, lanes: Sequence[int], after: bytes, walk_at: float) -> Iterator[Place]:
    """Jobs that are ready are the newest, as a rule. If not, all that wait are sorted: no index has them by id."""
    for place in islice(_newest(session, which, lanes, after), _SMALL):
        yield place
        after = place[0]
    where = {"lanes": str(lanes), "soon": session.now + _SET_BACK}
    streams = [_stream(session, sql, where, after, _MANY, until=walk_at) for sql in (_DUE, _READY_LATER)]
    yield from _or_else(streams, after, lambda place: _newest(session, which, lanes, place))


def _or_else(
    streams: Sequence[Iterator[Place]], after: bytes, walk: Callable[[bytes], Iterator[Place]]
) -> Iterator[Place]:
    """Merge what is put in order; where that takes too long, walk on from there."""
    try:
        for place in merge(*streams, reverse=True):
            yield place
            after = place[0]
    except TimeoutError:
        yield from walk(after)


def _stream(
    session: Session,
    sql: str,
    values: Mapping[str, object],
    after: bytes,
    count: int = _FEW,
    *,
    until: float | None = None,
) -> Iterator[Place]:
    """Read places a few at a time, and then twice as many each time; with `until` it raises `TimeoutError` then."""
    while rows := _rows(session, sql, {**values, "after": after, "limit": count}, until):
        yield from rows
        if len(rows) < count:
            return
        after = rows[-1][0]
        count = min(count * 2, _MANY)


def _rows(session: Session, sql: str, values: Mapping[str, object], until: float | None) -> list[Place]:
    if until is None:
        return session.rows_by_name(sql, values)
    session.connection.set_progress_handler(lambda: time.monotonic() >= until, _OPERATIONS)
    try:
        return session.rows_by_name(sql, values)
    except sqlite3.OperationalError as error:
        if code(error) == INTERRUPT:
            raise TimeoutError from None
        raise
    finally:
        session.connection.set_progress_handler(None, 0)


def _span(session: Session, which: Search) -> range:
    """The numbers of those that can be of the time that is asked for: the others need not be read to know that."""
    first, last = 0, sys.maxsize
    if which.since is not None:
        first = given_since(session, micros(which.since) - _SET_BACK).start
    if which.until is not None and (late := given_since(session, micros(which.until) + _SET_BACK)):
        last = late.start
    return range(first, last)


def _names_lanes(which: Search) -> bool:
    return which.queue is not None or which.task is not None


def _lanes(session: Session, which: Search) -> list[int]:
    task = None if which.task is None else str(which.task)
    return [lane for (lane,) in session.rows_by_name(_LANES, {"queue": which.queue, "task": task})]


def _wanted(which: Search, lanes: Sequence[int]) -> dict[str, object]:
    """What a statement can tell of a job."""
    return {
        "states": _encode(which.states).decode() if which.states else None,
        "lanes": str(lanes) if _names_lanes(which) else None,
        "cause": which.cause,
        "node": which.node,
        "parent": None if which.parent is None else which.parent.bytes,
        "key": which.key,
        "since": optional_micros(which.since),
        "until": optional_micros(which.until),
        "tag": which.tag,
    }
