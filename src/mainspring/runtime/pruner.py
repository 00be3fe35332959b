"""Takes away what is past its time, in bounded chunks, and ends jobs whose task nobody knows."""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from mainspring.clock import Clock
from mainspring.core.names import Name
from mainspring.core.outcome import NoSuchTask
from mainspring.runtime.events import Events, log
from mainspring.runtime.keeper import Membership
from mainspring.runtime.settler import Ended, Settler
from mainspring.stores.outbox import Outboxes
from mainspring.stores.port import Store
from mainspring.stores.records import ClaimRequest
from mainspring.supervise import Directive, Proceed, Sleep

CHUNK: Final = 1000
LETTERS_KEPT: Final = timedelta(days=7)  # dead letters that were resolved or discarded
NOTICE: Final = timedelta(seconds=10)  # a node that knows the task may just be starting


class Pruner:
    """The step of a service. Every node has one; they do not get into each other's way."""

    def __init__(
        self,
        store: Store,
        settler: Settler,
        events: Events,
        *,
        me: Callable[[], Membership],
        clock: Clock,
        every: float,
        unknown_task_grace: timedelta,
        roll: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._settler = settler
        self._events = events
        self._me = me
        self._clock = clock
        self._every = every
        self._grace = unknown_task_grace
        self._roll = roll
        self._warned: set[Name] = set()
        self._unknown_since: dict[
            Name, float
        ] = {}  # by the monotonic clock of this process, of tasks seen at each look
        self._looked_at: float | None = None

    async def step(self) -> Directive:
        await self._watch_unknown_tasks()  # first: while there is a backlog to prune, the rest is left for later
        pruned = await self._store.prune(CHUNK)
        self._events.count("pruned", pruned)
        cleared = await self._clear_outboxes()
        if CHUNK in {pruned, cleared}:
            return Proceed()
        self._events.count("mended", await self._store.mend(CHUNK))
        await self._warn_of_unknown_tasks()
        await self._end_unknown_tasks()
        return Sleep(self._every * (0.5 + self._roll()))  # several nodes, not all at once

    async def _clear_outboxes(self) -> int:
        """Clear away messages that are delivered, and dead letters that nobody has to look at any more."""
        if not isinstance(self._store, Outboxes):
            return 0
        cleared = await self._store.clear_messages(CHUNK)
        self._events.count("messages_cleared", cleared)
        self._events.count("letters_cleared", await self._store.clear_letters(LETTERS_KEPT, CHUNK))
        return cleared

    async def _watch_unknown_tasks(self) -> None:
        """Record since when tasks of waiting jobs have been continuously unknown.

        As with the death of nodes, only time that was observed here counts: the clock of the store may have been ahead
        for a while, and a node that has just started cannot detect which others are about to start.
        """
        unknown = await self._store.unknown_tasks(timedelta(0))
        now = self._clock.monotonic()
        is_unbroken = self._looked_at is not None and now - self._looked_at <= 3 * self._every
        before = self._unknown_since if is_unbroken else {}
        self._unknown_since = {name: before.get(name, now) for name in unknown}
        self._looked_at = now

    async def _warn_of_unknown_tasks(self) -> None:
        """Log each unknown task with waiting jobs once."""
        for name in await self._store.unknown_tasks(NOTICE):
            if name not in self._warned:
                self._warned.add(name)
                log.warning(
                    "jobs of %s wait, and no live node knows that task; start workers with the code that has it", name
                )

    async def _end_unknown_tasks(self) -> None:
        seen_by = self._clock.monotonic() - self._grace.total_seconds()
        long_unknown = {name for name, since in self._unknown_since.items() if since <= seen_by}
        for name in await self._store.unknown_tasks(self._grace) if long_unknown else ():
            if name in long_unknown and not name.namespace:  # those of a plugin wait until it is installed again
                await self._end_unknown(name)

    async def _end_unknown(self, name: Name) -> None:
        me = self._me()
        request = ClaimRequest(
            node=me.node,
            term=me.term,
            tasks=frozenset({name}),
            room=CHUNK,
            suspects=CHUNK,
            due_by=self._store.now() - self._grace,
        )
        # Nobody is left who would take it away, and behind it they could only be claimed one by one.
        await self._store.declare_breakers({name: None})
        claimed = await self._store.claim(request)
        for delivery in claimed.deliveries:
            self._settler.put(Ended(claim=delivery.claim, outcome=NoSuchTask(), by=me.node))
        if claimed.deliveries:
            log.warning(
                "%s jobs of %s failed: no node has known the task for %s", len(claimed.deliveries), name, self._grace
            )
