"""Dead letters: what could not be delivered, with all that is needed to deliver it after all."""

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from mainspring.core.outbox import MOST_PARTITIONS
from mainspring.stores.outbox import Letter, LetterFilter, LetterPage, LetterState, NewLetter
from mainspring.stores.sqlite.outboxes import Batch, find, message, number_of
from mainspring.stores.sqlite.rows import Row, clean, instant, micros, optional_instant, span_micros, when_micros
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_ADD: Final = statement("letter_add")
_FIND: Final = statement("letter_find")
_LIST: Final = statement("view_letters")
_LIST_OF_OUTBOX: Final = statement("view_letters_of_outbox")
_PENDING: Final = statement("letters_pending")
_OVERDUE: Final = statement("letters_overdue")
_OLDEST: Final = statement("letters_oldest")
_TAKE: Final = statement("letter_take")
_RESOLVE: Final = statement("letter_resolve")
_RETURN: Final = statement("letter_return")
_END: Final = statement("letter_end")
_ENDED: Final = statement("letters_ended")
_DELETE: Final = statement("letter_delete")
_LAST: Final = sys.maxsize


def bury(session: Session, partition: int, new: NewLetter) -> None:
    """Make a message a dead letter."""
    of = new.message
    values = micros(of.published_at), of.type, of.key, of.traceparent, of.payload
    session.run(
        _ADD,
        (
            partition // MOST_PARTITIONS,
            number_of(partition, of.seq),
            *values,
            new.attempts,
            clean(new.error),
            session.now,
        ),
    )


# Finding.


def page(session: Session, which: LetterFilter, limit: int, after: str | None) -> LetterPage:
    """Read a page: the newest of each state, and of these the newest."""
    failed_at, id_ = map(int, after.split(".")) if after else (_LAST, _LAST)
    behind = {"failed_at": failed_at, "id": id_, "limit": limit + 1}
    found: list[Letter] = []
    for state in dict.fromkeys(which.states):
        sql = _LIST if which.outbox is None else _LIST_OF_OUTBOX
        found += _found(session, which, sql, {**behind, "state": state.value}, _is(state))
    found = [one for one in found if (micros(one.failed_at), one.id) < (failed_at, id_)]
    found.sort(key=lambda one: (one.failed_at, one.id), reverse=True)
    if len(found) <= limit or not limit:
        return LetterPage(letters=tuple(found[:limit]))
    last = found[limit - 1]
    return LetterPage(letters=tuple(found[:limit]), after=f"{micros(last.failed_at)}.{last.id}")


def _found(
    session: Session, which: LetterFilter, sql: str, values: Mapping[str, object], is_meant: Callable[[Letter], bool]
) -> list[Letter]:
    """Find letters by a statement; or by their ids, if these are known."""
    if which.ids is not None:
        known = (letter(row) for id_ in dict.fromkeys(which.ids) for row in session.rows(_FIND, (id_,)))
        return [one for one in known if is_meant(one) and _fits(which, one)]
    outbox = None
    if which.outbox is not None:
        kept = find(session, which.outbox)
        if kept is None:
            return []
        outbox = kept.id
    filters = {"outbox": outbox, "partition": which.partition, "type": which.type, "key": which.key}
    return [letter(row) for row in session.rows_by_name(sql, {**filters, **values})]


def _fits(which: LetterFilter, one: Letter) -> bool:
    of = one.message
    wanted = (which.outbox, of.outbox), (which.partition, of.partition), (which.type, of.type), (which.key, of.key)
    return all(value is None or value == found for value, found in wanted)


def _pending(session: Session, which: LetterFilter, limit: int) -> list[Letter]:
    found = _found(session, which, _PENDING, {"limit": limit}, _is(LetterState.PENDING))
    return sorted(found, key=lambda one: one.id)[:limit]


def _overdue(session: Session, which: LetterFilter, limit: int) -> list[Letter]:
    found = _found(session, which, _OVERDUE, {"now": session.now, "limit": limit}, _is_late(session))
    return sorted(found, key=lambda one: (one.deadline, one.id))[:limit]


def _oldest(session: Session, which: LetterFilter, state: LetterState, limit: int) -> list[Letter]:
    values = {"state": state.value, "now": session.now, "limit": limit}
    is_meant = _is_late(session) if state is LetterState.REPROCESSING else _is(state)
    found = _found(session, which, _OLDEST, values, is_meant)
    return sorted(found, key=lambda one: (one.failed_at, one.id))[:limit]


def _is(state: LetterState) -> Callable[[Letter], bool]:
    return lambda one: one.state is state


def _is_late(session: Session) -> Callable[[Letter], bool]:
    now = instant(session.now)
    return lambda one: one.state is LetterState.REPROCESSING and one.deadline is not None and one.deadline <= now


# Their life.


def take(session: Session, which: LetterFilter, within: timedelta, limit: int) -> tuple[Letter, ...]:
    found = _pending(session, which, limit)
    found += _overdue(session, which, limit - len(found))
    deadline = when_micros(within, session.now)
    session.run_many(_TAKE, [(deadline, one.id) for one in found])
    until = instant(deadline)
    return tuple(replace(one, state=LetterState.REPROCESSING, term=one.term + 1, deadline=until) for one in found)


def resolve(session: Session, letters: Sequence[tuple[int, int]]) -> int:
    return session.run_many(_RESOLVE, [(session.now, id_, term) for id_, term in letters]) if letters else 0


def give_back(session: Session, letters: Sequence[tuple[int, int]], error: str) -> int:
    if not letters:
        return 0
    return session.run_many(_RETURN, [(clean(error), session.now, id_, term) for id_, term in letters])


def discard(session: Session, which: LetterFilter, limit: int) -> int:
    found = _oldest(session, which, LetterState.PENDING, limit)
    _end(session, found, LetterState.DISCARDED)
    return len(found)


def replay(session: Session, which: LetterFilter, limit: int) -> int:
    """Put letters back at the end of their partitions."""
    found = [
        one
        for state in (LetterState.PENDING, LetterState.REPROCESSING)
        for one in _oldest(session, which, state, limit)
    ]
    found = sorted(found, key=lambda one: (one.failed_at, one.id))[:limit]
    batch = Batch(session)
    for one in found:
        of = one.message
        outbox = find(session, of.outbox)
        assert outbox is not None  # noqa: S101 -- outboxes are for ever
        batch.add(outbox.id * MOST_PARTITIONS + of.partition, of.type, of.key, of.traceparent, of.payload)
    batch.write()
    _end(session, found, LetterState.RESOLVED)
    return len(found)


def clear(session: Session, older_than: timedelta, limit: int) -> int:
    ended = session.rows(_ENDED, (session.now - span_micros(older_than), limit))
    session.run_many(_DELETE, ended)
    return len(ended)


def _end(session: Session, letters: Sequence[Letter], state: LetterState) -> None:
    session.run_many(_END, [(state.value, session.now, one.id) for one in letters])


def letter(row: Row) -> Letter:
    id_, outbox, *of, state, attempts, error, failed_at, term, deadline, completed_at = row
    return Letter(
        id=id_,
        message=message(outbox, tuple(of)),
        state=LetterState(state),
        attempts=attempts,
        error=error,
        failed_at=instant(failed_at),
        term=term,
        deadline=optional_instant(deadline),
        completed_at=optional_instant(completed_at),
    )
