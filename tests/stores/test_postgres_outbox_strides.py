"""Steps of delivery on PostgreSQL: fenced by their revision, on whatever connections and in whatever transactions."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

import pytest
from msgspec.structs import replace

from mainspring.errors import NodeGone, StoreUnavailable
from mainspring.stores.outbox import LetterFilter, NewLetter
from mainspring.stores.postgres import PostgresStore, outboxes
from tests.servers.pgbouncer import Pooler
from tests.servers.postgres import Server
from tests.servers.system import PATIENCE
from tests.servers.wire import Wire
from tests.stores.postgres_crowd import Crowd, Node, crowd, lasting_schema
from tests.stores.postgres_outboxes import message, stepped
from tests.stores.postgres_staged import staged
from tests.stores.postgres_wires import on_real_time

NAME = "orders"


@pytest.fixture(scope="module")
def schema(postgres: Server) -> Iterator[str]:
    with lasting_schema(postgres) as name:
        yield name


async def revision(store: PostgresStore, outbox: str) -> int:
    return (await store.look_at_partitions([outbox])).partitions[0].stand.revision


@on_real_time
async def test_of_many_who_step_from_one_revision_one_is_accepted(postgres: Server, schema: str) -> None:
    async with crowd(postgres, schema) as those:
        nodes = [await those.node() for _ in range(8)]
        await nodes[0].store.register_outbox("many", 1)
        for before in range(10):
            steps = [node.store.stride(node.id, node.term, [stepped("many", before)]) for node in nodes]
            assert Counter(await asyncio.gather(*steps)) == {(True,): 1, (False,): 7}
            assert await revision(nodes[0].store, "many") == before + 1


@on_real_time
async def test_of_many_who_step_in_transactions_of_their_own_one_is_committed(postgres: Server, schema: str) -> None:
    async with crowd(postgres, schema) as those:
        node = await those.node()
        await node.store.register_outbox("transactions", 1)
        await those.sql("CREATE TABLE mainspring.effects (revision integer)")

        async def handle(before: int) -> bool:
            async with node.store.transaction() as tx:
                await tx.execute(f"INSERT INTO {schema}.effects VALUES ($1)", (before,))  # noqa: S608 -- ours
                if not await node.store.stride_in(tx, node.id, node.term, stepped("transactions", before)):
                    raise LookupError
            return True

        for before in range(5):
            done = await asyncio.gather(*(handle(before) for _ in range(4)), return_exceptions=True)
            assert [one for one in done if not isinstance(one, LookupError)] == [True], done
        assert await those.sql("SELECT revision FROM mainspring.effects ORDER BY revision") == [
            (before,) for before in range(5)
        ]


@on_real_time
@pytest.mark.parametrize("takes_over", [False, True], ids=["by itself", "by another"])
@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
async def test_a_step_in_a_transaction_that_sees_an_old_state_is_not_taken(
    postgres: Server, schema: str, isolation: str, takes_over: bool
) -> None:
    """The transaction has looked around before others stepped; what it wrote must not be committed with the step."""
    outbox = f"old {isolation} {takes_over}".replace(" ", "-")
    async with crowd(postgres, schema) as those, those.connection() as users:
        late, other = await those.node(), await those.node()
        await late.store.register_outbox(outbox, 1)
        assert await late.store.stride(late.id, late.term, [stepped(outbox, 0, holder=late.id)]) == (True,)
        await users.execute(f"BEGIN ISOLATION LEVEL {isolation}")
        await users.execute(f"SELECT * FROM {schema}.outbox_stands, {schema}.nodes")  # noqa: S608 -- ours
        if takes_over:
            assert await other.store.declare_dead(late.id, late.term)
            assert await other.store.stride(other.id, other.term, [stepped(outbox, 1, holder=other.id)]) == (True,)
        else:
            assert await late.store.stride(late.id, late.term, [stepped(outbox, 1, holder=late.id)]) == (True,)

        taken = False
        with suppress(NodeGone, StoreUnavailable):
            taken = await late.store.stride_in(users, late.id, late.term, stepped(outbox, 1, cursor=7))
        await users.execute("COMMIT")

        assert not taken
        (view,) = (await other.store.look_at_partitions([outbox])).partitions
        assert (view.stand.revision, view.stand.cursor) == (2, 0)


@on_real_time
async def test_who_was_taken_for_dead_and_comes_back_is_refused(postgres: Server, schema: str) -> None:
    async with crowd(postgres, schema) as those:
        late, other = await those.node(), await those.node()
        await late.store.register_outbox("late", 1)
        assert await late.store.stride(late.id, late.term, [stepped("late", 0, holder=late.id)]) == (True,)
        assert await other.store.stride(other.id, other.term, [stepped("late", 1, holder=other.id)]) == (False,)
        assert await other.store.declare_dead(late.id, late.term)
        assert await other.store.stride(other.id, other.term, [stepped("late", 1, holder=other.id)]) == (True,)

        with pytest.raises(NodeGone):
            await late.store.stride(late.id, late.term, [stepped("late", 1)])
        with pytest.raises(NodeGone):
            await late.store.stride(late.id, late.term, [stepped("late", 2)])
        assert await revision(late.store, "late") == 2


@on_real_time
async def test_a_step_that_somebody_has_left_open_holds_up_no_other_partition(postgres: Server, schema: str) -> None:
    async with crowd(postgres, schema) as those, those.connection() as forgotten:
        node = await those.node()
        await node.store.register_outbox("open", 2)
        await forgotten.execute("BEGIN")
        assert await node.store.stride_in(forgotten, node.id, node.term, stepped("open", 0, 1))
        steps = [stepped("open", 0, 2), stepped("open", 0, 3, partition=1)]
        async with asyncio.timeout(PATIENCE):  # it would wait for as long as that is open
            assert await node.store.stride(node.id, node.term, steps) == (False, True)
        # In a transaction of the user's own it does not wait at all, and that goes on.
        async with node.store.transaction() as tx:
            assert not await node.store.stride_in(tx, node.id, node.term, stepped("open", 0, 4))
            assert await tx.execute("SELECT 1") == [(1,)]
        await forgotten.execute("ROLLBACK")

        assert await node.store.stride(node.id, node.term, [stepped("open", 0, 5)]) == (True,)
        found = (await node.store.look_at_partitions(["open"])).partitions
        assert [one.stand.cursor for one in found] == [5, 3]


@on_real_time
async def test_a_step_leaves_the_users_own_patience_as_it_is(postgres: Server, schema: str) -> None:
    async with crowd(postgres, schema) as those, those.connection() as user:
        node = await those.node()
        await node.store.register_outbox("patience", 1)
        await user.execute("BEGIN; SET LOCAL lock_timeout = '7s'")
        assert await node.store.stride_in(user, node.id, node.term, stepped("patience", 0))

        assert await user.fetchval("SHOW lock_timeout") == "7s"


@pytest.mark.parametrize("with_letter", [False, True], ids=["one statement", "several"])
@on_real_time
async def test_a_step_whose_answer_was_lost_counts_as_accepted(
    postgres: Server, schema: str, with_letter: bool
) -> None:
    name = f"lost-{with_letter}"
    async with crowd(postgres, schema) as those:
        node = await those.node()
        await node.store.publish([message(name)])
        await node.store.look_at_partitions([name])
        (one,) = await node.store.read_messages(name, 0, 0, 1)
        letters = (NewLetter(message=one, attempts=1, error="no"),) if with_letter else ()
        step = replace(stepped(name, 0, 1), letters=letters)
        call = outboxes.Call(uuid4(), node.id, node.term, [step], waits=True)
        for _ in range(2):  # as it is when the connection is lost behind the commit
            accepted = await node.store._connections.run(lambda: outboxes.stride(None, call), whole=True)
            assert accepted == {0}
        other = outboxes.Call(uuid4(), node.id, node.term, [step], waits=True)
        other.tries = 1  # one that came to nothing
        assert await node.store._connections.run(lambda: outboxes.stride(None, other), whole=True) == set()

        found = (await node.store.letters(LetterFilter(outbox=name))).letters
        assert len(found) == with_letter


@pytest.mark.parametrize("verb", ["discard", "replay", "take"])
@on_real_time
async def test_letters_whose_answer_was_lost_are_not_followed_by_others(own_postgres: Server, verb: str) -> None:
    """Done again it would take the next ones: `limit` letters are meant, not as many as there were tries."""
    with own_postgres.schema() as schema, Wire.to(own_postgres) as wire:
        async with crowd(own_postgres, schema) as those:
            node = await those.node()
            await node.store.publish([message(NAME), message(NAME)])
            await node.store.look_at_partitions([NAME])
            dead = [
                NewLetter(message=one, attempts=1, error="no") for one in await node.store.read_messages(NAME, 0, 0, 2)
            ]
            step = replace(stepped(NAME, 0, 2), letters=tuple(dead))
            assert await node.store.stride(node.id, node.term, [step]) == (True,)
            store = PostgresStore(wire.dsn(), schema=schema, timeout="2s", listen=False)
            await store.open()

            def cut() -> None:
                wire.cut()
                wire.heal()

            async def lose() -> None:
                wire.hang(answers_only=True)
                asyncio.get_running_loop().call_later(0.3, cut)

            which = LetterFilter(outbox=NAME)
            try:
                with pytest.raises(StoreUnavailable):
                    if verb == "discard":
                        await staged(store.discard_letters(which, 1), after_outbox_letters_discard=lose)
                    elif verb == "replay":
                        await staged(store.replay_letters(which, 1), after_outbox_letters_replay=lose)
                    else:
                        within = timedelta(minutes=5)
                        await staged(store.take_letters(which, within, 1), after_outbox_letters_take=lose)
            finally:
                await store.close()
            left = (await node.store.letters(which)).letters
            assert len(left) == 1


@pytest.mark.needs("pgbouncer")
@on_real_time
async def test_all_of_it_works_through_a_pooler(own_postgres: Server) -> None:
    with own_postgres.schema() as schema, Pooler(own_postgres, size=3) as pooler:
        stores = [PostgresStore(pooler.dsn(), schema=schema, connections=3, listen=False) for _ in range(3)]
        try:
            for store in stores:
                await store.open()
            nodes = [await Crowd(own_postgres, schema).node(store) for store in stores]
            await asyncio.gather(*(deliver(node, number) for number, node in enumerate(nodes)))
            await stores[0].look_at_partitions([NAME])
            found = await stores[0].read_messages(NAME, 0, 0, 1000)
            assert [one.seq for one in found] == [*range(1, 31)]
            before = await revision(stores[0], NAME)
            steps = [node.store.stride(node.id, node.term, [stepped(NAME, before, 30)]) for node in nodes]
            assert Counter(await asyncio.gather(*steps)) == {(True,): 1, (False,): 2}
            assert await stores[1].clear_messages(100) == 0  # they are in a day that is not over
        finally:
            for store in stores:
                await store.close()


async def deliver(node: Node, number: int) -> None:
    for place in range(10):
        await node.store.publish([message(NAME, f"{number} {place}".encode())])
        await node.store.look_at_partitions([NAME])
