"""How the memory store finds the jobs of a claim: those that the plainest way would find, at a cost that does not grow."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from random import Random
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.core.command import CancelJob, DeleteJob, MoveJob, RetryJob
from mainspring.core.job import FINISHED, WAITING, Claim, State, next_lease
from mainspring.core.limits import Gate, Rate, Scope
from mainspring.core.names import Name
from mainspring.core.outcome import Lost, Snoozed, Succeeded
from mainspring.stores.records import (
    Claimed,
    ClaimRequest,
    JobView,
    Place,
    Verdict,
)
from tests.stores.memory_world import A_MINUTE_EACH, MINUTE, RESIZE, RETRY_NOW, SECOND, SEND, TASKS, World, done, keyed

# What a claim costs.


def steps(act: Callable[[], object]) -> int:
    """Count the functions that are called, our own and Python's: what takes longer the more there is calls more of them."""
    counted = 0

    def on(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal counted
        counted += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(on)
    try:
        act()
    finally:
        sys.setprofile(before)
    return counted


def behind(world: World, many: int) -> None:
    world.enqueue(many, run_at=SECOND * 0)


def for_later(world: World, many: int) -> None:
    world.enqueue(many, run_at=MINUTE)


def of_as_many_keys(world: World, many: int) -> None:
    for number in range(many):
        world.enqueue(key=str(number))


def behind_one_full_key(world: World, many: int) -> None:
    done(world.store.declare([keyed(concurrency=1)]))
    world.enqueue(key="full")
    assert len(world.claim()) == 1
    world.enqueue(many, key="full", priority=99)


def behind_as_many_full_keys(world: World, many: int) -> None:
    done(world.store.declare([keyed(concurrency=1)]))
    of_as_many_keys(world, many)
    assert len(world.claim(room=many)) == many
    of_as_many_keys(world, many)


def behind_as_many_spent_rates(world: World, many: int) -> None:
    done(world.store.declare([keyed(rate=A_MINUTE_EACH)]))
    of_as_many_keys(world, many)
    assert len(world.claim(room=many)) == many
    of_as_many_keys(world, many)


def in_a_paused_queue(world: World, many: int) -> None:
    world.enqueue(many, queue="paused", priority=99)
    done(world.store.pause("paused"))


def of_a_task_that_is_full(world: World, many: int) -> None:
    done(world.store.declare([Gate(scope=Scope.TASK, name=str(RESIZE), concurrency=1)]))
    world.enqueue(task=RESIZE)
    assert len(world.claim()) == 1
    world.enqueue(many, task=RESIZE, priority=99)


def that_have_finished(world: World, many: int) -> None:
    world.enqueue(many)
    for one in world.claim(room=many):
        world.end(one.claim, Succeeded())


@pytest.mark.parametrize("waiting", [
    behind, for_later, of_as_many_keys, behind_one_full_key, behind_as_many_full_keys, behind_as_many_spent_rates,
    in_a_paused_queue, of_a_task_that_is_full, that_have_finished,
])  # fmt: skip
def test_a_claim_costs_no_more_for_what_it_leaves(waiting: Callable[[World, int], None]) -> None:
    def cost(many: int) -> int:
        world = World()
        waiting(world, many)
        world.enqueue(10, priority=1)
        counted = steps(lambda: world.claim(room=10))
        assert len(world.jobs(State.RUNNING)) >= 10
        return counted

    assert cost(2_000) < 1.5 * cost(20)


def test_a_settle_costs_no_more_for_what_waits_for_its_place() -> None:
    def cost(many: int) -> int:
        world = World()
        behind_one_full_key(world, many)
        (running,) = world.jobs(State.RUNNING)
        counted = steps(lambda: world.end(Claim(job=running.job, node=world.node), Succeeded()))
        assert len(world.claim()) == 1
        return counted

    assert cost(2_000) < 1.5 * cost(20)


# What it finds.


def test_a_key_whose_rate_had_opened_rests_again_when_the_clock_is_set_back() -> None:
    world = World()
    done(world.store.declare([keyed(rate=A_MINUTE_EACH)]))
    _, second = world.enqueue(2, key="a")
    assert len(world.claim(room=2)) == 1
    world.clock.jump(MINUTE)
    opened = world.now
    assert world.ask(room=0).next_due == opened - MINUTE  # it could go, and was due all the time
    world.clock.jump(-SECOND)
    assert world.ask(room=2) == Claimed(deliveries=(), next_due=opened)
    world.clock.jump(SECOND)
    assert [one.claim.job.id for one in world.claim(room=2)] == [second]


Counted = tuple[Scope, str, str | None]
RATES = (A_MINUTE_EACH, Rate(count=2, period=MINUTE, burst=3))
OUTCOMES = (Succeeded(), RETRY_NOW, Snoozed(delay=MINUTE), Lost(), Lost())


class Walk:
    """Claims as a walk over every waiting job would find them: no lanes, no strands, no heaps.

    Whatever happens to jobs is drawn evenly, and much of it happens: left to itself, hypothesis prefers worlds in which
    nearly nothing waits.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.world = World()
        self.gates: dict[tuple[Scope, str], Gate] = {}
        self.spent: dict[Counted, datetime] = {}
        self.places: dict[Place, JobView] = {}
        self.kept: set[Place] = set()
        self.paused: set[str] = set()
        self.latest = self.world.now

    def step(self) -> None:
        often = [self.enqueue, self.enqueue, self.claim, self.claim, self.claim, self.end, self.end, self.pass_time]
        seldom = [self.declare, self.move, self.cancel_or_retry_or_delete, self.release, self.pause_or_resume]
        self.random.choice([*often, *seldom])()

    def queue(self) -> str:
        return self.random.choice("aab")

    def task(self) -> Name:
        return self.random.choice([SEND, SEND, RESIZE])

    def priority(self) -> int:
        return self.random.choice([50, 50, 25])

    def later(self) -> timedelta:
        return self.random.choice([0, 0, 0, -1, -2, 1, 2]) * MINUTE

    def enqueue(self) -> None:
        self.world.enqueue(
            self.random.randint(1, 3),
            queue=self.queue(),
            task=self.task(),
            priority=self.priority(),
            key=self.random.choice(["k", "k", "l", None]),
            run_at=self.later(),
        )

    def declare(self) -> None:
        scope = self.random.choice([Scope.KEY, Scope.KEY, Scope.TASK, Scope.QUEUE])
        gate = Gate(
            scope=scope,
            name=self.queue() if scope is Scope.QUEUE else str(self.task()),
            concurrency=self.random.choice([None, 1, 2, 5]),
            rate=self.random.choice([None, *RATES]),
        )
        where = gate.scope, gate.name
        if where in self.gates and self.gates[where].rate != gate.rate:
            self.spent = {subject: until for subject, until in self.spent.items() if subject[:2] != where}
        self.gates[where] = gate
        done(self.world.store.declare([gate]))

    def pass_time(self) -> None:
        """Move the clock, back by a minute at most: beyond that, rates are corrected, which the contract tests."""
        step = self.random.choice([SECOND, 20 * SECOND, MINUTE, MINUTE, -MINUTE])
        self.latest = max(self.latest, self.world.now)
        self.world.clock.jump(step if self.world.now + step >= self.latest - MINUTE else MINUTE)

    def pause_or_resume(self) -> None:
        self.paused = self.random.choice([set(), set(), {"a"}, {"b"}])
        for queue in "ab":
            done(self.world.store.pause(queue) if queue in self.paused else self.world.store.resume(queue))

    def claim(self) -> None:
        request = ClaimRequest(
            node=self.world.node,
            term=1,
            tasks=self.random.choice([TASKS, TASKS, frozenset({SEND})]),
            queues=self.random.choice([None, None, {"a": 2}, {"a": 3, "b": 0}, {"a": 1, "b": 1}]),
            others=self.random.choice([False, True]),
            room=self.random.randint(0, 9),
            ahead=self.random.randint(0, 2),
            suspects=self.random.randint(0, 2),
            due_by=self.random.choice([None, None, self.world.now + self.later()]),
        )
        expected = list(self.chosen(request))
        claimed = done(self.world.store.claim(request))
        assert [one.claim.job.id for one in claimed.deliveries] == [view.job.id for view in expected]
        assert self.not_before_now(claimed.next_due) == self.not_before_now(self.next_due(request))

    def end(self) -> None:
        running = self.world.jobs(State.RUNNING)
        for view in self.random.sample(running, self.random.randint(0, len(running))):
            keeps_place = self.random.random() < 0.2
            claim = Claim(job=view.job, node=self.world.node)
            outcome = self.random.choice(OUTCOMES)
            assert self.world.end(claim, outcome, keeps_place=keeps_place) is Verdict.ACCEPTED
            place = Place(view.job.id, view.job.lease)
            if keeps_place:
                self.kept.add(place)
            else:
                del self.places[place]

    def release(self) -> None:
        done(self.world.store.release(self.world.node, list(self.kept)))
        for place in self.kept:
            self.places.pop(place, None)
        self.kept.clear()

    def move(self) -> None:
        for view in self.world.jobs(*WAITING)[:2]:
            command = MoveJob(queue=self.queue(), priority=self.priority(), run_at=self.world.now + self.later())
            assert self.world.command(view.job, command) is Verdict.ACCEPTED

    def cancel_or_retry_or_delete(self) -> None:
        for view in self.world.jobs(*WAITING, *FINISHED)[::4]:
            if view.job.state in WAITING:
                assert self.world.command(view.job, CancelJob()) is Verdict.ACCEPTED
            elif view.job.state is State.SUCCEEDED:
                assert self.world.command(view.job, DeleteJob()) is Verdict.ACCEPTED
                self.places = {place: one for place, one in self.places.items() if place.job != view.job.id}
            else:
                assert self.world.command(view.job, RetryJob()) is Verdict.ACCEPTED

    def chosen(self, request: ClaimRequest) -> Iterator[JobView]:
        now = self.world.now
        due_by = min(now, request.due_by or now)
        waiting = self.world.jobs(*WAITING)
        waiting.sort(key=lambda view: (-view.job.priority, view.job.run_at, view.job.id))
        given, suspects = 0, 0
        by_queue: Counter[str] = Counter()
        for view in waiting:
            job = view.job
            if given == request.room + request.ahead:
                return
            held_back = job.run_at > due_by or self.opens_at(view) > now or self.is_full(view)
            if held_back or not self.is_asked_for(view, request, by_queue[job.queue]):
                continue
            if job.is_suspect and suspects >= request.suspects:
                continue
            if job.is_last_chance and given >= request.room:
                return
            given += 1
            suspects += job.is_suspect
            by_queue[job.queue] += 1
            self.start(view, request)
            yield view

    def start(self, view: JobView, request: ClaimRequest) -> None:
        self.places[Place(view.job.id, next_lease(view.job.lease, request.number))] = view
        for subject in self.subjects(view):
            gate = self.gates.get(subject[:2])
            if gate and gate.rate:
                self.spent[subject] = gate.rate.take(self.spent.get(subject), self.world.now, 1)

    def next_due(self, request: ClaimRequest) -> datetime | None:
        possible = [
            view
            for view in self.world.jobs(*WAITING)
            if self.is_asked_for(view, request, 0)
            and not self.is_full(view)
            and (not view.job.is_suspect or request.suspects > 0)
        ]
        return min((max(view.job.run_at, self.opens_at(view)) for view in possible), default=None)

    def not_before_now(self, instant: datetime | None) -> datetime | None:
        return instant and max(instant, self.world.now)

    def is_asked_for(self, view: JobView, request: ClaimRequest, taken: int) -> bool:
        queue, rooms = view.job.queue, request.queues
        fits = rooms is None or (taken < rooms[queue] if queue in rooms else request.others)
        return fits and view.job.task in request.tasks and queue not in self.paused

    def subjects(self, view: JobView) -> list[Counted]:
        task = str(view.job.task)
        whole: list[Counted] = [(Scope.QUEUE, view.job.queue, None), (Scope.TASK, task, None)]
        return whole if view.key is None else [*whole, (Scope.KEY, task, view.key)]

    def is_full(self, view: JobView) -> bool:
        inside = Counter(subject for other in self.places.values() for subject in self.subjects(other))
        counted = [(self.gates.get(subject[:2]), inside[subject]) for subject in self.subjects(view)]
        return any(gate and gate.concurrency and many >= gate.concurrency for gate, many in counted)

    def opens_at(self, view: JobView) -> datetime:
        opens = [self.world.now - timedelta(days=1)]
        for subject in self.subjects(view):
            gate = self.gates.get(subject[:2])
            if gate and gate.rate and (opens_at := gate.rate.opens_at(self.spent.get(subject))):
                opens.append(opens_at)
        return max(opens)


@settings(max_examples=15)
@given(st.randoms(use_true_random=True))
def test_claims_are_what_a_walk_over_all_jobs_would_find(random: Random) -> None:
    walk = Walk(random)
    for _ in range(100):
        walk.step()
