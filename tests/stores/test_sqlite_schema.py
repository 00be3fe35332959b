"""A file as it is found: new, the user's own, older, newer, foreign, out of reach."""

import errno
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mainspring.cli.doctor.content import content
from mainspring.errors import DeclarationError, SchemaError, StoreClosed, StoreError, StoreUnavailable
from mainspring.stores.port import Store, Transactions
from mainspring.stores.records import JobFilter
from mainspring.stores.sqlite import SqliteStore, connect, migrate, opened
from mainspring.stores.sqlite.migrate import Migration
from mainspring.testing import VirtualTime
from mainspring.testing.contract import SettableClock
from mainspring.testing.contract.world import World

pytestmark = pytest.mark.usefixtures("virtual_time")


class Files:
    """Handles on one file, for a `World`."""

    def __init__(self, path: Path, clock: SettableClock) -> None:
        self.path = path
        self.clock = clock

    async def open(self) -> Store:
        store = SqliteStore(self.path, clock=self.clock, patience="2s")
        await store.open()
        return store

    async def crash(self, store: Store) -> None:
        raise NotImplementedError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def world(path: Path) -> World:
    clock = SettableClock()
    return World(Files(path, clock), clock)


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def everything(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_it_is_a_store_that_joins_transactions(path: Path) -> None:
    store: Store = SqliteStore(path)
    transactions: Transactions = SqliteStore(path)

    assert isinstance(transactions, Transactions)
    assert store.shares_fate


async def test_all_that_it_makes_in_a_file_bears_its_name(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()

    own = {name for name in tables(path) if not name.startswith("sqlite_")}
    assert own
    assert all(name.startswith("mainspring_") for name in own)


async def test_it_moves_into_the_users_own_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 7")
        connection.execute("PRAGMA application_id = 42")
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO orders VALUES (1)")
    store = SqliteStore(path)
    await store.open()
    await store.close()

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT id FROM orders").fetchall() == [(1,)]
        assert connection.execute("PRAGMA user_version").fetchone() == (7,)
        assert connection.execute("PRAGMA application_id").fetchone() == (42,)


async def test_a_closed_store_leaves_one_file_and_can_be_opened_again(world: World, path: Path) -> None:
    world.store = await world.open()
    job = await world.enqueue()
    world.store.watch(lambda: None)
    await world.close()
    assert list(everything(path.parent)) == [path.name]

    world.store = await world.open()
    assert await world.is_there(job)
    await world.close()


async def test_a_new_file_and_its_log_are_readable_by_their_owner_only(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    try:
        await store.pause("default")
        assert modes_beside(path) == {path.name: "0o600", f"{path.name}-shm": "0o600", f"{path.name}-wal": "0o600"}
    finally:
        await store.close()


async def test_a_file_that_cannot_be_created_is_an_error_of_the_store(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("mainspring.stores.sqlite.opened.os.open", full)
    with pytest.raises(StoreError, match="cannot be created: No space left on device"):
        await SqliteStore(path).open()


async def test_a_file_that_exists_keeps_its_mode(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o640))
    store = SqliteStore(path)
    await store.open()
    await store.close()
    assert modes_beside(path) == {path.name: "0o640"}


def modes_beside(path: Path) -> dict[str, str]:
    found = sorted(one for one in path.parent.iterdir() if one.name.startswith(path.name) and one.is_file())
    return {one.name: oct(one.stat().st_mode & 0o777) for one in found}


async def test_opening_twice_and_closing_twice_is_the_same_as_once(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.open()
    assert await store.queues() == ()
    await store.close()
    await store.close()

    with pytest.raises(StoreClosed, match="open"):
        await store.queues()


async def test_asking_for_the_schema_leaves_no_trace(path: Path) -> None:
    store = SqliteStore(path)
    assert (await store.schema()).found == 0
    assert everything(path.parent) == {}

    await store.open()
    await store.close()
    before = everything(path.parent)
    schema = await store.schema()

    assert schema.found == schema.wanted == migrate.WANTED
    assert everything(path.parent) == before


@pytest.mark.parametrize("content", [b"a letter to a friend\n" * 400, b"SQLite format 3\0" + b"\xff" * 4080])
def test_a_file_that_is_no_database_is_left_alone(path: Path, content: bytes, virtual_time: VirtualTime) -> None:
    path.write_bytes(content)
    with pytest.raises(SchemaError, match="no SQLite database"):
        virtual_time.run(SqliteStore(path).open())
    with pytest.raises(SchemaError, match="no SQLite database"):
        virtual_time.run(SqliteStore(path).schema())

    assert everything(path.parent) == {path.name: content}


async def test_tables_that_serve_newer_code_only_are_left_alone(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()
    set_version(path, version=99, oldest_code=98)
    before = everything(path.parent)

    problem = rf"version 99 .* 98 or later, and this one knows {migrate.WANTED}; upgrade Mainspring here"
    with pytest.raises(SchemaError, match=problem):
        await store.open()
    assert (await store.schema()).found == 99
    assert everything(path.parent) == before


async def test_newer_tables_that_serve_this_code_too_are_used(path: Path, world: World) -> None:
    await SqliteStore(path).open()
    set_version(path, version=99, oldest_code=1)

    world.store = await world.open()
    await world.enqueue()
    assert (await world.store.schema()).found == 99
    await world.close()


def set_version(path: Path, *, version: int, oldest_code: int) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE mainspring_schema SET version = ?, oldest_code = ?", (version, oldest_code))


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    yield connection
    connection.close()


def test_migrations_are_numbered_without_a_gap_and_each_says_whom_it_serves() -> None:
    assert [step.number for step in migrate.MIGRATIONS] == list(range(1, migrate.WANTED + 1))
    assert all(1 <= step.oldest_code <= step.number for step in migrate.MIGRATIONS)


def test_only_what_is_missing_is_migrated(connection: sqlite3.Connection) -> None:
    second = Migration(2, 1, "CREATE TABLE mainspring_second (a);\nINSERT INTO mainspring_second VALUES (';');\n")
    third = Migration(3, 2, "CREATE TABLE mainspring_third (a);")
    migrate.migrate("a store", connection, 1, (migrate.MIGRATIONS[0], second))
    assert migrate.found(connection) == (2, 1)
    migrate.migrate("a store", connection, 2, (migrate.MIGRATIONS[0], second, third))
    migrate.migrate("a store", connection, 3, (migrate.MIGRATIONS[0], second, third))

    assert migrate.found(connection) == (3, 2)
    assert connection.execute("SELECT * FROM mainspring_second").fetchall() == [(";",)]
    assert connection.execute("SELECT version, changed_at FROM mainspring_schema").fetchall() == [(3, 2)]


def test_a_migration_that_fails_leaves_the_tables_as_they_were(connection: sqlite3.Connection) -> None:
    migrate.migrate("a store", connection, 1)
    before = connection.execute("SELECT * FROM sqlite_master").fetchall()
    version = migrate.found(connection)
    broken = Migration(migrate.WANTED + 1, 2, "CREATE TABLE mainspring_second (a);\nINSERT INTO nowhere VALUES (1);")
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        migrate.migrate("a store", connection, 2, (*migrate.MIGRATIONS, broken))

    assert connection.execute("SELECT * FROM sqlite_master").fetchall() == before
    assert migrate.found(connection) == version
    assert not connection.in_transaction


STARTER = """
import asyncio, sys
from mainspring.stores.sqlite import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    await store.open()
    print((await store.schema()).found, len(await store.queues()), flush=True)
    await store.close()

asyncio.run(main())
"""


@pytest.mark.slow
def test_several_processes_may_start_on_a_new_file_at_once(path: Path) -> None:
    """Each opens the file when it is told to, so that they really meet."""
    start = [sys.executable, "-c", STARTER, str(path)]
    children = [
        subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) for _ in range(5)
    ]
    for child in children:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin
        child.stdin.write("go\n")
        child.stdin.flush()
    answers = [child.communicate(timeout=60)[0] for child in children]

    assert answers == [f"{migrate.WANTED} 0\n"] * 5
    assert [child.returncode for child in children] == [0] * 5


async def test_a_folder_that_is_missing_is_named_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no folder .*nowhere; make it"):
        await SqliteStore(tmp_path / "nowhere" / "jobs.db").open()
    assert everything(tmp_path) == {}


async def test_a_path_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="it is a folder; name a file in it"):
        await SqliteStore(tmp_path).open()


NOBODY = """
import asyncio, os, sys
from mainspring.errors import StoreError
from mainspring.stores.sqlite import SqliteStore

if os.geteuid() == 0:  # who may write everywhere
    os.setgid(65534)
    os.setuid(65534)
try:
    asyncio.run(SqliteStore(sys.argv[1]).open())
except StoreError as error:
    print(type(error).__name__, error.problem)
"""


def opened_by_nobody(path: Path) -> str:
    child = [sys.executable, "-c", NOBODY, str(path)]
    return subprocess.run(child, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture
def shown() -> Iterator[Path]:
    """A folder that everyone may enter; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def test_a_folder_that_may_not_be_written_is_told(shown: Path) -> None:
    shown.chmod(0o555)

    assert opened_by_nobody(shown / "jobs.db").startswith(f"StoreError {shown} may not be written; check its perm")
    assert not list(shown.iterdir())


def test_a_file_that_may_not_be_written_is_told(shown: Path, virtual_time: VirtualTime) -> None:
    path = shown / "jobs.db"
    store = SqliteStore(path)
    virtual_time.run(store.open())
    virtual_time.run(store.close())
    path.chmod(0o444)
    shown.chmod(0o777)
    before = everything(shown)

    assert opened_by_nobody(path).startswith(f"StoreError {path} may not be written; check its permissions")
    assert everything(shown) == before


def test_a_folder_that_may_not_be_entered_is_told(shown: Path) -> None:
    shown.chmod(0o000)

    assert opened_by_nobody(shown / "jobs.db").startswith("StoreError its folder cannot be entered; check the perm")


async def test_a_full_disk_passes_and_the_store_goes_on(world: World) -> None:
    store = world.store = await world.open()
    assert isinstance(store, SqliteStore)
    kept = await world.enqueue()
    await limit_pages(store, 0)
    large = [world.new(payload=b"x" * 20_000) for _ in range(20)]

    with pytest.raises(StoreUnavailable, match="there is no space left; free some"):
        await store.enqueue(large)
    assert len((await store.list_jobs(JobFilter())).jobs) == 1

    await limit_pages(store, 1_000_000)
    assert all(one.fresh for one in await store.enqueue(large))
    assert await world.is_there(kept)
    await world.close()


async def limit_pages(store: SqliteStore, pages: int) -> None:
    """Let the writer's file grow to so many pages, or to those that it has."""
    await store._write(lambda session: session.rows(f"PRAGMA max_page_count = {pages or 1}"))


async def test_an_old_library_is_told_before_anything_is_touched(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.34.1")
    with pytest.raises(StoreError, match=r"needs SQLite 3.35.0, and this Python has 3.34.1"):
        await SqliteStore(path).open()
    assert everything(path.parent) == {}


@pytest.mark.parametrize("path", ["", ":memory:", "file:jobs.db?mode=memory"])
def test_what_is_no_file_is_refused(path: str) -> None:
    with pytest.raises(DeclarationError, match="is no file; for a store in memory there is MemoryStore"):
        SqliteStore(path)


async def test_a_name_is_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that changes its folder goes on with the same file; one behind a link is the same file too."""
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("jobs.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await store.open()
    await store.close()
    (tmp_path / "link.db").symlink_to(tmp_path / "jobs.db")

    assert store.path == SqliteStore(tmp_path / "link.db").path == (tmp_path / "jobs.db").resolve()
    assert (await SqliteStore(tmp_path / "link.db").schema()).found == migrate.WANTED


async def test_a_database_that_cannot_keep_a_log_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on some disks of a network: SQLite answers with the mode that it stays in."""
    unlogged = "PRAGMA journal_mode = MEMORY"
    plain = connect.connect

    def connected(path: Path, *, durable: bool, create: bool) -> sqlite3.Connection:
        class Stubborn(sqlite3.Connection):
            def execute(self, sql: str, *rest: object) -> sqlite3.Cursor:
                return super().execute(unlogged if "journal_mode" in sql else sql, *rest)  # type: ignore[arg-type] # as given

        plain(path, durable=durable, create=create).close()
        return sqlite3.connect(path, factory=Stubborn, isolation_level=None)

    monkeypatch.setattr(opened, "connect", connected)
    with pytest.raises(StoreError, match="'memory' when asked for a write-ahead log; put it on a local disk"):
        await SqliteStore(path).open()


async def test_a_lock_while_it_is_opened_is_waited_for(path: Path) -> None:
    store = SqliteStore(path, patience="20s")
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.1, other.execute, ["ROLLBACK"])
        release.start()
        await store.open()
        assert not other.in_transaction
        release.join()
    await store.close()


async def test_a_lock_that_stays_is_told(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            StoreUnavailable, match=r"the write lock is held by .* look for a transaction that was left open"
        ):
            await SqliteStore(path, patience="50ms").open()
    assert everything(path.parent) == {path.name: b""}


LOCKS = Path("/proc/locks")


def locks_on(path: Path) -> set[str]:
    """The POSIX locks that this process has on a file: kind, and the bytes from and to."""
    inode, here = f":{path.stat().st_ino}", str(os.getpid())
    lines = [line.split()[-6:] for line in LOCKS.read_text(encoding="ascii").splitlines()]
    return {f"{kind} {start} {end}" for _, kind, pid, file, start, end in lines if file.endswith(inode) and pid == here}


@pytest.mark.skipif(not LOCKS.exists(), reason="only Linux tells which locks there are")
@pytest.mark.parametrize("mode", ["wal", "delete"])
async def test_no_look_at_a_file_takes_locks_from_connections_of_this_process(path: Path, mode: str) -> None:
    """As closing any other descriptor of it would; then another process could take away the log that is in use."""
    store = SqliteStore(path)
    await store.open()
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as users:
        users.execute(f"PRAGMA journal_mode = {mode}")
        users.execute("CREATE TABLE orders (name TEXT)")
        users.execute("BEGIN")
        users.execute("SELECT * FROM orders").fetchall()
        before = locks_on(path)
        assert before

        assert (await SqliteStore(path).schema()).found == migrate.WANTED
        assert locks_on(path) == before
        [*content(path, durable=True)]
        assert locks_on(path) == before
        users.execute("COMMIT")
        held = locks_on(path)
        store = SqliteStore(path)
        await store.open()
        assert held <= locks_on(path)
        await store.close()
        assert held <= locks_on(path)


async def test_a_look_at_a_file_that_is_open_nowhere_leaves_no_trace(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()
    before = everything(path.parent)

    assert connect.keeps_a_log(path)
    assert (await SqliteStore(path).schema()).found == migrate.WANTED
    assert everything(path.parent) == before


async def test_a_look_that_was_disturbed_is_taken_again(path: Path) -> None:
    """Without a log beside it a file is read as one that nobody writes to; somebody may come just then."""
    store = SqliteStore(path)
    await store.open()
    await store.close()
    looks: list[int] = []

    def look(_: sqlite3.Connection) -> int:
        looks.append(1)
        if len(looks) == 1:
            raise sqlite3.DatabaseError("database disk image is malformed")
        return len(looks)

    assert connect.look_inside(path, look) == 2


KILLED_WHILE_IT_WROTE = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, body BLOB)")
connection.executemany("INSERT INTO orders (body) VALUES (?)", [(b"x" * 4000,)] * 200)
connection.execute("PRAGMA cache_size = 5")
connection.execute("BEGIN")
connection.execute("UPDATE orders SET body = zeroblob(4000)")
os.kill(os.getpid(), signal.SIGKILL)
"""


def leave_a_journal(path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED_WHILE_IT_WROTE, str(path)], check=False)


async def test_a_file_whose_writer_was_killed_is_opened(path: Path) -> None:
    """Its own, in a database that keeps no log yet: the journal has to be played back, which only a writer may."""
    leave_a_journal(path)
    assert everything(path.parent).keys() == {"jobs.db", "jobs.db-journal"}
    store = SqliteStore(path)
    await store.open()
    await store.close()

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM orders WHERE body = zeroblob(4000)").fetchone() == (0,)
