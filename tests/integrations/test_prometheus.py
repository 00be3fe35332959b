"""What a process's own nodes do, counted for prometheus-client."""

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from mainspring import Breaker, JobHandle, Mainspring, Retry, Snooze
from mainspring.integrations.prometheus import OTHERS, Prometheus, instrument
from mainspring.stores.memory import MemoryStore
from mainspring.testing import VirtualTime


@pytest.fixture
def app(virtual_time: VirtualTime) -> Mainspring:
    return Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)


async def ended(job: JobHandle[Any]) -> None:
    """Wait until a job has ended, however."""
    await asyncio.gather(job.result(timeout="1d"), return_exceptions=True)


async def test_ends_waits_and_runs_are_counted(app: Mainspring) -> None:
    registry = CollectorRegistry()
    instrument(app, registry)

    @app.task(name="nap", queue="beds")
    async def nap(seconds: float) -> None:
        await asyncio.sleep(seconds)

    @app.task(name="fail", retry=Retry.fixed("10s", max_attempts=3))
    async def fail() -> None:
        raise OSError

    @app.task(name="snooze")
    async def snooze() -> None:
        raise Snooze("1h")

    async with app:
        jobs = [await nap.enqueue(4), await fail.enqueue()]
        await snooze.enqueue()
        await asyncio.sleep(20)
        async with app.node(ticker=False):
            for job in jobs:
                await ended(job)
            await asyncio.sleep(1)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"mainspring_{name}", labels)

    assert value("attempts_total", queue="beds", task="nap", event="succeeded") == 1
    assert value("attempts_total", queue="default", task="fail", event="will_retry") == 2
    assert value("attempts_total", queue="default", task="fail", event="failed") == 1
    assert value("attempts_total", queue="default", task="snooze", event="snoozed") == 1
    assert value("attempts_total", queue="beds", task="nap", event="claimed") is None
    assert value("run_seconds_sum", queue="beds", task="nap") == pytest.approx(4, abs=0.1)
    assert value("wait_seconds_sum", queue="beds", task="nap") == pytest.approx(20, abs=0.1)
    assert value("wait_seconds_bucket", queue="beds", task="nap", le="10.0") == 0
    assert value("wait_seconds_bucket", queue="beds", task="nap", le="30.0") == 1
    assert value("run_seconds_count", queue="default", task="fail") == 3
    assert value("wait_seconds_count", queue="default", task="fail") == 3


async def test_breakers_are_counted(app: Mainspring) -> None:
    registry = CollectorRegistry()
    instrument(app, registry)

    @app.task(name="fail", retry=Retry.none(), breaker=True)
    async def fail() -> None:
        raise OSError

    async with app, app.node():
        for _ in range(Breaker().threshold):
            await ended(await fail.enqueue())
    assert registry.get_sample_value("mainspring_breaker_changes_total", {"task": "fail", "phase": "open"}) == 1


async def test_queues_without_end_are_put_together(app: Mainspring) -> None:
    registry = CollectorRegistry()
    app.listener(Prometheus(registry, clock=app.clock, most=3))

    @app.task(name="work")
    async def work() -> None: ...

    async with app, app.node():
        for number in range(10):
            await ended(await work.using(queue=f"tenant-{number}").enqueue())
    series = {
        sample.labels["queue"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "mainspring_attempts_total"
    }
    assert series == {"tenant-0": 1, "tenant-1": 1, "tenant-2": 1, OTHERS: 7}


def test_it_says_all_that_it_has_counted() -> None:
    assert "# TYPE mainspring_wait_seconds histogram" in Prometheus(CollectorRegistry()).exposition()
