"""How messages are delivered: in order, again when that failed, and never by two at a time."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

from mainspring import Fail, Mainspring, Message, RetryIn, Snooze
from mainspring.client.outbox import Outbox
from mainspring.core.job import NodeId
from mainspring.core.outbox import LOST, Verdict
from mainspring.errors import StoreUnavailable
from mainspring.outbox import Outgoing
from mainspring.outbox.caller import LONGEST_ERROR
from mainspring.outbox.events import DeliveryEnded
from mainspring.outbox.message import Batch
from mainspring.stores.outbox import Stride
from mainspring.stores.port import Store, Transaction, Transactions
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime
from tests.outbox.conftest import Boom, Table, all_done, has_pruned, now, outboxes, stands, transaction, until, victim


async def test_messages_of_a_key_come_in_the_order_of_their_publishing(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=8)
    came: dict[str | None, list[int]] = {}

    @orders.handler(profile="high_throughput", size=7)
    async def deliver(message: Message[int]) -> None:
        came.setdefault(message.key, []).append(message.payload)

    async with app, app.node(), app.node():
        for number in range(100):
            await orders.publish(None, number, key=f"customer-{number % 7}")
        await all_done(orders)

    assert came == {f"customer-{key}": list(range(key, 100, 7)) for key in range(7)}


async def test_a_message_is_delivered_at_once(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=4)
    came: list[float] = []

    @orders.handler(profile="low_latency")
    async def deliver(_: Message[int]) -> None:
        came.append(now())

    async with app, app.node():
        for _ in range(10):
            await asyncio.sleep(5.123)
            before, published = len(came), now()
            await orders.publish(None, 1)
            await until(lambda before=before: len(came) > before)  # type: ignore[misc]  # a default, not a parameter
            assert came[-1] - published < 0.01


async def test_a_new_message_does_not_shorten_a_wait(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    came: list[float] = []

    @orders.handler(retry_base="30s")
    async def deliver(_: Message[int]) -> None:
        came.append(now())
        if len(came) == 1:
            raise Boom

    async with app, app.node():
        await orders.publish(None, 1)
        await until(lambda: len(came) == 1)
        for number in range(20):
            await asyncio.sleep(1)
            await orders.publish(None, number)
        assert len(came) == 1
        await all_done(orders)

    assert 22 < came[1] - came[0] < 38


async def test_idle_looks_do_not_raise_attempts_and_a_node_at_rest_looks_once_a_second(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=64)

    @orders.handler
    async def deliver(_: Message[int]) -> None: ...

    async with app, victim(app, deaf=True) as one:
        await orders.publish(None, 1, partition=3)
        await all_done(orders)
        before = await stands(orders, 3)
        one.line.asked.clear()
        await asyncio.sleep(100)
        asked = Counter(one.line.asked)

        assert asked["look_at_partitions"] <= 101
        assert asked["stride"] == asked["read_messages"] == asked["read_aside"] == 0
        assert (await stands(orders, 3)) == before
        assert before.stand.attempts == 0


async def test_a_crash_leaves_its_attempt_to_the_next_owner(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    came: list[tuple[int, int]] = []

    @orders.handler
    async def deliver(message: Message[int]) -> None:
        came.append((message.payload, message.attempt))
        if len(came) == 1:
            await asyncio.get_running_loop().create_future()

    async with app, victim(app, lease="2s") as one:
        await orders.publish_many(None, [1, 2, 3])
        await until(lambda: len(came) == 1)
        one.kill()
        assert (await stands(orders)).stand.given == 3
        async with app.node(lease="2s"):
            await all_done(orders)

    # Taken apart: the one that may be to blame comes alone.
    assert came == [(1, 1), (1, 2), (2, 1), (3, 1)]


async def test_a_message_that_kills_its_nodes_becomes_a_dead_letter(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    came: list[int] = []
    told: list[DeliveryEnded] = []
    orders.listener(told.append)

    @orders.handler(max_attempts=3)
    async def deliver(message: Message[int]) -> None:
        came.append(message.payload)
        if message.payload == 2:
            await asyncio.get_running_loop().create_future()

    async with app:
        await orders.publish_many(None, [1, 2, 3])
        for deaths in range(1, 5):
            async with victim(app, lease="1s") as one:
                await until(lambda deaths=deaths: came.count(2) == deaths)  # type: ignore[misc]  # as above
                one.kill()
        async with app.node(lease="1s"):
            await all_done(orders)

        (letter,) = (await orders.letters()).letters
        assert (letter.message.seq, letter.attempts, letter.error) == (2, 3, LOST)
        assert (await stands(orders)).stand.cursor == 3
    # The first loss is charged to the first of the batch, which then comes alone.
    assert came == [1, 2, 1, 2, 2, 2, 3]
    assert [one.undone for one in told if one.verdict is Verdict.DEAD] == [2]


async def test_a_retry_is_counted_once(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    attempts: list[int] = []

    @orders.handler
    async def deliver(message: Message[int]) -> None:
        attempts.append(message.attempt)
        if len(attempts) < 4:
            raise Boom

    async with app, app.node():
        await orders.publish(None, 1)
        await until(lambda: len(attempts) == 2)
        await asyncio.sleep(0.1)
        assert (await stands(orders)).stand.attempts == 2
        await all_done(orders)

    assert attempts == [1, 2, 3, 4]
    assert (await orders.stats())[0].counts.retried == 3


async def test_one_poison_message_in_a_batch_becomes_the_only_dead_letter(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    done: list[int] = []
    sizes: list[int] = []

    @orders.handler(batch=True, size=16, max_attempts=4)
    async def deliver(batch: Batch[int]) -> None:
        sizes.append(len(batch))
        payloads = [message.payload for message in batch]
        if 6 in payloads:
            raise Boom("poison")
        done.extend(payloads)

    async with app, app.node():
        await orders.publish_many(None, range(1, 31))
        await all_done(orders)
        letters = (await orders.letters()).letters

    assert [letter.message.seq for letter in letters] == [6]
    assert done == [number for number in range(1, 31) if number != 6]
    assert sizes[:4] == [16, 16, 1, 2]
    assert 1 in sizes[4:]


async def test_stopping_lets_the_current_batch_finish_and_takes_nothing_new(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    done: list[int] = []

    @orders.handler(size=3)
    async def deliver(message: Message[int]) -> None:
        await asyncio.sleep(1)
        done.append(message.payload)

    async with app:
        async with app.node() as node:
            await orders.publish_many(None, range(1, 10))
            await until(lambda: len(done) == 1)
        assert node._ending
        view = await stands(orders)

    assert done == [1, 2, 3]
    assert (view.stand.cursor, view.stand.holder, view.stand.given, view.stand.attempts) == (3, None, 0, 0)


async def test_what_does_not_finish_in_time_is_cancelled_and_given_up_at_once(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    done: list[int] = []
    cancelled: list[int] = []

    @orders.handler
    async def deliver(message: Message[int]) -> None:
        try:
            await asyncio.sleep(1 if message.payload == 1 else 1000)
        except asyncio.CancelledError:
            cancelled.append(message.payload)
            raise
        done.append(message.payload)

    async with app:
        async with app.node(grace="5s"):
            await orders.publish_many(None, [1, 2, 3])
            await until(lambda: len(done) == 1)
            began = now()
        took = now() - began
        view = await stands(orders)

    assert (done, cancelled) == ([1], [2])
    assert took == pytest.approx(5, abs=1.5)
    # What was done stays done, and what was interrupted counts for nothing.
    assert (view.stand.cursor, view.stand.holder, view.stand.given, view.stand.attempts) == (1, None, 0, 0)


async def test_a_handler_that_will_not_stop_keeps_no_node_from_stopping_and_what_it_does_later_counts_for_nothing(
    app: Mainspring,
) -> None:
    orders = app.outbox("orders", partitions=1)
    released = asyncio.Event()
    came: list[int] = []

    @orders.handler(size=1)
    async def deliver(message: Message[int]) -> None:
        came.append(message.attempt)
        while len(came) == 1 and not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()

    async with app:
        async with app.node(grace="5s", stop_grace="2s"):
            await orders.publish(None, 1)
            await until(lambda: bool(came))
            began = now()
        assert now() - began < 60
        assert (await stands(orders)).stand.given == 1
        async with app.node():
            await until(lambda: len(came) == 2)
            await all_done(orders)
            before = await stands(orders)
            released.set()
            await asyncio.sleep(10)
            assert await stands(orders) == before

    assert came == [1, 2]


async def test_a_node_delivers_so_many_partitions_at_a_time_and_all_have_their_turn(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=16)
    busy = most = 0
    came: list[int] = []

    @orders.handler(size=1, profile="low_latency")
    async def deliver(message: Message[int]) -> None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(1)
        busy -= 1
        came.append(message.partition)

    async with app, app.node():
        for _ in range(3):
            for partition in range(16):
                await orders.publish(None, 1, partition=partition)
        await all_done(orders)

    assert most == 4
    assert set(came[:16]) == set(range(16))  # none has had its second one before all have had their first


async def test_nobody_else_delivers_a_partition_that_a_node_is_at(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=2)
    busy: Counter[int] = Counter()
    done: Counter[tuple[int, int]] = Counter()

    @orders.handler(profile="low_latency", size=3)
    async def deliver(message: Message[int]) -> None:
        busy[message.partition] += 1
        assert busy[message.partition] == 1
        await asyncio.sleep(0.05)
        busy[message.partition] -= 1
        done[message.partition, message.seq] += 1

    async with app, app.node(), app.node(), app.node():
        for number in range(60):
            await orders.publish(None, number, partition=number % 2)
        await all_done(orders)

    assert done == {(partition, seq): 1 for partition in range(2) for seq in range(1, 31)}


async def test_a_handler_steers_with_what_it_raises(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    came: list[tuple[str, int, float]] = []

    @orders.handler(max_attempts=2)
    async def deliver(message: Message[str]) -> None:
        came.append((message.payload, message.attempt, round(now() - message.published_at.timestamp() % 1, 0)))
        tries = sum(payload == message.payload for payload, *_ in came)
        if message.payload == "fail":
            raise Fail("no good")
        if message.payload == "later" and tries == 1:
            raise RetryIn("50s")
        if message.payload == "not now" and tries < 4:
            raise Snooze("10s", "busy")

    async with app, app.node():
        await orders.publish_many(None, ["fail", "later", "not now", "fine"])
        await all_done(orders)
        letters = (await orders.letters()).letters

    assert [(letter.error, letter.attempts) for letter in letters] == [("no good", 1)]
    assert [(payload, attempt) for payload, attempt, _ in came] == [
        ("fail", 1),
        ("later", 1),
        ("later", 2),
        ("not now", 1),
        ("not now", 1),
        ("not now", 1),
        ("not now", 1),
        ("fine", 1),
    ]
    assert came[2][2] - came[1][2] == pytest.approx(50, abs=1)
    assert came[6][2] - came[3][2] == pytest.approx(30, abs=1)


async def test_a_plain_function_runs_in_a_thread(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    where: list[str] = []

    @orders.handler
    def deliver(message: Message[int]) -> None:
        where.append(threading.current_thread().name)
        assert message.remaining() > timedelta(0)
        if len(where) == 1:
            raise Boom

    async with app, app.node():
        await orders.publish_many(None, [1, 2])
        await all_done(orders)

    assert len(where) == 3
    assert threading.current_thread().name not in where


async def test_a_handler_that_awaits_what_others_cancel_has_failed(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    came: list[int] = []

    @orders.handler(max_attempts=2)
    async def deliver(message: Message[int]) -> None:
        came.append(message.payload)
        if message.payload == 1:
            raise asyncio.CancelledError
        if message.payload == 2:
            raise SystemExit("bye")

    async with app, app.node():
        await orders.publish_many(None, [1, 2, 3])
        await all_done(orders)
        errors = [letter.error for letter in (await orders.letters()).letters]

    assert came == [1, 1, 2, 2, 3]
    assert [error.partition(":")[0] for error in errors] == ["SystemExit", "CancelledError"]


# Batches.


async def test_what_was_acknowledged_of_a_batch_stays_so_when_it_raises(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    seen: list[list[int]] = []

    @orders.handler(batch=True)
    async def deliver(batch: Batch[int]) -> None:
        seen.append([])
        assert batch.remaining() > timedelta(0)
        for message in batch:
            seen[-1].append(message.payload)
            if message.payload == 4 and len(seen) == 1:
                assert (batch.taken, batch.acknowledged, batch.left) == (4, 3, 2)
                raise Boom
            batch.ack()

    async with app, app.node():
        await orders.publish_many(None, range(1, 7))
        await all_done(orders)

    assert seen == [[1, 2, 3, 4], [4, 5, 6]]
    assert (await orders.stats())[0].counts.acknowledged == 6


async def test_chunks_of_a_batch_are_acknowledged_in_order_and_single_messages_rejected(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    calls = 0

    @orders.handler(batch=True)
    async def deliver(batch: Batch[int]) -> None:
        nonlocal calls
        calls += 1
        first = batch.next_chunk(3)
        if calls == 1:
            assert [message.payload for message in first] == [1, 2, 3]
            batch.ack_chunk(2)
            assert batch.acknowledged == 2
            batch.reject("the third")
            assert batch.acknowledged == 3
            later = batch.next_chunk(2)
            batch.reject("never counts, since what is before it is not acknowledged", later[1])
            raise Boom
        assert [message.payload for message in first] == [4, 5, 6]
        assert batch.next_chunk(100) == ()

    async with app, app.node():
        await orders.publish_many(None, range(1, 7))
        await all_done(orders)
        letters = (await orders.letters()).letters

    assert calls == 2
    assert [(letter.message.seq, letter.error, letter.attempts) for letter in letters] == [(3, "the third", 1)]


async def test_in_a_transaction_acknowledged_writes_stay_and_others_are_undone(
    joined: Mainspring, table: Table
) -> None:
    app = joined
    orders = app.outbox("orders", partitions=1)
    calls = 0

    @orders.handler(mode="transactional", batch=True)
    async def deliver(batch: Batch[int], tx: Transaction) -> None:
        nonlocal calls
        calls += 1
        for message in batch:
            await tx.execute(table.insert, (str(message.payload),))
            if message.payload == 2:
                await batch.reject("not this one")
            elif message.payload == 4 and calls == 1:
                raise Boom
            else:
                await batch.ack()

    async with app, app.node():
        await table.make(app)
        await orders.publish_many(None, range(1, 6))
        await all_done(orders)
        rows = await table.rows(app)
        letters = (await orders.letters()).letters

    assert rows == ["1", "3", "4", "5"]
    assert [letter.message.seq for letter in letters] == [2]
    assert calls == 2


@pytest.mark.parametrize("lasting", ["postgres"], indirect=True)
async def test_of_what_only_the_commit_refuses_the_one_to_blame_becomes_a_dead_letter(
    joined: Mainspring, table: Table
) -> None:
    """All of the delivery is undone, and nobody can tell which message it was; so it is taken apart."""
    app = joined
    orders = app.outbox("orders", partitions=1)

    @orders.handler(mode="transactional", max_attempts=4)
    async def deliver(message: Message[int], tx: Transaction) -> None:
        for _ in range(2 if message.payload == 3 else 1):
            await tx.execute(table.insert, (str(message.payload),))

    async with app, app.node():
        async with transaction(app) as tx:
            await tx.execute(table.create.replace("TEXT)", "TEXT UNIQUE DEFERRABLE INITIALLY DEFERRED)"))
        await orders.publish_many(None, range(1, 6))
        await all_done(orders)
        rows = await table.rows(app)
        (letter,) = (await orders.letters()).letters

    assert rows == ["1", "2", "4", "5"]
    assert (letter.message.seq, letter.attempts) == (3, 4)
    assert "UniqueViolation" in letter.error


@pytest.mark.parametrize("lasting", ["postgres"], indirect=True)
async def test_of_what_a_commit_says_at_length_a_beginning_is_kept(joined: Mainspring, table: Table) -> None:
    app = joined
    orders = app.outbox("orders", partitions=1)

    @orders.handler(mode="transactional", max_attempts=1)
    async def deliver(message: Message[int], tx: Transaction) -> None:
        await tx.execute(table.insert, (str(message.payload),))

    async with app, app.node():
        async with transaction(app) as tx:
            await tx.execute(table.create)
            name = table.create.split()[2]
            await tx.execute(
                f"CREATE FUNCTION {name}_talks() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE EXCEPTION '%', repeat('no ', 5000); END $$"
            )
            await tx.execute(
                f"CREATE CONSTRAINT TRIGGER talks AFTER INSERT ON {name} DEFERRABLE INITIALLY DEFERRED"
                f" FOR EACH ROW EXECUTE FUNCTION {name}_talks()"
            )
        await orders.publish(None, 1)
        await all_done(orders)
        (letter,) = (await orders.letters()).letters

    assert "no no no" in letter.error
    assert len(letter.error) < LONGEST_ERROR + 100  # a few words say how much was left out


async def test_in_a_transaction_an_acknowledgement_that_is_not_awaited_is_a_mistake(joined: Mainspring) -> None:
    app = joined
    orders = app.outbox("orders", partitions=1)

    @orders.handler(mode="transactional", batch=True, max_attempts=1)
    async def deliver(batch: Batch[int], _tx: Transaction) -> None:
        for _ in batch:
            batch.ack()

    async with app, app.node():
        await orders.publish(None, 1)
        await all_done(orders)
        (letter,) = (await orders.letters()).letters

    assert "await batch.ack()" in letter.error


# By key.


async def test_one_failing_key_does_not_stop_its_partition(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    came: list[tuple[str | None, int]] = []
    is_down = True

    @orders.handler(order="key", retry_base="10s", profile="low_latency")
    async def deliver(message: Message[int]) -> None:
        if message.key == "bad" and is_down:
            raise Boom
        came.append((message.key, message.payload))

    async with app, app.node():
        for number in range(10):
            await orders.publish(None, number, key="bad" if number % 2 else "good")
        await asyncio.sleep(5)
        assert came == [("good", number) for number in range(0, 10, 2)]
        (view,) = await outboxes(app).outboxes()
        assert view.aside == 5
        is_down = False
        await all_done(orders)

    assert [pair for pair in came if pair[0] == "bad"] == [("bad", number) for number in range(1, 10, 2)]


@pytest.mark.parametrize("orders_", [("key", "partition"), ("key", "key"), ("key", "partition", "key")])
@pytest.mark.parametrize("mode", ["leased", "transactional"])
async def test_a_key_stays_in_order_though_another_release_orders_by_something_else(
    tmp_path: Path, virtual_time: VirtualTime, orders_: tuple[str, ...], mode: str
) -> None:
    came: list[tuple[str, int]] = []

    def release(order: str, *, fails: bool) -> tuple[Mainspring, Outbox[int]]:
        store = SqliteStore(tmp_path / "jobs.db", clock=virtual_time.clock, durable=False)
        app = Mainspring(store=store, clock=virtual_time.clock)
        orders = app.outbox("orders", partitions=1)

        def handle(message: Message[int]) -> None:
            if fails and message.key == "bad":
                raise Boom
            came.append((message.key or "", message.payload))

        async def leased(message: Message[int]) -> None:
            handle(message)

        async def transactional(message: Message[int], _: Transaction) -> None:
            handle(message)

        function = leased if mode == "leased" else transactional
        orders.handler(order=order, mode=mode, max_attempts=100)(function)
        return app, orders

    published = 0
    for number, order in enumerate(orders_):
        is_last = number == len(orders_) - 1
        app, orders = release(order, fails=not is_last)
        async with app, app.node():
            for _ in range(3):
                await orders.publish(None, published, key="bad")
                await orders.publish(None, published, key="good")
                published += 1
                await asyncio.sleep(0.7)
            await asyncio.sleep(5)
            if is_last:
                await all_done(orders)

    for key in ("bad", "good"):
        assert [payload for of, payload in came if of == key] == list(range(published))


async def test_what_was_set_aside_and_always_fails_becomes_a_dead_letter_and_lets_the_next_one_pass(
    app: Mainspring,
) -> None:
    orders = app.outbox("orders", partitions=1)
    came: list[int] = []
    told: list[DeliveryEnded] = []
    orders.listener(told.append)

    @orders.handler(order="key", max_attempts=3)
    async def deliver(message: Message[int]) -> None:
        if message.payload == 1:
            raise Boom
        came.append(message.payload)

    async with app, app.node():
        await orders.publish_many(None, [1])
        for number in (2, 3, 1, 4):
            await orders.publish(None, number, key="k")
        await all_done(orders)
        letters = (await orders.letters()).letters

    assert came == [2, 3, 4]
    assert [letter.attempts for letter in letters] == [3, 3]
    assert Counter(one.verdict for one in told)[Verdict.ASIDE] == 4
    assert Counter(one.verdict for one in told)[Verdict.DEAD] == 2


async def test_what_was_set_aside_and_kills_its_nodes_becomes_a_dead_letter(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    came = 0
    told: list[DeliveryEnded] = []
    orders.listener(told.append)

    @orders.handler(order="key", max_attempts=3)
    async def deliver(_: Message[int]) -> None:
        nonlocal came
        came += 1
        if came == 1:
            raise Boom
        await asyncio.get_running_loop().create_future()

    async with app:
        await orders.publish(None, 1, key="k")
        for deaths in (2, 3):
            async with victim(app, lease="1s") as one:
                await until(lambda deaths=deaths: came == deaths)  # type: ignore[misc]  # as above
                one.kill()
        async with app.node(lease="1s"):
            await all_done(orders)
        (letter,) = (await orders.letters()).letters
        assert (await orders.stats())[0].counts.dead == 1

    assert (came, letter.attempts, letter.error) == (3, 3, LOST)
    assert [(one.verdict, one.undone, one.attempts) for one in told] == [
        (Verdict.ASIDE, 1, 1),
        (Verdict.DEAD, 1, 3),
    ]


# Trouble with the store.


async def test_what_was_handled_while_the_store_is_away_is_not_handled_again(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    came: list[int] = []

    @orders.handler
    async def deliver(message: Message[int]) -> None:
        came.append(message.payload)
        if message.payload == 1:
            away = StoreUnavailable("store", "away")
            one.line.fails = {"stride": away, "read_messages": away}

    async with app, victim(app) as one:
        await orders.publish_many(None, [1, 2])
        await until(lambda: len(came) == 2)
        await asyncio.sleep(20)
        one.line.fails = {}
        await all_done(orders)

    assert came == [1, 2]


async def test_a_step_whose_answer_was_lost_is_known_to_have_been_taken(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    came: list[int] = []

    @orders.handler(size=1)
    async def deliver(message: Message[int]) -> None:
        came.append(message.payload)

    async with app, victim(app) as one:
        inner = one.line._store
        stride = outboxes(app).stride
        lost = 3

        async def loses(*args: object) -> object:
            nonlocal lost
            answer = await stride(*args)  # type: ignore[arg-type]  # as they come
            lost -= 1
            if lost == 0:
                raise StoreUnavailable("store", "the answer was lost")
            return answer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(inner, "stride", loses)
            await orders.publish_many(None, [1, 2, 3, 4])
            await all_done(orders)

    assert came == [1, 2, 3, 4]


@pytest.mark.parametrize("order", ["partition", "key"])
async def test_what_was_handled_is_written_at_the_end_although_the_next_delivery_was_to_begin_with_it(
    app: Mainspring, order: Literal["partition", "key"]
) -> None:
    orders = app.outbox("orders", partitions=1)
    came: list[int] = []

    @orders.handler(size=1, order=order)
    async def deliver(message: Message[int]) -> None:
        came.append(message.payload)
        if message.payload == 1 and order == "key" and message.attempt == 1:
            raise ValueError("not yet")

    async with app:
        stride = outboxes(app).stride

        async def stalls(node: NodeId, term: int, strides: Sequence[Stride]) -> tuple[bool, ...]:
            if len(came) == 2 and strides[0].after.holder is not None:
                await asyncio.sleep(3600)
            return await stride(node, term, strides)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(app.store, "stride", stalls)
            async with app.node(grace="2s"):
                await orders.publish_many(None, [Outgoing(one, key=str(one)) for one in (1, 2, 3)])
                await until(lambda: len(came) == 2)
                await asyncio.sleep(1)
        view = await stands(orders)

        assert (view.stand.cursor, view.stand.holder, view.stand.given, view.stand.attempts) == (2, None, 0, 0)
        asides = await outboxes(app).read_aside("orders", 0, 10)
        async with app.node():
            await all_done(orders)

    assert came == [1, 2, 3] if order == "partition" else sorted(came) == [1, 1, 2, 3]
    assert all(one.attempts == 1 for one in asides)


@pytest.mark.parametrize("max_attempts", [1, 10])
async def test_a_transaction_whose_answer_was_lost_is_known_to_have_been_committed(
    joined: Mainspring, max_attempts: int
) -> None:
    """Neither is anything handled again, nor does what comes next pay for it with an attempt."""
    app = joined
    orders = app.outbox("orders", partitions=1)
    came: list[tuple[int, int]] = []
    told: list[DeliveryEnded] = []
    orders.listener(told.append)

    @orders.handler(mode="transactional", size=1, max_attempts=max_attempts)
    async def deliver(message: Message[int], tx: Transaction) -> None:
        await tx.execute("SELECT 1")
        came.append((message.payload, message.attempt))

    @asynccontextmanager
    async def loses(**options: Any) -> AsyncIterator[Transaction]:  # noqa: ANN401 - as they come
        async with transaction(**options) as tx:
            yield tx
        if len(came) == 2:
            raise StoreUnavailable("store", "the answer was lost")

    async with app:
        store = app.store
        assert isinstance(store, Transactions)
        transaction = store.transaction
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "transaction", loses)
            async with app.node():
                await orders.publish_many(None, [1, 2, 3, 4])
                await all_done(orders)
        assert (await orders.letters()).letters == ()

    assert came == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert [(one.first, one.acknowledged) for one in told] == [(1, 1), (2, 1), (3, 1), (4, 1)]


async def test_a_node_that_was_given_up_drops_what_it_was_at(app: Mainspring) -> None:
    """It is declared dead while its handler runs: that one is cancelled, and others deliver the message."""
    orders = app.outbox("orders", partitions=1)
    ends: list[str] = []

    @orders.handler(max_attempts=5, timeout="10m")
    async def deliver(_: Message[int]) -> None:
        try:
            await asyncio.sleep(100 if not ends else 0)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
        ends.append("done")

    async with app, app.node() as node:
        await orders.publish(None, 1)
        await asyncio.sleep(1)
        assert await app.store.declare_dead(node.id, 1)
        await all_done(orders)
        assert node.events.counts["declared_dead"] == 1

    assert ends == ["cancelled", "done"]


async def test_a_listener_that_raises_stops_nothing(app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    orders = app.outbox("orders", partitions=1)
    told: list[DeliveryEnded] = []

    @orders.listener
    def first(_: DeliveryEnded) -> None:
        raise Boom

    orders.listener(told.append)

    @orders.handler
    async def deliver(_: Message[int]) -> None:
        await asyncio.sleep(2)

    async with app, app.node() as node:
        await orders.publish_many(None, [1, 2])
        await all_done(orders)

        assert node.events.counts["listener_errors"] == len(told) == 1
    assert (told[0].acknowledged, told[0].given, told[0].first, told[0].verdict) == (2, 2, 1, Verdict.NONE)
    assert told[0].seconds == pytest.approx(4, abs=0.1)
    assert "a listener of outbox orders raised" in caplog.text


# Clearing away.


async def test_what_is_delivered_is_cleared_away_and_nothing_else(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)

    @orders.handler(retry_base="10h", retry_max="10h")
    async def deliver(message: Message[int]) -> None:
        if message.payload == 5:
            raise Boom

    async with app, app.node(prune_every="1m"):
        await orders.publish_many(None, range(10))
        await asyncio.sleep(300)
        store = outboxes(app)
        assert await asyncio.gather(*(store.clear_messages(100) for _ in range(5))) == [0] * 5
        (view,) = await store.outboxes()
        # On PostgreSQL they go with the table of their day; see tests/stores/test_postgres_outbox_log.py.
        assert view.kept == (10 if isinstance(app.store, PostgresStore) else 5)
        assert [one.seq for one in await store.read_messages("orders", 0, 5, 100)] == [6, 7, 8, 9, 10]


async def test_several_may_clear_away_at_once(app: Mainspring) -> None:
    """Each message is cleared by one of them, and what is not delivered by none."""
    orders = app.outbox("orders", partitions=2)

    @orders.handler(retry_base="10h", retry_max="10h", profile="high_throughput")
    async def deliver(message: Message[int]) -> None:
        if message.seq > 60:
            raise Boom

    async with app, app.node(prune_every="10h") as node:
        await has_pruned(node)
        for partition in range(2):
            await orders.publish_many(None, [Outgoing(number, partition=partition) for number in range(80)])
        await asyncio.sleep(60)
        store = outboxes(app)
        cleared = await asyncio.gather(*(store.clear_messages(25) for _ in range(10)))

        # On PostgreSQL whoever finds others at it leaves it to them.
        assert sum(cleared) <= 120 if isinstance(app.store, PostgresStore) else sum(cleared) == 120
        for partition in range(2):
            left = await store.read_messages("orders", partition, 60, 100)
            assert [one.seq for one in left] == list(range(61, 81))


async def test_a_handler_that_is_declared_while_a_node_runs_is_called(store: Store, virtual_time: VirtualTime) -> None:
    app = Mainspring(store=store, clock=virtual_time.clock)
    came: list[int] = []

    async with app, app.node():
        orders = app.outbox("orders", partitions=1)
        await orders.publish(None, 1)

        @orders.handler
        async def deliver(message: Message[int]) -> None:
            came.append(message.payload)

        await until(lambda: came == [1])
