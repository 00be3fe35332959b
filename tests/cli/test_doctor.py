"""`mainspring doctor`: each check is shown what it is there to find."""

import asyncio
import os
import signal
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mainspring import Every, Mainspring
from mainspring.cli.doctor.content import QUICKLY, integrity
from mainspring.cli.doctor.finding import Finding, Level
from mainspring.cli.doctor.here import clock, sqlite_version
from mainspring.cli.doctor.life import COMMITTED_WITHIN, HEARD_WITHIN, doorbell
from mainspring.cli.doctor.place import disk, file_system, kind_of, place
from mainspring.client.health.work import ahead, live_nodes
from mainspring.client.standing import standing
from mainspring.core.job import NodeId
from mainspring.runtime.process import this_process
from mainspring.stores.records import NodeRecord, NodeView, Process
from mainspring.stores.sqlite import SqliteStore
from tests.cli.conftest import Shop, cli
from tests.cli.schedules_shop import plan, planner

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def examined(shop: Shop, *, code: int, url: str = "") -> dict[str, str]:
    """Run the doctor; returns "level: what it says" by subject, the worst of each."""
    done = cli("doctor", "--url", url or shop.url)
    assert done.exit_code == code, done.output
    found: dict[str, str] = {}
    for line in done.output.splitlines():
        level, subject, says = line[:4].strip(), line[6:17].strip(), line[19:]
        if level and (level != "ok" or subject not in found):
            found[subject] = f"{level}: {says}"
    return found


@pytest.fixture
def healthy(shop: Shop) -> Shop:
    assert cli("migrate", "--url", shop.url).exit_code == 0
    return shop


def test_a_store_in_good_order_is_found_to_be(healthy: Shop) -> None:
    found = examined(healthy, code=0)
    assert [says for says in found.values() if not says.startswith("ok")] == []
    assert set(found) == {
        *("python", "packages", "sqlite", "clock", "url", "file", "file time", "folder", "file system", "disk"),
        *("integrity", "durability", "schema", "doorbell", "nodes", "jobs", "schedules", "queues"),
    }


def test_it_leaves_everything_as_it_was(healthy: Shop) -> None:
    shop = healthy
    shop.enqueue("add", 1)
    before = (shop.lines("jobs", "list"), shop.lines("queues", "list"), shop.lines("nodes", "list", "--all"))
    examined(shop, code=1)
    assert (shop.lines("jobs", "list"), shop.lines("queues", "list"), shop.lines("nodes", "list", "--all")) == before


def test_as_json_each_finding_is_a_line(healthy: Shop) -> None:
    lines = healthy.lines("doctor")
    assert all(set(line) == {"level", "subject", "says", "do"} for line in lines)
    assert {line["level"] for line in lines} == {"ok"}


def test_what_is_wrong_comes_with_what_to_do(shop: Shop) -> None:
    done = cli("doctor", "--url", shop.url)
    assert done.exit_code == 1
    assert f"fail  file         there is no file {shop.path}\n" in done.output
    assert "→ run a worker, or `mainspring migrate`, to make it\n" in done.output
    assert not shop.path.exists()


@pytest.mark.parametrize(
    ("url", "subject", "says"),
    [
        ("nonsense", "url", "it has no scheme"),
        ("sqlite:///no/such/folder.db", "file", "there is no folder"),
        ("sqlite:///folder", "file", "is no file"),
    ],
)
def test_a_url_that_leads_nowhere(shop: Shop, url: str, subject: str, says: str) -> None:
    (shop.folder / "folder").mkdir()
    assert says in examined(shop, code=1, url=url)[subject]


def test_a_store_in_memory_has_nothing_to_examine(shop: Shop) -> None:
    assert examined(shop, code=0, url="memory://")["url"] == "ok: memory"


# This machine.


def test_a_sqlite_that_is_too_old() -> None:
    assert sqlite_version((3, 34, 1)).level is Level.FAIL
    assert "rare WAL-reset bug" in sqlite_version((3, 40, 1)).says
    for mended in ((3, 44, 6), (3, 51, 3), (3, 52, 0)):
        assert sqlite_version(mended).says == ".".join(map(str, mended))


def test_a_clock_that_was_never_set() -> None:
    assert clock(datetime(1970, 1, 1, tzinfo=UTC)).level is Level.FAIL


