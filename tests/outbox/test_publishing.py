"""What a program says about an outbox, and what it publishes there."""

import asyncio
import sqlite3
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, assert_type

import pytest

from mainspring import Mainspring, Message
from mainspring.client.outbox import Outbox
from mainspring.core.outbox import LARGEST_PAYLOAD, Stand
from mainspring.core.outbox import Order as OrderOf
from mainspring.errors import (
    BadOutboxName,
    BadPayloadType,
    DeclarationError,
    NameTaken,
    PartitionCountMismatch,
    PartitionOutOfRange,
    PayloadError,
    PayloadTooLarge,
    UnknownOutbox,
)
from mainspring.outbox import Outgoing
from mainspring.outbox.definition import declare_handler
from mainspring.outbox.message import Batch
from mainspring.outbox.tuning import PROFILES, Profile, Tuning
from mainspring.stores.outbox import Stride
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime
from tests.outbox.conftest import all_done, ghost, has_pruned, outboxes


@dataclass(frozen=True)
class Order:
    id: int
    item: str


@dataclass(frozen=True)
class Refund:
    order: int


async def kept(app: Mainspring, name: str = "orders") -> list[Any]:
    (view,) = await outboxes(app).outboxes()
    await outboxes(app).look_at_partitions([name])  # which gives them their numbers
    found = [await outboxes(app).read_messages(name, number, 0, 1000) for number in range(view.partitions)]
    return [message for messages in found for message in messages]


async def test_a_payload_comes_back_as_what_it_was(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1, payload=(Order, Refund))
    came: list[tuple[str, Order | Refund]] = []

    @orders.handler
    async def deliver(message: Message[Order | Refund]) -> None:
        came.append((message.type, message.payload))

    async with app, app.node():
        await orders.publish_many(None, [Order(1, "tea"), Refund(1)])
        await all_done(orders)

    assert came == [("Order", Order(1, "tea")), ("Refund", Refund(1))]


async def test_types_may_have_names_of_their_own(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1, payload={"order.v1": Order, "refund.v1": Refund})

    async with app:
        await orders.publish_many(None, [Refund(1), Order(1, "tea")])
        assert [message.type for message in await kept(app)] == ["refund.v1", "order.v1"]


async def test_bytes_are_carried_as_they_are_and_anything_else_as_json(app: Mainspring) -> None:
    raw = app.outbox("orders", partitions=1, payload=bytes)

    async with app:
        await raw.publish(None, b"")
        await raw.publish(None, b"\x00\xff")
        assert [(message.type, message.payload) for message in await kept(app)] == [
            ("bytes", b""),
            ("bytes", b"\x00\xff"),
        ]
        with pytest.raises(PayloadError, match="bytes"):
            await raw.publish(None, "text")  # type: ignore[arg-type]  # what is tried
        anything = app.outbox("anything", partitions=1)
        await anything.publish(None, {"a": [1, None]})


async def test_a_payload_may_have_64_kib_and_not_a_byte_more(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1, payload=bytes)

    async with app:
        await orders.publish(None, b"x" * LARGEST_PAYLOAD)
        with pytest.raises(PayloadTooLarge) as caught:
            await orders.publish(None, b"x" * (LARGEST_PAYLOAD + 1))
        assert (caught.value.size, caught.value.limit) == (65_537, 65_536)
        text = app.outbox("text", partitions=1, payload=str)
        frame = len('{"v":1,"value":""}')
        await text.publish(None, "x" * (LARGEST_PAYLOAD - frame))
        with pytest.raises(PayloadTooLarge):
            await text.publish(None, "x" * (LARGEST_PAYLOAD - frame + 1))


@pytest.mark.parametrize(
    "wrong",
    [
        Outgoing("text"),
        Outgoing(Order(1, "tea"), partition=8),
        Outgoing(Order(1, "tea"), partition=-1),
        Outgoing(Order(1, "tea"), key="a\0b"),
        Outgoing(Order(1, "tea"), unique="x" * 2000),
        Outgoing(Order(1, "x" * LARGEST_PAYLOAD)),
    ],
)
async def test_everything_is_checked_before_anything_is_written(app: Mainspring, wrong: Outgoing[Any]) -> None:
    orders = app.outbox("orders", payload=Order)

    async with app:
        with pytest.raises((DeclarationError, PayloadError)):
            await orders.publish_many(None, [Order(1, "tea"), wrong, Order(2, "milk")])
        assert await outboxes(app).outboxes() == ()


