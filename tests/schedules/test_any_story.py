"""Any story: whatever people, clocks and nodes do to a schedule, every slot is accounted for once, and every run tells the
truth about its job.
"""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring import Context, Every, Mainspring, Missed
from mainspring.core.job import FINISHED
from mainspring.core.schedule import Origin, Overlap
from mainspring.errors import IllegalTransition, JobGone, ScheduleError
from mainspring.stores.memory import MemoryStore
from mainspring.testing import VirtualTime
from tests.schedules.conftest import HOUR, MINUTE, SECOND, T0, Boom, jobs, pass_by, runs, schedules
from tests.tier import FULL

NAME = "minutely"
RULE = Every(MINUTE, start=T0 - HOUR)
MISSED = [Missed.skip(), Missed.latest(), Missed.all(limit=100, per_tick=3), Missed.all(limit=2, grace="3m")]

Step = tuple[str, int]


def steps() -> st.SearchStrategy[list[Step]]:
    of_people = ["pause", "resume", "run", "backfill", "cancel", "retry", "delete"]
    what = st.sampled_from(["pass", "pass", "pass", "forward", "back", "restart", "crash", *of_people])
    return st.lists(st.tuples(what, st.integers(1, 60)), min_size=1, max_size=25)


class Story:
    """An app with one schedule, on a node that is there most of the time."""

    def __init__(self, time: VirtualTime, overlap: Overlap, missed: Missed) -> None:
        self.time = time
        self.store = MemoryStore(clock=time.clock)
        self.app = Mainspring(store=self.store, clock=time.clock)
        self.may_overlap = overlap is Overlap.ALLOW

        @self.app.schedule(RULE, name=NAME, overlap=overlap.value, missed=missed)
        @self.app.task(name="work", max_attempts=1)
        async def work(ctx: Context) -> None:
            kind = crc32(str(ctx.slot).encode()) % 6
            await asyncio.sleep(kind * 25)
            if kind == 2:
                raise Boom

    async def play(self, script: list[Step]) -> None:
        async with AsyncExitStack() as life:
            node = await life.enter_async_context(self.app.node(grace=0))
            for what, number in script:
                if what in {"restart", "crash"}:
                    if what == "crash":  # everybody takes it for dead
                        for view in await self.store.nodes():
                            await self.store.declare_dead(view.node.id, view.term)
                    else:
                        await node.shutdown()
                        await pass_by(number * 5 * SECOND)
                        node = await life.enter_async_context(self.app.node(grace=0))
                await self.do(what, number)
                await self.check()
            kept = (await schedules(self.app))[NAME]
            if kept.paused:
                await self.app.schedules.resume(NAME)
            # What was due before a clock was set back waits until it is due again.
            self.time.clock.jump(max(timedelta(0), -self.time.clock.jumped))
            await pass_by(10 * MINUTE)
            await self.app.schedules.pause(NAME)
            await pass_by(5 * MINUTE)
            await self.check()
            assert all(run.state is not None for run in await runs(self.app) if run.job), "a run that never ended"

    async def do(self, what: str, number: int) -> None:
        schedules_ = self.app.schedules
        match what:
            case "pass":
                await pass_by(number * 5 * SECOND)
            case "forward":
                self.time.clock.jump(number * MINUTE / 4)
            case "back":
                self.time.clock.jump(-number * MINUTE / 4)
            case "pause" | "resume":
                with suppress(ScheduleError):
                    await getattr(schedules_, what)(NAME)
            case "run":
                await schedules_.run(NAME)
            case "backfill":
                end = min(self.app.store.now(), (await schedules_.get(NAME)).cursor)
                await schedules_.backfill(NAME, end - number * MINUTE / 6, end)
            case "cancel" | "retry" | "delete":
                await self.operate(what, number)
            case _:
                pass

    async def operate(self, what: str, number: int) -> None:
        made = [run for run in await runs(self.app) if run.job]
        self.may_overlap |= what == "retry"  # which an operator may, whatever else runs
        if made:
            with suppress(IllegalTransition, JobGone):
                await getattr(self.app.job(made[number % len(made)].id), what)()

    async def check(self) -> None:
        history = await runs(self.app)
        (kept,) = (await schedules(self.app)).values()
        made = [run for run in history if run.job and run.slot]
        doubles = [slot for slot, count in Counter(run.slot for run in made).items() if count > 1]
        assert not doubles, "two jobs for a slot"
        decided = sum(run.count for run in history if run.origin is Origin.SLOT) + (kept.held is not None)
        assert decided == sum(1 for _ in RULE.between(kept.created_at, kept.cursor)), "lost, or decided twice"
        views = {view.job.id: view for view in await jobs(self.app)}
        for run in history:
            if run.job in views:
                state = views[run.job].job.state
                assert run.state == (state if state in FINISHED else None), f"{run} of a job that is {state}"
            else:
                assert not run.is_open, "open, and its job is gone"
        if not self.may_overlap:
            assert sum(run.is_open for run in history if run.origin is Origin.SLOT) <= 1, "two at a time"


@pytest.mark.slow
@pytest.mark.timeout(300)
@settings(
    max_examples=60 if FULL else 25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(overlap=st.sampled_from(Overlap), missed=st.sampled_from(MISSED), script=steps())
async def test_every_slot_is_accounted_for_and_every_run_is_true(
    virtual_time: VirtualTime, overlap: Overlap, missed: Missed, script: list[Step]
) -> None:
    await Story(virtual_time, overlap, missed).play(script)
