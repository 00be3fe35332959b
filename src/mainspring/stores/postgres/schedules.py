"""Looking at schedules: at those that are due, at some by name, at all of them page by page. Locks nothing."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from mainspring.core.names import Name
from mainspring.errors import ScheduleError
from mainspring.stores.postgres.head import Head, Mark
from mainspring.stores.postgres.rows import key_bytes
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Row, Verb
from mainspring.stores.records import Former, Look, Looked, SchedulePage, Unread
from mainspring.stores.schedules import OPEN_SHOWN, read_schedule

_DUE: Final = statement("schedules_due")
_LOOK: Final = statement("schedules_look")
_FORMER: Final = statement("schedules_former")
_PAGE: Final = statement("schedules_page")
_PAGE_OF_OWNER: Final = statement("schedules_page_of_owner")
AGAIN: Final = timedelta(seconds=1)
"""When to look again for what somebody has in hand."""


class Seen(NamedTuple):
    """Rows that were read: what of them was understood, and the row behind the last, which has no name."""

    looks: list[Look]
    unread: list[Unread]
    last: Row


class Due(NamedTuple):
    """What is due, and whether there are schedules that have not been told of the end of a run."""

    looked: Looked
    is_untold: bool


def due(at: datetime | None, limit: int, head: Head) -> Verb[Due]:
    """Look at what is due. One statement; more where there are schedules that cannot be read, for they do not count."""
    mark = head.mark() if at is None else Mark()  # a test's clock goes as it likes
    start = mark.place
    looks: list[Look] = []
    unread: list[Unread] = []
    while True:
        wanted = limit - len(looks)
        rows = sorted((yield Ask(_DUE, (at, *start, wanted, OPEN_SHOWN))), key=_turn)
        if start == mark.place:
            now, _, _, next_at, _, read_at, *_ = rows[-1]
            head.advance(mark, next_at if len(rows) == 1 else rows[0][3], now, (read_at - now).total_seconds())
        seen = _seen(rows)
        looks += seen.looks
        unread += seen.unread
        if len(rows) <= wanted or not seen.unread:
            looked = Looked(now=seen.last[0], looks=tuple(looks), next_at=seen.last[3], unread=tuple(unread))
            return Due(looked, seen.last[4])
        start = (rows[-2][3], rows[-2][1])


def soon(looked: Looked) -> Looked:
    """Have schedules looked at again soon: somebody has one in hand that is to be told of the end of a run."""
    again = looked.now + AGAIN
    return replace(looked, next_at=again if looked.next_at is None else min(again, looked.next_at))


def _turn(row: Row) -> tuple[bool, datetime, str]:
    """Sort rows in the order in which schedules come up, the one without a name last."""
    return (row[1] is None, row[3] or row[0], row[1] or "")


def look(at: datetime | None, names: Sequence[Name]) -> Verb[Looked]:
    """Look at schedules by name, in the order in which they are asked for. One statement; a second for what is not there."""
    seen = _seen((yield Ask(_LOOK, (at, [str(name) for name in names], OPEN_SHOWN))))
    found = {one.schedule.name: one for one in seen.looks}
    looks = tuple(found[name] for name in names if name in found)
    missing = {str(name) for name in names if name not in found} - {one.name for one in seen.unread}
    rows = (yield Ask(_FORMER, (sorted(missing),))) if missing else []
    former = tuple(Former(name=name, last_slot=slot) for name, slot in rows)
    return Looked(now=seen.last[0], looks=looks, unread=tuple(seen.unread), former=former)


def page(at: datetime | None, owner: str | None, limit: int, after: str | None) -> Verb[SchedulePage]:
    """Read a page, by name. One statement."""
    common = (at, after or "", OPEN_SHOWN, limit + 1)
    rows = yield Ask(_PAGE, common) if owner is None else Ask(_PAGE_OF_OWNER, (*common, key_bytes(owner)))
    named = sorted((row for row in rows if row[1] is not None), key=lambda row: str(row[1]))
    (last,) = (row for row in rows if row[1] is None)
    shown = named[:limit]
    seen = _seen([*shown, last])
    more = shown[-1][1] if shown and len(named) > limit else None
    return SchedulePage(now=last[0], looks=tuple(seen.looks), after=more, unread=tuple(seen.unread))


def _seen(rows: Sequence[Row]) -> Seen:
    looks: list[Look] = []
    unread: list[Unread] = []
    last: Row = ()
    for row in rows:
        _now, name, revision, next_at, waits, last_end, record, open_ = row
        if name is None:
            last = row
            continue
        try:
            schedule = read_schedule(
                name, bytes(record), revision=revision, next_at=next_at, waits=waits, last_end=last_end
            )
        except ScheduleError as error:
            unread.append(Unread(name=name, revision=revision, problem=error.problem))
        else:
            looks.append(Look(schedule=schedule, open=tuple(open_)))
    return Seen(looks, unread, last)
