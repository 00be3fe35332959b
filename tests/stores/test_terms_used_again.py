"""Terms that are given a second time, as after a failover that lost commits, or a restore."""

import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import uuid4

from mainspring.core.job import NodeId
from mainspring.stores.port import Store
from mainspring.stores.records import NodeRecord, NodeView, Process
from mainspring.stores.sqlite import SqliteStore
from tests.servers.postgres import Server
from tests.stores.postgres_crowd import crowd
from tests.stores.postgres_wires import on_real_time


async def join(store: Store) -> tuple[NodeId, int]:
    process = Process(host="here", pid=1, started="today")
    record = NodeRecord(id=NodeId(uuid4().hex), process=process, tasks=frozenset())
    return record.id, await store.join(record)


async def seen(store: Store, watcher: tuple[NodeId, int], term: int) -> NodeView:
    """Renew the watcher, and return the node of this term as it sees it."""
    pulse = await store.renew(*watcher)
    return next(view for view in pulse.nodes if view.term == term)


async def assert_new_node_is_seen(store: Store, watcher: tuple[NodeId, int], before: tuple[NodeId, int]) -> None:
    new, term = await join(store)
    assert term == before[1]

    view = await seen(store, watcher, term)

    assert view.node.id == new
    assert await store.declare_dead(view.node.id, term, view.counter)


@on_real_time
async def test_a_watcher_reads_the_record_of_a_new_node_that_has_the_term_of_a_lost_one(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        store = await those.open()
        watcher, lost = await join(store), await join(store)
        assert (await seen(store, watcher, lost[1])).node.id == lost[0]

        for table in ("beats", "nodes"):
            await those.sql(f"DELETE FROM mainspring.{table} WHERE term = $1", lost[1])  # noqa: S608 -- a constant
        ((sequence,),) = await those.sql("SELECT pg_get_serial_sequence('mainspring.nodes', 'term')")
        await those.sql("SELECT setval($1::text::regclass, $2, false)", sequence, lost[1])

        await assert_new_node_is_seen(store, watcher, lost)


@on_real_time
async def test_a_watcher_of_a_file_reads_the_record_of_a_new_node_that_has_the_term_of_a_lost_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteStore(path)
    await store.open()
    try:
        watcher, lost = await join(store), await join(store)
        assert (await seen(store, watcher, lost[1])).node.id == lost[0]

        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("DELETE FROM mainspring_nodes WHERE term = ?", (lost[1],))
            connection.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'mainspring_nodes'", (lost[1] - 1,))

        await assert_new_node_is_seen(store, watcher, lost)
    finally:
        await store.close()