async def test_a_partition_that_is_not_there_is_refused(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=4)

    async with app:
        await orders.publish(None, 1, partition=3)
        with pytest.raises(PartitionOutOfRange) as caught:
            await orders.publish(None, 1, partition=4)
    assert (caught.value.partition, caught.value.partitions) == (4, 4)


async def test_messages_without_a_key_are_spread_over_the_partitions(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=8)

    async with app:
        await orders.publish_many(None, range(200))
        assert {message.partition for message in await kept(app)} == set(range(8))


async def test_an_outbox_keeps_its_number_of_partitions(app: Mainspring, store: Any) -> None:  # noqa: ANN401 - any store
    async with app:
        await app.outbox("orders", partitions=4).publish(None, 1)
        other = Mainspring(store=store, clock=app.clock).outbox("orders", partitions=8)
        with pytest.raises(PartitionCountMismatch) as caught:
            await other.publish(None, 1)
        assert (caught.value.expected, caught.value.found) == (8, 4)
        second = Mainspring(store=store, clock=app.clock)
        second.outbox("orders", partitions=8)
        with pytest.raises(PartitionCountMismatch):
            async with second.node():
                pass


async def test_a_node_makes_the_outboxes_of_its_program(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=2)

    async with app:
        with pytest.raises(UnknownOutbox):
            await orders.stats()
        async with app.node():
            assert len(await orders.stats()) == 2


def test_names_and_types_are_checked_where_they_are_declared() -> None:
    app = Mainspring("memory://")

    with pytest.raises(BadOutboxName):
        app.outbox("orders!")
    with pytest.raises(BadPayloadType):
        app.outbox("orders", payload={"ä": Order})
    with pytest.raises(DeclarationError, match="power of two"):
        app.outbox("orders", partitions=3)
    with pytest.raises(DeclarationError, match="carries nothing"):
        app.outbox("orders", payload=())
    with pytest.raises(DeclarationError):
        app.outbox("orders", payload=object())
    app.outbox("orders")
    with pytest.raises(NameTaken):
        app.outbox("orders")


def test_an_outbox_has_one_handler() -> None:
    orders = Mainspring("memory://").outbox("orders")

    @orders.handler
    async def first(_: Message[int]) -> None: ...

    with pytest.raises(DeclarationError, match="it has a handler"):

        @orders.handler
        async def second(_: Message[int]) -> None: ...


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "maybe"}, "mode is 'leased' or 'transactional'"),
        ({"order": "none"}, "order is 'partition' or 'key'"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"timeout": 0}, "timeout of nothing"),
        ({"timeout": "soon"}, "no valid duration"),
        ({"size": 0}, "size is a number"),
        ({"batch": 10}, "batch is True or False"),
        ({"profile": "brisk"}, "there is no 'brisk'"),
        ({"min_interval": "2s"}, "longer than active_interval"),
        ({"retry_base": 0}, "longer than nothing"),
        ({"retry_base": "2m"}, "longer than retry_max"),
        ({"degrade_after": 0}, "degrade_after"),
        ({"colour": "red"}, "no option `colour`"),
        ({"mode": "transactional"}, "`async def handle(message, tx)`"),
    ],
)
def test_what_is_wrong_with_a_handler_is_told_where_it_is_declared(options: dict[str, Any], told: str) -> None:
    async def handler(_: Message[int]) -> None: ...

    with pytest.raises(DeclarationError) as caught:
        declare_handler("orders", handler, options)  # type: ignore[arg-type]  # what is tried
    assert told in str(caught.value)


def test_functions_that_cannot_be_handlers() -> None:
    def in_a_thread(_message: object, _tx: object) -> None: ...

    def generator(_message: object) -> Any:  # noqa: ANN401 - whatever it yields
        yield

    with pytest.raises(DeclarationError, match="async def"):
        declare_handler("orders", in_a_thread, {"mode": "transactional"})
    with pytest.raises(DeclarationError, match="takes what is delivered, and nothing else"):
        declare_handler("orders", in_a_thread, {})
    with pytest.raises(DeclarationError, match="generator"):
        declare_handler("orders", generator, {})
    with pytest.raises(DeclarationError, match="is a function"):
        declare_handler("orders", Order, {})


def seconds(*durations: timedelta | str | float) -> list[float]:
    from mainspring.duration import seconds as read  # noqa: PLC0415 - beside its namesake

    return [read(one) for one in durations]


