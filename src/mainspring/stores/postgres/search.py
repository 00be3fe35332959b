"""Search: jobs from the newest back, within a time.

A short walk comes first: what is common is found by it. If that is not enough, an index may know what is rare. Where all
sources have got to, the jobs that they know are read whole, and those that fit are found.

Jobs that wait or run are looked for first: one that finishes meanwhile is come upon twice then, and not missed.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from mainspring.core.job import JobId
from mainspring.stores.overview import Found, Search
from mainspring.stores.postgres import inspect
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.streams import NEWEST, SHORTER, Stream, by_index, by_walking
from mainspring.stores.postgres.verb import Ask, Verb
from mainspring.stores.records import JobView
from mainspring.stores.searching import fits, looks_inside, previewed

_WITHIN: Final = statement("search_within")
AT_LEAST: Final = 0.1
"""Seconds that every statement has, so that whoever goes on gets somewhere."""
SOME: Final = 0.1
"""Of a page: as long as a step of a walk brings so many, it is as quick as an index."""
AT_ONCE: Final = 200
"""Jobs that are read whole in one statement, at most."""
MAX_PAYLOAD_BYTES: Final = 2**31 - 1
"""Bytes; a preview of this size leaves out saved values and results only."""


class Time:
    """How much of it is left."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self._until - time.monotonic()

    @property
    def is_up(self) -> bool:
        return self.left <= 0

    def ask(self) -> Ask:
        """Say how long the statements that follow may take."""
        return Ask(_WITHIN, (round(1000 * max(self.left, AT_LEAST)),))


@dataclass(slots=True)
class Looking:
    """A search under way. What it has found so far outlives a statement that is cut off."""

    which: Search
    limit: int
    upto: int
    """The newest that has not been looked at."""
    time: Time
    preview: int | None = None
    accept: Callable[[JobView], bool] | None = None
    jobs: list[JobView] = field(default_factory=list)
    looked: int = 0
    back_to: datetime | None = None
    is_answered: bool = False
    is_over: bool = False
    """Everything was seen."""

    @classmethod
    def of(
        cls,
        which: Search,
        limit: int,
        after: JobId | None,
        seconds: float,
        *,
        preview: int | None = None,
        accept: Callable[[JobView], bool] | None = None,
    ) -> "Looking":
        return cls(which, limit, NEWEST if after is None else after.int - 1, Time(seconds), preview, accept)

    @property
    def at_once(self) -> int:
        """How many jobs are read in one statement. Arguments are compared on the event loop: then only a few."""
        if self.which.argument is not None:
            return max(1, AT_ONCE // SHORTER)
        return AT_ONCE if looks_inside(self.which) else min(AT_ONCE, self.limit - len(self.jobs))

    @property
    def read_bytes(self) -> int | None:
        """Bytes of each payload that are read: all, where arguments are compared."""
        return MAX_PAYLOAD_BYTES if self.preview is not None and self.which.argument is not None else self.preview

    @property
    def is_full(self) -> bool:
        return len(self.jobs) >= self.limit

    @property
    def found(self) -> Found:
        return Found(
            jobs=tuple(self.jobs),
            after=None if self.is_over else JobId(UUID(int=min(self.upto + 1, NEWEST))),
            looked=self.looked,
            back_to=self.back_to,
            in_time=self.is_over or self.is_full,
        )

    def take(self, view: JobView) -> bool:
        """Look at a job, and take it if it fits; False: the page was full before."""
        if self.is_full:
            return False
        self.upto = view.job.id.int - 1
        self.back_to = view.enqueued_at
        if fits(self.which, view) and (self.accept is None or self.accept(view)):
            self.jobs.append(previewed(view, self.preview))
        return True


def search(looking: Looking) -> Verb[None]:
    """Look until the page is full, everything seen, or the time up. Several statements, in one transaction."""
    which = looking.which
    if looking.upto < 0:
        looking.is_over = True
        return
    walk = [Stream(source) for source in by_walking(which)]
    at_once = AT_ONCE if looks_inside(which) else looking.limit + 1
    indexed = [Stream(source) for source in by_index(which, at_once)]
    streams, before = walk, 0
    while not (looking.is_over or looking.is_full):
        yield from _step(looking, streams)
        if looking.time.is_up and (streams is indexed or not indexed):
            return
        if indexed and (looking.time.is_up or len(looking.jobs) - before < looking.limit * SOME):
            streams = indexed
        before = len(looking.jobs)


def _step(looking: Looking, streams: Sequence[Stream]) -> Verb[None]:
    """Have all streams look further, and read what they know by then."""
    for stream in streams:
        yield looking.time.ask()
        looking.looked += yield from stream.more(looking.upto)
        looking.is_answered = True
    bound = max((stream.low for stream in streams), default=0)
    ids = sorted({id_ for stream in streams for id_ in stream.taken(bound)}, reverse=True)
    if not (yield from _read(looking, ids)):
        return
    looking.upto = bound - 1
    looking.is_over = bound == 0
    ends = [stream.back_to for stream in streams if stream.low == bound and stream.back_to is not None]
    looking.back_to = min(ends, default=looking.back_to)


def _read(looking: Looking, ids: Sequence[UUID]) -> Verb[bool]:
    """Read jobs whole, and take those that fit; False: it ended before the last of them."""
    place = 0
    while place < len(ids):
        if looking.is_full or (place and looking.time.is_up):
            return False
        chunk = ids[place : place + looking.at_once]
        for view in (yield from inspect.get([JobId(id_) for id_ in chunk], looking.read_bytes)):
            if view is not None and not looking.take(view):
                return False
        place += len(chunk)
    return True
