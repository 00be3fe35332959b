"""Outboxes in a SQLite file: what is this store's own choice, and what only its way of keeping them can get wrong."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from mainspring.core.outbox import MOST_PARTITIONS, Stand
from mainspring.errors import DeclarationError, PartitionCountMismatch, StoreUnavailable
from mainspring.stores.outbox import Outboxes
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime
from mainspring.testing.contract import SettableClock, outboxes
from mainspring.testing.contract.outboxes import ORDERS, aside, message, on
from mainspring.testing.contract.verbs.outbox_publish import cleared
from mainspring.testing.contract.verbs.transactions import transactions
from mainspring.testing.contract.verbs.wake import Bell, heard, quiet
from mainspring.testing.contract.world import DAY, HOUR, World
from tests.stores.test_sqlite_nothing import Files

pytestmark = pytest.mark.usefixtures("virtual_time")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def world(path: Path, virtual_time: VirtualTime) -> Iterator[World]:
    clock = SettableClock()
    world = World(Files(path, clock), clock)
    world.store = virtual_time.run(world.open())
    yield world
    virtual_time.run(world.close())


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def test_the_store_plays_the_role(path: Path) -> None:
    store: Outboxes = SqliteStore(path)  # which the type checker takes as it is written

    assert isinstance(store, Outboxes)


# Numbers.


async def test_a_savepoint_of_the_users_takes_its_numbers_back(path: Path, world: World) -> None:
    await outboxes.publish(world, b"1")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for payload, ends in ((b"no", "ROLLBACK TO"), (b"2", "RELEASE"), (b"no", "ROLLBACK TO"), (b"3", "RELEASE")):
            connection.execute("SAVEPOINT mine")
            (one,) = on(world).publish_in_sync(connection, [message(payload, unique=payload.decode())])
            assert one.fresh
            connection.execute(f"{ends} mine")
        connection.execute("COMMIT")

    assert await outboxes.log(world) == [b"1", b"2", b"3"]


async def test_neighbours_are_not_read_though_their_numbers_are_next(world: World) -> None:
    """All messages are in one table, in the order of partitions."""
    for name in ("first", "second"):
        await on(world).register_outbox(name, MOST_PARTITIONS)
    for partition in (0, 1, MOST_PARTITIONS - 1):
        for name in ("first", "second"):
            new = message(f"{name}{partition}".encode(), outbox=name, partitions=MOST_PARTITIONS, partition=partition)
            await on(world).publish([new] * 3)

    for partition in (0, 1, MOST_PARTITIONS - 1):
        for name in ("first", "second"):
            found = await on(world).read_messages(name, partition, 0, 1000)
            assert [one.payload for one in found] == [f"{name}{partition}".encode()] * 3
            assert [(one.outbox, one.partition, one.seq) for one in found] == [
                (name, partition, seq) for seq in (1, 2, 3)
            ]
    for nowhere in (-1, 2, MOST_PARTITIONS, MOST_PARTITIONS + 1):
        assert await on(world).read_messages("first", nowhere, 0, 1000) == ()


async def test_who_reads_from_far_behind_begins_where_messages_are_kept(world: World) -> None:
    node = await world.node()
    await outboxes.publish(world, *[b"1"] * 10)
    await outboxes.advance(world, node, 7)
    assert await cleared(world) == 7

    assert [one.seq for one in await outboxes.read(world, after=0, limit=2)] == [8, 9]


async def test_a_cursor_beyond_the_last_message_clears_nothing_that_is_to_come(world: World) -> None:
    node = await world.node()
    await outboxes.publish(world, b"1")
    await outboxes.advance(world, node, 5)
    assert await cleared(world) == 1
    await outboxes.publish(world, b"2")

    assert [(one.seq, one.payload) for one in await outboxes.read(world)] == [(2, b"2")]


# Clearing.


async def test_what_is_cleared_is_gone_from_the_file(path: Path, world: World) -> None:
    node = await world.node()
    for partition in range(4):
        await outboxes.publish(world, *(str(at).encode() for at in range(25)), partition=partition)
        await outboxes.advance(world, node, 20, partition)
    assert [await on(world).clear_messages(30) for _ in range(4)] == [30, 30, 20, 0]

    assert rows(path, "SELECT count(*) FROM mainspring_messages") == [(20,)]
    (view,) = await on(world).outboxes()
    assert view.kept == 20


async def test_a_text_is_known_while_its_message_is_set_aside(path: Path, world: World) -> None:
    node = await world.node()
    await on(world).publish([message(b"1", key="a", unique="u"), message(b"2", unique="v")])
    first, _ = await outboxes.read(world)
    await outboxes.put_aside(world, node, aside(first, world.now))
    await outboxes.advance(world, node, 2)
    world.clock.advance(3 * DAY)
    await cleared(world)
    assert rows(path, "SELECT text FROM mainspring_unique_texts") == [("u",)]
    assert not (await outboxes.publish(world, b"3", unique="u"))[0].fresh
    await outboxes.bring_back(world, node, 1)
    await on(world).clear_messages(10)

    assert rows(path, "SELECT text FROM mainspring_unique_texts") == []


async def test_texts_go_a_few_at_a_time_and_young_ones_stay(path: Path, world: World) -> None:
    node = await world.node()
    await on(world).publish([message(unique=str(number)) for number in range(10)])
    world.clock.advance(2 * DAY)
    await on(world).publish([message(unique=str(number)) for number in range(10, 20)])
    await outboxes.advance(world, node, 20)
    left = []
    for _ in range(8):
        await on(world).clear_messages(4)
        left += rows(path, "SELECT count(*) FROM mainspring_unique_texts")

    assert left == [(16,), (12,), (10,), (10,), (10,), (10,), (10,), (10,)]


# Transactions.


async def test_a_transaction_of_another_store_is_refused(world: World, tmp_path: Path) -> None:
    other = SqliteStore(tmp_path / "other.db", clock=world.clock)
    await other.open()
    node = await world.node()
    async with other.transaction() as tx:
        with pytest.raises(DeclarationError, match="another store"):
            await on(world).publish_in(tx, [message()])
        with pytest.raises(DeclarationError, match="another store"):
            await on(world).stride_in(tx, node.id, node.term, outboxes.stride(Stand(), Stand()))
    await other.close()


async def test_a_handler_may_go_on_after_a_mistake(world: World) -> None:
    await on(world).register_outbox(ORDERS, 4)
    async with transactions(world).transaction() as tx:
        with pytest.raises(PartitionCountMismatch):
            await on(world).publish_in(tx, [message(b"no", outbox="new"), message(b"no", partitions=8)])
        await on(world).publish_in(tx, [message(b"yes")])

    assert await outboxes.log(world) == [b"yes"]
    assert [one.name for one in await on(world).outboxes()] == [ORDERS]


async def test_who_waits_in_vain_for_the_write_lock_is_told_so(path: Path, world: World) -> None:
    node = await world.node()
    await outboxes.publish(world, b"1")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for verb in (
            outboxes.publish(world, b"2"),
            outboxes.begun(world, node),
            on(world).clear_messages(10),
            on(world).register_outbox("new", 1),
        ):
            with pytest.raises(StoreUnavailable):
                await verb
        assert await outboxes.log(world) == [b"1"]
        connection.execute("ROLLBACK")
    await outboxes.begun(world, node)


# What is cheap.


async def test_many_who_publish_at_once_are_committed_together(path: Path, world: World) -> None:
    """While the first of them is waited for by the disk, all others come; a commit for each would be a hundred."""
    await on(world).register_outbox(ORDERS, 4)
    rings = "SELECT value FROM mainspring_counters WHERE name = 'rings'"
    ((before,),) = rows(path, rings)
    await asyncio.gather(*(outboxes.publish(world, str(number).encode()) for number in range(100)))
    ((after,),) = rows(path, rings)

    assert isinstance(before, int)
    assert isinstance(after, int)
    assert after - before < 20
    assert sorted(await outboxes.log(world)) == sorted(str(number).encode() for number in range(100))


async def test_a_partition_that_is_left_with_nothing_to_deliver_rings_nobody(world: World) -> None:
    node, bell = await world.node(), Bell()
    await outboxes.publish(world, b"1")
    stop = world.store.watch(bell)
    await heard(world, bell)
    held = await outboxes.begun(world, node)
    await quiet(bell)
    assert await outboxes.step(world, node, outboxes.stride(held, Stand(cursor=1)))
    await world.store.renew(node.id, node.term)  # behind it, in the same thread

    assert not bell.is_rung
    stop()


async def test_what_is_set_aside_rings_when_its_partition_is_left(world: World) -> None:
    node, bell = await world.node(), Bell()
    await outboxes.publish(world, b"1")
    (one,) = await outboxes.read(world)
    stop = world.store.watch(bell)
    await heard(world, bell)
    step = replace(outboxes.stride(Stand(), Stand(cursor=1)), aside=(aside(one, world.now + HOUR),))
    assert await outboxes.step(world, node, step)
    await bell.wait()
    stop()
