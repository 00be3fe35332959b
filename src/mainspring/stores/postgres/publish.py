"""Publishing: messages are written in one statement for some hundred of them, in whosever transaction that is.

Nothing is remembered of an outbox between two calls: who made it may not have committed.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Final

from mainspring.errors import PartitionCountMismatch
from mainspring.stores.outbox import NewMessage, Published
from mainspring.stores.postgres.joined import undoing
from mainspring.stores.postgres.rows import columns, key_bytes
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Verb

_MAKE: Final = statement("outbox_make")
_FIND: Final = statement("outbox_find")
_PUBLISH: Final = statement("outbox_publish")
_PUBLISH_UNIQUE: Final = statement("outbox_publish_unique")

TOGETHER: Final = 500
"""Messages that go in one statement, at most."""
LARGE: Final = 4 * 1024 * 1024
"""Bytes that the payloads of one statement have, about."""


def digest(text: str) -> bytes:
    """Return what stands for a text that may be longer than an index takes."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).digest()


def register(at: datetime | None, name: str, partitions: int) -> Verb[None]:
    """Make an outbox, if it is not there. Several statements; one, where it is."""
    yield from _make(at, [(name, partitions)])


def publish_at_once(at: datetime | None, new: Sequence[NewMessage]) -> Verb[tuple[Published, ...] | None]:
    """Write a few messages without texts, into outboxes that are there; None: nothing was written. One statement."""
    wanted = _wanted(new)
    numbers = yield Ask(_PUBLISH, _values(at, wanted, new))
    return tuple(Published(number=number) for number in sorted(number for (number,) in numbers)) or None


def is_simple(new: Sequence[NewMessage]) -> bool:
    """Say whether `publish_at_once` will do."""
    return (
        len(new) <= TOGETHER
        and all(one.unique is None for one in new)
        and sum(len(one.payload) for one in new) <= LARGE
    )


def publish(at: datetime | None, new: Sequence[NewMessage]) -> Verb[tuple[Published, ...]]:
    """Write messages. One statement for some hundred of them, if their outboxes are there."""
    wanted = _wanted(new)
    answers: dict[int, Published] = {}
    first: dict[tuple[str, str], int] = {}
    """Of each text the place where it comes first."""
    places = [
        place
        for place, one in enumerate(new)
        if one.unique is None or first.setdefault((one.outbox, one.unique), place) == place
    ]
    for some in _some(places, new):
        found = yield from _write(at, wanted, {place: new[place] for place in some})
        if not found:  # one of the outboxes is not there, and nothing was written yet
            yield from _make(at, wanted)
            found = yield from _write(at, wanted, {place: new[place] for place in some})
        answers |= found
    for place, one in enumerate(new):
        if place not in answers and one.unique is not None:
            answers[place] = Published(number=answers[first[one.outbox, one.unique]].number, fresh=False)
    return tuple(answers[place] for place in range(len(new)))


def _some(places: Sequence[int], new: Sequence[NewMessage]) -> Iterator[list[int]]:
    """Divide messages into those that go together."""
    some: list[int] = []
    size = 0
    for place in places:
        size += len(new[place].payload)
        if some and (len(some) == TOGETHER or size > LARGE):
            yield some
            some, size = [], len(new[place].payload)
        some.append(place)
    if some:
        yield some


def _write(
    at: datetime | None, wanted: Sequence[tuple[str, int]], new: dict[int, NewMessage]
) -> Verb[dict[int, Published]]:
    """Write messages; nothing, if an outbox is not as it is wanted."""
    if all(one.unique is None for one in new.values()):
        numbers = yield Ask(_PUBLISH, _values(at, wanted, list(new.values())))
        given = sorted(number for (number,) in numbers)
        return {place: Published(number=number) for place, number in zip(new, given, strict=bool(given))}
    answers: dict[int, Published] = {}
    left = dict(new)
    while left:
        places, messages = list(left), list(left.values())
        digests = [None if one.unique is None else digest(one.unique) for one in messages]
        rows = yield Ask(_PUBLISH_UNIQUE, (*_values(at, wanted, messages), digests))
        if not rows:
            return {}
        answers |= {places[row[0] - 1]: Published(number=row[1], fresh=row[2]) for row in rows if row[1] is not None}
        # Others were at the same text, and have committed while we waited for them: it is seen now.
        left = {place: one for place, one in left.items() if place not in answers}
    return answers


def _wanted(new: Iterable[NewMessage]) -> list[tuple[str, int]]:
    return list(dict.fromkeys((one.outbox, one.partitions) for one in new))


def _make(at: datetime | None, wanted: Sequence[tuple[str, int]]) -> Verb[None]:
    """Make those of some outboxes that are not there; raises if one is there and different."""
    found = yield from _find(wanted)
    _check(wanted, found)
    missing = {name: partitions for name, partitions in wanted if name not in found}
    if missing:
        yield from undoing(_make_missing(at, wanted, missing))


def _make_missing(at: datetime | None, wanted: Sequence[tuple[str, int]], missing: dict[str, int]) -> Verb[None]:
    yield Ask(_MAKE, (at, list(missing), list(missing.values())))
    _check(wanted, (yield from _find(wanted)))  # somebody else may have been faster


def _find(wanted: Iterable[tuple[str, int]]) -> Verb[dict[str, int]]:
    rows = yield Ask(_FIND, ([name for name, _ in wanted],))
    return {str(name): int(partitions) for name, partitions in rows}


def _check(wanted: Iterable[tuple[str, int]], found: dict[str, int]) -> None:
    for name, partitions in wanted:
        if found.get(name, partitions) != partitions:
            raise PartitionCountMismatch(name, partitions, found[name])


def _values(at: datetime | None, wanted: Sequence[tuple[str, int]], new: Sequence[NewMessage]) -> tuple[object, ...]:
    place = {outbox: number for number, outbox in enumerate(wanted, 1)}
    rows = [
        (
            place[one.outbox, one.partitions],
            one.partition,
            key_bytes(one.key),
            one.type,
            one.traceparent,
            one.payload,
        )
        for one in new
    ]
    return (at, *columns(wanted), *columns(rows))
