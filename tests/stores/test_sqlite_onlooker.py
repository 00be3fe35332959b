"""Commits of the user's own, which cannot ring: whoever has written in them rings when they have come."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from mainspring.stores.outbox import NewMessage
from mainspring.stores.sqlite import SqliteStore, wake

pytestmark = pytest.mark.usefixtures("virtual_time")

NEW = NewMessage(outbox="orders", partitions=1, partition=0, payload=b"1", type="json")
LONG = 20.0
"""Seconds: longer than anything here takes, and shorter than the next look that a listener takes by itself."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    """A store that looks for what cannot ring once a minute."""
    store = SqliteStore(path, durable=False, poll="60s")
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def onlookers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "mainspring-sqlite-onlooker"]


async def gone() -> None:
    for thread in onlookers():
        await asyncio.to_thread(thread.join, LONG)
        assert not thread.is_alive()


@pytest.mark.parametrize("is_other", [False, True], ids=["here", "through another door"])
async def test_a_commit_of_the_users_own_is_heard_at_once(
    path: Path, connection: sqlite3.Connection, *, is_other: bool
) -> None:
    heard = threading.Event()
    async with opened(path) as store, opened(path) as other:
        (other if is_other else store).watch(heard.set)
        for _ in range(3):
            connection.execute("BEGIN IMMEDIATE")
            store.publish_in_sync(connection, [NEW])
            heard.clear()
            connection.execute("COMMIT")
            assert await asyncio.to_thread(heard.wait, LONG), "it was left to the next look"
        await gone()


async def test_nobody_is_told_of_what_was_rolled_back(
    path: Path, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake, "SOON", 0.05)
    heard = threading.Event()
    async with opened(path) as store:
        store.watch(heard.set)
        connection.execute("BEGIN IMMEDIATE")
        store.publish_in_sync(connection, [NEW])
        connection.execute("ROLLBACK")
        await gone()
        assert not heard.is_set()


async def test_a_transaction_that_stays_open_is_not_looked_for_without_end(
    path: Path, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake, "SOON", 0.05)
    async with opened(path) as store:
        connection.execute("BEGIN IMMEDIATE")
        store.publish_in_sync(connection, [NEW])
        await gone()
        monkeypatch.setattr(wake, "SOON", LONG)
        heard = threading.Event()
        store.watch(heard.set)
        store.publish_in_sync(connection, [NEW])
        connection.execute("COMMIT")
        assert await asyncio.to_thread(heard.wait, LONG), "another look begins with the next write"


async def test_closing_a_store_ends_the_looking(
    path: Path, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake, "SOON", 10 * LONG)
    async with opened(path) as store:
        connection.execute("BEGIN IMMEDIATE")
        store.publish_in_sync(connection, [NEW])
        assert len(onlookers()) == 1
        connection.execute("ROLLBACK")
    assert onlookers() == []
