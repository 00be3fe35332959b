"""Outboxes over HTTP: how far behind they are, and what was given up."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from mainspring.client.audit import letters_named
from mainspring.client.lags import Lag, lags, views_of
from mainspring.client.letters import outboxes_of
from mainspring.errors import PartitionOutOfRange
from mainspring.stores.outbox import LetterFilter, LetterPage, LetterState, Outboxes, OutboxView
from mainspring.web.auth import Permission
from mainspring.web.groups.common import Page, Text
from mainspring.web.problems import Problem
from mainspring.web.routes import AnyRoute, Asked, Nothing, Route

Number = Annotated[int, Meta(ge=0, le=1_000_000)]
LetterId = Annotated[int, Meta(ge=1, le=2**63 - 1)]


class OutboxesListed(Struct, frozen=True, kw_only=True):
    """All outboxes."""

    outboxes: tuple[OutboxView, ...]
    lags: tuple[Lag, ...]
    """How far behind each partition is."""


class Meant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters; all that is said must hold."""

    outbox: Text | UnsetType = UNSET
    partition: Number | UnsetType = UNSET
    type: Text | UnsetType = UNSET
    key: Text | UnsetType = UNSET


class ListLetters(Meant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of dead letters."""

    id: LetterId | UnsetType = UNSET
    state: Annotated[str, Meta(max_length=100, description="states with commas between them")] = "pending"
    limit: Page = 50
    after: Text | UnsetType = UNSET


class Letters(Meant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dead letters by their ids, or as many of an outbox as the limit says, the oldest failure first."""

    ids: Annotated[list[LetterId], Meta(min_length=1, max_length=500)] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=500)] = 100

    @property
    def about(self) -> str:
        return letters_named(
            self.outbox or None,
            self.ids or (),
            partition=None if self.partition is UNSET else self.partition,
            type_=self.type or None,
            has_key=bool(self.key),
        )


class Done(Struct, frozen=True, kw_only=True):
    """To how many it was done."""

    changed: int


async def list_(asked: Asked[Nothing]) -> OutboxesListed:
    """List outboxes, by name, and how far behind their partitions are."""
    store = await _outboxes(asked)
    found = await store.outboxes()
    looked = await lags(store, [one.name for one in found])
    return OutboxesListed(outboxes=found, lags=looked.lags)


async def letters(asked: Asked[ListLetters]) -> LetterPage:
    """List dead letters, the newest failure first."""
    store, said = await _outboxes(asked), asked.said
    which = await _filter(store, said, None if said.id is UNSET else (said.id,), _states(said.state))
    try:
        return await store.letters(which, limit=said.limit, after=said.after or None)
    except ValueError:  # only `after` has a form that a store has to read
        raise Problem(422, "invalid", "`after` is what a page has answered, as it is") from None


async def replay(asked: Asked[Letters]) -> Done:
    """Put dead letters back at the end of their partitions, to be delivered again."""
    store = await _outboxes(asked)
    return await _act(asked, store, store.replay_letters)


async def discard(asked: Asked[Letters]) -> Done:
    """Give up dead letters for good. They are kept for a while, and can be looked at."""
    store = await _outboxes(asked)
    return await _act(asked, store, store.discard_letters)


async def _act(asked: Asked[Letters], store: Outboxes, act: Callable[[LetterFilter, int], Awaitable[int]]) -> Done:
    said = asked.said
    if said.outbox is UNSET and said.ids is UNSET:
        raise Problem(422, "invalid", "say which dead letters: by `ids`, or of which `outbox`")
    ids = None if said.ids is UNSET else tuple(said.ids)
    limit = said.limit if ids is None else len(ids)
    return Done(changed=await act(await _filter(store, said, ids), limit))


async def _filter(
    store: Outboxes,
    said: Meant,
    ids: tuple[int, ...] | None,
    states: tuple[LetterState, ...] = (LetterState.PENDING,),
) -> LetterFilter:
    """Read what is meant, and raise where nothing could ever be found."""
    partition = None if said.partition is UNSET else said.partition
    if said.outbox:
        (view,) = await views_of(store, [said.outbox])
        if partition is not None and partition >= view.partitions:
            raise PartitionOutOfRange(view.name, partition, view.partitions)
    elif partition is not None:
        raise Problem(422, "invalid", "a `partition` counts within an `outbox`; say which")
    return LetterFilter(
        ids=ids,
        outbox=said.outbox or None,
        partition=partition,
        type=said.type or None,
        key=said.key or None,
        states=states,
    )


def _states(text: str) -> tuple[LetterState, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in list(LetterState)]
    if unknown or not words:
        raise Problem(422, "invalid", f"`state` takes some of {', '.join(LetterState)}")
    return tuple(LetterState(word) for word in words)


async def _outboxes(asked: Asked[Any]) -> Outboxes:
    return outboxes_of(await asked.store(), "of this store")


ROUTES: Final[tuple[AnyRoute, ...]] = (
    Route("GET", "/outboxes/list", Permission.OUTBOXES_LOOK, Nothing, OutboxesListed, list_),
    Route("GET", "/outboxes/letters", Permission.OUTBOXES_LOOK, ListLetters, LetterPage, letters),
    Route("POST", "/outboxes/replay", Permission.OUTBOXES_REPLAY, Letters, Done, replay),
    Route("POST", "/outboxes/discard", Permission.OUTBOXES_DISCARD, Letters, Done, discard),
)
