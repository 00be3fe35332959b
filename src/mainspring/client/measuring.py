"""What is measured of a store as a whole, for those who watch it from outside.

Only what is cheap is read: what nodes and the census have written down, and what is few by its nature. Nothing is counted
here, so that a scraper that comes every few seconds costs a store with millions of jobs no more than an empty one.
"""

from collections.abc import AsyncIterator, Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from mainspring.client.lags import Lag, lags
from mainspring.client.spans import last_census
from mainspring.core.breaker import Phase
from mainspring.core.tally import MINUTE, Count, Counted, Line, added, read, start_of
from mainspring.stores.outbox import Outboxes
from mainspring.stores.overview import Overview, Tally
from mainspring.stores.port import Store

LATE: Final = timedelta(seconds=30)
"""A schedule that is due for longer is late: nobody ticks, or nobody can keep up."""
MOST_DUE: Final = 1000
MOST_BREAKERS: Final = 5000
MOST_PARTITIONS: Final = 256
"""Partitions of which it is read how old their first message is."""
WRITTEN: Final = timedelta(seconds=15)
"""After a minute has passed, nodes have written what they counted in it; a busy one does every ten seconds."""
LOOK_BACK: Final = 10
"""Minutes in which the last census is looked for."""


class Measured(Struct, frozen=True, kw_only=True):
    """What was read. None: there is nobody who would know."""

    now: datetime
    counts: tuple[Count, ...] | None = None
    census_at: datetime | None = None
    """When jobs were counted."""
    lines: tuple[Line, ...] | None = None
    """What happened in the last whole minute that nodes have written all of."""
    enqueued: int | None = None
    """In the same minute; about so many."""
    alive: int = 0
    dead: int = 0
    places: int = 0
    running: int = 0
    breakers: tuple[tuple[str, bool], ...] = ()
    """Tasks, and whether their breaker holds their jobs back."""
    late: int = 0
    """Schedules that have been due for longer than `LATE`, `MOST_DUE` at most."""
    lags: tuple[Lag, ...] = ()
    letters: tuple[tuple[str, int], ...] = ()
    """Outboxes, and how many dead letters of theirs are pending."""


async def measure(store: Store) -> Measured:
    """Read what is known of a store."""
    now = store.now()
    found = Measured(
        now=now,
        breakers=tuple([one async for one in _breakers(store)]),
        late=await _late(store),
    )
    nodes = await store.nodes()
    alive = [view for view in nodes if view.alive]
    found = msgspec.structs.replace(
        found,
        alive=len(alive),
        dead=len(nodes) - len(alive),
        places=sum(view.node.concurrency for view in alive),
        running=sum(view.running for view in alive),
    )
    if isinstance(store, Outboxes):
        views = await store.outboxes()
        looked = await lags(store, [view.name for view in views], ages=MOST_PARTITIONS)
        letters = tuple((view.name, view.letters) for view in views)
        found = msgspec.structs.replace(found, lags=looked.lags, letters=letters)
    return await _counted(store, found, now) if isinstance(store, Overview) else found


async def _counted(store: Overview, found: Measured, now: datetime) -> Measured:
    tallies = await store.tallies(MINUTE, start_of(now, MINUTE) - LOOK_BACK * MINUTE)
    last = last_minute(tallies, now)
    census = last_census(tallies, now)
    return msgspec.structs.replace(
        found,
        lines=last.lines,
        enqueued=last.enqueued,
        counts=None if census.counted_at is None else census.counts,
        census_at=census.counted_at,
    )


def last_minute(tallies: Iterable[Tally], now: datetime) -> Counted:
    """Put together what was counted in the last minute that nodes have written all of."""
    begun = start_of(now - WRITTEN, MINUTE) - MINUTE
    return added(one for tally in tallies if tally.at == begun and (one := read(tally.body)))


async def _breakers(store: Store) -> AsyncIterator[tuple[str, bool]]:
    after: str | None = None
    for _ in range(MOST_BREAKERS // 500):
        page = await store.list_breakers(limit=500, after=after)
        for view in page.breakers:
            yield str(view.task), view.circuit.phase is not Phase.CLOSED
        after = page.after
        if after is None:
            return


async def _late(store: Store) -> int:
    looked = await store.due(MOST_DUE)
    since = looked.now - LATE
    return len(looked.unread) + sum(
        look.schedule.next_at is not None and look.schedule.next_at < since for look in looked.looks
    )
