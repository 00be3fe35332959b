"""What is particular to the memory store: its one lock, its watchers, and that it forgets what it need not know.

That it keeps the port's promises, the contract suite checks.
"""

import asyncio
import logging
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core import machine
from mainspring.core.backoff import Backoff
from mainspring.core.command import DeleteJob
from mainspring.core.job import JobId, NodeId, State
from mainspring.core.names import Name
from mainspring.core.outcome import Succeeded
from mainspring.core.rules import Manual
from mainspring.core.schedule import Plan, Template
from mainspring.core.steps import create, run_now
from mainspring.core.unique import UniqueKey
from mainspring.errors import StoreClosed
from mainspring.stores.memory import MemoryStore
from mainspring.stores.memory.turns import Turn, Turns
from mainspring.stores.port import Store
from mainspring.stores.records import (
    ClaimRequest,
    Enqueued,
    Facts,
    Move,
    Place,
    Settlement,
    SlotFacts,
    Verdict,
)
from mainspring.testing.virtual import START
from tests.stores.memory_world import A_MINUTE_EACH, MINUTE, SEND, TASKS, World, done, keyed

PLAN = Plan(rule=Manual(), template=Template(task=SEND, payload=b"", backoff=Backoff.fixed(0), max_attempts=1))


@pytest.fixture
def world() -> World:
    return World()


# Opening, closing, watching.


def test_it_is_closed_before_it_is_opened_and_after_it_is_closed() -> None:
    store: Store = MemoryStore()  # the type says that it plays every role
    for _ in range(2):
        with pytest.raises(StoreClosed, match=r"call open\(\) first"):
            done(store.queues())
        done(store.open())
        assert done(store.queues()) == ()
        done(store.close())


def test_closing_forgets_nothing(world: World) -> None:
    (job,) = world.enqueue()
    done(world.store.close())
    done(world.store.open())
    assert [one.claim.job.id for one in world.claim()] == [job]


def test_another_handle_sees_the_same_and_is_closed_by_itself(world: World) -> None:
    other = world.store.another()
    with pytest.raises(StoreClosed):
        done(other.queues())
    done(other.open())
    (job,) = world.enqueue()
    done(world.store.close())
    (view,) = done(other.get([job]))
    assert view
    assert other.now() == world.now


def test_a_watcher_may_look_at_the_store_because_the_verb_is_over(world: World) -> None:
    seen: list[int] = []
    end = world.store.watch(lambda: seen.append(len(world.jobs())))
    world.enqueue(3)
    end()
    world.enqueue()
    assert seen == [3]


def test_a_claim_that_gets_nothing_does_not_wake_anyone(world: World) -> None:
    rings: list[int] = []
    world.store.watch(lambda: rings.append(1))
    assert world.claim() == ()
    assert not rings


def test_a_watcher_that_raises_neither_undoes_the_verb_nor_silences_the_others(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ValueError("deaf")

    rings: list[int] = []
    world.store.watch(fail)
    world.store.watch(lambda: rings.append(1))
    with caplog.at_level(logging.ERROR):
        world.enqueue()
    assert (len(rings), len(world.jobs())) == (1, 1)
    assert "deaf" in caplog.text


# Threads.


@contextmanager
def restless() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@dataclass
class Crew:
    """Nodes on threads and loops of their own, which work until nothing is left."""

    store: MemoryStore
    left: int
    running: Counter[str | None] = field(default_factory=Counter)
    starts: Counter[JobId] = field(default_factory=Counter)
    most: int = 0
    trouble: list[BaseException] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def work(self, node: NodeId) -> None:
        try:
            asyncio.run(self._work(node))
        except BaseException as error:  # noqa: BLE001 -- told by the test, which is on another thread
            self.trouble.append(error)

    async def _work(self, node: NodeId) -> None:
        for _ in range(20_000):  # far more than there can be; a store that loses jobs must not hang the test
            if self.left <= 0 or self.trouble:
                return
            claimed = await self.store.claim(ClaimRequest(node=node, term=1, tasks=TASKS, room=3))
            with self.lock:
                self.starts.update(one.claim.job.id for one in claimed.deliveries)
                self.running.update(one.key for one in claimed.deliveries if one.key)
                self.most = max(self.most, *self.running.values(), 0)
            for one in claimed.deliveries:
                with self.lock:
                    self.running[one.key] -= 1
                    self.left -= 1
                change = machine.decide(one.claim, Succeeded(), self.store.now(), 0.5)
                (settled,) = await self.store.settle([Settlement(change=change, by=node)])
                assert settled.verdict is Verdict.ACCEPTED


def test_many_threads_share_the_jobs_and_keep_the_limits(world: World) -> None:
    done(world.store.declare([keyed(concurrency=2)]))
    jobs = [world.enqueue(key=key)[0] for _ in range(200) for key in (None, "a", "b")]
    crew = Crew(world.store, left=len(jobs))
    threads = [threading.Thread(target=crew.work, args=[world.join(f"node-{number}")]) for number in range(4)]
    with restless():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert crew.trouble == []
    assert crew.starts == Counter(jobs)
    assert crew.most <= 2
    assert len(world.jobs(State.SUCCEEDED)) == len(jobs)


# What it keeps, and what it forgets.


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 9))))
def test_whose_turn_it_is_is_known_however_turns_change(changes: list[tuple[int, int | None]]) -> None:
    turns: Turns[int] = Turns()
    expected: dict[int, Turn] = {}
    for thing, minute in changes * 3:
        if minute is None:
            turns.drop(thing)
            expected.pop(thing, None)
        else:
            expected[thing] = (START + minute * MINUTE, thing)
            turns.put(thing, expected[thing])
        assert turns.first() == min(((turn, thing) for thing, turn in expected.items()), default=None)
        assert len(turns) == len(expected)


