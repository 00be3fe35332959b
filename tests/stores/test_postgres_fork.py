"""Forks of a program that is connected to PostgreSQL: the child opens connections of its own, the parent keeps its own."""

import os
import secrets
from pathlib import Path

import pytest

from tests.servers.postgres import Server
from tests.stores import forking

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system"),
]

TOOLS = """
from mainspring.errors import MainspringError
from mainspring.stores.postgres import PostgresStore

async def sessions():
    import asyncpg
    connection = await asyncpg.connect(DSN)
    try:
        found = await connection.fetch(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        return {row["pid"] for row in found}
    finally:
        await connection.close()
"""


@pytest.fixture(params=["URL", "PostgresStore(DSN, schema=SCHEMA)"], ids=["url", "object"])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(program: str, folder: Path, store: str, dsn: str) -> list[str]:
    schema = f"forks_{secrets.token_hex(4)}"
    dsn = f"{dsn}?sslmode=disable"  # a fork while a thread is in OpenSSL leaves its locks held in the child
    names = f"DSN, SCHEMA, URL = {dsn!r}, {schema!r}, {f'{dsn}&schema={schema}'!r}"
    return forking.run(program, folder, store, tools=names + TOOLS)


def test_a_child_leaves_the_connections_of_its_parent_alone(tmp_path: Path, postgres: Server, store: str) -> None:
    program = """
async def main():
    async with app.node():
        assert await (await add.enqueue(1)).result() == 2
        enqueue(1)
        before = await sessions()
        assert before
        def work(step):
            in_three_parts(lambda: None)
            app.close_sync()
            in_three_parts(lambda: None)
        child = await asyncio.to_thread(Child, work)
        await asyncio.to_thread(child.join)
        assert before <= await sessions()
        assert await (await add.enqueue(2)).result() == 3
        enqueue(1)
        states = set()
        while states != {"succeeded"}:
            await asyncio.sleep(0.01)
            jobs = (await app.jobs(limit=300)).jobs
            states = {view.job.state for view in jobs}
        print(len(jobs))
asyncio.run(main())
"""
    assert run(program, tmp_path, store, postgres.dsn()) == ["206"]


def test_a_child_goes_on_when_its_parent_has_ended(tmp_path: Path, postgres: Server, store: str) -> None:
    program = """
enqueue(1)
def work(step):
    parent = os.getppid()
    enqueue(1)
    step()
    while os.getppid() == parent:
        time.sleep(0.001)
    enqueue(50)
    grandchild = Child(in_three_parts)
    grandchild.wait(), grandchild.go(), grandchild.wait()
    enqueue(1)
    app.close_sync()
    grandchild.go(), grandchild.join()
    print(len(asyncio.run(app.jobs(limit=300)).jobs))
child = Child(work)
child.wait()
child.go()
"""
    assert run(program, tmp_path, store, postgres.dsn()) == ["154"]


def test_a_fork_in_a_thread_leaves_the_others_at_work(tmp_path: Path, postgres: Server, store: str) -> None:
    program = """
enqueue(1)
def write():
    while not stop.is_set():
        enqueue(1)
        done.append(1)
def fork():
    child = Child(in_three_parts)
    child.wait(), child.go(), child.wait(), child.go(), child.join()
done, stop = [], threading.Event()
threads = [threading.Thread(target=write) for _ in range(3)]
forks = [threading.Thread(target=fork) for _ in range(3)]
for thread in threads + forks:
    thread.start()
for thread in forks:
    thread.join()
stop.set()
for thread in threads:
    thread.join()
from mainspring.stores.records import JobFilter
async def count():
    found, after = 0, None
    async with app:
        while (page := await app.store.list_jobs(JobFilter(), limit=1000, after=after)).jobs:
            found, after = found + len(page.jobs), page.jobs[-1].job.id
    return found
print(asyncio.run(count()) - 1 - len(done))
"""
    assert run(program, tmp_path, store, postgres.dsn()) == ["303"]


def test_a_transaction_of_the_parent_is_refused_in_a_child(tmp_path: Path, postgres: Server, store: str) -> None:
    program = """
async def main():
    async with app:
        await add.enqueue(0)
        async with app.store.transaction(limit=timedelta(seconds=60)) as tx:
            await add.using(tx=tx).enqueue(1)
            def work(step):
                try:
                    asyncio.run(tx.execute("SELECT 1"))
                except MainspringError:
                    print("refused")
                enqueue(1)
            child = await asyncio.to_thread(Child, work)
            await asyncio.to_thread(child.join)
            await add.using(tx=tx).enqueue(2)
        print(len((await app.jobs()).jobs))
asyncio.run(main())
"""
    printed = run(program, tmp_path, store, postgres.dsn())
    assert printed == ["refused", "4"]


def test_a_child_that_continues_the_event_loop_of_its_parent_opens_connections_of_its_own(
    tmp_path: Path, postgres: Server, store: str
) -> None:
    """A transaction that the child leaves open would be committed by the next one of the parent on the same connection."""
    program = """
async def put(number, leave=False):
    await app.jobs(limit=1)  # opens the store
    async with app.store.transaction() as tx:
        await add.using(tx=tx).enqueue(number)
        if leave:
            os._exit(0)
loop = asyncio.new_event_loop()
loop.run_until_complete(put(1))
Child(lambda step: loop.run_until_complete(put(2, leave=True))).join()
loop.run_until_complete(put(3))
print(len(loop.run_until_complete(app.jobs()).jobs))
loop.run_until_complete(app.close())
loop.close()
"""
    assert run(program, tmp_path, store, postgres.dsn()) == ["2"]


def test_a_child_does_not_wait_for_locks_that_threads_of_its_parent_held(tmp_path: Path, postgres: Server) -> None:
    program = """
enqueue(1)
store = app.store
held = [one._guard for one in (store._connections, store._connections._outage, store._bells, store._skew, store._claim_cache, store._claim_cache.positions, store._head)]
for lock in held:
    lock.acquire()  # as another thread of the parent may do at any time
def work(step):
    async def main():
        async with app.node():
            assert await (await add.enqueue(1)).result() == 2
    asyncio.run(main())
child = Child(work)
for lock in held:
    lock.release()
child.join()
enqueue(1)
print(len(asyncio.run(app.jobs()).jobs))
"""
    assert run(program, tmp_path, "PostgresStore(DSN, schema=SCHEMA)", postgres.dsn()) == ["3"]
