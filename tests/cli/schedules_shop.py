"""The shop of `conftest.py` with schedules in its store, and a clock that is set to the past."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack

from mainspring import Every, Mainspring
from mainspring.client.plans import ScheduleOptions
from mainspring.clock import SystemClock
from mainspring.core.rules import Rule
from tests.cli.conftest import Shop


class EarlierClock(SystemClock):
    """The system's clock as it was some time ago."""

    def __init__(self, ago: timedelta) -> None:
        self.ago = ago

    def now(self) -> datetime:
        return datetime.now(UTC) - self.ago


def planner(shop: Shop, *, ago: timedelta = timedelta(0)) -> tuple[Mainspring, Any]:
    """Hold the store as it was some time ago; with the task that schedules are made of."""
    app = Mainspring(shop.url, clock=EarlierClock(ago))

    @app.task(name="add")
    async def add(a: int = 1, b: int = 1) -> int:
        return a + b

    return app, add


def plan(
    shop: Shop,
    name: str = "nightly",
    rule: Rule | None = None,
    *,
    ago: timedelta = timedelta(0),
    **options: Unpack[ScheduleOptions],
) -> None:
    """Add a schedule, some time ago."""
    app, add = planner(shop, ago=ago)
    app.schedules.add_sync(name, rule or Every("1h"), add.call(a=2), **options)
    app.close_sync()


def pass_over(shop: Shop, name: str = "nightly") -> None:
    """Have all that is owed decided, so that none of it makes a job."""
    app, _ = planner(shop)
    app.schedules.pause_sync(name)
    app.schedules.resume_sync(name)
    app.close_sync()


def declare(shop: Shop, name: str, *, owner: str, release: str = "") -> None:
    """Start and stop a node of a program that declares a schedule."""
    app = Mainspring(shop.url, owner=owner, release=release)

    @app.schedule(Every("1h"), name=name)
    @app.task(name="add")
    async def add() -> None: ...

    async def start() -> None:
        async with app.node():
            pass

    asyncio.run(start())
