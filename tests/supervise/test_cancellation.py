"""Whatever is cancelled or stopped, and whenever: no notification is lost, no place is taken twice or never returned.

Ends come at any moment, very often exactly when a notification fires or a place becomes free, and within that moment
before or after it, or some turns of the loop later: between the waking of a service and its next turn, while it holds
a permit but no place, while it has been given a place but does not know it yet.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring.supervise import (
    NO_PAUSE,
    Backoff,
    Bulkhead,
    Directive,
    Idle,
    Lane,
    Notifier,
    Proceed,
    Service,
    Sleep,
    Stop,
)
from tests.supervise.conftest import Boom, Script, Work, has_permit, now, running, settle, until

pytestmark = pytest.mark.usefixtures("virtual_time")

Manner: TypeAlias = Literal["stop", "cancel", "stop and cancel", "cancel and stop", "cancel twice"]
MANNERS: list[Manner] = ["stop", "cancel", "stop and cancel", "cancel and stop", "cancel twice"]


@dataclass(frozen=True, slots=True)
class Moment:
    """A time, and how many turns of the loop later within it."""

    time: float
    turns: int

    def do(self, action: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()

        def turn(left: int) -> None:
            if left:
                loop.call_soon(turn, left - 1)
            else:
                action()

        loop.call_at(self.time, turn, self.turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One service: how it starts, what its steps do, which lanes it uses, when and how it ends."""

    start_idle: bool
    work: Sequence[float]
    results: Sequence[Directive | BaseException]
    tidying: float
    """How long a step takes to end when it is cancelled."""
    lanes: Sequence[int]
    end: Moment | None
    manner: Manner


ROOM = [1, 2]
"""The places of two lanes."""

moments = st.builds(Moment, st.integers(0, 6).map(lambda halves: halves / 2), st.integers(0, 3))
Results: TypeAlias = st.SearchStrategy[Directive | BaseException]

mostly_idle: Results = st.sampled_from([Idle(), Idle(), Idle(), Proceed(), Sleep(0.5), Sleep(1, wakeable=True), Boom()])
mostly_busy: Results = st.sampled_from([Proceed(), Proceed(), Proceed(), Idle(), Sleep(0.5), Boom()])
manners: st.SearchStrategy[Manner] = st.sampled_from(MANNERS)


def members(lanes: st.SearchStrategy[Sequence[int]], results: Results) -> st.SearchStrategy[list[Member]]:
    member = st.builds(
        Member,
        start_idle=st.booleans(),
        work=st.lists(st.sampled_from([0.5, 0.5, 0.5, 1, 0]), min_size=6, max_size=6),
        results=st.lists(results, min_size=3, max_size=5),
        tidying=st.sampled_from([0, 0, 0.5]),
        lanes=lanes,
        end=st.one_of(moments, st.none()),
        manner=manners,
    )
    return st.lists(member, min_size=2, max_size=4)


class Company:
    """Runs services that share a notifier and lanes, and keeps a diary."""

    def __init__(self, members: Sequence[Member], notified: Sequence[Moment]) -> None:
        self.signal = Notifier()
        self.lanes = [Lane(places) for places in ROOM]
        self.diary: list[str] = []
        self.causes = 0
        """How often anything gave a reason for a step."""
        self.crowds: list[list[Member]] = []
        """Who was in a step together, and should not have been."""
        self._inside: list[Member] = []
        self._stops = [Stop() for _ in members]
        self._runs = [
            asyncio.create_task(self._service(member).run(stop))
            for member, stop in zip(members, self._stops, strict=True)
        ]
        for member, stop, run in zip(members, self._stops, self._runs, strict=True):
            if member.end:
                member.end.do(partial(end, stop, run, member.manner))
        for moment in notified:
            moment.do(self._notify)

    @property
    def alive(self) -> int:
        return sum(not run.done() for run in self._runs)

    async def close(self) -> None:
        for stop in self._stops:
            stop.set()
        for run in self._runs:
            with suppress(asyncio.CancelledError):
                await run

    def _notify(self) -> None:
        self.diary.append("notified")
        self.causes += 1
        self.signal.notify_one()

    def _service(self, member: Member) -> Service:
        self.causes += not member.start_idle
        return Service(
            "member",
            self._step(member),
            wake=[self.signal],
            start_idle=member.start_idle,
            pacing=NO_PAUSE,
            bulkhead=Bulkhead(*[self.lanes[lane] for lane in member.lanes]),
            backoff=Backoff.fixed(0.5),
            listeners=(),
        )

    def _step(self, member: Member) -> Callable[[], Awaitable[Directive]]:
        work, results = iter(member.work), iter(member.results)

        async def step() -> Directive:
            self.diary.append("called")
            self._inside.append(member)
            if not has_room(self._inside):
                self.crowds.append([*self._inside])
            try:
                await asyncio.sleep(next(work, 0))
            except asyncio.CancelledError:
                await asyncio.sleep(member.tidying)
                raise
            finally:
                self._inside.remove(member)
            result = next(results, Idle())
            self.causes += not isinstance(result, Idle)
            if isinstance(result, BaseException):
                raise result.with_traceback(None)
            return result

        return step