@pytest.mark.parametrize(
    ("profile", "values"),
    [
        ("default", (10, 0.1, 0.5, 0.05, 1, 60, 2)),
        ("low_latency", (10, 0.001, 0.002, 0.001, 0.1, 10, 3)),
        ("high_throughput", (100, 0.001, 0.02, 0.002, 1, 60, 2)),
        ("relaxed", (10, 0.1, 0.5, 0.05, 5, 300, 1)),
    ],
)
def test_profiles(profile: str, values: tuple[float, ...]) -> None:
    tuning = PROFILES[Profile(profile)]

    found = (
        tuning.size,
        *seconds(tuning.min_interval, tuning.active_interval, tuning.ramp_step, tuning.retry_base, tuning.retry_max),
        tuning.degrade_after,
    )
    assert found == pytest.approx(values)


def test_what_is_said_beside_a_profile_outweighs_it() -> None:
    async def handler(_: Message[int]) -> None: ...

    handler_of_it = declare_handler(
        "orders", handler, {"profile": "high_throughput", "retry_base": "3s", "order": "key"}
    )
    by_hand = declare_handler("orders", handler, {"profile": Tuning(size=7), "degrade_after": 5})

    assert (handler_of_it.rules.batch, handler_of_it.rules.backoff.initial) == (100, timedelta(seconds=3))
    assert handler_of_it.rules.order is OrderOf.KEY
    assert (by_hand.rules.batch, by_hand.rules.degrade_after, by_hand.rules.max_attempts) == (7, 5, 10)
    assert by_hand.timeout == timedelta(seconds=30)


# In transactions of the user's own.


def test_a_message_is_there_when_the_users_transaction_commits_or_never(tmp_path: Path) -> None:
    app = Mainspring(store=SqliteStore(tmp_path / "jobs.db", durable=False))
    orders = app.outbox("orders", partitions=1)
    app._connection.store_sync()
    connection = sqlite3.connect(tmp_path / "jobs.db")

    connection.execute("BEGIN IMMEDIATE")
    orders.publish_sync(connection, 1, unique="once")
    connection.rollback()
    connection.execute("BEGIN IMMEDIATE")
    published = orders.publish_many_sync(connection, [Outgoing(2, unique="once"), Outgoing(3, unique="once"), 4])
    connection.commit()
    connection.close()
    alone = orders.publish_sync(None, 5)

    assert [one.fresh for one in published] == [True, False, True]
    assert alone.fresh
    found = app._connection.wait_for(lambda: kept(app))
    assert [message.payload for message in found] == [f'{{"v":1,"value":{number}}}'.encode() for number in (2, 4, 5)]
    app.close_sync()


async def test_a_store_without_transactions_says_so(memory_app: Mainspring) -> None:
    orders = memory_app.outbox("orders")

    async with memory_app:
        with pytest.raises(DeclarationError, match="leave tx out"):
            await orders.publish(object(), 1)
        with pytest.raises(DeclarationError, match="leave tx out"):
            orders.publish_sync(object(), 1)


# Jobs.


async def test_messages_become_jobs_once_each(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=2, payload=Order)
    done: list[int] = []

    @app.task(name="ship")
    async def ship(order: Order) -> None:
        done.append(order.id)

    orders.to(ship)
    async with app, app.node():
        for number in range(30):
            await orders.publish(None, Order(number, "tea"), key=number)
        await all_done(orders)
        assert len((await app.jobs(task="ship")).jobs) == 30

    assert sorted(done) == list(range(30))


