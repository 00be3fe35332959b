"""The services of an app on one node: started with it, and ended before its running jobs are given up.

A plain service runs on every node; a singleton stands for election on every node, and runs on one (`single`). The order
of the end is that of the node itself: first what runs, then the leases under which it ran.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from mainspring.clock import Clock
from mainspring.core.backoff import Backoff
from mainspring.core.job import NodeId
from mainspring.core.liveness import LONGEST_BEAT
from mainspring.core.names import Name
from mainspring.duration import duration, seconds
from mainspring.runtime.board import Board
from mainspring.runtime.events import Events, log
from mainspring.runtime.keeper import Beat
from mainspring.runtime.named_lease import NamedLease
from mainspring.runtime.service import ServiceContext, ServiceDefinition
from mainspring.runtime.single import Single
from mainspring.settings import NodeSettings
from mainspring.stores.port import Store
from mainspring.stores.records import NodeView
from mainspring.supervise import NO_PAUSE, Listener, Service, Stop, TaskEnd, TaskSet, log_failures

GRACE: Final = 10.0  # seconds that a step under way may take to finish once shutdown has begun
LAST_WORDS: Final = 2.0  # seconds that giving up all leases may take; they run out by themselves
SILENT: Final = 2 * LONGEST_BEAT  # seconds; whoever has not renewed for so long has trouble at least


class Services:
    """All of them. `definitions` may grow while the node runs: `start` begins what is new."""

    def __init__(
        self,
        definitions: Mapping[Name, ServiceDefinition],
        store: Store,
        events: Events,
        *,
        me: Callable[[], NodeId],
        settings: NodeSettings,
        clock: Clock,
        board: Board | None = None,
    ) -> None:
        self._definitions = definitions
        self._store = store
        self._events = events
        self._me = me
        self._settings = settings
        self._clock = clock
        self._board = board
        self._listeners: tuple[Listener, ...] = (board.others,) if board else ()
        self._has_begun = False
        self._begun: dict[Name, ServiceDefinition] = {}
        self._retiring: set[Name] = set()
        self._singles: tuple[Single, ...] = ()
        self._neighbours = Neighbours()
        self._running = TaskSet(on_end=self._has_ended)
        self._keeping = TaskSet(on_end=self._keeper_has_ended)

    # While the node runs.

    def start(self) -> None:
        """Begin what has been declared and does not run yet."""
        self._has_begun = True
        self.refresh()

    def refresh(self) -> None:
        """Begin what has been declared since, and stop what is not declared any more."""
        if self._running.stop.is_set() or not self._has_begun:
            return
        definitions = dict(self._definitions)
        gone = [name for name, begun in self._begun.items() if definitions.get(name) is not begun]
        for name in gone:
            if name not in self._retiring:
                self._retire(name)
        for name, definition in definitions.items():
            if name not in self._begun:
                self._begun[name] = definition
                self._begin(definition)

    def _retire(self, name: Name) -> None:
        """Stop one. Until it has really stopped it counts as begun, whatever is declared meanwhile."""
        single = next((single for single in self._singles if single.name == str(name)), None)
        if single is not None:
            self._retiring.add(name)
            single.retire(lambda: self._keeping.cancel(_keeper_of(single.name)))  # `_keeper_has_ended` hears of it
        elif str(name) in self._running.running:
            self._retiring.add(name)
            self._running.cancel(str(name))  # `_has_ended` hears of it
        else:
            self._begun.pop(name, None)

    def _retired(self, name: Name) -> None:
        self._retiring.discard(name)
        self._begun.pop(name, None)
        if self._board:
            self._board.forget(str(name), _keeper_of(str(name)))
        self.refresh()

    def _keeper_has_ended(self, end: TaskEnd) -> None:
        for name in [name for name in self._retiring if _keeper_of(str(name)) == end.name]:
            self._singles = tuple(single for single in self._singles if single.name != str(name))
            self._retired(name)

    def hint(self) -> None:
        """Let those who stand by look whether a lease is free; may be called from any thread."""
        for single in self._singles:
            single.hint()

    def renewed(self, beat: Beat) -> None:
        """Look at the other nodes, as a renewal has found them, and begin what was declared since."""
        self.refresh()
        if self._neighbours.is_one_missing(beat.pulse.nodes, beat.began):
            for single in self._singles:
                single.alert()

    def _begin(self, definition: ServiceDefinition) -> None:
        if definition.is_singleton:
            self._elect(definition)
            return
        context = ServiceContext(str(definition.name), node=self._me, stopping=self._running.stop.is_set)
        self._running.start(definition.service(lambda: definition.step(context), self._listeners))

    def _elect(self, definition: ServiceDefinition) -> None:
        name = str(definition.name)
        lease = NamedLease(
            self._store,
            f"service:{name}",  # apart from the users' own locks
            self._me(),
            definition.ttl or duration(self._settings.lease),
            clock=self._clock,
            subject=f"the lease of service {name}",
        )
        stop_grace = seconds(self._settings.stop_grace)
        single = Single(
            definition,
            lease,
            self._running,
            self._events,
            me=self._me,
            clock=self._clock,
            stop_grace=stop_grace,
            listeners=self._listeners,
        )
        self._singles = (*self._singles, single)
        again = Backoff.fixed(lease.beat / 3, jitter=0.3)
        own = (log_failures, self._board.own) if self._board else (log_failures,)
        self._keeping.start(
            Service(_keeper_of(name), single.step, wake=[single.wake], pacing=NO_PAUSE, backoff=again, listeners=own)
        )

    def _has_ended(self, end: TaskEnd) -> None:
        for single in self._singles:
            if single.name == end.name:  # a tenure is over: the next one may begin
                single.wake.notify_one()
                return
        if (name := Name.parse(end.name)) in self._retiring:
            self._retired(name)

    def singles(self) -> dict[str, bool]:
        """Name the singletons that stand for election here, and say which of them run here."""
        return {single.name: single.lease.held for single in self._singles}

    # The end.

    async def end(self, *, grace: float, hurry: Stop) -> tuple[str, ...]:
        """Let steps finish for a while, cancel them, and give up the leases; returns the names of who would not stop."""
        grace = min(grace, GRACE)
        await self._stop_running(grace, grace + seconds(self._settings.stop_grace) + 1, hurry)
        await self._keeping.shutdown(grace=1, deadline=2)
        await self._resign()
        return (*self._running.running, *(single.name for single in self._singles if single.is_stuck))

    async def _stop_running(self, grace: float, deadline: float, hurry: Stop) -> None:
        stopping = asyncio.ensure_future(self._running.shutdown(grace=grace, deadline=deadline))
        hurried = asyncio.ensure_future(hurry.wait())
        await asyncio.wait([stopping, hurried], return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        stopping.cancel()  # which takes away the grace time, and does nothing to one that is done
        await asyncio.wait([stopping])

    async def _resign(self) -> None:
        """Give up all leases; but who is stuck keeps its own until that runs out, so that nobody begins at once."""
        try:
            async with asyncio.timeout(LAST_WORDS):
                await asyncio.gather(*(single.lease.resign() for single in self._singles if not single.is_stuck))
        except TimeoutError:
            log.warning("the leases of services could not be given up within %g s; they run out", LAST_WORDS)


def _keeper_of(name: str) -> str:
    return f"lease of {name}"


class Neighbours:
    """Notices that a node is missing, or has not renewed for a while: the first sign that a lease may become free."""

    def __init__(self) -> None:
        self._seen: dict[NodeId, tuple[int, float]] = {}
        """The counter of each, and since when it stands there."""

    def is_one_missing(self, views: Iterable[NodeView], now: float) -> bool:
        before, self._seen = self._seen, {}
        for view in views:
            node = view.node.id
            counter, since = before.get(node, (view.counter, now))
            self._seen[node] = (counter, since) if counter == view.counter else (view.counter, now)
        return bool(before.keys() - self._seen) or any(now - since > SILENT for _, since in self._seen.values())
