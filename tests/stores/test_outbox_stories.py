"""Random stories about an outbox, on the stores that keep some."""

import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from mainspring.stores.memory import MemoryStore
from mainspring.stores.port import Store
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing.contract import SettableClock, UserTransaction
from tests.stores.outbox_stories import Ground, OutboxStories
from tests.stores.test_contract import Connection
from tests.tier import FULL


class OnSqlite:
    """A file."""

    joins = True
    two_writers = False

    def __init__(self) -> None:
        self.clock = SettableClock()
        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name) / "jobs.db"

    async def open(self) -> Store:
        store = SqliteStore(self._path, clock=self.clock, durable=False)
        await store.open()
        return store

    async def begin(self) -> UserTransaction:
        return Connection(sqlite3.connect(self._path))

    def close(self) -> None:
        self._folder.cleanup()


class OnMemory:
    """A store in this process: nobody's transaction can be joined."""

    joins = False
    two_writers = False

    def __init__(self) -> None:
        self.clock = SettableClock()
        self._first = MemoryStore(clock=self.clock)

    async def open(self) -> Store:
        store = self._first.another()
        await store.open()
        return store

    async def begin(self) -> UserTransaction:
        raise NotImplementedError

    def close(self) -> None:
        pass


class MemoryStories(OutboxStories):
    def make(self) -> Ground:
        return OnMemory()


class SqliteStories(OutboxStories):
    def make(self) -> Ground:
        return OnSqlite()


MANY = settings(max_examples=150 if FULL else 25, stateful_step_count=50, report_multiple_bugs=False)
TestStoriesOfMemory = pytest.mark.timeout(900)(MemoryStories.TestCase)
TestStoriesOfMemory.settings = MANY
TestStoriesOfSqlite = pytest.mark.timeout(900)(SqliteStories.TestCase)
TestStoriesOfSqlite.settings = MANY