async def test_a_message_that_is_delivered_again_after_a_crash_is_still_the_same_job(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    done: list[int] = []

    @app.task(name="ship")
    async def ship(number: int) -> None:
        done.append(number)

    orders.to(ship)
    async with app:
        async with app.node() as first:
            await has_pruned(first)
            await orders.publish_many(None, range(10))
            await all_done(orders)
        node, term = await ghost(app)
        before = (await orders.stats())[0].view.stand.revision
        forgotten = Stride(outbox="orders", partition=0, before=before, after=Stand(revision=before + 1))
        assert await outboxes(app).stride(node, term, [forgotten]) == (True,)
        async with app.node():
            await all_done(orders)
            assert (await orders.stats())[0].counts.acknowledged == 20
            assert len((await app.jobs(task="ship")).jobs) == 10

    assert done == list(range(10))


async def test_a_message_that_was_handed_on_twice_is_one_job(app: Mainspring) -> None:
    from mainspring.client.outbox import job_of  # noqa: PLC0415 - what the others have no need of

    orders = app.outbox("orders", partitions=1)

    async with app:
        await orders.publish_many(None, [1, 2])
        one, two = await kept(app)
        assert job_of(one) == job_of(one) != job_of(two)
        assert job_of(one).version == 7


async def test_a_message_that_the_task_cannot_take_becomes_a_dead_letter(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    done: list[int] = []

    @app.task(name="count")
    async def count(number: int) -> None:
        done.append(number)

    orders.to(count)
    async with app, app.node():
        await orders.publish_many(None, [1, "two", 3, "four", 5])
        await all_done(orders)
        letters = (await orders.letters()).letters
        page = await app.jobs(task="count")
        assert len(page.jobs) == 3

    assert sorted(letter.message.seq for letter in letters) == [2, 4]
    assert sorted(done) == [1, 3, 5]


# Dead letters.


async def buried(app: Mainspring, count: int = 3) -> Outbox[int]:
    orders = app.outbox("orders", partitions=1, payload=int)
    is_broken = True

    @orders.handler(max_attempts=1)
    async def deliver(_: Message[int]) -> None:
        if is_broken:
            raise ValueError("broken")

    async with app.node():
        await orders.publish_many(None, range(count))
        await all_done(orders)
    is_broken = False
    return orders


async def test_dead_letters_are_replayed_into_their_partition(app: Mainspring) -> None:
    async with app:
        orders = await buried(app)
        page = await orders.letters(limit=2)
        assert len(page.letters) == 2
        assert len((await orders.letters(limit=2, after=page.after)).letters) == 1

        assert await orders.replay(ids=[page.letters[0].id]) == 1
        assert await orders.replay() == 2
        async with app.node():
            await all_done(orders)

        assert (await orders.letters()).letters == ()
        assert len((await orders.letters(states=["resolved"])).letters) == 3
        assert (await orders.stats())[0].view.stand.cursor == 6


async def test_dead_letters_are_reprocessed_by_a_handler(app: Mainspring) -> None:
    async with app:
        orders = await buried(app)
        came: list[int] = []

        async def handle(message: Message[int]) -> None:
            came.append(message.payload)
            assert message.remaining() <= timedelta(minutes=1)
            if message.payload == 1:
                raise ValueError("still broken")

        outcome = await orders.reprocess(handle, within="1m")

        assert (outcome.resolved, outcome.returned, came) == (2, 1, [0, 1, 2])
        (letter,) = (await orders.letters()).letters
        assert (letter.attempts, letter.error) == (2, "ValueError: still broken")


async def test_dead_letters_whose_time_is_over_are_not_handled_any_more(app: Mainspring) -> None:
    """By then others may have taken them."""
    async with app:
        orders = await buried(app)
        came: list[int] = []

        async def handle(message: Message[int]) -> None:
            came.append(message.payload)
            await asyncio.sleep(120)

        outcome = await orders.reprocess(handle, within="1m")

        assert (outcome.resolved, outcome.returned, came) == (0, 3, [0])
        assert [letter.attempts for letter in (await orders.letters()).letters] == [2, 2, 2]


async def test_dead_letters_are_taken_resolved_rejected_discarded_and_cleared(
    app: Mainspring, virtual_time: VirtualTime
) -> None:
    async with app:
        orders = await buried(app, 4)
        one, two = await orders.take(limit=2)
        assert await orders.resolve([one]) == 1
        assert await orders.resolve([one]) == 0
        assert await orders.reject([two], "no") == 1
        assert await orders.discard(ids=[two.id]) == 1
        assert await orders.discard(partition=7) == 0
        assert len((await orders.letters()).letters) == 2
        assert await orders.clear(older_than="1d") == 0
        virtual_time.clock.jump("2d")
        assert await orders.clear(older_than="1d") == 2


def test_types() -> None:
    app = Mainspring("memory://")

    assert_type(app.outbox("a", payload=Order), Outbox[Order])
    assert_type(app.outbox("b", payload=(Order, Refund)), Outbox[Order | Refund])
    assert_type(app.outbox("c"), Outbox[Any])

    @app.outbox("d", payload=Order).handler(batch=True)
    async def deliver(batch: Batch[Order]) -> None:
        for message in batch:
            assert_type(message.payload, Order)

    assert callable(deliver)
