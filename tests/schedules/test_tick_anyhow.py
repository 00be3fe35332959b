"""Looking at an interval and sleeping until the next slot are the same from outside: for every rule of overlap, after the
end of runs, with bodies of any length, from any instant on and over a clock that is set.

What may differ is a tick of lateness. So nothing may depend on who is first within a tick, or two stories could differ
that are both right: slots come at whole seconds, bodies end at half ones, whenever they began, and what comes of an end
comes at half ones too. A body that was told to stop may go on for a while, so that slots that cancel others are seconds
apart and end by their slot. With that, every slot must have the same fate.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import floor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring import Context, Cron, Every, Mainspring, Missed
from mainspring.core.rules import Rule
from mainspring.core.schedule import Overlap
from mainspring.duration import Duration
from mainspring.stores.memory import MemoryStore
from mainspring.testing import VirtualTime

LENGTH = 100
STOPPING = 4
"""Seconds after which a body that was told to stop has."""
UNSURE = 45
"""Seconds before the end of a story in which a slot may have come whose fate is still open."""
REARM = 31
"""Seconds after which a clock that was set has been noticed by every ticker."""

START = datetime(2029, 1, 1, tzinfo=UTC)
instants = st.integers(0, 5 * 365 * 24 * 3600).map(lambda seconds: START + timedelta(seconds=seconds))
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule, and how long its bodies take, one after the other."""

    rule: Callable[[datetime], Rule]
    overlap: Overlap
    missed: Missed
    bodies: tuple[int, ...]


crons = st.sampled_from(["* * * * *", "*/20 * * * * *", "15,40 * * * * *", "*/7 * * * * *"])
at_times: st.SearchStrategy[Callable[[datetime], Rule]] = st.one_of(
    st.integers(1, 25).map(lambda count: lambda now: Every(count, start=now)),
    st.tuples(crons, zones).map(lambda two: lambda _: Cron(two[0], tz=two[1])),
)
after_ends: st.SearchStrategy[Callable[[datetime], Rule]] = st.integers(1, 15).map(
    lambda count: lambda _: Every(count, after_end=True)
)
bodies = st.lists(st.integers(0, 20), min_size=1, max_size=4).map(tuple)
policies = st.sampled_from([Missed.skip(), Missed.latest(), Missed.all(limit=100, per_tick=100)])
patient = st.sampled_from([Overlap.ALLOW, Overlap.SKIP, Overlap.QUEUE_ONE])


@st.composite
def cancelling(draw: st.DrawFn) -> Plan:
    """Draw a schedule whose slots cancel the run before; no body ends within seconds of being told to."""
    apart = draw(st.integers(5, 25))
    lengths = draw(st.lists(st.integers(3, 20), min_size=1, max_size=4))
    return Plan(
        lambda now: Every(apart, start=now),
        Overlap.CANCEL_PREVIOUS,
        draw(st.sampled_from([Missed.skip(), Missed.latest()])),
        tuple(length if length < apart else length + STOPPING for length in lengths),
    )


plans = st.lists(
    st.builds(Plan, at_times | after_ends, patient, policies, bodies) | cancelling(), min_size=1, max_size=3
)
halts = st.none() | st.tuples(st.integers(5, 40), st.integers(1, 60), st.integers(-50, 50))
"""When nobody is there for how long, and by how much the clock is set meanwhile."""


jumps = st.lists(st.tuples(st.integers(1, 20), st.integers(-90, 300)), min_size=1, max_size=3)
"""After how long the clock is set, and by how much, while a node is at work."""


def on_grid(seconds: float) -> float:
    """Take away by how much something was late: the whole or half second that it belongs to."""
    return floor(2 * (seconds + 0.01)) / 2


def bodies_end(began: float, length: int) -> float:
    """Say when a body of that length ends that began then, or up to almost half a second later: at a half second."""
    whole = floor(on_grid(began))
    return whole + length + 0.5 + (length == 0 and on_grid(began) > whole)


