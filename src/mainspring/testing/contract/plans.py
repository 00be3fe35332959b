# ruff: noqa: S101 -- a suite of tests is built on assert
"""Short words for what the tests of the contract do with schedules: add, look, step, tick."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

from msgspec.structs import asdict, replace

from mainspring.core.backoff import Backoff
from mainspring.core.job import JobId
from mainspring.core.names import Name
from mainspring.core.rules import Every, Rule
from mainspring.core.schedule import Decision, Overlap, Plan, Run, Schedule, Template
from mainspring.core.steps import create, decide, run_now
from mainspring.core.unique import UniqueKey
from mainspring.stores.port import Store
from mainspring.stores.records import Facts, Look, Move, NewJob, RunFilter, SlotFacts
from mainspring.testing.contract.world import HOUR, SEND, World

HOURLY: Final = Name("", "hourly")
BY_HAND: Final = Name("", "by-hand")


def plan(
    rule: Rule | None = None,
    *,
    overlap: Overlap = Overlap.ALLOW,
    keep_runs: timedelta = timedelta(days=30),
    unique: UniqueKey | None = None,
) -> Plan:
    template = Template(task=SEND, payload=b"{}", backoff=Backoff.fixed("10s"), max_attempts=1, unique=unique)
    return Plan(rule=rule or Every(HOUR), template=template, overlap=overlap, keep_runs=keep_runs)


def after_the_end(*, unique: UniqueKey | None = None) -> Plan:
    """A plan of which the next slot is known only when the run before it has ended."""
    return plan(Every(HOUR, after_end=True), unique=unique)


class Newer(Schedule, frozen=True, kw_only=True):
    """A schedule as newer code has it, with a word that this code does not know."""

    on_full_moon: bool = True


def unreadable(found: Schedule) -> Schedule:
    """Make of a schedule one that newer code has written."""
    return Newer(**asdict(found))


def move_of(world: World, decision: Decision) -> Move:
    """Add the jobs of those runs that make one."""
    subject = decision.after or decision.before
    jobs = [job_of(world, subject.plan.template, run) for run in decision.runs if run.is_open] if subject else []
    return Move(before=decision.before, after=decision.after, runs=decision.runs, jobs=tuple(jobs))


def job_of(world: World, template: Template, run: Run) -> NewJob:
    slot = SlotFacts(
        schedule=str(run.schedule), slot=run.slot, zone=run.zone, origin=run.origin, is_catch_up=run.is_catch_up
    )
    return world.new(
        template.task,
        id=JobId(run.id),
        payload=template.payload,
        max_attempts=template.max_attempts,
        unique=template.unique,
        facts=Facts(slot=slot),
    )


async def accepted(world: World, decision: Decision, *, store: Store | None = None) -> bool:
    """Have a decision written, if that can be."""
    (answer,) = await (store or world.store).move([move_of(world, decision)])
    return answer


async def written(world: World, decision: Decision) -> Decision:
    """Have a decision written that must be accepted."""
    assert await accepted(world, decision)
    return decision


async def add(world: World, name: Name = HOURLY, planned: Plan | None = None, *, owner: str | None = None) -> Schedule:
    """Add a schedule that must not be there yet."""
    decision = await written(world, create(name, planned or plan(), world.now, owner=owner))
    assert decision.after
    return decision.after


async def set_up(world: World, schedule: Schedule, *runs: Run) -> Schedule:
    """Have a schedule, which must not be there yet, as it is given, whatever rules would say of it."""
    assert await accepted(world, Decision(before=None, after=schedule, runs=runs))
    return schedule


async def look_at(world: World, name: Name = HOURLY, *, store: Store | None = None) -> Look:
    """Look at a schedule that must be there."""
    (look,) = (await (store or world.store).look([name])).looks
    return look


async def schedule(world: World, name: Name = HOURLY) -> Schedule:
    return (await look_at(world, name)).schedule


async def tick(world: World) -> list[Run]:
    """Do what a ticker does; returns the runs that were written."""
    looked = await world.store.due(100)
    decisions = [decide(look.schedule, looked.now, world.id, busy=bool(look.open)) for look in looked.looks]
    answers = await world.store.move([move_of(world, decision) for decision in decisions])
    assert all(answers)
    return [run for decision in decisions for run in decision.runs]


async def fire(world: World) -> Run:
    """Let an hour pass and tick, which must lead to one run with a job."""
    world.clock.advance(HOUR)
    (run,) = await tick(world)
    assert run.job
    return run


async def runs(world: World, name: Name | None = None, *, store: Store | None = None) -> tuple[Run, ...]:
    """Read all runs, the newest first."""
    page = await (store or world.store).runs(RunFilter(schedule=name), limit=1000)
    assert page.after is None
    return page.runs


async def run_of(world: World, id_: UUID) -> Run:
    """Read a run that must be there."""
    (run,) = [run for run in await runs(world) if run.id == id_]
    return run


def names_of(looks: Sequence[Look]) -> list[str]:
    return [str(look.schedule.name) for look in looks]


async def written_run(
    world: World,
    there: Schedule,
    *others: Run,
    waits: bool | None = None,
    run_at: timedelta = timedelta(0),
    max_attempts: int = 1,
    loss_limit: int = 3,
) -> Run:
    """Make a run with a job, by hand; the schedule waits for its end if that is said."""
    decision = run_now(there, world.now, world.id)
    assert decision.after
    after = decision.after if waits is None else replace(decision.after, waits=waits, next_at=None)
    move = move_of(world, Decision(before=there, after=after, runs=(*others, *decision.runs)))
    (job,) = move.jobs
    job = replace(job, run_at=run_at, max_attempts=max_attempts, loss_limit=loss_limit)
    assert await world.store.move([replace(move, jobs=(job,))]) == (True,)
    return decision.runs[0]


def stepped(there: Schedule, *runs: Run) -> Decision:
    """A step that does nothing but write runs."""
    return Decision(before=there, after=replace(there, revision=there.revision + 1), runs=runs)
