"""Queues over HTTP: how full they are, and how fast they may go."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Final

from msgspec import Meta, Struct

from mainspring.client.known_queues import check_queue
from mainspring.client.look import Depth, QueueLook
from mainspring.client.overview import served
from mainspring.client.searching import overview_of
from mainspring.stores.overview import Overview, QueueRule
from mainspring.stores.port import Store
from mainspring.stores.records import QueueView
from mainspring.web.auth import Permission
from mainspring.web.groups.common import Changed, Reason, Text
from mainspring.web.routes import AnyRoute, Asked, Nothing, Route


class OneQueue(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One queue."""

    name: Text


class PauseQueue(OneQueue, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One queue, and why."""

    reason: Reason = ""


class LimitQueue(OneQueue, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many jobs of a queue run at a time, over all nodes."""

    concurrency: Annotated[int, Meta(ge=1, le=1_000_000)] | None
    """null: as many as code declares."""


class Looked(Struct, frozen=True, kw_only=True):
    """How queues have been doing in the last hour."""

    queues: tuple[QueueLook, ...]
    """All that anybody knows of, by name: tasks and nodes too."""
    counted_at: datetime | None
    """When what waits and runs was counted; null: nobody has yet."""
    complete: bool
    """Whether everything was counted then."""
    counts: bool
    """Whether the store's nodes count at all; if not, what waits is told exactly, and nothing of the past."""


class Queues(Struct, frozen=True, kw_only=True):
    """All queues."""

    queues: tuple[QueueView, ...]
    """Those that have jobs, or are paused."""
    rules: tuple[QueueRule, ...]
    """What holds for queues, where the store can tell."""


async def list_(asked: Asked[Nothing]) -> Queues:
    """List queues, and what holds for them."""
    store = await asked.store()
    rules = await store.queue_rules() if isinstance(store, Overview) else ()
    return Queues(queues=await store.queues(), rules=rules)


async def look(asked: Asked[Nothing]) -> Looked:
    """Say how full queues are, and what happened in them lately, as nodes have counted it: it costs little."""
    store = await asked.store()
    names = {definition.queue for definition in asked.app.registry}
    if not isinstance(store, Overview):
        return Looked(queues=await _counted_now(store, names), counted_at=store.now(), complete=True, counts=False)
    found = await asked.app.overview.queues(also=names)
    return Looked(queues=found.queues, counted_at=found.counted_at, complete=found.complete, counts=True)


async def _counted_now(store: Store, names: Iterable[str]) -> tuple[QueueLook, ...]:
    """What can be said where nobody counts: of what waits nobody knows whether it is due."""
    found = {
        one.name: QueueLook(name=one.name, depth=Depth(due=one.waiting, running=one.running), paused=one.paused)
        for one in await store.queues()
    }
    nodes = [view for view in await store.nodes() if view.alive]
    return tuple(served(found.get(name) or QueueLook(name=name), nodes) for name in sorted({*found, *names}))


async def pause(asked: Asked[PauseQueue]) -> Changed:
    """Let nothing more be claimed from a queue; what runs goes on."""
    store, said = await asked.store(), asked.said
    await check_queue(store, asked.app.registry, said.name)
    changed = await store.pause(said.name, by=asked.by, reason=said.reason)
    return Changed(name=said.name, changed=changed)


async def resume(asked: Asked[OneQueue]) -> Changed:
    """Let a queue go on."""
    store, said = await asked.store(), asked.said
    await check_queue(store, asked.app.registry, said.name)
    return Changed(name=said.name, changed=await store.resume(said.name))


async def limit(asked: Asked[LimitQueue]) -> Changed:
    """Have at most so many jobs of a queue run at a time, over all nodes, until that is taken back."""
    store, said = await asked.store(), asked.said
    role = overview_of(store, "limits of operators")
    await check_queue(store, asked.app.registry, said.name)
    changed = await role.limit_queue(said.name, said.concurrency, by=asked.by)
    return Changed(name=said.name, changed=changed)


ROUTES: Final[tuple[AnyRoute, ...]] = (
    Route("GET", "/queues/list", Permission.QUEUES_LOOK, Nothing, Queues, list_),
    Route("GET", "/queues/look", Permission.QUEUES_LOOK, Nothing, Looked, look),
    Route("POST", "/queues/pause", Permission.QUEUES_PAUSE, PauseQueue, Changed, pause),
    Route("POST", "/queues/resume", Permission.QUEUES_PAUSE, OneQueue, Changed, resume),
    Route("POST", "/queues/limit", Permission.QUEUES_LIMIT, LimitQueue, Changed, limit),
)
