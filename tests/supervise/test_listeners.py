"""What listeners are told, in which order, and that a bad one hurts nobody."""

import logging
from collections.abc import Callable

import pytest

from mainspring.errors import StoreClosed, StoreError, StoreUnavailable
from mainspring.supervise import (
    NO_PAUSE,
    Backoff,
    Bulkhead,
    Completed,
    Executing,
    Failed,
    Idle,
    Idling,
    Lane,
    Notifier,
    Proceed,
    Service,
    ServiceEvent,
    Sleep,
    Sleeping,
    Started,
    Stats,
    Stop,
    Stopped,
    log_failures,
)
from tests.supervise.conftest import Boom, Script, Work, notify_at, running, until

pytestmark = pytest.mark.usefixtures("virtual_time")

LOGGER = "mainspring.supervise"


async def test_the_story_of_a_service_is_told_event_by_event() -> None:
    proceed, sleep, idle, error = Proceed("more"), Sleep("7s", report=3), Idle(), Boom()
    step = Script(Work(2, proceed), Work(1, error), Work(3, sleep), idle)
    events = list[ServiceEvent]()
    async with running(
        Service("told", step, pacing=NO_PAUSE, backoff=Backoff.fixed(4), listeners=[events.append]),
    ):
        await until(100)
    told = "told"
    assert events == [
        Started(service=told),
        Executing(service=told),
        Completed(service=told, seconds=2, directive=proceed),
        Executing(service=told),
        Failed(service=told, seconds=1, error=error, failures=1, backoff=4),
        Executing(service=told),
        Completed(service=told, seconds=3, directive=sleep),
        Sleeping(service=told, seconds=7),
        Executing(service=told),
        Completed(service=told, seconds=0, directive=idle),
        Idling(service=told),
        Stopped(service=told),
    ]


async def test_a_directive_reaches_the_listeners_with_its_report() -> None:
    report = object()
    events = list[ServiceEvent]()
    async with running(Service("reporting", Script(Idle(report)), listeners=[events.append])):
        await until(1)
    (completed,) = [event for event in events if isinstance(event, Completed)]
    assert completed.directive.report is report


async def test_the_time_of_a_step_does_not_count_the_wait_for_its_place() -> None:
    lane, events = Lane(1), list[ServiceEvent]()
    async with running(
        Service("holder", Script(Work(10)), bulkhead=Bulkhead(lane)),
        Service("waiting", Script(Work(2)), bulkhead=Bulkhead(lane), listeners=[events.append]),
    ):
        await until(5)
        assert Executing(service="waiting") not in events
        await until(100)
    assert [event.seconds for event in events if isinstance(event, Completed)] == [2]


async def test_listeners_are_told_in_the_order_they_were_given() -> None:
    told = list[str]()

    def listener(name: str) -> Callable[[ServiceEvent], None]:
        return lambda event: told.append(f"{name} {type(event).__name__}")

    stop = Stop()
    stop.set()
    await Service("told", Script(), listeners=[listener("first"), listener("second")]).run(stop)
    assert told == ["first Started", "second Started", "first Stopped", "second Stopped"]


async def test_a_listener_that_raises_is_isolated_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    def bad(_: ServiceEvent) -> None:
        raise Boom("the listener")

    heard, step = list[ServiceEvent](), Script(Proceed(), Boom(), Sleep(1))
    service = Service("told", step, pacing=NO_PAUSE, backoff=Backoff.fixed(1), listeners=[bad, heard.append, bad])
    with caplog.at_level(logging.DEBUG, logger=LOGGER):
        async with running(service):
            await until(100)
    assert step.calls == [0, 0, 1, 2]
    # Started, four times Executing, three times Completed, Failed, Sleeping, Idling, Stopped.
    assert len(heard) == 12
    assert service.listener_errors == 24
    records = [record for record in caplog.records if record.exc_info and isinstance(record.exc_info[1], Boom)]
    assert records
    assert all(record.levelno >= logging.WARNING for record in records)
    assert any("told" in record.getMessage() for record in records)


async def test_a_listener_that_raises_leaves_the_place_and_the_permits_as_they_should_be() -> None:
    def bad(_: ServiceEvent) -> None:
        raise Boom

    lane, signal, step, other = Lane(1), Notifier(), Script(), Script()
    async with running(
        Service("told", step, wake=[signal], bulkhead=Bulkhead(lane), listeners=[bad]),
        Service("other", other, bulkhead=Bulkhead(lane)),
    ):
        await notify_at(signal, [1, 2])
        await until(3)
    assert step.calls == [0, 1, 2]
    assert other.calls == [0]


async def test_a_service_without_trouble_counts_no_listener_errors() -> None:
    service = Service("calm", Script())
    async with running(service):
        await until(1)
    assert service.listener_errors == 0


async def test_stats_count_what_happened() -> None:
    stats = Stats()
    step = Script(Work(2, Proceed()), Work(5, Boom()), Work(1, ValueError()), Work(4, Boom()), Work(3, Idle()))
    async with running(Service("counted", step, pacing=NO_PAUSE, backoff=Backoff.fixed(1), listeners=[stats])):
        await until(100)
    assert stats.executions == 5
    assert stats.idle == 1
    assert stats.failures == 3
    assert stats.total_seconds == 15
    assert stats.max_seconds == 5
    assert stats.errors == {"Boom": 2, "ValueError": 1}


async def test_one_stats_adds_up_several_services() -> None:
    stats = Stats()
    async with running(*[Service(f"s{n}", Script(Work(n)), listeners=[stats]) for n in (1, 2, 3)]):
        await until(100)
    assert (stats.executions, stats.idle, stats.total_seconds, stats.max_seconds) == (3, 3, 6, 3)


@pytest.mark.parametrize("listeners", [None, [log_failures]], ids=["by default", "asked for"])
async def test_every_failure_is_a_warning_and_the_first_in_a_row_brings_its_traceback(
    listeners: list[Callable[[ServiceEvent], None]] | None, caplog: pytest.LogCaptureFixture
) -> None:
    step = Script(*[Boom()] * 5, Proceed(), *[Boom()] * 2)
    service = (
        Service("noisy", step, backoff=Backoff.fixed(1))
        if listeners is None
        else Service("noisy", step, backoff=Backoff.fixed(1), listeners=listeners)
    )
    with caplog.at_level(logging.DEBUG, logger=LOGGER):
        async with running(service):
            await until(100)
    records = [record for record in caplog.records if record.name == LOGGER]
    assert [record.levelno for record in records] == [logging.WARNING] * 7
    assert [bool(record.exc_info) for record in records] == [True, False, False, False, False, True, False]
    assert all("noisy" in record.getMessage() for record in records)


@pytest.mark.parametrize("error", [StoreUnavailable("a store", "away"), StoreClosed("a store", "closed")], ids=repr)
async def test_a_store_that_is_away_or_closed_is_a_warning_without_a_traceback(
    error: StoreError, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger=LOGGER):
        async with running(Service("noisy", Script(error), backoff=Backoff.fixed(1))):
            await until(100)
    assert [(record.levelno, record.exc_info) for record in caplog.records if record.name == LOGGER] == [
        (logging.WARNING, None)
    ]


async def test_listeners_of_a_service_are_its_own() -> None:
    mine, yours = list[ServiceEvent](), list[ServiceEvent]()
    async with running(
        Service("mine", Script(), listeners=[mine.append]), Service("yours", Script(), listeners=[yours.append])
    ):
        await until(1)
    assert {event.service for event in mine} == {"mine"}
    assert {event.service for event in yours} == {"yours"}
