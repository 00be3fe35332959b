"""Dead letters: read, taken for reprocessing, put back into the log, given up and cleared away."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from mainspring.stores.outbox import Letter, LetterFilter, LetterPage, LetterState, Message
from mainspring.stores.postgres.rows import columns, key_bytes, key_text
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Row, Verb

_PAGE: Final = statement("outbox_letters_page")
_PENDING: Final = statement("outbox_letters_pending")
_OVERDUE: Final = statement("outbox_letters_overdue")
_OLDEST: Final = statement("outbox_letters_oldest")
_TAKE: Final = statement("outbox_letters_take")
_RESOLVE: Final = statement("outbox_letters_resolve")
_RETURN: Final = statement("outbox_letters_return")
_DISCARD: Final = statement("outbox_letters_discard")
_REPLAY: Final = statement("outbox_letters_replay")
_CLEAR: Final = statement("outbox_letters_clear")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT: Final = timedelta(microseconds=1)
_NEVER: Final = datetime(9999, 1, 1, tzinfo=UTC)


def page(which: LetterFilter, limit: int, after: str | None) -> Verb[LetterPage]:
    upto: tuple[datetime, int] = (_NEVER, 0)
    if after is not None:
        micros, _, id_ = after.partition(".")
        upto = (_EPOCH + int(micros) * _MOMENT, int(id_))
    states = sorted({str(state) for state in which.states})
    rows = yield Ask(_PAGE, (states, *upto, limit + 1, *_which(which)))
    found = tuple(_letter(row) for row in rows[:limit])
    more = found and len(rows) > limit
    return LetterPage(letters=found, after=_place(found[-1]) if more else None)


def take(at: datetime | None, which: LetterFilter, within: timedelta, limit: int) -> Verb[tuple[Letter, ...]]:
    """Take letters for reprocessing. Several statements."""
    ids = [id_ for (id_,) in (yield Ask(_PENDING, (at, *_which(which), limit)))]
    if len(ids) < limit:
        ids += [id_ for (id_,) in (yield Ask(_OVERDUE, (at, *_which(which), limit - len(ids))))]
    if not ids:
        return ()
    return tuple(_letter(row) for row in (yield Ask(_TAKE, (at, within, ids))))


def resolve(at: datetime | None, letters: Sequence[tuple[int, int]]) -> Verb[int]:
    ((done,),) = yield Ask(_RESOLVE, (at, *_terms(letters)))
    return int(done)


def give_back(at: datetime | None, letters: Sequence[tuple[int, int]], error: str) -> Verb[int]:
    ((done,),) = yield Ask(_RETURN, (at, *_terms(letters), key_bytes(error)))
    return int(done)


def discard(at: datetime | None, which: LetterFilter, limit: int) -> Verb[int]:
    """Give up letters. Two statements."""
    ids = [id_ for (id_,) in (yield Ask(_PENDING, (at, *_which(which), limit)))]
    if not ids:
        return 0
    ((done,),) = yield Ask(_DISCARD, (at, ids))
    return int(done)


def replay(at: datetime | None, which: LetterFilter, limit: int) -> Verb[int]:
    """Put letters back into the log. Two statements."""
    ids = [id_ for (id_,) in (yield Ask(_OLDEST, (at, *_which(which), limit)))]
    if not ids:
        return 0
    ((done,),) = yield Ask(_REPLAY, (at, ids))
    return int(done)


def clear(at: datetime | None, older_than: timedelta, limit: int) -> Verb[int]:
    ((gone,),) = yield Ask(_CLEAR, (at, older_than, limit))
    return int(gone)


def _which(which: LetterFilter) -> tuple[object, ...]:
    ids = None if which.ids is None else list(which.ids)
    return ids, which.outbox, which.partition, which.type, key_bytes(which.key)


def _terms(letters: Sequence[tuple[int, int]]) -> tuple[object, ...]:
    return columns(letters) if letters else ([], [])


def _place(letter: Letter) -> str:
    return f"{(letter.failed_at - _EPOCH) // _MOMENT}.{letter.id}"


def _letter(row: Row) -> Letter:
    (
        id_, outbox, partition, seq, number, published_at, key, type_, traceparent, payload, state, attempts, error,
        failed_at, term, deadline, completed_at,
    ) = row  # fmt: skip
    return Letter(
        id=id_,
        message=Message(
            outbox=outbox,
            partition=partition,
            seq=seq,
            number=number,
            payload=bytes(payload),
            type=type_,
            key=key_text(key),
            published_at=published_at,
            traceparent=traceparent,
        ),
        state=LetterState(state),
        attempts=attempts,
        error=key_text(error) or "",
        failed_at=failed_at,
        term=term,
        deadline=deadline,
        completed_at=completed_at,
    )
