"""Where a search finds jobs: by walking back over a table, by an index, or among the waiting jobs.

Each is asked for what it knows from a place back, the newest first, and says how far back that is.
"""

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from mainspring.core.job import FINISHED, State
from mainspring.stores.overview import Search
from mainspring.stores.postgres.rows import encode, error, key_bytes
from mainspring.stores.postgres.statements import Statement, statement
from mainspring.stores.postgres.verb import Ask, Verb
from mainspring.stores.searching import finder, says

_ACTIVE: Final = statement("search_active")
_HISTORY: Final = statement("search_history")
_KINDS: Final = statement("search_kinds")
_KIND: Final = statement("search_kind")
_WAITING: Final = statement("search_waiting")
_BY_KEY: Final = statement("search_by_key")
_BY_PARENT: Final = statement("search_by_parent")
_BY_STATE: Final = {
    State.RUNNING: statement("search_running"),
    State.SCHEDULED: statement("search_scheduled"),
    State.RETRYING: statement("search_retrying"),
    State.FAILED: statement("search_failed"),
    State.CANCELLED: statement("search_cancelled"),
}
NEWEST: Final = (1 << 128) - 1
FIRST: Final = 500
LONGEST: Final = 10_000
"""Jobs that a walk looks at in one statement, at first and at most."""
SHORTER: Final = 10
"""So many times fewer where arguments are looked for: each may be as long as a quarter of a megabyte."""
A_MOMENT: Final = 0.04
"""Seconds that one of these statements may take: then the next looks at fewer."""
FEW: Final = 5000
"""Waiting, parked and running jobs that one statement sorts; if there are more, the table is scanned backwards."""


class Known(NamedTuple):
    """What was found, and how far back."""

    ids: Sequence[UUID]
    low: int
    """All from there on are known; 0: there is nothing older."""
    looked: int
    back_to: datetime | None = None
    """When the last one was enqueued, of a walk."""


class Source(Protocol):
    """Where jobs are found."""

    def look(self, upto: UUID) -> Verb[Known]:
        """Find some from a place back."""
        ...


class Walk:
    """Over a table, in windows that grow."""

    def __init__(self, statement_: Statement, which: Search) -> None:
        self._statement = statement_
        self._which = which
        self._values = _values(which)
        part = 1 if which.argument is None else SHORTER
        self._first, self._longest = max(1, FIRST // part), max(1, LONGEST // part)
        self._window = self._first

    def look(self, upto: UUID) -> Verb[Known]:
        began = time.monotonic()
        ((looked, low, back_to, ids, payloads, errors),) = yield Ask(
            self._statement, (upto, self._window, *self._values)
        )
        fitting = self._inside(ids, payloads, errors)
        longer = time.monotonic() - began < A_MOMENT
        self._window = min(2 * self._window, self._longest) if longer else max(self._window // 2, self._first)
        return Known(fitting, 0 if low is None else low.int, looked, back_to)

    def _inside(
        self, ids: Sequence[UUID], payloads: Sequence[bytes] | None, errors: Sequence[bytes] | None
    ) -> Sequence[UUID]:
        """Leave out what cannot fit, before it is read whole. Errors of jobs that have not ended are elsewhere."""
        which = self._which
        if payloads is not None and which.argument is not None:
            found = [*map(finder(which.argument), payloads)]
            ids = [id_ for id_, fits in zip(ids, found, strict=True) if fits]
            errors = errors and [one for one, fits in zip(errors, found, strict=True) if fits]
        if errors is not None and which.error is not None:
            ids = [id_ for id_, one in zip(ids, errors, strict=True) if says(error(one), which.error)]
        return ids


class Index:
    """By an index, so many at a time."""

    def __init__(self, statement_: Statement, at_once: int, *values: object) -> None:
        self._statement = statement_
        self._at_once = at_once
        self._values = values

    def look(self, upto: UUID) -> Verb[Known]:
        rows = yield Ask(self._statement, (upto, self._at_once, *self._values))
        ids = [id_ for (id_,) in rows]
        return Known(ids, ids[-1].int if len(ids) == self._at_once else 0, len(ids))


class Waiting:
    """Search among waiting, parked and running jobs: one statement while there are few, then a backward scan."""

    def __init__(self, which: Search, at_once: int, walk: Walk) -> None:
        self._values = (_states(which), which.queue, _task(which), FEW, State.RUNNING in (which.states or State))
        self._at_once = at_once
        self._walk = walk
        self._are_few = True

    def look(self, upto: UUID) -> Verb[Known]:
        if self._are_few:
            ((is_all, ids),) = yield Ask(_WAITING, (upto, self._at_once, *self._values))
            if is_all is not False:
                return Known(ids, ids[-1].int if len(ids) == self._at_once else 0, len(ids))
            self._are_few = False
        return (yield from self._walk.look(upto))


class Stream:
    """What a source has found that was not used yet."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._ids: list[UUID] = []
        self.low = NEWEST + 1
        self.back_to: datetime | None = None

    def more(self, upto: int) -> Verb[int]:
        """Look further, if nothing is known of what comes next; says at how many it has looked."""
        if self.low <= upto:
            return 0
        known = yield from self._source.look(UUID(int=upto))
        self._ids += known.ids
        self.low = known.low
        self.back_to = known.back_to or self.back_to
        return known.looked

    def taken(self, bound: int) -> list[UUID]:
        """Give out what is known from a place on."""
        count = sum(1 for id_ in self._ids if id_.int >= bound)
        taken, self._ids = self._ids[:count], self._ids[count:]
        return taken


def by_walking(which: Search) -> list[Source]:
    """Walk over what waits or runs, and over what has finished, as far as the states that are asked for go."""
    active, finished = _tables(which)
    return [*([Walk(_ACTIVE, which)] if active else []), *([Walk(_HISTORY, which)] if finished else [])]


def by_index(which: Search, at_once: int) -> list[Source]:
    """Choose where what is asked for is found, however rare it is; nowhere, if no index knows it."""
    if which.key is not None:
        return [Index(_BY_KEY, at_once, key_bytes(which.key))]
    if which.parent is not None:
        return [Index(_BY_PARENT, at_once, which.parent)]
    states = which.states or (() if which.cause is None else (State.FAILED,))
    if not states and which.queue is None and which.task is None:
        return []
    if which.queue is None and which.task is None and _BY_STATE.keys() >= set(states):
        return [Index(_BY_STATE[state], at_once) for state in dict.fromkeys(states)]
    active, finished = _tables(which)
    found: list[Source] = []
    if active:
        found.append(Waiting(which, at_once, Walk(_ACTIVE, which)))
    if finished:
        one = which.queue is not None and which.task is not None
        found.append(Index(_KIND if one else _KINDS, at_once, _states(which), which.queue, _task(which)))
    return found


def _tables(which: Search) -> tuple[bool, bool]:
    states = set(which.states or State)
    return not states <= set(FINISHED) and which.cause is None, not states.isdisjoint(FINISHED)


def _values(which: Search) -> tuple[object, ...]:
    return (
        _states(which),
        which.queue,
        _task(which),
        None if which.tag is None else encode(which.tag),
        None if which.cause is None else str(which.cause),
        key_bytes(which.key),
        which.node,
        which.since,
        which.until,
        which.parent,
        which.error is not None,
        which.argument is not None,
    )


def _states(which: Search) -> list[str] | None:
    return [str(state) for state in which.states] or None


def _task(which: Search) -> str | None:
    return None if which.task is None else str(which.task)
