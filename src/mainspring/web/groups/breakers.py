"""Breakers over HTTP: what stops the jobs of a task that only fails."""

from datetime import datetime
from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from mainspring.client.breakers import BreakerStory
from mainspring.core.breaker import PhaseChange, refusal
from mainspring.stores.records import BreakerView
from mainspring.web.auth import Permission
from mainspring.web.groups.common import Page, QName, Reason
from mainspring.web.routes import AnyRoute, Asked, Route


class ListBreakers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of breakers."""

    changes: Annotated[int, Meta(ge=0, le=20, description="so many of the last changes of each, too")] = 0
    limit: Page = 100
    after: QName | UnsetType = UNSET


class BreakersListed(Struct, frozen=True, kw_only=True):
    """Breakers, by task."""

    now: datetime
    breakers: tuple[BreakerView, ...]
    probes_at: dict[str, datetime]
    """When those that are open let a probe through, unless somebody has forced them open."""
    changes: dict[str, tuple[PhaseChange, ...]]
    """Of the phase of each, the newest first, as far as that was asked for."""
    after: str | None


class ShowBreaker(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One breaker, and how many of its changes."""

    task: QName
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class ForceBreaker(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One breaker, and why."""

    task: QName
    reason: Reason = ""


class Forced(Struct, frozen=True, kw_only=True):
    """What became of it."""

    task: str
    changed: bool
    """False: it was so already."""
    change: PhaseChange | None


async def list_(asked: Asked[ListBreakers]) -> BreakersListed:
    """List the breakers of tasks, by name."""
    said, store = asked.said, await asked.store()
    page = await asked.app.breakers.list(limit=said.limit, after=said.after or None)
    refused = {view.task: refusal(view.rule, view.circuit, page.now) for view in page.breakers}
    changes = {}
    if said.changes:
        for view in page.breakers:
            changes[str(view.task)] = await store.breaker_changes(view.task, limit=said.changes)
    return BreakersListed(
        now=page.now,
        breakers=page.breakers,
        probes_at={str(task): one.until for task, one in refused.items() if one and one.until},
        changes=changes,
        after=page.after,
    )


async def show(asked: Asked[ShowBreaker]) -> BreakerStory:
    """Show a breaker, and the last changes of its state."""
    return await asked.app.breakers.show(asked.said.task, limit=asked.said.limit)


async def open_(asked: Asked[ForceBreaker]) -> Forced:
    """Let no job of a task start until its breaker is reset; what runs goes on."""
    said = asked.said
    return _forced(said, await asked.app.breakers.open(said.task, by=asked.by, reason=said.reason))


async def close(asked: Asked[ForceBreaker]) -> Forced:
    """Let the jobs of a task start, whatever fails, until its breaker is reset."""
    said = asked.said
    return _forced(said, await asked.app.breakers.close(said.task, by=asked.by, reason=said.reason))


async def reset(asked: Asked[ForceBreaker]) -> Forced:
    """Close a breaker, forget its failures, and let it move by itself again."""
    said = asked.said
    return _forced(said, await asked.app.breakers.reset(said.task, by=asked.by, reason=said.reason))


def _forced(said: ForceBreaker, change: PhaseChange | None) -> Forced:
    return Forced(task=said.task, changed=change is not None, change=change)


ROUTES: Final[tuple[AnyRoute, ...]] = (
    Route("GET", "/breakers/list", Permission.BREAKERS_LOOK, ListBreakers, BreakersListed, list_),
    Route("GET", "/breakers/show", Permission.BREAKERS_LOOK, ShowBreaker, BreakerStory, show),
    Route("POST", "/breakers/open", Permission.BREAKERS_FORCE, ForceBreaker, Forced, open_),
    Route("POST", "/breakers/close", Permission.BREAKERS_FORCE, ForceBreaker, Forced, close),
    Route("POST", "/breakers/reset", Permission.BREAKERS_FORCE, ForceBreaker, Forced, reset),
)
