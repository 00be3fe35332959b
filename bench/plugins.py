"""What plugins cost: a tick in which some of their schedules are due, out of few and out of many that are registered.

An app with plugins that have, together, as many tasks, each with a schedule of its own. A hundred of the schedules come
up at the same instant; the node's ticker decides and writes them all. Measured out of 100 and out of 10,000: what a tick
costs must not grow with those that are registered and not due. The look-up of a task by its name is measured beside it.

On SQLite.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from datetime import timedelta

from mainspring import Every, Mainspring, Plugin
from mainspring.core.steps import create
from mainspring.plugins import BackgroundJobs, Schedules
from mainspring.runtime.events import Events
from mainspring.runtime.firing import move_of
from mainspring.runtime.ticker import Ticker
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing.virtual import VirtualClock

DUE = 100
PLUGINS = 10
FINDS = 1000
A_YEAR = timedelta(days=365)


def an_app(store: SqliteStore, clock: VirtualClock, count: int) -> Mainspring:
    """Make an app of ten plugins, with so many jobs together; a hundred of them come up in an hour."""
    app = Mainspring(store, clock=clock, upkeep=False)
    soon = clock.now() + timedelta(hours=1)
    due = set(range(0, count, count // DUE))
    for number in range(PLUGINS):
        plugin = Plugin(f"plugin-{number}", "1", requires=[BackgroundJobs(), Schedules()])
        for job in range(number, count, PLUGINS):

            async def work() -> None: ...

            rule = Every(A_YEAR, start=soon if job in due else soon + A_YEAR)
            plugin.schedule(rule)(plugin.task(name=f"job-{job}")(work))
        app.install(plugin, grant="all")
    return app


async def keep(app: Mainspring) -> None:
    """Have the store keep what is declared: as a node does, but many at a time."""
    now = app.store.now()
    created = [
        move_of(create(name, plan, now, owner=planned.owner, release=planned.release))
        for planned in app._planned.plugins.values()  # noqa: SLF001 - what a node is given
        for name, plan in planned.plans.items()
    ]
    for start in range(0, len(created), 1000):
        if not all(await app.store.move(created[start : start + 1000])):
            sys.exit("A schedule was there already.")


async def tick(path: str, count: int) -> tuple[float, float, float]:
    """Return the seconds of a tick, those of them on the processor, and those to find a task."""
    clock = VirtualClock(time.monotonic)  # real time, which can be set forward by an hour
    app = an_app(SqliteStore(path, clock=clock), clock, count)
    async with app:
        await keep(app)
        clock.jump("1h")
        events = Events()
        ticker = Ticker(app.store, events, clock=clock)
        began, spent = time.perf_counter(), time.process_time()
        while events.counts["runs"] < DUE:
            await ticker.step()
        took, spent = time.perf_counter() - began, time.process_time() - spent
    name = str(next(iter(app.registry.names)))
    began = time.perf_counter()
    for _ in range(FINDS):
        app.find(name)
    return took, spent, (time.perf_counter() - began) / FINDS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--most", type=int, default=10_000)
    args = parser.parse_args()
    print(f"sqlite: a tick in which {DUE} jobs of {PLUGINS} plugins are due")
    base = 0.0
    for count in (DUE, 10 * DUE, args.most):
        with tempfile.TemporaryDirectory() as folder:
            rounds = [asyncio.run(tick(f"{folder}/{number}.db", count)) for number in range(args.rounds)]
        took = [one for one, _, _ in rounds]
        spent, find = (statistics.median(one[place] for one in rounds) for place in (1, 2))
        base = base or spent  # processor time: on a shared machine the rest tells of the neighbours
        print(
            f"  out of {count:>7,} registered  {statistics.median(took) * 1000:6.1f} ms"
            f" ({min(took) * 1000:.1f} to {max(took) * 1000:.1f}), {spent * 1000:.1f} ms of it on the processor,"
            f" {spent / base:.2f} of the first; a task is found in {find * 1e6:.1f} µs"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
