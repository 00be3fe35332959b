"""What a node does so that people can look at the store as a whole: it counts, it reports, and one node takes a census.

Nothing of it is needed to run work. Where the store does not play the role, there is none of it; while the store is in
trouble, it waits and says nothing: everything else that uses the store says so already.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

from mainspring.clock import Clock
from mainspring.core.backoff import Backoff
from mainspring.errors import StoreError
from mainspring.runtime.board import Board
from mainspring.runtime.census import CensusTaker
from mainspring.runtime.claimer import Claimer
from mainspring.runtime.events import Events, log
from mainspring.runtime.keeper import Beat, Membership
from mainspring.runtime.meter import Meter
from mainspring.runtime.reporting import Reporting
from mainspring.runtime.runner import Runner
from mainspring.runtime.services import Services
from mainspring.stores.overview import Overview
from mainspring.supervise import NO_PAUSE, Failed, Service, ServiceEvent, log_failures

LATER: Final = Backoff.exponential("1s", cap="30s", jitter=0.3)


class NodeOverview:
    """All of it, for one node."""

    def __init__(
        self,
        store: Overview,
        events: Events,
        board: Board,
        *,
        runner: Runner,
        claimer: Claimer,
        services: Services,
        now: Callable[[], datetime],
        me: Callable[[], Membership],
        clock: Clock,
    ) -> None:
        self._board = board
        self._meter = Meter(store, events, now=now, me=lambda: me().node, clock=clock)
        events.meter = self._meter
        self._reporting = Reporting(
            store, board, runner, claimer, now=now, me=me, clock=clock, singles=services.singles
        )
        self._census = CensusTaker(store, now=now, me=lambda: me().node, started=lambda: runner.started, clock=clock)

    def start(self, start: Callable[[Service], None]) -> None:
        """Begin: the node has joined."""
        for name, part in (("meter", self._meter), ("reporting", self._reporting), ("census", self._census)):
            listeners = (_log_bugs, self._board.own)
            start(Service(name, part.step, wake=[part.wake], pacing=NO_PAUSE, backoff=LATER, listeners=listeners))

    def renewed(self, beat: Beat) -> None:
        self._census.renewed(beat)

    async def end(self, deadline: float) -> None:
        """Write the last counts, until a deadline on the event loop's clock. A failure must not stop the node's shutdown."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._meter.write()
        except (StoreError, TimeoutError) as error:
            log.debug("the last counts could not be written: %r", error)
        except Exception:  # noqa: BLE001 - a bug in what is for people only
            log.exception("the last counts could not be written")


def _log_bugs(event: ServiceEvent) -> None:
    if isinstance(event, Failed) and not isinstance(event.error, StoreError):
        log_failures(event)