def end(stop: Stop, run: asyncio.Task[None], manner: Manner) -> None:
    match manner:
        case "stop":
            stop.set()
        case "cancel":
            run.cancel()
        case "stop and cancel":
            stop.set()
            run.cancel()
        case "cancel and stop":
            run.cancel()
            stop.set()
        case "cancel twice":
            run.cancel()
            asyncio.get_running_loop().call_soon(run.cancel)


def has_room(inside: Sequence[Member]) -> bool:
    """Tell whether each could have a place of its own: no set of lanes serves more than it has room for."""
    served = [
        [member for member in inside if member.lanes and set(member.lanes) <= lanes] for lanes in ({0}, {1}, {0, 1})
    ]
    return all(len(members) <= room for members, room in zip(served, [*ROOM, sum(ROOM)], strict=True))


async def free_places(lane: Lane) -> int:
    """Count them, by taking as many as there are."""
    steps = [Script(Work(1)) for _ in range(sum(ROOM) + 1)]
    started = now()
    async with running(*[Service("probe", step, bulkhead=Bulkhead(lane)) for step in steps]):
        await settle()
    return sum(step.calls == [started] for step in steps)


quick = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.slow
@settings(quick, max_examples=300)
@given(
    members=members(st.sampled_from([(), (), (0,), (1,), (0, 1)]), mostly_idle),
    notified=st.lists(moments, min_size=1, max_size=5),
)
async def test_whoever_ends_whenever_no_notification_is_lost(members: list[Member], notified: list[Moment]) -> None:
    company = Company(members, notified)
    await until(60)
    assert company.alive == sum(member.end is None for member in members)
    permit = await has_permit(company.signal)
    if company.alive:
        assert company.diary[-1] == "called"
        assert not permit
    else:
        assert company.diary[-1] == "called" or permit
    # And none is answered twice.
    assert company.diary.count("called") + permit <= company.causes
    await company.close()


@pytest.mark.slow
@settings(quick, max_examples=300)
@given(
    members=members(st.sampled_from([(0,), (0,), (0,), (1,), (0, 1), (1, 0)]), mostly_busy),
    notified=st.lists(moments, max_size=5),
)
async def test_whoever_ends_whenever_no_place_is_lost_and_none_taken_twice(
    members: list[Member], notified: list[Moment]
) -> None:
    company = Company(members, notified)
    await until(60)
    await company.close()
    assert company.crowds == []
    assert [await free_places(lane) for lane in company.lanes] == ROOM


# The same, turn by turn, for the two moments that matter most.


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("turns", range(10))
@pytest.mark.parametrize("crowded", [False, True], ids=["alone", "in a full lane"])
async def test_a_service_that_ends_just_when_it_is_notified_loses_no_notification(
    manner: Manner, turns: int, crowded: bool
) -> None:
    lane, signal, stop, step = Lane(1), Notifier(), Stop(), Script()
    holder = Service("holder", Script(Work(100)), bulkhead=Bulkhead(lane), start_idle=not crowded)
    async with running(holder):
        service = Service("ending", step, wake=[signal], start_idle=True, bulkhead=Bulkhead(lane))
        run = asyncio.create_task(service.run(stop))
        Moment(5, 3).do(signal.notify_one)
        Moment(5, turns).do(partial(end, stop, run, manner))
        await until(6)
        assert run.done()
        assert bool(step.calls) != await has_permit(signal)


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("turns", range(10))
@pytest.mark.parametrize("lanes", [1, 2])
async def test_a_service_that_ends_just_when_it_gets_a_place_loses_no_place(
    manner: Manner, turns: int, lanes: int
) -> None:
    tiers, stop, step = [Lane(1) for _ in range(lanes)], Stop(), Script()
    async with running(*[Service("holder", Script(Work(5)), bulkhead=Bulkhead(lane)) for lane in tiers]):
        run = asyncio.create_task(Service("ending", step, bulkhead=Bulkhead(*tiers)).run(stop))
        Moment(5, turns).do(partial(end, stop, run, manner))
        await until(6)
        assert run.done()
        assert [await free_places(lane) for lane in tiers] == [1] * lanes
