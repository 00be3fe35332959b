"""Keeps the node's leases: joins, renews, and joins again under a new id if the node was declared dead.

It runs in a thread of its own, so that a handler that blocks the event loop costs no lease. What it learns it hands to
the event loop: what the store believes that the node holds, orders for it, and how the other nodes stand.
"""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from mainspring.clock import Clock
from mainspring.core.backoff import Backoff
from mainspring.core.job import NodeId
from mainspring.errors import NodeGone
from mainspring.runtime.events import log
from mainspring.runtime.stacks import stacks
from mainspring.stores.port import Nodes
from mainspring.stores.records import NodeRecord, Pulse
from mainspring.supervise import Directive, Proceed, Sleep

BLOCKED: Final = 10.0  # seconds after which an event loop that does not answer is worth a line


def renewal_backoff(beat: float) -> Backoff:
    """Return how soon a renewal that failed is repeated: after an outage of the store, before others count a silence."""
    return Backoff.fixed(min(1.0, beat / 3), jitter=0.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Under which id and term the node is known at present."""

    node: NodeId
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A renewal that went through."""

    pulse: Pulse
    began: float
    """When it was sent off, by the monotonic clock: what was committed before is in its answer."""
    answered: float
    """When its answer came: what was committed after is not in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ears:
    """Who is told of what; all are called on the node's event loop."""

    joined: Callable[[Membership], None]
    renewed: Callable[[Beat], None]
    gone: Callable[[], None]


class Keeper:
    """The step of a service that may run on another loop than the node's."""

    def __init__(
        self, store: Nodes, record: Callable[[], NodeRecord], *, beat: float, clock: Clock, ears: Ears
    ) -> None:
        self._store = store
        self._record = record
        self._beat = beat
        self._clock = clock
        self._ears = ears
        self._home = asyncio.get_running_loop()
        self.renewed_at: float | None = None
        """When the last renewal that succeeded was sent, by the monotonic clock; None before the node has joined.

        Written by the keeper's thread, so that it is right while the event loop is blocked and its callbacks wait.
        """
        self._membership: Membership | None = None
        self._asked: float | None = None
        """Since when the event loop owes an answer. Not since it gave one: while the store is away it is not asked."""
        self._complained = False

    async def step(self) -> Directive:
        if self._membership is None:
            return await self._join()
        return await self._renew(self._membership)

    async def _join(self) -> Directive:
        began = self._clock.monotonic()
        record = self._record()
        node = NodeId(f"{record.id}-{secrets.token_hex(4)}")
        term = await self._store.join(replace(record, id=node))
        self._membership = Membership(node=node, term=term)
        self.renewed_at = began
        self._tell(self._ears.joined, self._membership)
        return Proceed()

    async def _renew(self, membership: Membership) -> Directive:
        began = self._clock.monotonic()
        try:
            pulse = await self._store.renew(membership.node, membership.term)
        except NodeGone:
            log.error("node %s was declared dead; its work is stopped, and it goes on under a new id", membership.node)
            self._membership = None
            self._tell(self._ears.gone)
            return Proceed()
        self.renewed_at = began
        self._tell(self._ears.renewed, Beat(pulse=pulse, began=began, answered=self._clock.monotonic()))
        self._watch_the_loop()
        return Sleep(self._beat)

    def _watch_the_loop(self) -> None:
        """Say so when the node's event loop does not answer: its leases are kept, but nothing of it gets on."""
        now = self._clock.monotonic()
        if self._asked is None:
            self._asked = now
            self._tell(self._answer)
        elif now - self._asked > BLOCKED and not self._complained:
            self._complained = True
            log.error(
                "the event loop has not answered for %.0f s; something blocks it:\n%s", now - self._asked, stacks()
            )

    def _answer(self) -> None:
        self._asked = None
        self._complained = False

    def _tell(self, ear: Callable[..., None], *what: object) -> None:
        if not self._home.is_closed():
            self._home.call_soon_threadsafe(ear, *what)
