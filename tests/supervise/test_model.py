"""Services against small models of them: random programmes on virtual time, compared call by call.

The models are written from the rules alone. They know times, and nothing of tasks, futures or loops. What happens at
the same moment has no order that a rule could name: the model of one service follows every order that is possible, the
model of several refuses programmes in which it would matter.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import chain, count, repeat
from typing import Literal, TypeAlias

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mainspring.supervise import (
    Backoff,
    Bulkhead,
    Directive,
    Idle,
    Interval,
    Lane,
    Notifier,
    Pacing,
    Proceed,
    Service,
    Sleep,
    Stop,
    every,
)
from tests.supervise.conftest import Boom, has_permit, now, until

pytestmark = pytest.mark.slow

pytestmark = pytest.mark.usefixtures("virtual_time")

Result: TypeAlias = Literal["proceed", "idle", "sleep", "doze", "fail"]


@dataclass(frozen=True, slots=True)
class Act:
    """One step: how long it works, what comes of it, and for how long it then sleeps or dozes."""

    work: float
    result: Result
    time: float = 0


@dataclass(frozen=True, slots=True)
class Tempo:
    """The figures of pacing and backoff."""

    active: float = 0
    least: float = 0
    ramp: float = 0
    initial: float = 1
    multiplier: float = 1
    cap: float = 1

    @property
    def pacing(self) -> Pacing:
        return Pacing(active_interval=self.active, min_interval=self.least, ramp_step=self.ramp)

    @property
    def backoff(self) -> Backoff:
        return Backoff.exponential(self.initial, multiplier=self.multiplier, cap=self.cap, jitter=0)


class Waits:
    """How long a service waits after each result, by itself; the memory of pacing and backoff."""

    def __init__(self, tempo: Tempo) -> None:
        self._tempo = tempo
        self._pause = tempo.active
        self._failures = 0

    def after(self, act: Act) -> float:
        pause = self._pause
        self._pause = (
            max(self._tempo.least, pause - self._tempo.ramp) if act.result == "proceed" else self._tempo.active
        )
        self._failures = self._failures + 1 if act.result == "fail" else 0
        match act.result:
            case "proceed":
                return pause
            case "idle":
                return math.inf
            case "sleep" | "doze":
                return act.time
            case "fail":
                return min(self._tempo.initial * self._tempo.multiplier ** (self._failures - 1), self._tempo.cap)


def step_of(acts: Iterator[Act], called: Callable[[], None]) -> Callable[[], Awaitable[Directive]]:
    """Make a step that tells of its start and does what the next act says."""

    async def step() -> Directive:
        called()
        act = next(acts)
        await asyncio.sleep(act.work)
        match act.result:
            case "proceed":
                return Proceed()
            case "idle":
                return Idle()
            case "sleep":
                return Sleep(act.time)
            case "doze":
                return Sleep(act.time, wakeable=True)
            case "fail":
                raise Boom

    return step


# Quarters, so that sums are exact; and few different ones, so that much happens at the same moment.
moments = st.integers(0, 64).map(lambda quarters: quarters / 4)
spans = st.sampled_from([0, 0.25, 0.5, 1, 2, 5])
results: st.SearchStrategy[Result] = st.sampled_from(["proceed", "proceed", "idle", "idle", "sleep", "doze", "fail"])
acts = st.lists(st.builds(Act, spans, results, spans), max_size=8)
tempos = st.builds(
    lambda least, faster, ramp, initial, multiplier, longer: Tempo(
        active=least + faster, least=least, ramp=ramp, initial=initial, multiplier=multiplier, cap=initial + longer
    ),
    least=spans,
    faster=spans,
    ramp=st.sampled_from([0, 0.25, 0.75]),
    initial=st.sampled_from([0.25, 1, 3]),
    multiplier=st.sampled_from([1.0, 2.0, 3.0]),
    longer=st.sampled_from([0, 1.5, 20]),
)

quick = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


# One service: notifiers, intervals, a stop at any moment.


@dataclass(frozen=True, slots=True, kw_only=True)
class Programme:
    """What one service is made of and what happens to it."""

    acts: Sequence[Act]
    tempo: Tempo
    start_idle: bool
    stored: Sequence[int]
    """The notifiers that were notified before the start."""
    notified: Sequence[tuple[float, int]]
    """When which notifier is notified."""
    intervals: Sequence[float]
    stopped: float


NOTIFIERS = 2

programmes = st.builds(
    Programme,
    acts=acts,
    tempo=tempos,
    start_idle=st.booleans(),
    stored=st.lists(st.integers(0, NOTIFIERS - 1), max_size=2),
    notified=st.lists(st.tuples(moments, st.integers(0, NOTIFIERS - 1)), max_size=8),
    intervals=st.lists(st.sampled_from([0.75, 1, 4, 10]), max_size=2),
    stopped=st.one_of(moments, moments.map(lambda time: time + 16)),
)


class OneService:
    """The model: is told of each call, and objects to one that should not be.

    A signal is a notification or the end of an interval. A call answers all signals before it. Those of its very
    moment may have come before or after it: `unanswered` are the numbers of them that may have come after.
    """

    def __init__(self, programme: Programme) -> None:
        self._programme = programme
        self._acts = chain(programme.acts, repeat(Act(0, "idle")))
        self._waits = Waits(programme.tempo)
        ticks = [
            tick * interval
            for interval in programme.intervals
            for tick in range(1, math.ceil(programme.stopped / interval) + 1)
        ]
        self._signals = sorted([*(when for when, _ in programme.notified), *ticks])
        self._last = -math.inf
        self._unanswered = {0}
        self._end = 0.0
        self._wait = math.inf if programme.start_idle and not programme.stored else 0.0
        self._wakeable = programme.start_idle

    def call(self, time: float) -> None:
        assert self._end <= self._programme.stopped, f"it was stopped before its step ended at {self._end}"
        assert time <= self._programme.stopped, "it was stopped before"
        unanswered = set[int]()
        for before in self._unanswered:
            start, woken = self._next(before)
            if start == time:
                of_this_moment = before if time == self._last else self._signals.count(time)
                unanswered.update(range(of_this_moment - woken + 1))
        assert unanswered, f"a call at {time}, expected at {[self._next(before)[0] for before in self._unanswered]}"
        act = next(self._acts)
        self._last = time
        self._unanswered = unanswered
        self._end = time + act.work
        self._wait = self._waits.after(act)
        self._wakeable = act.result in {"idle", "doze"}

    def ended(self, time: float) -> None:
        assert time == max(self._end, self._programme.stopped)
        if self._end <= self._programme.stopped:
            starts = [self._next(before)[0] for before in self._unanswered]
            assert max(starts) >= self._programme.stopped, f"no call at {starts}"

    def _next(self, unanswered: int) -> tuple[float, bool]:
        """Tell when the next call comes, and whether a signal of that very moment makes it come."""
        by_itself = self._end + self._wait
        signal = self._last if unanswered else next((time for time in self._signals if time > self._last), math.inf)
        by_signal = max(self._end, signal)
        if self._wakeable and by_signal < by_itself:
            return by_signal, signal == by_signal
        return by_itself, False


@pytest.mark.slow
@settings(quick, max_examples=400)
@given(programme=programmes)
async def test_a_service_makes_exactly_the_calls_of_its_model(programme: Programme) -> None:
    loop, stop, notifiers = asyncio.get_running_loop(), Stop(), [Notifier() for _ in range(NOTIFIERS)]
    order = count()
    calls = list[float]()
    last_call = -1
    last_notified = dict.fromkeys(range(NOTIFIERS), -1)

    def called() -> None:
        nonlocal last_call
        last_call = next(order)
        calls.append(now())

    def notify(which: int) -> None:
        last_notified[which] = next(order)
        notifiers[which].notify_one()

    for which in programme.stored:
        notify(which)
    for when, which in programme.notified:
        loop.call_at(when, notify, which)
    loop.call_at(programme.stopped, stop.set)
    step = step_of(chain(programme.acts, repeat(Act(0, "idle"))), called)
    wake: list[Notifier | Interval] = [*notifiers, *map(every, programme.intervals)]
    await Service(
        "modelled",
        step,
        wake=wake,
        start_idle=programme.start_idle,
        pacing=programme.tempo.pacing,
        backoff=programme.tempo.backoff,
        listeners=(),
    ).run(stop)

    model = OneService(programme)
    for time in calls:
        model.call(time)
    model.ended(now())

    # What no call answered is still there, and nothing else.
    await until(max(40, now()))
    for which, notifier in enumerate(notifiers):
        assert await has_permit(notifier) == (last_notified[which] > last_call)


# Several services, one notifier, one lane: who is woken, and who comes next.

GRAIN = 2.0**-18
"""Added to times in different numbers, so that hardly ever two things happen at the same moment."""


class Ambiguous(Exception):
    """The rules allow more than one history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """Several services and what happens to them."""

    starts: Sequence[float]
    idle_starts: Sequence[bool]
    acts: Sequence[Sequence[Act]]
    tempo: Tempo
    places: int | None
    notified: Sequence[float]