# The place.


@contextmanager
def someone_else() -> Iterator[Path]:
    """Be a user without rights, as far as files are concerned, with a folder that everyone may enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def findings(path: Path) -> dict[str, Finding]:
    return {finding.subject: finding for finding in place(path)}


def test_a_file_or_folder_that_may_not_be_written() -> None:
    with someone_else() as folder:
        path = folder / "jobs.db"
        if os.geteuid() == 65534:
            os.seteuid(0)
            path.touch(0o444)
            os.seteuid(65534)
        else:
            path.touch(0o444)
            folder.chmod(0o555)
        found = findings(path)
    assert found["file"].level is Level.FAIL
    assert "cannot be read and written" in found["file"].says
    assert found["folder"].level is Level.FAIL
    assert "cannot write in" in found["folder"].says


def test_a_folder_that_may_not_be_entered(tmp_path: Path) -> None:
    with someone_else():
        closed = tmp_path / "closed"
        if os.geteuid() != 65534:
            closed.mkdir(0o000)
        found = findings(closed / "jobs.db")
    assert found["file"].level is Level.FAIL
    assert "Permission denied" in found["file"].says


def test_a_file_that_every_account_can_read(healthy: Shop) -> None:
    healthy.path.chmod(0o644)
    assert examined(healthy, code=0)["file mode"] == "warn: every account of this machine can read the file, mode 644"
    healthy.path.chmod(0o640)
    assert "file mode" not in examined(healthy, code=0)


def test_a_file_from_the_future(healthy: Shop) -> None:
    ahead = datetime.now(UTC) + timedelta(hours=2)
    os.utime(healthy.path, (ahead.timestamp(), ahead.timestamp()))
    assert examined(healthy, code=0)["file time"].startswith("warn: the file was written ")


MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:35 / /mnt/my\040share rw,relatime shared:20 - nfs4 server:/export rw,vers=4.2
41 22 0:36 / /mnt rw - tmpfs tmpfs rw
42 41 0:37 / /mnt/guest rw - 9p host rw
43 42 0:38 / /mnt/guest rw - ext4 /dev/sdb rw
""".strip()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/jobs.db", "ext4"),
        ("/mnt/my share/x/jobs.db", "nfs4"),
        ("/mnt/jobs.db", "tmpfs"),
        ("/mnt/guest/a", "ext4"),
    ],
)
def test_the_file_system_is_that_of_the_innermost_and_latest_mount(path: str, kind: str) -> None:
    assert kind_of(Path(path), MOUNTS) == kind


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "virtiofs"])
def test_a_file_system_that_is_shared_over_a_network(kind: str) -> None:
    found = file_system(Path("/mnt/guest/jobs.db"), f"42 41 0:37 / /mnt/guest rw - {kind} host rw")
    assert found.level is Level.WARN
    assert "locks do not hold" in found.says


def test_the_file_system_under_this_test_has_a_kind(tmp_path: Path) -> None:
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    kind = kind_of(tmp_path, mounts)
    assert kind
    assert f" - {kind} " in mounts


def test_a_disk_that_is_nearly_full(tmp_path: Path) -> None:
    path, more_than_there_is = tmp_path / "jobs.db", 10**18
    assert disk(path, too_little=more_than_there_is).level is Level.FAIL
    assert disk(path, little=more_than_there_is, too_little=0).level is Level.WARN
    assert disk(path, little=0, too_little=0).level is Level.OK


# What is in the file.


def test_a_file_that_is_damaged(healthy: Shop) -> None:
    with healthy.path.open("r+b") as file:
        file.seek(4096 * 4)
        file.write(b"\x55" * 4096 * 3)
    found = examined(healthy, code=1)["integrity"]
    assert found.startswith("fail: the file is damaged")


def test_a_file_that_is_no_database(shop: Shop) -> None:
    shop.path.write_bytes(b"dear diary, " * 100)
    found = examined(shop, code=1)
    assert "fail: the file cannot be read: file is not a database" in found["integrity"]
    assert found["schema"] == "fail: the file is no SQLite database"
    assert "→ use another file, or move this one away" in cli("doctor", "--url", shop.url).output