def declare(app: Mainspring, plans: list[Plan], now: datetime) -> None:
    """Declare the schedules of a story, each with a task of its own."""

    def body(plan: Plan) -> Callable[[Context], Any]:
        async def work(ctx: Context) -> None:
            assert ctx.slot
            slot = int(on_grid((ctx.slot - START).total_seconds()))
            loop = asyncio.get_running_loop()
            length = plan.bodies[slot % len(plan.bodies)]
            until = bodies_end(loop.time(), length)
            if plan.overlap is Overlap.CANCEL_PREVIOUS:
                by_slot = on_grid(loop.time() + (ctx.slot - app.store.now()).total_seconds()) + length + 0.5
                until = by_slot if by_slot > loop.time() else bodies_end(loop.time(), 0)
            await asyncio.sleep(until - loop.time())

        return work

    for number, plan in enumerate(plans):
        task = app.task(name=f"work-{number}")(body(plan))
        app.schedule(plan.rule(now), name=str(number), overlap=plan.overlap.value, missed=plan.missed)(task)


def lived(
    tick: Duration | None, begin: datetime, plans: list[Plan], halt: tuple[int, int, int] | None
) -> list[tuple[object, ...]]:
    """Live through some minutes, and tell what became of every slot."""
    with VirtualTime(start=begin) as time:
        return time.run(_lived(time, tick, plans, halt))


async def _lived(
    time: VirtualTime, tick: Duration | None, plans: list[Plan], halt: tuple[int, int, int] | None
) -> list[tuple[object, ...]]:
    app = Mainspring(MemoryStore(clock=time.clock), clock=time.clock)
    declare(app, plans, time.clock.now())
    at, length, by = halt or (LENGTH, 0, 0)
    async with app:
        async with app.node(tick=tick, concurrency=200, grace="0s"):
            await asyncio.sleep(at + 0.75)
            if halt is None:
                return await told(app)
        await asyncio.sleep(length)
        time.clock.jump(by)
        async with app.node(tick=tick, concurrency=200):
            await asyncio.sleep(LENGTH)
            return await told(app)


async def told(app: Mainspring) -> list[tuple[object, ...]]:
    runs = (await app.schedules.runs(limit=5000)).runs

    def place(slot: datetime | None) -> float | None:
        return None if slot is None else on_grid((slot - START).total_seconds())

    return sorted(
        (str(run.schedule), place(run.slot) or 0, place(run.last) or 0, run.count, str(run.reason), str(run.state))
        for run in runs
        if run.slot is None or run.slot < app.store.now() - timedelta(seconds=UNSURE)
    )


@pytest.mark.slow
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(begin=instants, plans=plans, halt=halts)
def test_every_slot_has_the_same_fate_at_an_interval_and_by_deadline(
    begin: datetime, plans: list[Plan], halt: tuple[int, int, int] | None
) -> None:
    by_deadline = lived(None, begin, plans, halt)

    assert lived("100ms", begin, plans, halt) == by_deadline


@pytest.mark.slow
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(begin=instants, rules=st.lists(at_times, min_size=1, max_size=3), jumps=jumps)
def test_a_clock_that_is_set_under_a_running_node_leaves_the_same_slots(
    begin: datetime, rules: list[Callable[[datetime], Rule]], jumps: list[tuple[int, int]]
) -> None:
    """By deadline it is noticed within half a minute, at an interval at once; what has had a job by then is the same."""
    plans = [Plan(rule, Overlap.ALLOW, Missed.all(limit=1000, per_tick=1000), (0,)) for rule in rules]

    async def live(time: VirtualTime, tick: Duration | None) -> set[tuple[object, ...]]:
        app = Mainspring(MemoryStore(clock=time.clock), clock=time.clock)
        declare(app, plans, time.clock.now())
        async with app.node(tick=tick, concurrency=200):
            await asyncio.sleep(0.75)
            for after, by in jumps:
                await asyncio.sleep(after)
                time.clock.jump(by)
            await asyncio.sleep(REARM)
            runs = (await app.schedules.runs(limit=5000)).runs
            slots = [(str(run.schedule), run.slot) for run in runs if run.job]
            before = app.store.now() - timedelta(seconds=4)  # the longest tick, and a bit
            assert len(set(slots)) == len(slots), "two jobs for a slot"
            assert len(slots) == len(runs), "one was dropped"
            return {(name, slot) for name, slot in slots if slot and slot < before}

    stories = []
    for tick in (None, "100ms", "3s"):
        with VirtualTime(start=begin) as time:
            stories.append(time.run(live(time, tick)))
    assert stories[0] == stories[1] == stories[2]
