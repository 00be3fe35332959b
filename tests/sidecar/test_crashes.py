"""Random steps beside the memory store, with an end of the process at any point, also in the middle of a write.

What a restart may take away is known: nodes, and jobs that have ended. Everything else is there as before; of the step
in the middle of which the process ended all is there, or nothing.
"""

import asyncio
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from msgspec.structs import replace

from mainspring.core import steps as core
from mainspring.core.command import CancelJob
from mainspring.core.job import FINISHED, WAITING, Claim
from mainspring.core.machine import command
from mainspring.core.machine import decide as decide_job
from mainspring.core.names import Name
from mainspring.core.outcome import Lost, Outcome, Raised, Snoozed, Succeeded
from mainspring.core.schedule import Decision, Run
from mainspring.errors import ScheduleError, StoreError, StoreUnavailable
from mainspring.runtime.firing import move_of
from mainspring.stores.memory import MemoryStore
from mainspring.stores.port import Store
from mainspring.stores.records import ClaimRequest, JobFilter, Look, Move, NodeRecord, Process, RunFilter, Settlement
from mainspring.stores.sidecar import SidecarStore
from mainspring.stores.sidecar.document import RUNS_KEPT
from mainspring.testing.contract import SettableClock
from tests.sidecar.files import FaultyFiles
from tests.stores.drawn import ERROR, TASKS
from tests.stores.drawn_plans import NAMES, PlanSpec, specs
from tests.tier import FULL

Step = Callable[[Store], Awaitable[object]]
ALL = 10_000
OUTCOMES: list[Outcome] = [
    Succeeded(b"1"),
    Raised(error=ERROR),
    Raised(error=ERROR, retryable=False),
    Snoozed(delay=timedelta(seconds=3)),
]
crashes = st.one_of(st.none(), st.none(), st.integers(0, 8))
"""At which system call of a step the process ends; None: it does not."""


