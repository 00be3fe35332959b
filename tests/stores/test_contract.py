"""The contract suite on the stores of the package, and the suite itself held against the port."""

import ast
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from mainspring.stores import outbox, overview, port
from mainspring.stores.memory import MemoryStore
from mainspring.stores.port import Store
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime
from mainspring.testing.contract import (
    CostContract,
    Harness,
    LastingContract,
    LastingHarness,
    Obligation,
    OutboxesContract,
    OutboxesInTransactionsContract,
    OutboxesOfManyWritersContract,
    OverviewContract,
    OverviewCostContract,
    SettableClock,
    StoreContract,
    TransactionsContract,
    TransactionsHarness,
    UpkeepContract,
    UserTransaction,
    obligations,
)


class MemoryHarness:
    """Handles on one state, which is in this process."""

    def __init__(self, clock: SettableClock) -> None:
        self._first = MemoryStore(clock=clock)

    async def open(self) -> Store:
        store = self._first.another()
        await store.open()
        return store

    async def crash(self, store: Store) -> None:
        """Leave it to itself: it holds nothing that others wait for."""


class SqliteHarness:
    """Handles on one file. They wait for as long as anyone waits; where something stands in their way, say `patience`."""

    def __init__(self, path: Path, clock: SettableClock, *, patience: str = "60s") -> None:
        self._path = path
        self._clock = clock
        self._patience = patience
        self._crashed: list[Store] = []
        self._obstacle: sqlite3.Connection | None = None

    async def open(self) -> Store:
        store = SqliteStore(self._path, clock=self._clock, durable=False, patience=self._patience)
        await store.open()
        return store

    async def crash(self, store: Store) -> None:
        self._crashed.append(store)

    def unopened(self) -> Store:
        return SqliteStore(self._path, clock=self._clock, durable=False)

    async def occupy(self) -> None:
        self._path.write_bytes(b"a letter to a friend\n" * 500)

    async def outgrow(self) -> None:
        with sqlite3.connect(self._path) as connection:
            connection.execute("UPDATE mainspring_schema SET version = version + 1, oldest_code = version + 1")
        connection.close()

    async def content(self) -> object:
        return self._path.read_bytes()

    async def obstruct(self) -> None:
        self._obstacle = sqlite3.connect(self._path, isolation_level=None)
        self._obstacle.execute("BEGIN IMMEDIATE")

    async def clear(self) -> None:
        if self._obstacle:
            self._obstacle.close()
        self._obstacle = None

    async def close(self) -> None:
        """Free what the crashed hold; by now nobody looks any more."""
        await self.clear()
        for store in self._crashed:
            await store.close()


@dataclass(frozen=True, slots=True)
class Connection:
    """A transaction of the user's own; the standard library's driver blocks, and there is no other."""

    handle: sqlite3.Connection

    async def commit(self) -> None:
        self.handle.commit()
        self.handle.close()

    async def rollback(self) -> None:
        self.handle.rollback()
        self.handle.close()


class SqliteTransactionsHarness(SqliteHarness):
    """The same, with a table of the user's beside ours."""

    write_number = "INSERT INTO numbers (number) VALUES (?)"

    def __init__(self, path: Path, clock: SettableClock) -> None:
        super().__init__(path, clock)
        self._create(path)

    async def numbers(self) -> list[int]:
        connection = sqlite3.connect(self._path)
        rows = connection.execute("SELECT number FROM numbers ORDER BY number").fetchall()
        connection.close()
        return [number for (number,) in rows]

    async def begin(self, *, blocking: bool) -> UserTransaction:  # noqa: ARG002 -- there is one driver
        return self._connected(self._path)

    async def begin_elsewhere(self) -> UserTransaction:
        elsewhere = self._path.with_name("elsewhere.db")
        self._create(elsewhere)
        return self._connected(elsewhere)

    async def commit_each(self) -> UserTransaction:
        return Connection(sqlite3.connect(self._path, isolation_level=None))

    def _create(self, path: Path) -> None:
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE numbers (number INTEGER)")
        connection.close()

    def _connected(self, path: Path) -> Connection:
        connection = sqlite3.connect(path)
        connection.execute(self.write_number, (1,))
        return Connection(connection)


class OnMemory:
    @pytest.fixture
    def harness(self, clock: SettableClock) -> Harness:
        return MemoryHarness(clock)


class OnSqlite:
    patience: ClassVar = "60s"

    @pytest.fixture
    def harness(self, tmp_path: Path, clock: SettableClock, virtual_time: VirtualTime) -> Iterator[LastingHarness]:
        harness = SqliteHarness(tmp_path / "jobs.db", clock, patience=self.patience)
        yield harness
        virtual_time.run(harness.close())


class TestMemory(OnMemory, StoreContract): ...


class TestSqlite(OnSqlite, StoreContract): ...


class TestSqliteLasts(OnSqlite, LastingContract):
    patience: ClassVar = "1s"  # by itself each is alone at the file: only what obstructs it makes it wait


class TestSqliteInTransactions(TransactionsContract):
    @pytest.fixture
    def harness(self, tmp_path: Path, clock: SettableClock, virtual_time: VirtualTime) -> Iterator[TransactionsHarness]:
        harness = SqliteTransactionsHarness(tmp_path / "jobs.db", clock)
        yield harness
        virtual_time.run(harness.close())


