"""What is different about handlers on PostgreSQL: there a statement that fails takes its transaction with it."""

import asyncio
from collections import Counter
from contextlib import suppress

import asyncpg
import pytest

from mainspring import Mainspring, Message
from mainspring.outbox.message import Batch
from mainspring.stores.port import Transaction, Transactions
from mainspring.stores.postgres import PostgresStore
from mainspring.testing import VirtualTime
from tests.outbox.conftest import all_done
from tests.servers.postgres import Server


@pytest.fixture
def app(postgres: Server, postgres_schema: str, virtual_time: VirtualTime) -> Mainspring:
    store = PostgresStore(postgres.dsn(), schema=postgres_schema, clock=virtual_time.clock)
    return Mainspring(store=store, clock=virtual_time.clock)


async def sql(app: Mainspring, statement: str) -> list[tuple[str]]:
    store = app.store
    assert isinstance(store, Transactions)
    async with store.transaction() as tx:
        return await tx.execute(statement)


async def test_a_statement_that_failed_and_was_hushed_up_is_the_trouble_of_its_message_alone(
    app: Mainspring, postgres_schema: str
) -> None:
    orders = app.outbox("orders", partitions=1)
    tried: Counter[str] = Counter()
    table = f"{postgres_schema}.effects"

    @orders.handler(mode="transactional", max_attempts=3)
    async def deliver(message: Message[str], tx: Transaction) -> None:
        tried[message.payload] += 1
        await tx.execute(f"INSERT INTO {table} VALUES ($1)", [message.payload])  # noqa: S608 - our own name
        if message.payload == "bad":
            with suppress(asyncpg.DivisionByZeroError):
                await tx.execute("SELECT 1 / 0")

    async with app, app.node():
        await sql(app, f"CREATE TABLE {table} (text text)")
        await orders.publish_many(None, ["first", "bad", "last"])
        await all_done(orders)

        assert sorted(await sql(app, f"SELECT text FROM {table}")) == [("first",), ("last",)]  # noqa: S608 - as above
        assert tried == {"first": 1, "bad": 3, "last": 1}
        (letter,) = (await orders.letters()).letters
        assert (letter.attempts, letter.message.payload) == (3, b'{"v":1,"value":"bad"}')
        assert "division by zero" in letter.error


async def test_what_a_batch_has_acknowledged_stays_though_a_later_statement_failed(
    app: Mainspring, postgres_schema: str
) -> None:
    orders = app.outbox("orders", partitions=1)
    tried: Counter[str] = Counter()
    table = f"{postgres_schema}.effects"

    @orders.handler(mode="transactional", batch=True, max_attempts=2)
    async def deliver(batch: Batch[str], tx: Transaction) -> None:
        for message in batch:
            tried[message.payload] += 1
            await tx.execute(f"INSERT INTO {table} VALUES ($1)", [message.payload])  # noqa: S608 - our own name
            if message.payload != "bad":
                await batch.ack()
                continue
            with suppress(asyncpg.DivisionByZeroError):
                await tx.execute("SELECT 1 / 0")

    async with app, app.node():
        await sql(app, f"CREATE TABLE {table} (text text)")
        await orders.publish_many(None, ["first", "second", "bad"])
        await all_done(orders)

        assert sorted(await sql(app, f"SELECT text FROM {table}")) == [("first",), ("second",)]  # noqa: S608 - as above
        assert tried == {"first": 1, "second": 1, "bad": 2}
        (letter,) = (await orders.letters()).letters
        assert (letter.attempts, letter.message.payload) == (2, b'{"v":1,"value":"bad"}')


async def test_a_message_that_ends_its_connection_becomes_a_dead_letter(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    tried: Counter[str] = Counter()

    @orders.handler(mode="transactional", max_attempts=3, size=1)
    async def deliver(message: Message[str], tx: Transaction) -> None:
        tried[message.payload] += 1
        if message.payload == "bad":
            await tx.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    async with app, app.node():
        await orders.publish_many(None, ["first", "bad", "last"])
        await all_done(orders)

        assert tried == {"first": 1, "bad": 3, "last": 1}
        (letter,) = (await orders.letters()).letters
        assert letter.message.payload == b'{"v":1,"value":"bad"}'


def test_a_message_whose_statement_takes_too_long_is_said_to_have(postgres: Server, postgres_schema: str) -> None:
    """Its connection is gone then, and everything with it."""
    app = Mainspring(store=PostgresStore(postgres.dsn(), schema=postgres_schema))
    orders = app.outbox("orders", partitions=1)

    @orders.handler(mode="transactional", max_attempts=1, timeout="200ms")
    async def deliver(_: Message[str], tx: Transaction) -> None:
        await tx.execute("SELECT pg_sleep(600)")

    async def told() -> str:
        async with app, app.node(), asyncio.timeout(60):
            await orders.publish(None, "slow")
            while not (letters := (await orders.letters()).letters):
                await asyncio.sleep(0.05)
            return letters[0].error

    assert asyncio.run(told()) == "TimeoutError: it took longer than 0.2 s"
