# ruff: noqa: ASYNC240 -- on virtual time nobody waits
"""Upkeep of a file: room is given back where that is worth it and harms nobody, and the log is brought into it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from mainspring.errors import StoreClosed, StoreUnavailable
from mainspring.stores.sqlite import SqliteStore, upkeep
from mainspring.testing import VirtualTime

pytestmark = pytest.mark.usefixtures("virtual_time")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path, virtual_time: VirtualTime) -> Iterator[SqliteStore]:
    store = SqliteStore(path, durable=False)
    virtual_time.run(store.open())
    yield store
    virtual_time.run(store.close())


@contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def fill_and_empty(path: Path, table: str, mebibytes: int = 8) -> None:
    """Have much of the file be free."""
    with connected(path) as connection:
        connection.execute(f"CREATE TABLE {table} (content BLOB)")
        for _ in range(mebibytes):
            connection.execute(f"INSERT INTO {table} VALUES (zeroblob(1048576))")  # noqa: S608 - our own words
        connection.execute(f"DROP TABLE {table}")


async def test_room_that_is_free_is_given_back(store: SqliteStore, path: Path) -> None:
    fill_and_empty(path, "mainspring_passing")
    await store.flush()
    before = path.stat().st_size
    done = await store.compact()
    assert before > 8 << 20
    assert done.freed > 7 << 20
    assert not done.left
    assert path.stat().st_size == done.size
    assert path.stat().st_size < 1 << 20


async def test_a_little_room_is_left_for_what_comes(store: SqliteStore, path: Path) -> None:
    fill_and_empty(path, "mainspring_passing", 2)
    done = await store.compact()
    assert (done.freed, done.left) == (0, "")
    assert done.size
    assert done.size > 2 << 20


async def test_rows_of_others_are_not_numbered_anew(store: SqliteStore, path: Path) -> None:
    with connected(path) as connection:
        connection.execute("CREATE TABLE users (name TEXT)")
    fill_and_empty(path, "mainspring_passing")
    done = await store.compact()
    assert done.freed == 0
    assert "tables of others, such as users" in done.left


async def test_what_would_take_long_is_left_to_people(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_and_empty(path, "mainspring_passing")
    monkeypatch.setattr(upkeep, "MOST", 1000)
    assert "run VACUUM when nobody works" in (await store.compact()).left


async def test_a_vacuum_that_takes_too_long_is_given_up_and_nothing_has_changed(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(path) as connection:
        connection.execute("CREATE TABLE mainspring_kept (number INTEGER)")
        connection.execute("INSERT INTO mainspring_kept SELECT value FROM json_each(?)", (str([*range(9000)]),))
    fill_and_empty(path, "mainspring_passing")
    monkeypatch.setattr(upkeep, "LONGEST", 0.0)
    done = await store.compact()
    assert (done.freed, done.left) == (0, "others would have waited for more than 0 s; run VACUUM when nobody works")
    monkeypatch.undo()
    assert (await store.compact()).freed > 7 << 20


async def test_who_writes_is_not_held_up(store: SqliteStore, path: Path) -> None:
    fill_and_empty(path, "mainspring_passing")
    with connected(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        assert "others were writing" in (await store.compact()).left


async def test_a_file_that_was_made_for_it_shrinks_step_by_step(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with connected(path) as connection:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("CREATE TABLE users (name TEXT)")
    fill_and_empty(path, "mainspring_passing")
    store = SqliteStore(path, durable=False)
    await store.open()
    monkeypatch.setattr(upkeep, "PAGES", 100)
    done = await store.compact()
    await store.close()
    assert done.freed > 7 << 20
    assert path.stat().st_size < 1 << 20


async def test_statistics_are_refreshed_where_there_are_some(store: SqliteStore, path: Path) -> None:
    assert await store.analyze() == ()
    with connected(path) as connection:
        assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_stat1'").fetchall()
        connection.execute("INSERT INTO mainspring_past_nodes VALUES ('a')")
        connection.execute("ANALYZE")
    assert "mainspring_past_nodes" in await store.analyze()


async def test_a_flush_brings_the_log_into_the_file(store: SqliteStore, path: Path) -> None:
    await store.pause("mail")
    await store.flush()
    copy = path.with_name("copy.db")
    copy.write_bytes(path.read_bytes())  # of the file alone, without its log
    with connected(copy) as connection:
        assert connection.execute("SELECT queue FROM mainspring_pauses").fetchall() == [("mail",)]


async def test_a_flush_that_others_are_in_the_way_of_says_so(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "PATIENCE", 0.05)
    with connected(path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM mainspring_pauses").fetchall()
        await store.pause("mail")
        with pytest.raises(StoreUnavailable, match="try again later"):
            await store.flush()
    await store.flush()


async def test_a_closed_store_is_not_kept_up(store: SqliteStore) -> None:
    await store.close()
    for verb in (store.compact, store.analyze, store.flush):
        with pytest.raises(StoreClosed):
            await verb()
