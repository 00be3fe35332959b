"""Clearing the log of messages: days that are dropped whole, and what goes row by row.

Whoever owns the tables empties a day once all of it is delivered, and drops it when nobody is in the way. What is in no
day, and all of it for those who may not drop any, is deleted by number, from the low end on. How far that has come is
remembered here, so that what is dead is not stepped over each time; a process that begins finds out by looking.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple

from mainspring.errors import StoreUnavailable
from mainspring.stores.postgres.partitions import MESSAGES, begin
from mainspring.stores.postgres.prune import Runs
from mainspring.stores.postgres.rows import columns
from mainspring.stores.postgres.statements import Statement, statement
from mainspring.stores.postgres.trouble import was_cut_off
from mainspring.stores.postgres.verb import Ask, Verb

_DAYS: Final = statement("outbox_days")
_EMPTY: Final = statement("outbox_day_empty")
_DROP: Final = statement("outbox_day_drop")
_FIND: Final = statement("outbox_clear_find")
_REST: Final = statement("outbox_clear_rest")
_CHUNKS: Final = statement("outbox_clear_chunks")
_TEXTS: Final = statement("outbox_clear_texts")

STEP: Final = 1000
"""Messages that are deleted by one statement, and rows that say which numbers they had."""
FEW: Final = 5
_DAY_CHECK_LIMIT_S: Final = 60.0
"""Time limit of the check before a day is emptied: it reads the whole day, without a lock."""
_NEVER: Final = datetime(9999, 1, 1, tzinfo=UTC)
_ALWAYS: Final = (datetime(1, 1, 1, tzinfo=UTC), 0)

_logger: Final = logging.getLogger("mainspring.stores.postgres")


class Day(NamedTuple):
    """A day of the log."""

    first: datetime
    has_passed: bool
    is_ours: bool
    """Whether we may drop it."""
    is_filled: bool


class Line(NamedTuple):
    """A partition of which something is delivered that may still be there."""

    line: int
    after: int
    cursor: int
    last: int
    has_rest: bool


class Marks:
    """How far the log is cleared, as this process knows. Never further than what was committed."""

    def __init__(self) -> None:
        self.messages: dict[int, int] = {}
        """By line, up to which number."""
        self.chunks: dict[int, int] = {}
        self.texts = _ALWAYS

    def move(self, marks: dict[int, int], to: Mapping[int, int]) -> None:
        marks.update({line: max(seq, marks.get(line, 0)) for line, seq in to.items()})


async def clear(connections: Runs, at: datetime | None, limit: int, marks: Marks) -> int:
    """Clear away what is delivered, at most `limit` of it; returns how many. A day counts as one."""
    gone = 0
    if at is None:  # on a test's clock there are no days to come
        gone += await _clear_days(connections, at, await connections.run(lambda: days(at)))
        await connections.run(lambda: MESSAGES.make(most=1), whole=True)
    lines = await connections.run(lambda: _find(marks.messages))
    there = await connections.run(
        lambda: days(at)
    )  # afterwards: each delivered message is in a day that is filled by then
    is_ours = all(day.is_ours for day in there)
    done = {line.line: line.cursor for line in lines}
    tables = [_REST] if any(line.has_rest for line in lines) else []
    if not is_ours:
        tables += [_in_day(day.first) for day in there if day.is_filled]
    for line in lines if tables else ():
        done[line.line], rows = await _clear_line(connections, line, limit - gone, tables)
        gone += rows
    marks.move(marks.messages, done)
    filled = [day.first for day in there if day.is_filled] if is_ours else []
    await _clear_chunks(connections, marks, min(filled, default=_NEVER))
    marks.texts = await connections.run(lambda: clear_texts(at, marks.texts, max(limit, STEP)))
    return gone


async def drop_days(connections: Runs) -> None:
    """Drop all days that are delivered, for those who may delete nothing but rows."""
    there = await connections.run(lambda: days(None))
    for _ in range(2 * len(there)):  # each is emptied first
        before = there
        await _clear_days(connections, None, there)
        there = await connections.run(lambda: days(None))
        if there == before:
            break


async def _clear_days(connections: Runs, at: datetime | None, there: Sequence[Day]) -> int:
    """Empty days that are delivered, and drop one that is empty; returns how many were emptied."""
    passed = [day for day in there if day.has_passed and day.is_ours]
    filled = {day.first for day in passed if day.is_filled}
    for first in sorted(filled):
        try:
            await connections.run(partial(_of_day, _EMPTY, first), whole=True, timeout=_DAY_CHECK_LIMIT_S)
        except StoreUnavailable as error:
            if not was_cut_off(error):
                raise
            _logger.warning(
                "outbox messages of %s: the check before they are cleared was cancelled, or did not end within %g s;"
                " they are kept, and it is tried again",
                first.date(),
                _DAY_CHECK_LIMIT_S,
            )
    if filled:
        filled -= {day.first for day in await connections.run(lambda: days(at)) if day.is_filled}
    empty = [day.first for day in passed if not day.is_filled]
    if empty:
        await connections.run(lambda: _of_day(_DROP, empty[0]), whole=True)
    return len(filled)


async def _clear_line(connections: Runs, line: Line, limit: int, tables: Sequence[Statement]) -> tuple[int, int]:
    """Delete messages of a line from some tables; returns up to which number they are gone, and how many there were."""
    after, gone = line.after, 0
    while after < line.cursor and gone < limit:
        upto = min(line.cursor, after + min(STEP, limit - gone))
        for delete in tables:
            gone += await connections.run(partial(_delete, delete, line.line, after, upto))
        after = upto
    return after, gone


async def _clear_chunks(connections: Runs, marks: Marks, before: datetime) -> None:
    """Delete what says which numbers messages had that are gone: a few of each line, and more where all of these were."""
    wanted, size = set(marks.messages), FEW
    while wanted:
        lines = [(line, marks.chunks.get(line, 0), marks.messages[line]) for line in sorted(wanted)]
        found = await connections.run(partial(_delete_chunks, lines, before, size))
        marks.move(marks.chunks, {line: last for line, (last, _) in found.items()})
        wanted = {line for line, (_, many) in found.items() if many == size}
        size = STEP


# Verbs.


def days(at: datetime | None) -> Verb[list[Day]]:
    return [Day(begin(day), *rest) for day, *rest in (yield Ask(_DAYS, (at,)))]


def _of_day(template: Statement, first: datetime) -> Verb[None]:
    yield Ask(MESSAGES.of_day(template, first.date()))


def _in_day(first: datetime) -> Statement:
    """Return how to delete from the table of a day."""
    table = f"outbox_messages_{first:%Y%m%d}"
    return Statement(_REST.name, _REST.text.replace("outbox_messages_rest", table))


def _find(marks: Mapping[int, int]) -> Verb[list[Line]]:
    return [Line(*row) for row in (yield Ask(_FIND, (list(marks), list(marks.values()))))]


def _delete(how: Statement, line: int, after: int, upto: int) -> Verb[int]:
    ((gone,),) = yield Ask(how, (line, after, upto))
    return int(gone)


def _delete_chunks(
    lines: Sequence[tuple[int, int, int]], before: datetime, size: int
) -> Verb[dict[int, tuple[int, int]]]:
    rows = yield Ask(_CHUNKS, (*columns(lines), before, size))
    return {line: (last, many) for line, last, many in rows}


def clear_texts(at: datetime | None, after: tuple[datetime, int], limit: int) -> Verb[tuple[datetime, int]]:
    """Forget texts; returns where to go on the next time: from the start, where the end was reached."""
    rows = yield Ask(_TEXTS, (at, *after, limit))
    return (rows[0][0], rows[0][1]) if rows else _ALWAYS