def apart(company: Company) -> Company:
    """Move everything a little, each by a distance of its own."""
    grains = (GRAIN * (7 * number * number % 4093) for number in count(1))
    return Company(
        starts=[start + next(grains) for start in company.starts],
        idle_starts=company.idle_starts,
        # Idle acts enough for all notifications.
        acts=[
            [Act(act.work + next(grains), act.result, act.time) for act in [*acts, *[Act(0, "idle")] * 20]]
            for acts in company.acts
        ],
        tempo=company.tempo,
        places=company.places,
        notified=[time + next(grains) + GRAIN / 2 for time in company.notified],
    )


companies = st.integers(2, 4).flatmap(
    lambda services: st.builds(
        Company,
        starts=st.lists(spans, min_size=services, max_size=services),
        idle_starts=st.lists(st.booleans(), min_size=services, max_size=services),
        acts=st.lists(acts, min_size=services, max_size=services),
        tempo=tempos,
        places=st.sampled_from([None, 1, 1, 2]),
        notified=st.lists(moments, max_size=12),
    ).map(apart)
)


class SeveralServices:
    """The model: plays a company from the first event to the last and notes the calls of each service."""

    def __init__(self, company: Company) -> None:
        services = range(len(company.starts))
        self.calls: list[list[float]] = [[] for _ in services]
        self._acts = [iter(acts) for acts in company.acts]
        self._waits = [Waits(company.tempo) for _ in services]
        self._free = math.inf if company.places is None else company.places
        self._queue = deque[int]()
        self._waiting = dict[int, int]()
        """Those who wait for the notifier, longest first, each with the number of its alarm."""
        self._permit = False
        self._now = 0.0
        self._order = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        for service in services:
            begin = self._wait if company.idle_starts[service] else self._ask
            self._at(company.starts[service], partial(begin, service))
        for time in company.notified:
            self._at(time, self._notify)

    def play(self) -> None:
        while self._events:
            self._now, _, happen = heappop(self._events)
            if self._events and self._events[0][0] - self._now < GRAIN / 4:
                raise Ambiguous
            happen()

    def _at(self, time: float, happen: Callable[[], None]) -> int:
        number = next(self._order)
        heappush(self._events, (time, number, happen))
        return number

    def _notify(self) -> None:
        if not self._waiting:
            self._permit = True
            return
        longest = next(iter(self._waiting))
        self._stop_waiting(longest)
        self._ask(longest)

    def _stop_waiting(self, service: int) -> None:
        alarm = self._waiting.pop(service)
        self._events = sorted(event for event in self._events if event[1] != alarm)

    def _wait(self, service: int, time: float = math.inf) -> None:
        if self._permit:
            self._permit = False
            self._ask(service)
            return

        def alarm() -> None:
            del self._waiting[service]
            self._ask(service)

        self._waiting[service] = self._at(self._now + time, alarm) if time < math.inf else -1

    def _ask(self, service: int) -> None:
        if self._free:
            self._free -= 1
            self._begin(service)
        else:
            self._queue.append(service)

    def _begin(self, service: int) -> None:
        self.calls[service].append(self._now)
        self._permit = False
        act = next(self._acts[service])
        self._at(self._now + act.work, lambda: self._end(service, act))

    def _end(self, service: int, act: Act) -> None:
        wait = self._waits[service].after(act)
        wakeable = act.result in {"idle", "doze"}
        if wakeable and self._permit and self._queue:
            raise Ambiguous  # both this service and the one that gets its place would take the permit
        if self._queue:
            self._begin(self._queue.popleft())
        else:
            self._free += 1
        if wakeable:
            self._wait(service, wait)
        elif wait == 0:
            self._ask(service)
        else:
            self._at(self._now + wait, lambda: self._ask(service))


@pytest.mark.slow
@settings(quick, max_examples=300)
@given(company=companies)
async def test_several_services_make_exactly_the_calls_of_their_model(company: Company) -> None:
    model = SeveralServices(company)
    try:
        model.play()
    except Ambiguous:
        assume(False)

    loop, stop, signal = asyncio.get_running_loop(), Stop(), Notifier()
    bulkhead = Bulkhead() if company.places is None else Bulkhead(Lane(company.places))
    calls: list[list[float]] = [[] for _ in company.acts]

    async def run(service: int) -> None:
        await until(company.starts[service])
        step = step_of(iter(company.acts[service]), lambda: calls[service].append(loop.time()))
        await Service(
            f"s{service}",
            step,
            wake=[signal],
            start_idle=company.idle_starts[service],
            pacing=company.tempo.pacing,
            bulkhead=bulkhead,
            backoff=company.tempo.backoff,
            listeners=(),
        ).run(stop)

    for time in company.notified:
        loop.call_at(time, signal.notify_one)
    async with asyncio.TaskGroup() as group:
        for service in range(len(calls)):
            group.create_task(run(service))
        await until(1000)
        stop.set()
    assert calls == model.calls
