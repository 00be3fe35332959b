"""A story that has schedules in it: their steps beside all that happens to jobs."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from uuid import UUID

from msgspec.structs import replace

from mainspring.core import machine
from mainspring.core import steps as core
from mainspring.core.command import Command
from mainspring.core.job import FINISHED, WAITING, JobId
from mainspring.core.limits import Gate
from mainspring.core.names import Name
from mainspring.core.outcome import Outcome
from mainspring.core.schedule import Decision, Paused, Run, Schedule
from mainspring.errors import ScheduleError
from mainspring.stores.records import Facts, JobFilter, Look, Looked, Move, NewJob, RunFilter, Settlement, SlotFacts
from tests.stores.asked import ALL, chosen
from tests.stores.drawn import Spec, Wish
from tests.stores.drawn_plans import FIRST, NAMES, PlanSpec
from tests.stores.pair import Side
from tests.stores.story import Story


class Planned(Story):
    """What happens to both stores, schedules included."""

    looks: dict[Name, Look]
    older_looks: list[Look]
    runs: dict[UUID, Run]

    def begin(self, some: list[Spec], gates: list[Gate]) -> None:
        self.looks = {}
        self.older_looks = []
        self.runs = {}
        super().begin(some, gates)
        for name, spec in zip(NAMES, FIRST, strict=True):
            self.plan(name, spec, owner="shop", paused=False)

    def look(self) -> None:
        super().look()
        page = self.pair.both(lambda side: side.store.list_schedules(limit=ALL))
        self.older_looks = [*self.older_looks[-9:], *self.looks.values()]
        self.looks = {look.schedule.name: look for look in page.looks}
        self.runs = {run.id: run for run in self.pair.both(lambda side: side.store.runs(RunFilter(), limit=ALL)).runs}
        by_name = self.pair.both(lambda side: by_names(side, NAMES))
        assert {look.schedule.name: look for look in by_name} == self.looks
        due = self.pair.both(in_order_of_names)
        assert {look.schedule.name for look in due.looks} == {
            name for name, look in self.looks.items() if look.schedule.next_at and look.schedule.next_at <= self.now
        }
        self.check()

    def check(self) -> None:
        """Hold schedules, runs and jobs against one another."""
        for run in self.runs.values():
            view = self.views.get(JobId(run.id))
            if run.job and view:
                finished = view.job.state in FINISHED
                assert (run.state, run.finished_at) == (
                    (view.job.state, view.job.finished_at) if finished else (None,) * 2
                )
            assert view or not run.is_open, "a run waits for a job that is gone"
        assert all(view.job.of_schedule == (view.facts.slot is not None) for view in self.views.values())
        with_job = [(run.schedule, run.slot) for run in self.runs.values() if run.job and run.slot]
        assert len(with_job) == len(set(with_job)), "a slot has two jobs"
        for name, look in self.looks.items():
            still_open = sorted(run.id for run in self.runs.values() if run.schedule == name and run.is_open)
            assert look.open == tuple(still_open[:-11:-1])
            there = look.schedule
            if there.waits and not there.paused and not look.open:
                assert there.next_at is not None, "it waits for an end that will not come"

    # The steps of schedules.

    def plan(self, name: Name, spec: PlanSpec, owner: str | None, paused: bool) -> None:
        halt = Paused(at=self.now, by="me") if paused else None
        self.write_moves([core.create(name, spec.plan, self.now, owner=owner, paused=halt)])

    def tick(self, seconds: int, late: bool) -> None:
        """Decide what is due after a while, or what was seen some time ago."""
        self.pair.clock.advance(seconds)
        looks = self.older_looks if late else self.pair.both(in_order_of_names).looks
        self.write_moves([self.decided(look) for look in looks])

    def decided(self, look: Look) -> Decision:
        return core.decide(look.schedule, self.now, self.id, busy=bool(look.open))

    def end_runs(self, pick: int, outcome: Outcome, command: Command) -> None:
        """End what schedules have made: most of all that waits is somebody else's, and comes back again and again."""
        mine = [JobId(run.id) for run in self.runs.values() if run.is_open]
        for node in sorted(self.alive) if mine else ():
            self.claim_of(node, Wish(room=9))
        self.look()
        claims = [claim for claim in self.running if claim.job.id in mine and claim.node in self.alive]
        self.write([self.end_of(claim, outcome) for claim in claims])
        waiting = [self.views[job].job for job in mine if job in self.views and self.views[job].job.state in WAITING]
        if waiting:
            self.write([Settlement(change=machine.command(chosen(waiting, pick), command, self.now))])

    def step(self, name: Name, what: str, pick: int, spec: PlanSpec, late: bool) -> None:
        looks = [look for look in self.older_looks if late] or [look for look in [self.looks.get(name)] if look]
        if not looks:
            return
        decision = self.stepped(chosen(looks, pick).schedule, what, pick, spec)
        if decision:
            self.write_moves([decision])

    def steps_at_once(self, name: Name, steps: list[tuple[str, bool]]) -> None:
        """Take several steps by one call, each from where the one before it led to, or from the same as that."""
        look = self.looks.get(name)
        if look is None:
            return
        there: Schedule | None = look.schedule
        decisions: list[Decision] = []
        for number, (what, from_the_same) in enumerate(steps):
            decision = self.stepped(there, what, number, None) if there else None
            if decision:
                decisions.append(decision)
                there = there if from_the_same else decision.after
        self.write_moves(decisions)

    def stepped(self, there: Schedule, what: str, pick: int, spec: PlanSpec | None) -> Decision | None:
        """Choose a step; None where there is no such step from here."""
        following = partial(replace, there, revision=there.revision + 1)
        try:
            match what:
                case "pause":
                    return core.pause(there, self.now, by="me")
                case "resume":
                    return core.resume(there, self.now, self.id, busy=False)
                case "remove":
                    return core.remove(there)
                case "run":
                    return core.run_now(there, self.now, self.id)
                case "backfill":
                    first = there.plan.rule.previous(self.now - timedelta(seconds=pick % 20))
                    second = first and there.plan.rule.next(first)
                    slots = [slot for slot in (first, second) if slot and slot <= self.now]
                    return core.backfill(there, slots[: 1 + pick % 2], self.now, self.id)
                case "wait":
                    return Decision(before=there, after=following(waits=True))
                case _:
                    changed = there.plan if spec is None else spec.plan
                    return Decision(before=there, after=following(plan=changed, owner=chosen(["shop", None], pick)))
        except ScheduleError:
            return None

    def write_moves(self, decisions: Sequence[Decision]) -> None:
        moves = [self.move_of(decision) for decision in decisions]
        answers = self.pair.both(lambda side: side.store.move(moves))
        jobs = [job.id for move, accepted in zip(moves, answers, strict=True) if accepted for job in move.jobs]
        there = {view.job.id for view in self.pair.both(lambda side: side.store.list_jobs(JobFilter(), limit=ALL)).jobs}
        self.ledger.there |= there & set(jobs)
        self.look()
        assert all((job in there) == (self.runs[job].job is not None) for job in jobs)

    def move_of(self, decision: Decision) -> Move:
        subject = decision.after or decision.before
        assert subject
        jobs = tuple(self.job_of(subject, run) for run in decision.runs if run.is_open)
        return Move(before=decision.before, after=decision.after, runs=decision.runs, jobs=jobs)

    def job_of(self, there: Schedule, run: Run) -> NewJob:
        template = there.plan.template
        return NewJob(
            id=JobId(run.id),
            task=template.task,
            payload=template.payload,
            backoff=template.backoff,
            max_attempts=template.max_attempts,
            queue=template.queue,
            loss_limit=template.loss_limit,
            retention=template.retention,
            unique=template.unique,
            facts=Facts(slot=SlotFacts(schedule=str(run.schedule), slot=run.slot, origin=run.origin)),
        )

    def id(self) -> UUID:
        self.made += 1
        return UUID(int=1 << 100 | self.made)

    def prune_soon(self, minutes: int) -> None:
        self.pair.clock.advance(60 * minutes)
        self.look()
        self.prune()
        self.look()

    def list_by_page(self, pick: int, limit: int) -> None:
        """Read schedules and runs a page at a time, as they are asked for."""
        slots = sorted({run.slot for run in self.runs.values() if run.slot})
        which = RunFilter(
            schedule=chosen([None, *NAMES], pick),
            after_slot=chosen([None, *slots], pick // 3),
            until_slot=chosen([None, *slots], pick // 7),
            with_job=chosen([None, True, False], pick),
        )
        self.pair.both(lambda side: pages_of_runs(side, which, limit))
        self.pair.both(lambda side: pages_of_schedules(side, chosen([None, "shop", "blog"], pick), limit))


async def by_names(side: Side, names: Sequence[Name]) -> list[Look]:
    looked = await side.store.look(names)
    return sorted(looked.looks, key=lambda look: look.schedule.name)


async def in_order_of_names(side: Side) -> Looked:
    """What is due. Between those of the same instant the port fixes no order."""
    looked = await side.store.due(ALL)
    instants = [look.schedule.next_at for look in looked.looks if look.schedule.next_at]
    assert instants == sorted(instants)
    return replace(looked, looks=tuple(sorted(looked.looks, key=lambda look: look.schedule.name)))


async def pages_of_runs(side: Side, which: RunFilter, limit: int) -> list[tuple[Run, ...]]:
    page = await side.store.runs(which, limit=limit)
    pages = [page.runs]
    while page.after:
        page = await side.store.runs(which, limit=limit, after=page.after)
        pages.append(page.runs)
    return pages


async def pages_of_schedules(side: Side, owner: str | None, limit: int) -> list[tuple[Look, ...]]:
    page = await side.store.list_schedules(owner=owner, limit=limit)
    pages = [page.looks]
    while page.after:
        page = await side.store.list_schedules(owner=owner, limit=limit, after=page.after)
        pages.append(page.looks)
    return pages
