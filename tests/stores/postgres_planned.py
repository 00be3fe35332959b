"""Schedules of a PostgreSQL store on real time, and short words for what tests do with them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from msgspec.structs import replace

from mainspring.core.backoff import Backoff
from mainspring.core.names import Name
from mainspring.core.rules import Every, Rule
from mainspring.core.schedule import Decision, Overlap, Plan, Run, Schedule, Template
from mainspring.core.steps import create, decide
from mainspring.core.unique import UniqueKey
from mainspring.ids import new_id
from mainspring.runtime.firing import move_of
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.records import Look, Move, RunFilter
from tests.stores.postgres_crowd import SEND

A, B = Name("", "a"), Name("", "b")
HOUR = timedelta(hours=1)


def plan(
    rule: Rule | None = None,
    *,
    overlap: Overlap = Overlap.ALLOW,
    task: Name = SEND,
    unique: UniqueKey | None = None,
    keep_runs: timedelta = timedelta(days=30),
) -> Plan:
    template = Template(task=task, payload=b"{}", backoff=Backoff.fixed("10s"), max_attempts=1, unique=unique)
    return Plan(rule=rule or Every(HOUR), template=template, overlap=overlap, keep_runs=keep_runs)


def due_since(name: Name, planned: Plan, ago: timedelta = timedelta(seconds=1)) -> Schedule:
    """A schedule that no store knows yet, of which a slot came up so long ago."""
    assert isinstance(planned.rule, Every)
    schedule = create(name, planned, datetime.now(UTC) - planned.rule.interval - ago).after
    assert schedule
    return schedule


def added(schedule: Schedule) -> Move:
    return Move(before=None, after=schedule)


async def add(store: PostgresStore, name: Name = A, planned: Plan | None = None) -> Schedule:
    """Add a schedule of which a slot has come up."""
    schedule = due_since(name, planned or plan())
    assert await store.move([added(schedule)]) == (True,)
    return schedule


def decided(look: Look, now: datetime) -> Move:
    return move_of(decide(look.schedule, now, partial(new_id, now), busy=bool(look.open)))


def stepped(decision: Decision) -> Move:
    return move_of(decision)


async def due_moves(store: PostgresStore, limit: int = 1000) -> list[Move]:
    """What a ticker would have the store write now."""
    looked = await store.due(limit)
    return [decided(look, looked.now) for look in looked.looks]


async def tick(store: PostgresStore, limit: int = 1000) -> list[Run]:
    """Do what a ticker does; returns the runs that were written."""
    moves = await due_moves(store, limit)
    accepted = await store.move(moves)
    return [run for move, was in zip(moves, accepted, strict=True) if was for run in move.runs]


async def come_up(store: PostgresStore, name: Name = A) -> Schedule:
    """Have a slot come up that is due now, whatever the rule says: as if it had been forgotten so far."""
    schedule = await schedule_of(store, name)
    assert isinstance(schedule.plan.rule, Every)
    now = store.now() - timedelta(milliseconds=10)
    rule = replace(schedule.plan.rule, start=now)
    again = replace(
        schedule,
        plan=replace(schedule.plan, rule=rule),
        cursor=now - timedelta(milliseconds=10),
        next_at=now,
        revision=schedule.revision + 1,
    )
    assert await store.move([Move(before=schedule, after=again)]) == (True,)
    return again


async def look_at(store: PostgresStore, name: Name = A) -> Look:
    (look,) = (await store.look([name])).looks
    return look


async def schedule_of(store: PostgresStore, name: Name = A) -> Schedule:
    return (await look_at(store, name)).schedule


async def runs_of(store: PostgresStore, name: Name | None = None) -> Sequence[Run]:
    return (await store.runs(RunFilter(schedule=name), limit=100_000)).runs