class Crashes(RuleBasedStateMachine):
    """The memory store is what should be; the sidecar store is what is."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = SettableClock()
        self.model: Store = MemoryStore(clock=self.clock)
        self.run(self.model.open())
        self.store = self.opened()
        self.made = 0
        self.node = ""
        self.join()

    def run(self, verb: Awaitable[object]) -> object:
        return self.loop.run_until_complete(_as_coroutine(verb))

    def opened(self) -> SidecarStore:
        self.files = FaultyFiles()
        store = SidecarStore(Path(self.folder.name), clock=self.clock, files=self.files)
        self.run(store.open())
        return store

    def id(self) -> UUID:
        self.made += 1
        return UUID(int=1 << 100 | self.made)

    def join(self) -> None:
        self.node = f"node-{self.made}"
        self.made += 1
        process = Process(host="here", pid=1, started="now")
        for store in (self.model, self.store):
            self.run(store.join(NodeRecord(id=self.node, process=process, tasks=frozenset(TASKS))))  # type: ignore[arg-type]  # an id is text

    def reopen(self) -> None:
        """End the process, and begin anew: whoever was at work is dead."""
        self.run(self.store.close())
        self.store = self.opened()
        self.run(self.model.declare_dead(self.node, 1))  # type: ignore[arg-type]  # as above
        self.join()

    def take(self, step: Step, crash: int | None) -> None:
        """Take a step on both sides; if the process ends in the middle of it, on both or on neither."""
        if crash is None:
            assert self.run(step(self.store)) == self.run(step(self.model))
            self.compare()
            return
        self.files.kill_at = len(self.files.calls) + crash
        try:
            answer = self.run(step(self.store))
        except StoreUnavailable:
            answer = None
        self.run(self.store.close())
        self.store = self.opened()
        if answer is not None or self.seen(self.store) != self.seen(self.model):
            expected = self.run(step(self.model))
            assert answer in (None, expected)
        self.reopen()
        self.compare()

    def compare(self) -> None:
        assert self.seen(self.store) == self.seen(self.model)
        kept, all_of_them = self.runs(self.store), self.runs(self.model)
        assert kept.items() <= all_of_them.items()
        over: defaultdict[Name, list[UUID]] = defaultdict(list)
        for run in sorted(all_of_them.values(), key=lambda run: run.id, reverse=True):
            if not run.is_open:
                over[run.schedule].append(run.id)
        last = {id_ for ids in over.values() for id_ in ids[:RUNS_KEPT]}
        assert {run.id for run in all_of_them.values() if run.is_open} <= kept.keys()
        assert last <= kept.keys()

    def seen(self, store: Store) -> object:
        """What a restart takes nothing of."""

        async def see() -> object:
            looks = (await store.list_schedules(limit=ALL)).looks
            jobs = (await store.list_jobs(JobFilter(), limit=ALL)).jobs
            still_open = [view for view in jobs if view.job.state not in FINISHED]
            return [unknowing(look) for look in looks], still_open

        return self.run(see())

    def runs(self, store: Store) -> dict[UUID, Run]:
        page = self.loop.run_until_complete(store.runs(RunFilter(), limit=ALL))
        return {run.id: run for run in page.runs}

    def looks(self) -> list[Look]:
        page = self.loop.run_until_complete(self.model.list_schedules(limit=ALL))
        return list(page.looks)

    # What happens.

    @initialize(some=st.lists(specs, min_size=len(NAMES), max_size=len(NAMES)))
    def begin(self, some: list[PlanSpec]) -> None:
        for name, spec in zip(NAMES, some, strict=True):
            self.move([core.create(name, spec.plan, self.clock.now())], None)

    @rule(seconds=st.sampled_from([0, 5, 7, 60]), crash=crashes)
    def tick(self, seconds: int, crash: int | None) -> None:
        self.clock.advance(seconds)
        due = self.loop.run_until_complete(self.model.due(100))
        self.move([core.decide(one.schedule, due.now, self.id, busy=bool(one.open)) for one in due.looks], crash)

    @rule(
        name=st.sampled_from(NAMES),
        what=st.sampled_from(["pause", "resume", "remove", "run", "new"]),
        crash=crashes,
        spec=specs,
    )
    def step(self, name: Name, what: str, crash: int | None, spec: PlanSpec) -> None:
        there = [look.schedule for look in self.looks() if look.schedule.name == name]
        now = self.clock.now()
        try:
            match what, there:
                case "pause", [one]:
                    self.move([core.pause(one, now)], crash)
                case "resume", [one]:
                    self.move([core.resume(one, now, self.id, busy=False)], crash)
                case "remove", [one]:
                    self.move([core.remove(one)], crash)
                case "run", [one]:
                    self.move([core.run_now(one, now, self.id)], crash)
                case "new", []:
                    self.move([core.create(name, spec.plan, now)], crash)
                case _:
                    pass
        except ScheduleError:
            pass  # no such step from here

    def move(self, decisions: list[Decision], crash: int | None) -> None:
        moves: list[Move] = [move_of(decision) for decision in decisions]
        self.take(lambda store: store.move(moves), crash)

    @rule(room=st.integers(1, 3), crash=crashes)
    def claim(self, room: int, crash: int | None) -> None:
        request = ClaimRequest(node=self.node, term=1, tasks=frozenset(TASKS), room=room)  # type: ignore[arg-type]  # as above
        self.take(lambda store: claimed(store, request), crash)

    @rule(pick=st.integers(0, 9), outcome=st.sampled_from(OUTCOMES), crash=crashes)
    def end(self, pick: int, outcome: Outcome, crash: int | None) -> None:
        running = [view for view in self.open_jobs() if view.job.state not in WAITING and view.node == self.node]
        if running:
            view = running[pick % len(running)]
            claim = Claim(job=view.job, node=self.node)  # type: ignore[arg-type]  # as above
            self.settle([Settlement(change=decide_job(claim, outcome, self.clock.now(), 0.5))], crash)

    @rule(crash=crashes)
    def reap(self, crash: int | None) -> None:
        orphans = self.loop.run_until_complete(self.store.orphans(ALL))
        changes = [decide_job(claim, Lost(), self.clock.now(), 0.5) for claim in orphans]
        self.settle([Settlement(change=one, by=self.node) for one in changes], crash)  # type: ignore[arg-type]  # as above

    @rule(pick=st.integers(0, 9), crash=crashes)
    def cancel(self, pick: int, crash: int | None) -> None:
        views = [view for view in self.open_jobs() if view.job.cancel_requested_at is None]
        if views:
            job = views[pick % len(views)].job
            self.settle([Settlement(change=command(job, CancelJob(), self.clock.now()))], crash)

    def settle(self, settlements: list[Settlement], crash: int | None) -> None:
        self.take(lambda store: store.settle(settlements), crash)

    @rule()
    def restart(self) -> None:
        self.reopen()
        self.compare()

    def open_jobs(self) -> list:  # type: ignore[type-arg]  # of views
        jobs = self.loop.run_until_complete(self.model.list_jobs(JobFilter(), limit=ALL)).jobs
        return [view for view in jobs if view.job.state not in FINISHED]

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.close()
        self.folder.cleanup()


async def claimed(store: Store, request: ClaimRequest) -> object:
    try:
        return (await store.claim(request)).deliveries
    except StoreUnavailable:
        raise
    except StoreError as error:
        return type(error)


async def _as_coroutine(verb: Awaitable[object]) -> object:
    return await verb


def unknowing(look: Look) -> Look:
    """Leave out since when its runs are known: a restart forgets some of them."""
    return replace(look, schedule=replace(look.schedule, known_since=None))


TestCrashes = pytest.mark.timeout(900)(Crashes.TestCase)
TestCrashes.settings = settings(max_examples=120 if FULL else 30, stateful_step_count=50, report_multiple_bugs=False)
