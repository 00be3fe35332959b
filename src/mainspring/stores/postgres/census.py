"""The census: how many jobs have not ended, lane by lane, within a time."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from mainspring.core.tally import Count
from mainspring.stores.overview import MOST, Census
from mainspring.stores.postgres.search import Time
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Verb

_LANES: Final = statement("census_lanes")
_COUNT: Final = statement("census_count")
_REST: Final = statement("census_rest")
_NEW: Final = statement("census_new")
_AT_ONCE: Final = 8
"""Lanes that are counted by one statement: ten milliseconds, if each holds as many as are counted."""
_FIRST: Final = 1000
_LAST: Final = 16_000
"""Jobs that are looked at, at first and at most, to say how many are new."""


@dataclass(slots=True)
class _Kind:
    """The jobs of one queue and task, as far as they are counted."""

    due: int = 0
    later: int = 0
    running: int = 0
    oldest: datetime | None = None

    def add(self, due: int, later: int, running: int, oldest: datetime | None) -> None:
        self.due = min(self.due + due, MOST)
        self.later = min(self.later + later, MOST)
        self.running = min(self.running + running, MOST)
        self.oldest = min((one for one in (self.oldest, oldest) if one is not None), default=None)


@dataclass(slots=True)
class Counting:
    """A census under way. What was counted so far outlives a statement that is cut off."""

    since: datetime
    time: Time
    at: datetime | None = None
    kinds: dict[tuple[str, str], _Kind] = field(default_factory=dict)
    left: list[tuple[int, str, str]] = field(default_factory=list)
    """Lanes of kinds that are not counted yet, kind by kind."""
    enqueued: int = 0
    is_whole: bool = False

    def census(self, now: datetime) -> Census:
        """Say what is known: a kind is told when all its lanes are counted."""
        unknown = {(queue, task) for _, queue, task in self.left}
        return Census(
            at=self.at or now,
            counts=tuple(
                Count(queue=queue, task=task, due=kind.due, later=kind.later, running=kind.running, oldest=kind.oldest)
                for (queue, task), kind in sorted(self.kinds.items())
                if (queue, task) not in unknown
            ),
            enqueued=self.enqueued,
            complete=self.is_whole,
        )

    def of(self, queue: str, task: str) -> _Kind:
        return self.kinds.setdefault((queue, task), _Kind())


def count(at: datetime | None, counting: Counting) -> Verb[None]:
    """Count all that has not ended. Several statements, in one transaction."""
    counting.kinds.clear()  # where the connection was lost, it is begun anew
    yield counting.time.ask()
    (clock, *lanes) = yield Ask(_LANES, (at,))
    now: datetime = clock[3]
    left = sorted(((lane, queue, task) for lane, queue, task, _ in lanes), key=lambda one: one[1:])
    counting.left = left
    for queue, task, running, due, later, oldest in (yield Ask(_REST, (now, 10 * MOST))):
        counting.of(queue, task).add(due, later, running, oldest)
    counting.at = now
    yield from _look_for_new(counting, now)
    while left and not counting.time.is_up:
        some = {lane: (queue, task) for lane, queue, task in left[:_AT_ONCE]}
        yield counting.time.ask()
        for lane, due, later, oldest in (yield Ask(_COUNT, (list(some), now, MOST))):
            counting.of(*some[lane]).add(due, later, 0, oldest)
        del left[:_AT_ONCE]
    counting.is_whole = not left


def _look_for_new(counting: Counting, now: datetime) -> Verb[None]:
    """Say about how many are new: of more than a look can take in, by the pace of the newest."""
    window = _FIRST
    while True:
        rows = yield Ask(_NEW, (counting.since, window))
        counting.enqueued = sum(new for _, new, _ in rows)
        beyond = [since for seen, new, since in rows if seen == window == new]
        if not beyond:
            break
        if window >= _LAST or counting.time.is_up:
            span, seen = (now - counting.since).total_seconds(), (now - max(beyond)).total_seconds()
            counting.enqueued = round(counting.enqueued * max(1.0, span / max(seen, 0.001)))
            break
        window *= 4
    seconds = max((now - counting.since).total_seconds(), 1.0)
    counting.enqueued = min(counting.enqueued, int(MOST * seconds))