def test_what_has_left_is_cleared_up_even_if_nobody_looks() -> None:
    turns: Turns[int] = Turns()
    for minute in range(1000):
        turns.put(minute % 3, (START + minute * MINUTE, 0))
    assert len(turns._heap) < 20
    for thing in range(500):
        turns.put(thing, (START, thing))
    for thing in range(500):
        turns.drop(thing)
    assert len(turns._heap) < 20


def test_strands_and_lanes_that_are_empty_disappear(world: World) -> None:
    world.enqueue(key="stays", run_at=MINUTE)
    for number in range(50):
        world.enqueue(key=str(number), priority=number)
    for one in world.claim(room=50):
        world.end(one.claim, Succeeded())
    (lane,) = world.store._tables.lanes
    world.enqueue(key="leaves")
    assert len(lane._strands) == 2
    world.claim()
    assert list(lane._strands) == ["stays"]


def test_what_is_over_and_pruned_is_forgotten_to_the_last_trace(world: World) -> None:
    empty = World().store._tables
    done(world.store.declare([keyed(concurrency=1, rate=A_MINUTE_EACH)]))
    for number in range(20):
        world.enqueue(key=str(number), unique=UniqueKey(key=str(number), period=MINUTE))
    for one in world.claim(room=20):
        world.end(one.claim, Succeeded(), keeps_place=True)
        done(world.store.release(world.node, [Place(one.claim.job.id, one.claim.job.lease)]))
    world.clock.jump(timedelta(days=3))
    assert done(world.store.prune(1000)) == 40  # each job, and its key, whose period is over
    tables = world.store._tables
    assert (tables.rows, len(tables.finished), list(tables.lanes)) == ({}, 0, [])
    assert (tables.gates._taken, tables.gates._inside) == (empty.gates._taken, empty.gates._inside)
    assert [spent for spent in tables.gates._spent.values() if spent] == []
    assert (tables.uniques._holds, len(tables.uniques._ending)) == ({}, 0)


def test_schedules_and_runs_that_are_gone_are_forgotten_to_the_last_trace(world: World) -> None:
    decision = create(Name("", "hourly"), PLAN, world.now)
    assert decision.after
    done(world.store.move([Move(before=None, after=decision.after)]))
    by_hand = run_now(decision.after, world.now, lambda: UUID(int=77))
    new = world.new(id=JobId(UUID(int=77)), facts=Facts(slot=SlotFacts(schedule="hourly")))
    done(world.store.move([Move(before=decision.after, after=by_hand.after, runs=by_hand.runs, jobs=(new,))]))
    assert by_hand.after
    done(world.store.move([Move(before=by_hand.after, after=None)]))
    for one in world.claim():
        world.end(one.claim, Succeeded())
    world.clock.jump(timedelta(days=40))
    assert done(world.store.prune(1000)) == 2  # the run, and its job
    plans, empty = world.store._tables.plans, World().store._tables.plans
    assert (plans.kept, plans._due, len(plans.runs._over)) == ({}, [], 0)
    assert vars(plans.runs) | {"_over": None} == vars(empty.runs) | {"_over": None}


def test_a_key_whose_period_is_longer_than_its_job_is_kept_stays_taken(world: World) -> None:
    key = UniqueKey(key="a", period=timedelta(days=30))
    (job,) = world.enqueue(unique=key)
    for one in world.claim():
        world.end(one.claim, Succeeded())
    world.clock.jump(timedelta(days=3))
    assert done(world.store.prune(1000)) == 1
    assert done(world.store.get([job])) == (None,)
    assert done(world.store.enqueue([world.new(unique=key)])) == (Enqueued(id=job, fresh=False),)


def test_an_id_that_comes_again_with_another_key_after_it_was_deleted_is_a_new_job(world: World) -> None:
    same = JobId(UUID(int=77))
    world.enqueue(key="other", run_at=MINUTE)  # keeps their lane
    for key in ("a", None, "b", None):
        world.enqueue(id=same, key=key)
        (view,) = world.jobs(State.READY)
        assert view.key == key
        assert world.command(view.job, DeleteJob()) is Verdict.ACCEPTED
    world.enqueue(id=same)
    assert [one.claim.job.id for one in world.claim()] == [same]
