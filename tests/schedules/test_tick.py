"""A ticker that looks at an interval makes of schedules what one makes that sleeps until the next slot."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring import Cron, Every, Mainspring, Missed, Once
from mainspring.core.rules import Rule
from mainspring.duration import Duration
from mainspring.errors import DeclarationError
from mainspring.settings import NodeSettings
from mainspring.stores.memory import MemoryStore
from mainspring.testing import FaultyStore, VirtualTime

LENGTH = 120.0

Plan = tuple[Callable[[Any], Rule], dict[str, Any], float]

# Slots are at whole seconds, and nothing else happens within a tick of them: what is put off by a tick must not be what
# decides who comes first. So one run never waits for the end of another: what holds a slot back has short jobs.
rules = st.one_of(
    st.integers(1, 40).map(lambda count: lambda now: Every(count, start=now)),
    st.sampled_from(["* * * * *", "*/20 * * * * *", "15,40 * * * * *"]).map(lambda text: lambda _: Cron(text)),
    st.integers(1, 100).map(lambda count: lambda now: Once(now + timedelta(seconds=count))),
)
others = {"missed": st.sampled_from([Missed.skip(), Missed.latest(), Missed.all()]), "max_runs": st.integers(1, 5)}
options = st.fixed_dictionaries({"overlap": st.sampled_from(["allow", "skip"])}, optional=others)
waiting = st.fixed_dictionaries({"overlap": st.sampled_from(["queue_one", "cancel_previous"])}, optional=others)
plans: st.SearchStrategy[list[Plan]] = st.lists(
    st.tuples(rules, options, st.integers(0, 30).map(lambda count: count + 0.3))
    | st.tuples(rules, waiting, st.just(0.3)),
    min_size=1,
    max_size=4,
)
outages = st.none() | st.tuples(st.integers(5, 40).map(lambda at: at + 0.5), st.integers(1, 60))


def lived(tick: Duration | None, plans: list[Plan], outage: tuple[float, int] | None) -> list[Any]:
    """Live through some minutes, and tell what became of every slot."""
    with VirtualTime() as time:
        return time.run(_lived(time, tick, plans, outage))


async def _lived(
    time: VirtualTime, tick: Duration | None, plans: list[Plan], outage: tuple[float, int] | None
) -> list[Any]:
    app = Mainspring(MemoryStore(clock=time.clock), clock=time.clock)

    @app.task(name="work")
    async def work(seconds: float) -> None:
        await asyncio.sleep(seconds)

    async with app:
        now = app.store.now().replace(microsecond=0) + timedelta(seconds=1)
        for number, (rule, given, length) in enumerate(plans):
            await app.schedules.add(str(number), rule(now), work.call(length), **given)
        whole = (now - app.store.now()).total_seconds()
        if outage is None:
            async with app.node(tick=tick, concurrency=200):
                await asyncio.sleep(whole + LENGTH + 0.7)
                return await told(app)
        at, length = outage
        async with app.node(tick=tick, concurrency=200, grace="0s"):
            await asyncio.sleep(whole + at)
        await asyncio.sleep(length)
        async with app.node(tick=tick, concurrency=200):
            await asyncio.sleep(LENGTH - at - length + 0.7)
            return await told(app)


async def told(app: Mainspring) -> list[Any]:
    runs = (await app.schedules.runs(limit=5000)).runs
    return sorted(
        (str(run.schedule), run.slot, run.last, run.count, str(run.reason), str(run.state), run.is_catch_up)
        for run in runs
        if run.slot is not None
    )


@pytest.mark.slow
@settings(max_examples=30)
@given(plans=plans, outage=outages)
def test_a_tick_at_an_interval_makes_the_same_of_every_slot(
    plans: list[Plan], outage: tuple[float, int] | None
) -> None:
    assert lived("100ms", plans, outage) == lived(None, plans, outage)


@pytest.mark.parametrize(("tick", "least", "most"), [("100ms", 95, 105), ("1s", 9, 12), (None, 0, 10)])
async def test_the_store_is_asked_at_the_interval_and_no_oftener(
    virtual_time: VirtualTime, tick: str | None, least: int, most: int
) -> None:
    store = FaultyStore(MemoryStore(clock=virtual_time.clock))
    app = Mainspring(store.as_store, clock=virtual_time.clock)
    async with app.node(tick=tick):
        await asyncio.sleep(1)
        before = store.calls.count("due")
        await asyncio.sleep(10)
        assert least <= store.calls.count("due") - before <= most


async def test_a_job_is_no_more_than_a_tick_late(virtual_time: VirtualTime) -> None:
    app = Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)
    late: list[timedelta] = []

    @app.schedule(Every("1s"))
    @app.task(name="work")
    async def work() -> None: ...

    async with app.node(tick="100ms"):
        await asyncio.sleep(30)
        late += [run.decided_at - run.slot for run in (await app.schedules.runs()).runs if run.slot]
    assert len(late) in {29, 30}
    assert max(late) <= timedelta(milliseconds=101)


def test_a_tick_is_some_time() -> None:
    with pytest.raises(DeclarationError, match="tick"):
        NodeSettings(tick=0)