class TestTheOutboxesOfMemory(OnMemory, OutboxesContract): ...


class TestTheOutboxesOfSqlite(OnSqlite, OutboxesContract): ...


class TestTheOutboxesOfSqliteInTransactions(OutboxesInTransactionsContract):
    @pytest.fixture
    def harness(self, tmp_path: Path, clock: SettableClock, virtual_time: VirtualTime) -> Iterator[TransactionsHarness]:
        harness = SqliteTransactionsHarness(tmp_path / "jobs.db", clock)
        yield harness
        virtual_time.run(harness.close())


class TestTheUpkeepOfMemory(OnMemory, UpkeepContract): ...


class TestTheUpkeepOfSqlite(OnSqlite, UpkeepContract): ...


class TestTheOverviewOfMemory(OnMemory, OverviewContract): ...


class TestTheOverviewOfSqlite(OnSqlite, OverviewContract): ...


@pytest.mark.slow
class TestTheCostOfTheOverviewOfMemory(OnMemory, OverviewCostContract): ...


@pytest.mark.slow
class TestTheCostOfTheOverviewOfSqlite(OnSqlite, OverviewCostContract): ...


@pytest.mark.slow
class TestTheCostOfMemory(OnMemory, CostContract): ...


@pytest.mark.slow
class TestTheCostOfSqlite(OnSqlite, CostContract): ...


# The suite and the port.

CONTRACTS = (
    StoreContract,
    CostContract,
    LastingContract,
    TransactionsContract,
    UpkeepContract,
    OutboxesContract,
    OutboxesInTransactionsContract,
    OutboxesOfManyWritersContract,
    OverviewContract,
    OverviewCostContract,
)


def functions() -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for module in (port, outbox, overview):
        for role in ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body:
            if isinstance(role, ast.ClassDef):
                yield from (one for one in role.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))


def numbers(text: str) -> list[int]:
    """Find the numbered sentences: at the start of a line, or behind the end of another sentence."""
    return [int(number) for number in re.findall(r"(?:^ *|\. )(\d+)\. (?=[A-Z`])", text, re.MULTILINE)]


def written() -> set[Obligation]:
    """Read the port: every verb, and every numbered sentence."""
    general = re.findall(r"^G(\d+)\. ", port.__doc__ or "", re.MULTILINE)
    found = {Obligation("G", int(number)) for number in general}
    for function in functions():
        found |= {Obligation(function.name, number) for number in numbers(ast.get_docstring(function) or "")}
    return found


def checked() -> set[Obligation]:
    return {one for contract in CONTRACTS for _, one in obligations(contract)}


def test_the_numbers_of_the_port_are_read_without_gaps() -> None:
    for function in functions():
        found = numbers(ast.get_docstring(function) or "")
        assert found == list(range(1, len(found) + 1)), function.name
    assert {one.number for one in written() if one.verb == "G"} == set(range(1, 8))
    assert Obligation("renew", 2) in written()  # which stands in the middle of a line
    assert Obligation("claim", 10) in written()


def test_every_numbered_sentence_of_the_port_has_a_test() -> None:
    assert written() - checked() == set()


def test_every_verb_of_the_port_has_a_test() -> None:
    assert {function.name for function in functions()} - {one.verb for one in checked()} == set()


def test_no_test_refers_to_a_sentence_that_the_port_does_not_have() -> None:
    unnumbered = {Obligation(function.name) for function in functions()}
    assert checked() - written() - unnumbered == set()


def test_every_test_of_the_suite_names_its_obligation() -> None:
    for contract in CONTRACTS:
        tests = {name for name in dir(contract) if name.startswith("test_")}
        assert tests == {name for name, _ in obligations(contract)}


# How others use it.

MY_STORE = """
from mainspring.stores.memory import MemoryStore

class MyStore(MemoryStore):
    states = {}

    def __init__(self, path, *, clock):
        first = self.states.setdefault(path, MemoryStore(clock=clock))
        super().__init__(shared=first.another()._shared)
"""
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-store.md"


def run_as_the_page_says(folder: Path, store: str) -> str:
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (folder / "mystore.py").write_text(store, encoding="utf-8")
    (folder / "test_mystore.py").write_text(example, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider", "--strict-markers"]
    command += ["-W", "error", "-k", "priorit or unique or ready", "--tb=short", "test_mystore.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False).stdout


@pytest.mark.slow
def test_a_store_of_someone_elses_is_tested_as_the_page_says(tmp_path: Path) -> None:
    said = run_as_the_page_says(tmp_path, MY_STORE)

    assert re.search(r"^\d\d+ passed", said, re.MULTILINE), said


@pytest.mark.slow
def test_a_store_that_breaks_an_obligation_is_told_which_with_its_values(tmp_path: Path) -> None:
    broken = """
    async def enqueue(self, new):
        from msgspec.structs import replace
        return await super().enqueue([replace(one, priority=50) for one in new])
"""
    said = run_as_the_page_says(tmp_path, MY_STORE + broken)

    assert "test_a_higher_priority_goes_first_over_all_queues" in said
    assert re.search(r"^E .*UUID\('", said, re.MULTILINE), said
