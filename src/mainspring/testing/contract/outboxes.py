# ruff: noqa: S101 -- a suite of tests is built on assert
"""Short words for what the tests of the contract do with outboxes: publish, look, read, step."""

from datetime import datetime, timedelta
from typing import Final, TypedDict, Unpack

from msgspec.structs import replace

from mainspring.core.outbox import Stand, begin, release
from mainspring.stores.outbox import (
    Aside,
    Letter,
    LetterFilter,
    LetterState,
    Message,
    NewLetter,
    NewMessage,
    Outboxes,
    PartitionsLooked,
    PartitionView,
    Published,
    Stride,
)
from mainspring.stores.port import Store
from mainspring.testing.contract.world import Member, World

ORDERS: Final = "orders"
PARTITIONS: Final = 4
LOOKS: Final = 100
"""So often somebody else may be giving numbers; more is no coincidence."""


class Fields(TypedDict, total=False):
    """What may be said about a new message beside its payload."""

    outbox: str
    partitions: int
    partition: int
    type: str
    key: str | None
    unique: str | None
    traceparent: str | None


def on(world: World, store: Store | None = None) -> Outboxes:
    """Return the store in the role that is under test."""
    store = store or world.store
    assert isinstance(store, Outboxes)
    return store


def message(payload: bytes = b"{}", **fields: Unpack[Fields]) -> NewMessage:
    defaults = Fields(outbox=ORDERS, partitions=PARTITIONS, partition=0, type="order")
    return NewMessage(**(defaults | fields), payload=payload)


async def publish(world: World, *payloads: bytes, **fields: Unpack[Fields]) -> tuple[Published, ...]:
    """Publish messages that are alike but for their payloads."""
    return await on(world).publish([message(one, **fields) for one in payloads])


async def look(world: World, *outboxes: str, store: Store | None = None) -> PartitionsLooked:
    """Look until everything that is committed has its number."""
    for _ in range(LOOKS):
        looked = await on(world, store).look_at_partitions(outboxes or (ORDERS,))
        if looked.is_sequenced:
            return looked
    raise AssertionError("somebody else is giving numbers all the time, and there is nobody else")


async def view(world: World, partition: int = 0, *, outbox: str = ORDERS) -> PartitionView:
    looked = await look(world, outbox)
    return looked.partitions[partition]


async def stand(world: World, partition: int = 0, *, outbox: str = ORDERS) -> Stand:
    return (await view(world, partition, outbox=outbox)).stand


async def read(
    world: World,
    partition: int = 0,
    *,
    after: int = 0,
    limit: int = 1000,
    outbox: str = ORDERS,
    store: Store | None = None,
) -> tuple[Message, ...]:
    """Read what is there by now."""
    await look(world, outbox, store=store)
    return await on(world, store).read_messages(outbox, partition, after, limit)


async def log(world: World, partition: int = 0, *, outbox: str = ORDERS, store: Store | None = None) -> list[bytes]:
    """Read the payloads of a partition from its first message on, none of which may be missing."""
    messages = await read(world, partition, outbox=outbox, store=store)
    assert [one.seq for one in messages] == list(range(1, len(messages) + 1))
    return [one.payload for one in messages]


# The delivery of a partition.


def stride(before: Stand, after: Stand, partition: int = 0, *, outbox: str = ORDERS) -> Stride:
    after = replace(after, revision=before.revision + 1)
    return Stride(outbox=outbox, partition=partition, before=before.revision, after=after)


async def step(world: World, node: Member, one: Stride, *, store: Store | None = None) -> bool:
    (accepted,) = await on(world, store).stride(node.id, node.term, [one])
    return accepted


async def begun(world: World, node: Member, given: int = 1, partition: int = 0, *, outbox: str = ORDERS) -> Stand:
    """Have a node begin a delivery."""
    before = await stand(world, partition, outbox=outbox)
    after = begin(before, node.id, given)
    assert await step(world, node, stride(before, after, partition, outbox=outbox))
    return after


async def advance(world: World, node: Member, cursor: int, partition: int = 0, *, outbox: str = ORDERS) -> Stand:
    """Have a node say that everything up to there is done, and leave."""
    before = await stand(world, partition, outbox=outbox)
    after = replace(release(before), cursor=cursor)
    assert await step(world, node, stride(before, after, partition, outbox=outbox))
    return after


async def put_aside(world: World, node: Member, *asides: Aside, partition: int = 0) -> None:
    """Set messages aside, or write what they are like now, beside whatever else stands."""
    before = await stand(world, partition)
    assert await step(world, node, replace(stride(before, before, partition), aside=asides))


async def bring_back(world: World, node: Member, *seqs: int, partition: int = 0) -> None:
    before = await stand(world, partition)
    assert await step(world, node, replace(stride(before, before, partition), back=seqs))


def aside(one: Message, retry_at: datetime | None = None, *, attempts: int = 1, error: str = "no") -> Aside:
    return Aside(message=one, attempts=attempts, retry_at=retry_at, error=error)


# Dead letters.


async def bury(world: World, node: Member, *payloads: bytes, **fields: Unpack[Fields]) -> tuple[Letter, ...]:
    """Publish messages and have each become a dead letter, in order; returns these letters."""
    there = {one.id for one in await dead(world)}
    known = message(**fields)
    for payload in payloads:
        await publish(world, payload, **fields)
        before = await stand(world, known.partition, outbox=known.outbox)
        (one,) = await read(world, known.partition, after=before.cursor, limit=1, outbox=known.outbox)
        letter = NewLetter(message=one, attempts=3, error="no")
        after = stride(before, replace(before, cursor=one.seq), known.partition, outbox=known.outbox)
        assert await step(world, node, replace(after, letters=(letter,)))
    return tuple(sorted((one for one in await dead(world) if one.id not in there), key=lambda one: one.id))


async def dead(
    world: World, *states: LetterState, which: LetterFilter | None = None, limit: int = 1000
) -> tuple[Letter, ...]:
    """Read dead letters, in whatever state if none is named."""
    wanted = which or LetterFilter(states=states or tuple(LetterState))
    return (await on(world).letters(wanted, limit=limit)).letters


async def taken(world: World, within: timedelta) -> tuple[Letter, ...]:
    """Take all that can be taken."""
    return await on(world).take_letters(LetterFilter(), within, 1000)
