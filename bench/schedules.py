"""What schedules cost: many that are idle, and a tick in which some of them are due.

Idle: one node in a process of its own with 100,000 schedules of which none is due, beside one with ten: processor time,
and how often the store is asked (every verb of the port that is called is counted). The targets are under 1 % of a
processor and no more than one query a second.

A tick: a thousand of the schedules come up at the same instant; a node's ticker decides and writes them all. Measured
out of 1,000, 10,000 and 100,000 that there are: what a tick costs must not grow with those that are not due.

Declaring: a program with 10,000 schedules in its code starts on a store that has none of them, starts again, and starts
with another rule for each. Measured is the time until the store has them all, and how often it is asked.

On SQLite, and on PostgreSQL with fsync.
"""

import argparse
import asyncio
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from bench.postgres.kit.server import database, durable_server
from mainspring import Every, Mainspring
from mainspring.client.plans import plan_of
from mainspring.core.names import Name
from mainspring.core.schedule import Plan
from mainspring.core.steps import create
from mainspring.runtime.declaring import declare
from mainspring.runtime.events import Events
from mainspring.runtime.firing import move_of
from mainspring.runtime.planned import Planned
from mainspring.runtime.ticker import Ticker

WARM_UP = 3.0
DUE = 1000
A_YEAR = timedelta(days=365)


def an_app(url: str) -> Mainspring:
    app = Mainspring(url)

    @app.task(name="nothing")
    async def nothing() -> None: ...

    return app


def plan(app: Mainspring, first: datetime) -> Plan:
    return plan_of("bench", Every(A_YEAR, start=first), app.find("nothing").call(), {})


async def fill(app: Mainspring, count: int, *, due: int, at: timedelta) -> None:
    """Keep so many schedules, of which some come up after a while and the others in a year."""
    now = app.store.now()
    soon, late = plan(app, now + at), plan(app, now + A_YEAR)
    every = max(1, count // due) if due else 0
    plans = [soon if every and number % every == 0 else late for number in range(count)]
    for start in range(0, count, 1000):
        part = enumerate(plans[start : start + 1000], start)
        moves = [move_of(create(Name("", f"schedule-{number}"), one, now)) for number, one in part]
        if not all(await app.store.move(moves)):
            sys.exit("A schedule was there already.")


async def idle(url: str, count: int, seconds: float) -> dict[str, Any]:
    app = an_app(url)
    async with app:
        await fill(app, count, due=0, at=A_YEAR)
    async with app.node(grace=0):
        calls = counted(app.store)
        await asyncio.sleep(WARM_UP)
        calls.clear()
        before = resource.getrusage(resource.RUSAGE_SELF)
        await asyncio.sleep(seconds)
        after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu": spent / seconds * 100, "calls": Counter(calls)}


def counted(store: Any) -> Counter[str]:  # noqa: ANN401 - any store
    """Count the calls of the verbs that look at schedules."""
    calls: Counter[str] = Counter()
    for verb in ("due", "look", "move", "list_schedules", "runs"):
        original = getattr(store, verb)

        async def call(*args: Any, _verb: str = verb, _original: Any = original, **kwargs: Any) -> Any:  # noqa: ANN401
            calls[_verb] += 1
            return await _original(*args, **kwargs)

        object.__setattr__(store, verb, call)
    return calls


async def tick(url: str, count: int) -> float:
    """Return the seconds from the look at what is due until everything is written."""
    app = an_app(url)
    async with app:
        await fill(app, count, due=DUE, at=timedelta(seconds=max(2.0, count / 10_000)))
        first = await app.store.due(1)
        if first.next_at:
            await asyncio.sleep(max(0.0, (first.next_at - app.store.now()).total_seconds()) + 0.1)
        events = Events()
        ticker = Ticker(app.store, events, clock=app.clock)
        began = time.perf_counter()
        while events.counts["runs"] < DUE:
            await ticker.step()
        return time.perf_counter() - began


async def declared(url: str, count: int) -> list[tuple[str, float, Counter[str]]]:
    """Return what a first start, a second one and one with other rules cost: seconds, and calls of the store."""
    found = []
    for what, hours in (("none of them there", 1), ("all of them there", 1), ("another rule for each", 2)):
        app = an_app(url)
        planned = Planned(owner="bench", owner_is_given=True, release="1")
        for number in range(count):
            one = plan_of("bench", Every(timedelta(hours=hours, seconds=number)), app.find("nothing").call(), {})
            planned.add(Name("", f"schedule-{number}"), one)
        async with app:
            calls = counted(app.store)
            began = time.perf_counter()
            if not await declare(app.store, planned, frozenset({Name("", "nothing")})):
                sys.exit("Others changed the same schedules.")
            found.append((what, time.perf_counter() - began, Counter(calls)))
    return found


@contextmanager
def places(which: str) -> Iterator[Any]:
    """Yield a function that returns the address of a fresh store."""
    if which == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            numbers = iter(range(1_000_000))
            yield lambda: f"sqlite:///{folder}/{next(numbers)}.db"
        return
    with durable_server() as server:
        opened: list[Any] = []

        def another() -> str:
            manager = database(server)
            opened.append(manager)
            return server.dsn(manager.__enter__())

        try:
            yield another
        finally:
            for manager in opened:
                manager.__exit__(None, None, None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, default=100_000)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--part", choices=["idle", "tick", "declare"], help="one of the three; all by default")
    parser.add_argument("--declared", type=int, default=10_000)
    args = parser.parse_args()
    for which in [args.only] if args.only else ["sqlite", "postgres"]:
        with places(which) as url:
            if args.part in {None, "idle"}:
                tell_of_idle(which, url, args)
            if args.part in {None, "tick"}:
                tell_of_ticks(which, url, args)
            if args.part in {None, "declare"}:
                tell_of_declaring(which, url, args)
    return 0


def tell_of_idle(which: str, url: Callable[[], str], args: argparse.Namespace) -> None:
    print(f"\n{which}: a node with schedules of which none is due, {args.seconds:g} s")
    for count in (10, args.most):
        found = asyncio.run(idle(url(), count, args.seconds))
        queries = found["calls"].total() / args.seconds
        print(f"  {count:>7,} schedules  {found['cpu']:6.2f} % of a processor  {queries:6.2f} queries/s about them")


def tell_of_ticks(which: str, url: Callable[[], str], args: argparse.Namespace) -> None:
    print(f"{which}: a tick in which {DUE:,} are due")
    base = 0.0
    for count in (DUE, 10 * DUE, args.most):
        took = [asyncio.run(tick(url(), count)) for _ in range(args.rounds)]
        middle = statistics.median(took)
        base = base or middle
        print(
            f"  out of {count:>7,}  {middle * 1000:7.0f} ms ({min(took) * 1000:.0f} to {max(took) * 1000:.0f})"
            f"  {middle / DUE * 1e6:5.0f} µs each  {middle / base:5.2f} of the first"
        )


def tell_of_declaring(which: str, url: Callable[[], str], args: argparse.Namespace) -> None:
    print(f"{which}: a program that declares {args.declared:,} schedules starts")
    for what, seconds, calls in asyncio.run(declared(url(), args.declared)):
        asked = ", ".join(f"{count:,} {verb}" for verb, count in calls.items())
        print(f"  {what:<22} {seconds:7.2f} s  {seconds / args.declared * 1e6:6.0f} µs each  {asked}")


if __name__ == "__main__":
    sys.exit(main())
