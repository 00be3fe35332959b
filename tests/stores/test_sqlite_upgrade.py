"""A file that older code has left is brought up to date with all that is in it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mainspring.core.breaker import Phase
from mainspring.core.command import RetryJob
from mainspring.core.job import Claim, NodeId, State
from mainspring.core.outcome import Succeeded
from mainspring.errors import SchemaError
from mainspring.stores.overview import Overview, Search
from mainspring.stores.records import Facts, JobFilter, JobView, Verdict
from mainspring.stores.sqlite import SqliteStore, migrate
from mainspring.testing import VirtualTime
from mainspring.testing.contract import SettableClock, outboxes, plans
from mainspring.testing.contract.world import ERROR, SEND, Member, World
from tests.stores.test_sqlite_nothing import Files

pytestmark = pytest.mark.usefixtures("virtual_time")

VERSIONS = (1, 3, 4)
of_version_3 = pytest.mark.parametrize("version", [3], indirect=True)
of_version_4 = pytest.mark.parametrize("version", [4], indirect=True)


@pytest.fixture
def version(request: pytest.FixtureRequest) -> int:
    """Which code the file is of: the oldest, if a test does not say."""
    return int(getattr(request, "param", VERSIONS[0]))


@pytest.fixture
def path(tmp_path: Path, version: int) -> Path:
    path = tmp_path / "jobs.db"
    dump = Path(__file__).with_name(f"sqlite_version_{version}.sql").read_text(encoding="utf-8")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(dump)
    return path


@pytest.fixture
def world(path: Path, virtual_time: VirtualTime) -> Iterator[World]:
    clock = SettableClock()
    world = World(Files(path, clock), clock)
    world.store = virtual_time.run(world.open())
    yield world
    virtual_time.run(world.close())


def tables(path: Path) -> set[tuple[str, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return set(connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"))


@pytest.mark.parametrize("version", VERSIONS, indirect=True)
async def test_it_is_told_that_it_is_older_and_left_alone_until_it_is_opened(path: Path, version: int) -> None:
    before = tables(path)
    schema = await SqliteStore(path).schema()

    assert (schema.found, schema.wanted) == (version, migrate.WANTED)
    assert tables(path) == before


@pytest.mark.parametrize("version", VERSIONS, indirect=True)
@pytest.mark.usefixtures("world")
async def test_it_has_the_tables_of_a_new_one_then(path: Path, tmp_path: Path) -> None:
    new = SqliteStore(tmp_path / "new.db")
    await new.open()
    await new.close()

    assert tables(path) == tables(tmp_path / "new.db")
    assert (await SqliteStore(path).schema()).found == migrate.WANTED


async def test_what_was_there_is_there(world: World) -> None:
    page = await world.store.list_jobs(JobFilter())

    views = {view.job.state: view for view in page.jobs}
    assert len(page.jobs) == len(views) == 6
    assert not any(view.job.of_schedule for view in page.jobs)
    assert views[State.SUCCEEDED].result == b"42"
    assert views[State.FAILED].error == views[State.RETRYING].error == ERROR
    assert views[State.SCHEDULED].facts == Facts(parent=views[State.SUCCEEDED].job.id, owner="me")
    assert [queue.name for queue in await world.store.queues() if queue.paused] == ["mail"]
    assert (await world.store.list_schedules()).looks == ()
    assert await plans.runs(world) == ()


@of_version_3
async def test_what_the_last_version_has_left_is_there(world: World) -> None:
    page = await world.store.list_jobs(JobFilter())
    (breaker,) = await world.store.breakers([SEND])
    (run,) = await plans.runs(world)

    assert len(page.jobs) == 7
    assert [job.job.id for job in page.jobs if job.job.of_schedule] == [run.id]
    assert (breaker.circuit.phase, breaker.circuit.forced, breaker.reason) == (
        Phase.OPEN,
        True,
        "closed for stocktaking",
    )
    assert (await plans.schedule(world)).waits


@of_version_4
async def test_what_version_4_has_left_is_there_and_found(world: World) -> None:
    store = world.store
    assert isinstance(store, Overview)
    page = await store.list_jobs(JobFilter())
    found = await store.search(Search(key="k"))

    assert len(page.jobs) == 9
    assert [view.job.queue for view in found.jobs] == ["keyed", "keyed"]
    assert (found.looked, found.after) == (2, None)
    for state in State:
        of_state = [view for view in page.jobs if view.job.state is state]
        assert (await store.search(Search(states=(state,)))).jobs == tuple(of_state)
    assert await store.limit_queue("keyed", 1)
    assert {rule.name: (rule.declared, rule.limit) for rule in await store.queue_rules() if not rule.paused} == {
        "default": (4, None),
        "keyed": (None, 1),
    }
    assert (await store.census(world.now)).complete


@pytest.mark.parametrize("version", [1, 3], indirect=True)
async def test_outboxes_can_be_kept_in_it(world: World) -> None:
    assert await outboxes.on(world).outboxes() == ()
    node = Member(NodeId("worker"), 1)
    await outboxes.publish(world, b"1", b"2")
    await outboxes.begun(world, node)
    await outboxes.advance(world, node, 1)
    (letter,) = await outboxes.bury(world, node, b"3", partition=1)

    assert [one.payload for one in await outboxes.read(world, after=1)] == [b"2"]
    assert letter.message.payload == b"3"


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("knows", [3, 4])
def test_code_that_does_not_know_of_operators_limits_is_told_to_stay_away(path: Path, knows: int) -> None:
    """It would run more jobs of a queue than it may."""
    with closing(sqlite3.connect(path)) as connection, pytest.raises(SchemaError, match=f"this one knows {knows}"):
        migrate.check("a store", migrate.found(connection), wanted=knows)


async def test_what_was_under_way_goes_on(world: World) -> None:
    node = Member(NodeId("worker"), 1)
    (held,) = (await world.store.renew(node.id, node.term)).held
    running = await world.view(held.job)
    await world.end(Claim(job=running.job, node=node.id), Succeeded())
    world.clock.advance("2h")
    for delivery in await world.claim(node, room=9):
        await world.end(delivery.claim, Succeeded())
    (failed,) = await in_state(world, State.FAILED)
    assert await world.command(failed.job.id, RetryJob()) is Verdict.ACCEPTED
    await world.end(await world.claim_one(node), Succeeded())

    assert len(await in_state(world, State.SUCCEEDED)) == 6


async def test_schedules_can_be_added_to_it(world: World) -> None:
    await plans.add(world, planned=plans.after_the_end())
    run = await plans.fire(world)
    node = await world.node()
    for delivery in await world.claim(node, room=9):
        await world.end(delivery.claim, Succeeded())

    assert (await plans.run_of(world, run.id)).state is State.SUCCEEDED
    assert (await plans.schedule(world)).next_at == world.now


@pytest.mark.usefixtures("world")
def test_code_that_does_not_know_of_runs_is_told_to_stay_away(path: Path) -> None:
    """It would end the jobs of runs and leave those open, and who waits for their end would wait for ever."""
    with closing(sqlite3.connect(path)) as connection, pytest.raises(SchemaError, match="this one knows 1"):
        migrate.check("a store", migrate.found(connection), wanted=1)


def test_waiting_jobs_of_version_8_are_claimable_those_of_a_missing_lane_too() -> None:
    """Claims log that lane: a job that is in no index would never be met."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate.migrate("a store", connection, 0, migrate.MIGRATIONS[:8])
        connection.executescript("""
            INSERT INTO mainspring_lanes VALUES (1, 'mail.send', 'default', 50, 0);
            INSERT INTO mainspring_strands (id, lane, key, full) VALUES (1, 1, '', 0), (2, 9, '', 0);
            INSERT INTO mainspring_jobs (number, id, state, lane, strand, run_at) VALUES
                (1, x'01', 'ready', 1, 1, 1), (2, x'02', 'scheduled', 9, 2, 1), (3, x'03', 'running', 1, NULL, 1);
        """)
        migrate.migrate("a store", connection, 0)
        claimable = connection.execute(
            "SELECT number, rank FROM mainspring_jobs INDEXED BY mainspring_jobs_claimable WHERE rank IS NOT NULL"
        ).fetchall()

    assert claimable == [(1, -50), (2, 0)]


async def in_state(world: World, state: State) -> tuple[JobView, ...]:
    return (await world.store.list_jobs(JobFilter(states=(state,)))).jobs