def test_the_search_for_damage_is_limited(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "big.db")) as connection:
        connection.execute("CREATE TABLE numbers (number INTEGER)")
        connection.executemany("INSERT INTO numbers VALUES (?)", [(number,) for number in range(200_000)])
        connection.commit()
        assert "larger than that" in integrity(connection, limit=0).says
        assert "no damage found, in" in integrity(connection, limit=QUICKLY).says


def test_a_store_that_a_power_cut_may_set_back(healthy: Shop) -> None:
    assert "warn: durable=false" in examined(healthy, code=0, url=f"{healthy.url}?durable=false")["durability"]


def test_a_file_that_has_lost_its_journal_mode(healthy: Shop) -> None:
    with closing(sqlite3.connect(healthy.path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    assert "not in WAL mode" in examined(healthy, code=0)["durability"]


def test_a_file_without_tables(shop: Shop) -> None:
    shop.path.touch()
    assert "fail: there are no tables yet" in examined(shop, code=1)["schema"]
    assert shop.path.stat().st_size == 0


def test_tables_of_a_newer_version(healthy: Shop) -> None:
    with closing(sqlite3.connect(healthy.path)) as connection:
        connection.execute("UPDATE mainspring_schema SET version = 99, oldest_code = 99")
        connection.commit()
    assert examined(healthy, code=1)["schema"].startswith("fail: ")
    assert cli("jobs", "list", "--url", healthy.url).exit_code == 3


# What goes on there.


def test_a_bell_that_nobody_hears(healthy: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert HEARD_WITHIN == 2
    monkeypatch.setattr("mainspring.cli.doctor.life.HEARD_WITHIN", 0.2)

    async def ring() -> Finding:
        store = SqliteStore(healthy.path)
        await store.open()
        try:
            return await doorbell(store, SqliteStore(tmp_path / "elsewhere.db"))
        finally:
            await store.close()

    found = asyncio.run(ring())
    assert (found.level, found.says) == (Level.WARN, "a commit was not heard within 0.2 s")


@pytest.mark.slow
def test_a_store_that_someone_keeps_locked(healthy: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    assert COMMITTED_WITHIN == 10
    monkeypatch.setattr("mainspring.cli.doctor.life.COMMITTED_WITHIN", 0.5)
    with closing(sqlite3.connect(healthy.path, isolation_level=None)) as someone:
        someone.execute("BEGIN IMMEDIATE")
        assert "fail: nothing could be committed within 0.5 s" in examined(healthy, code=1)["doorbell"]


def test_jobs_that_wait_while_nobody_works(healthy: Shop) -> None:
    healthy.enqueue("add", 1)
    assert examined(healthy, code=1)["jobs"] == "fail: no node is at work, and 1 job waits"


def test_jobs_that_were_enqueued_while_the_clock_was_ahead_are_reported(healthy: Shop) -> None:
    async def enqueue(ago: timedelta) -> None:
        app, add = planner(healthy, ago=ago)
        async with app:
            await add.enqueue(1)

    asyncio.run(enqueue(timedelta(0)))
    store = SqliteStore(healthy.path)
    assert asyncio.run(found_ahead(store)) == []
    asyncio.run(enqueue(timedelta(days=-1)))
    (found,) = asyncio.run(found_ahead(store))
    assert (found.level, found.code) == (Level.WARN, "jobs_ahead")
    assert found.says.startswith("1 job ready and due in ")
    assert found.says.endswith("because the clock was ahead at the enqueue")


async def found_ahead(store: SqliteStore) -> list[Finding]:
    await store.open()
    try:
        return await ahead(store)
    finally:
        await store.close()


def test_jobs_that_have_time_may_wait_while_nobody_works(healthy: Shop) -> None:
    assert cli("jobs", "enqueue", "shop:app", "add", "1", "--delay", "1h").exit_code == 0
    assert examined(healthy, code=0)["jobs"] == "warn: no node is at work, and 1 job waits"


def test_jobs_that_wait_while_the_only_node_has_been_killed(healthy: Shop) -> None:
    with healthy.worker() as worker:
        worker.says("at a time")
        worker.process.send_signal(signal.SIGKILL)
        worker.ends()
    healthy.enqueue("add", 1)
    assert examined(healthy, code=1)["jobs"] == "fail: no node is at work, and 1 job waits"
    assert " gone " in cli("nodes", "list", "--url", healthy.url).output


def test_schedules_that_nobody_fires_are_named_and_for_how_long(healthy: Shop) -> None:
    plan(healthy, "hourly", Every("1h"), ago=timedelta(hours=3))
    plan(healthy, "daily", Every("1d"), ago=timedelta(hours=3))
    done = cli("doctor", "--url", healthy.url)
    assert done.exit_code == 1
    assert "fail  schedules    1 of 2 late, the first by a slot of 2 h ago: hourly" in done.output
    assert "start a node: mainspring worker MODULE:APP" in done.output


def test_schedules_whose_task_no_live_node_knows_or_that_cannot_be_read_are_named(healthy: Shop) -> None:
    stranger = Mainspring(healthy.url)

    @stranger.task(name="mystery")
    async def mystery() -> None: ...

    stranger.schedules.add_sync("riddle", Every("1h"), mystery.call())
    stranger.close_sync()
    plan(healthy, "hourly", Every("1h"))
    plan(healthy, "broken", Every("1h"))
    with closing(sqlite3.connect(healthy.path)) as connection:
        connection.execute("UPDATE mainspring_schedules SET record = '{}' WHERE name = 'broken'")
        connection.commit()
    with healthy.worker() as worker:
        worker.says("at a time")
        done = cli("doctor", "--url", healthy.url)
        worker.signal()
        worker.ends()
    assert done.exit_code == 0
    assert "warn  schedules    no live node knows the task of riddle (mystery)\n" in done.output
    assert "warn  schedules    cannot be understood here: broken\n" in done.output


def test_a_node_is_silent_when_it_has_not_renewed_its_lease() -> None:
    elsewhere = Process(host="elsewhere", pid=1, started="1")
    ages = (timedelta(seconds=5), timedelta(minutes=1))
    assert [standing(seen("one", ago=age, process=elsewhere), NOON) for age in ages] == ["alive", "silent"]
    assert standing(seen("one", ago=timedelta(0), process=elsewhere, alive=False), NOON) == "dead"


def test_jobs_of_a_task_that_no_node_knows(healthy: Shop) -> None:
    stranger = Mainspring(healthy.url)

    @stranger.task(name="mystery")
    async def mystery() -> None: ...

    mystery.enqueue_sync()
    stranger.close_sync()
    with healthy.worker() as worker:
        worker.says("at a time")
        found = examined(healthy, code=0)
        worker.signal()
        worker.ends()
    assert found["nodes"].startswith("ok: 1 node at work")
    assert found["jobs"] == "warn: no live node knows the task of jobs that are due: mystery"


def test_a_node_whose_process_was_killed(healthy: Shop) -> None:
    with healthy.worker() as worker:
        worker.says("at a time")
        worker.process.send_signal(signal.SIGKILL)
        worker.ends()
    (node,) = healthy.lines("nodes", "list")
    assert examined(healthy, code=0)["nodes"].endswith(f"nobody has noticed: {node['id']}")


def test_queues_that_are_paused_with_jobs_in_them(healthy: Shop) -> None:
    cli("queues", "pause", "mail", "--url", healthy.url)
    assert examined(healthy, code=0)["queues"] == "ok: 1 paused queue, none with jobs"
    healthy.enqueue("once", "hello")
    assert examined(healthy, code=0)["jobs"] == "warn: no node is at work, and 1 job waits"
    assert examined(healthy, code=0)["queues"] == "warn: paused with jobs in them: mail (1 job)"


def seen(name: str, *, ago: timedelta, process: Process | None = None, alive: bool = True) -> NodeView:
    process = process or this_process()
    record = NodeRecord(id=NodeId(name), process=process, tasks=frozenset())
    return NodeView(node=record, term=1, counter=1, alive=alive, joined_at=NOON, renewed_at=NOON - ago)


def test_nodes_that_hang_and_nodes_of_the_future() -> None:
    well = seen("well", ago=timedelta(seconds=5))
    hangs = seen("hangs", ago=timedelta(minutes=5), process=Process(host="elsewhere", pid=1, started="1"))
    ahead = seen("ahead", ago=-timedelta(minutes=5))
    dead = seen("dead", ago=timedelta(days=1), alive=False)
    assert [finding.says for finding in live_nodes((well, hangs, ahead, dead), NOON)] == [
        "2 nodes at work: well, ahead",
        "silent for more than 15 s: hangs",
        "a node renewed its lease 5 min from now",
    ]
