"""Schedules on SQLite, under faults and in crowds: one slot, one job, and never half a step."""

import asyncio
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring.core.job import JobId, State
from mainspring.core.missed import Reason
from mainspring.core.names import Name
from mainspring.core.outcome import Succeeded
from mainspring.core.schedule import Overlap
from mainspring.core.steps import decide, run_now
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.errors import ScheduleError, StoreError, StoreUnavailable
from mainspring.stores.records import JobFilter, Look, Move, Settled, Verdict
from mainspring.stores.sqlite import SqliteStore
from mainspring.stores.sqlite.session import Session
from mainspring.testing import VirtualTime
from mainspring.testing.contract import SettableClock, plans
from mainspring.testing.contract.world import HOUR, World
from tests.stores.test_sqlite_nothing import Files
from tests.stores.test_sqlite_processes import Children, told
from tests.stores.test_sqlite_schema import limit_pages

REPLACE = UniqueKey(key="a", on_conflict=OnConflict.REPLACE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def children(path: Path) -> Iterator[Children]:
    children = Children(path)
    yield children
    children.end()


@pytest.fixture
def world(path: Path, virtual_time: VirtualTime) -> Iterator[World]:
    clock = SettableClock()
    world = World(Files(path, clock), clock)
    world.store = virtual_time.run(world.open())
    yield world
    virtual_time.run(world.close())


# Crowds.


def test_a_slot_that_fifty_handles_fire_at_once_makes_one_job(path: Path) -> None:
    """Each in a thread and a loop of its own; they all look before the first one fires."""
    crowd = 50
    clock = SettableClock()
    ready = threading.Barrier(crowd)
    answers: list[bool] = []

    async def begin() -> None:
        world = World(Files(path, clock), clock)
        world.store = await world.open()
        await plans.add(world)
        await world.close()

    async def fire(world: World) -> None:
        store = SqliteStore(path, clock=clock, durable=False)
        await store.open()
        look = await plans.look_at(world, store=store)
        decision = decide(look.schedule, world.now, world.id, busy=bool(look.open))
        ready.wait(60)
        answers.append(await plans.accepted(world, decision, store=store))
        await store.close()

    asyncio.run(begin())
    clock.advance(HOUR)
    world = World(Files(path, clock), clock)
    threads = [threading.Thread(target=asyncio.run, args=(fire(world),)) for _ in range(crowd)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)

    assert sorted(answers) == [False] * (crowd - 1) + [True]
    with closing(sqlite3.connect(path)) as connection:
        ((run,),) = connection.execute("SELECT id FROM mainspring_runs").fetchall()
        assert connection.execute("SELECT id, state FROM mainspring_jobs").fetchall() == [(run, "ready")]
        created = (world.now - HOUR - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        assert connection.execute("SELECT revision FROM mainspring_schedules").fetchall() == [(created + 1,)]


async def test_one_handle_merges_the_steps_of_many_callers(world: World) -> None:
    there = await plans.add(world)
    moves = [plans.move_of(world, run_now(there, world.now, world.id)) for _ in range(20)]

    answers = await asyncio.gather(*(world.store.move([move]) for move in moves))

    assert sorted(answers) == [(False,)] * 19 + [(True,)]
    assert len(await plans.runs(world)) == 1


async def test_a_run_that_ends_while_its_schedule_comes_to_wait_for_it_is_not_missed(world: World) -> None:
    """In either order, and at the same time: afterwards it is due, or its run is open and will tell."""
    other = await world.open()
    node = await world.node()
    await plans.add(world, planned=plans.plan(overlap=Overlap.QUEUE_ONE))
    await plans.fire(world)
    for _ in range(20):
        claim = await world.claim_one(node)
        world.clock.advance(HOUR)
        (look,) = (await other.due(9)).looks
        waiting = decide(look.schedule, world.now, world.id, busy=bool(look.open))
        assert waiting.after
        assert waiting.after.waits
        settled, _ = await asyncio.gather(world.settle(claim, Succeeded()), other.move([plans.move_of(world, waiting)]))
        assert settled.verdict is Verdict.ACCEPTED

        there = await plans.look_at(world)
        assert there.open == ()
        assert there.schedule.next_at == world.now
        (run,) = await plans.tick(world)
        assert run.job


# Faults.


def counted(step: Callable[..., Any], numbers: Iterator[int], fails_at: int) -> Callable[..., Any]:
    def counting(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 -- whatever the session's method takes and gives
        if next(numbers) == fails_at:
            raise sqlite3.OperationalError("disk I/O error")
        return step(*args, **kwargs)

    return counting


@contextmanager
def failing(fails_at: int) -> Iterator[Iterator[int]]:
    """Have the store fail at a statement, counted from here."""
    numbers = count(1)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("rows", "row", "rows_by_name", "run", "run_many"):
            patch.setattr(Session, name, counted(getattr(Session, name), numbers, fails_at))
        yield numbers


async def eventful(world: World) -> list[Move]:
    """Steps that do all that a step can: fire, replace a job, find a key taken, wait, wake, take away."""
    for name, planned in (
        ("fires", plans.plan()),
        ("replaces", plans.after_the_end(unique=REPLACE)),
        ("taken", plans.after_the_end(unique=UniqueKey(key="b"))),
        ("gone", plans.plan()),
    ):
        await plans.add(world, Name("", name), planned)
    await world.enqueue(unique=UniqueKey(key="b"))
    world.clock.advance(HOUR)
    await plans.tick(world)
    looks = (await world.store.list_schedules()).looks
    moves = [plans.move_of(world, run_now(look.schedule, world.now, world.id)) for look in looks]
    return [
        replace(move, after=None) if str(look.schedule.name) == "gone" else move
        for look, move in zip(looks, moves, strict=True)
    ]


async def everything(world: World) -> object:
    jobs = await world.store.list_jobs(JobFilter())
    return jobs, await plans.runs(world), await world.store.list_schedules(), await world.store.queues()


async def test_a_step_that_fails_at_any_statement_leaves_nothing(world: World) -> None:
    moves = await eventful(world)
    before = await everything(world)
    answers: tuple[bool, ...] = ()
    statements = 0
    while not answers:
        with failing(statements + 1) as numbers:
            try:
                answers = await world.store.move(moves)
            except StoreError:
                statements += 1
            else:
                assert next(numbers) == statements + 1, "one that failed was not told"
        assert answers or await everything(world) == before

    assert statements > 20
    assert answers == (True,) * 4
    reasons = {str(run.schedule): run.reason for run in (await plans.runs(world))[:4]}
    assert reasons == {"fires": None, "gone": None, "replaces": None, "taken": Reason.TAKEN}


async def test_a_full_disk_leaves_nothing_of_a_step(world: World) -> None:
    store = world.store
    assert isinstance(store, SqliteStore)
    there = await plans.add(world)
    move = plans.move_of(world, run_now(there, world.now, world.id))
    large = replace(move, jobs=(replace(move.jobs[0], payload=b"x" * 2_000_000),))
    await limit_pages(store, 0)
    with pytest.raises(StoreUnavailable, match="there is no space left"):
        await store.move([large])
    await limit_pages(store, 1_000_000)

    assert await plans.look_at(world) == Look(schedule=there)
    assert await plans.runs(world) == ()
    assert await store.move([large]) == (True,)


async def test_a_schedule_that_cannot_be_written_is_told_and_hurts_nobody(world: World) -> None:
    there = await plans.add(world)
    fine = plans.move_of(world, run_now(there, world.now, world.id))
    odd = replace(plans.plan(), description="half a character: \ud800")
    broken = Move(before=None, after=replace(there, name=Name("", "odd"), plan=odd))

    first, second = await asyncio.gather(world.store.move([broken]), world.store.move([fine]), return_exceptions=True)

    assert isinstance(first, ScheduleError)
    assert "surrogates" in first.problem
    assert second == (True,)


KILLED = """
import signal, time
from datetime import timedelta
from itertools import count
from mainspring.core.rules import Every
from mainspring.core.steps import create, run_now
from mainspring.stores.sqlite.session import Session
from mainspring.testing.contract import SettableClock, plans
from mainspring.testing.contract.world import World

async def main():
    await store.open()
    clock = SettableClock(store.now())
    world = World(None, clock)
    world._numbers = count(os.getpid() << 8)
    world.store = store
    looks = (await store.list_schedules()).looks
    if not looks:
        await store.move([plans.move_of(world, create(plans.HOURLY, plans.after_the_end(), clock.now()))])
        looks = (await store.list_schedules()).looks
    moves = [plans.move_of(world, run_now(look.schedule, clock.now(), world.id)) for look in looks]
    numbers = count(1)

    def killing(step):
        def counting(*args, **kwargs):
            if next(numbers) == FATAL:
                os.kill(os.getpid(), signal.SIGKILL)
            return step(*args, **kwargs)
        return counting

    for name in ("rows", "row", "rows_by_name", "run", "run_many"):
        setattr(Session, name, killing(getattr(Session, name)))
    say("accepted", *(await store.move(moves)))
"""


@pytest.mark.slow
def test_a_process_that_is_killed_at_any_statement_leaves_no_half_step(path: Path, children: Children) -> None:
    killed = 0
    revisions: set[tuple[int]] = set()
    for fatal in count(1):
        child = children.start(f"FATAL = {fatal}\n{KILLED}")
        said = told(child)
        if child.wait(60) == 0:
            assert said == "accepted True"
            break
        assert child.returncode == -signal.SIGKILL
        killed += 1
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT count(*) FROM mainspring_runs").fetchone() == (0,)
            assert connection.execute("SELECT count(*) FROM mainspring_jobs").fetchone() == (0,)
            revisions |= set(connection.execute("SELECT revision FROM mainspring_schedules"))
            assert len(revisions) == 1
    assert killed > 8
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        ((run,),) = connection.execute("SELECT id FROM mainspring_runs").fetchall()
        assert connection.execute("SELECT id FROM mainspring_jobs").fetchall() == [(run,)]


# What a settle that fails leaves of a run.


async def test_an_end_that_fails_at_any_statement_ends_neither_the_job_nor_its_run(world: World) -> None:
    node = await world.node()
    await plans.add(world, planned=plans.after_the_end())
    run = await plans.fire(world)
    settlement = world.settlement(await world.claim_one(node), Succeeded())
    before = await everything(world)
    answers: tuple[Settled, ...] = ()
    statements = 0
    while not answers:
        with failing(statements + 1):
            try:
                answers = await world.store.settle([settlement])
            except StoreError:
                statements += 1
        assert answers or await everything(world) == before

    assert statements > 5
    assert answers == (Settled(verdict=Verdict.ACCEPTED),)
    assert (await plans.run_of(world, run.id)).state is State.SUCCEEDED
    assert (await world.job(JobId(run.id))).state is State.SUCCEEDED
    assert (await plans.schedule(world)).next_at == world.now
