"""The census: how many jobs have not ended, task by task, within a time."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from mainspring.core.tally import Count
from mainspring.stores.overview import MOST, Census
from mainspring.stores.postgres.search import Time
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Verb

_LINES: Final = statement("census_lines")
_COUNT: Final = statement("census_count")
_REST: Final = statement("census_rest")
_NEW: Final = statement("census_new")
_AT_ONCE: Final = 8
"""Tasks and priorities that are counted by one statement, which takes about 0.1 s at most.

Of each, `2 * MOST` index entries of due jobs are read, and as many of later ones, at 0.2 to 0.4 µs.
"""
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
    left: list[tuple[str, int]] = field(default_factory=list)
    """Tasks and priorities that are not counted yet, task by task."""
    enqueued: int = 0
    is_whole: bool = False

    def census(self, now: datetime) -> Census:
        """Return the kinds whose task is counted in all priorities."""
        unknown = {task for task, _ in self.left}
        return Census(
            at=self.at or now,
            counts=tuple(
                Count(queue=queue, task=task, due=kind.due, later=kind.later, running=kind.running, oldest=kind.oldest)
                for (queue, task), kind in sorted(self.kinds.items())
                if task not in unknown
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
    (clock, *lines) = yield Ask(_LINES, (at,))
    now: datetime = clock[2]
    left = sorted((task, priority) for task, priority, _ in lines)
    counting.left = left
    for queue, task, running, due, later, oldest in (yield Ask(_REST, (now, 10 * MOST))):
        counting.of(queue, task).add(due, later, running, oldest)
    counting.at = now
    yield from _look_for_new(counting, now)
    while left and not counting.time.is_up:
        yield counting.time.ask()
        tasks, priorities = zip(*left[:_AT_ONCE], strict=True)
        for task, queue, due, later, oldest in (yield Ask(_COUNT, (list(tasks), list(priorities), now, 2 * MOST))):
            counting.of(queue, task).add(due, later, 0, oldest)
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
