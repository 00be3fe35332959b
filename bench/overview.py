"""How fast a large store is looked at: pages of jobs, searches, the census; and the pages of the dashboard, on the server.

The store has a million jobs. Of 20 tasks one has 5 jobs, the oldest of all, and they alone have their queue and their
key. SQLite is filled by the verbs of the port, and nine of ten jobs have succeeded; PostgreSQL by statements of its own,
where a fifth waits or runs and the others are spread over ten days. The target for what an index serves is 150 ms at the
95th percentile, for the store and for the whole answer of the server. A search by what no index knows is given a time;
measured is how many jobs it has looked at by then, the median of all rounds, and whether it keeps to it. On a machine that
others use too that says little; what each of these jobs took of this process' own processor time is told beside it.

Everything is asked as often as `--rounds` says, each time all of it in turn, after a first time that is told apart: then
caches are empty. The ratio is to the first line of its table.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import NamedTuple

import httpx

from bench.looking import by_statements, by_verbs, counts
from bench.looking.names import KEYS, QUEUES, RARE_KEY, RARE_QUEUE, RARE_TASK, TAG, TASKS
from bench.looking.pages import Served, requests
from bench.postgres.kit.server import database, durable_server
from mainspring import Mainspring
from mainspring.core.job import JobId, State
from mainspring.ids import Ids
from mainspring.stores.overview import Argument, Census, Found, Overview, Search
from mainspring.stores.port import Store, Upkeep

TARGET = 0.150
BUDGET = timedelta(seconds=0.5)
PAGE_BUDGET = timedelta(seconds=1)
"""What the JSON API gives a search by itself."""
A_MINUTE = timedelta(minutes=1)


class Seen(NamedTuple):
    """What is told of an answer."""

    size: str
    """How many were found; of what is no search, how long it is."""
    looked: int | None = None
    in_time: bool = True


class Asked(NamedTuple):
    """One answer, how long it took, and how much of that this process was at work."""

    seconds: float
    at_work: float
    seen: Seen


class Question(NamedTuple):
    """What is asked, how late it may be, and what is told of the answer."""

    words: str
    ask: Callable[[], Awaitable[Seen]]
    target: float = TARGET


def of_the_store(store: Overview, middle: JobId, now: datetime) -> Iterator[Question]:
    def search(words: str, which: Search, *, after: JobId | None = None, indexed: bool = True) -> Question:
        budget = BUDGET if not indexed else timedelta(seconds=10)

        async def ask() -> Seen:
            return seen(await store.search(which, after=after, budget=budget))

        return Question(words, ask, TARGET if indexed else BUDGET.total_seconds() + TARGET)

    async def census() -> Seen:
        return seen(await store.census(now - A_MINUTE))

    none = Argument(path=("order", "number"), value=b"-1")
    yield search("newest page", Search())
    yield search("a page from the middle", Search(), after=middle)
    for state in State:
        yield search(f"state {state}", Search(states=(state,)))
    yield search("state failed, from the middle", Search(states=(State.FAILED,)), after=middle)
    yield search("all that wait or run", Search(states=(State.READY, State.SCHEDULED, State.RETRYING, State.RUNNING)))
    yield search("queue", Search(queue=QUEUES[0]))
    yield search("queue, rare", Search(queue=RARE_QUEUE))
    yield search("task", Search(task=TASKS[5]))
    yield search("task, rare", Search(task=RARE_TASK))
    yield search("key", Search(key=KEYS[0]))
    yield search("key, rare", Search(key=RARE_KEY))
    yield search("failed of a task and queue", Search(states=(State.FAILED,), task=TASKS[5], queue=QUEUES[0]))
    yield search("tag that one of 20 has", Search(tag=TAG))
    yield Question("census", census)
    yield search("error text of some", Search(error="no such USER"), indexed=False)
    yield search("error text that none has", Search(error="no such thing"), indexed=False)
    yield search("argument that none has", Search(argument=none), indexed=False)
    yield search("tag that none has", Search(tag="none"), indexed=False)


def of_the_server(served: Served, job: JobId, middle: JobId) -> Iterator[Question]:
    for one in requests(job, middle):

        async def ask(path: str = one.path) -> Seen:
            return answered(await served.get(path))

        yield Question(one.words, ask, TARGET if one.indexed else PAGE_BUDGET.total_seconds() + TARGET)


async def measure(url: str, count: int, rounds: int) -> bool:
    app = Mainspring(url)
    began = time.perf_counter()
    async with app:
        store = app.store
        if not isinstance(store, Overview):
            print("  this store is not looked at as a whole")
            return True
        first = await fill(store, url, count)
        now = store.now()
        await counts.write(store, now)
        print(f"  {count:,} jobs made in {time.perf_counter() - began:.0f} s; {load()}")
        middle = JobId(Ids().next(first + (now - first) / 2))
        failed = (await store.search(Search(states=(State.FAILED,)), limit=1)).jobs[0].job.id
        print(f"\n  {'the store':<34}{HEAD}")
        well = await tell(list(of_the_store(store, middle, now)), rounds)
        print(f"\n  {'the server':<34}{HEAD}")
        return await tell(list(of_the_server(Served(app), failed, middle)), rounds) and well


async def fill(store: Store, url: str, count: int) -> datetime:
    if url.startswith("sqlite"):
        first = await by_verbs.fill(store, count)
        if isinstance(store, Upkeep):
            await store.analyze()
        return first
    return await by_statements.fill(store, url, count)


HEAD = f"{'first ms':>9}{'p50 ms':>9}{'p95 ms':>9}{'ratio':>8}{'found':>8}{'looked at':>12}{'µs each':>9}"


async def tell(questions: Sequence[Question], rounds: int) -> bool:
    asked: dict[str, list[Asked]] = {one.words: [] for one in questions}
    for _ in range(1 + rounds):
        for one in questions:
            asked[one.words].append(await timed(one))
    base = statistics.median(answer.seconds for answer in asked[questions[0].words][1:])
    slow = []
    for one in questions:
        first, *others = asked[one.words]
        times = [answer.seconds for answer in others]
        middle, late = statistics.median(times), statistics.quantiles(times, n=20)[-1]
        print(
            f"  {one.words:<34}{first.seconds * 1e3:>9.1f}{middle * 1e3:>9.1f}{late * 1e3:>9.1f}{middle / base:>8.1f}"
            f"{others[-1].seen.size}{looked_at(others)}"
        )
        if late > one.target:
            slow.append(one.words)
    print(f"  {rounds} rounds; {load()}")
    if slow:
        print(f"  over the target: {', '.join(slow)}")
    return not slow


async def timed(question: Question) -> Asked:
    began, worked = time.perf_counter(), time.process_time()
    seen = await question.ask()
    return Asked(time.perf_counter() - began, time.process_time() - worked, seen)


def looked_at(answers: Sequence[Asked]) -> str:
    """Say at how many jobs a search looks, and of one that takes all of its time, what each costs."""
    looked = [answer.seen.looked for answer in answers if answer.seen.looked is not None]
    if not looked:
        return ""
    if all(answer.seen.in_time for answer in answers):
        return f"{statistics.median(looked):>12,.0f}"
    each = statistics.median(answer.at_work / count for answer, count in zip(answers, looked, strict=True))
    return f"{statistics.median(looked):>12,.0f}{each * 1e6:>9.2f}  time was up"


def seen(answer: Found | Census) -> Seen:
    if isinstance(answer, Found):
        return Seen(f"{len(answer.jobs):>8}", answer.looked, answer.in_time)
    counted = sum(count.due + count.later + count.running for count in answer.counts)
    return Seen(f"{len(answer.counts):>8}", counted, answer.complete)


def answered(answer: httpx.Response) -> Seen:
    """Say what a search has found, and of anything else how long the answer is."""
    said = answer.json() if "json" in answer.headers["content-type"] else {}
    if "in_time" not in said:
        return Seen(f"{len(answer.content) // 1000:>17} kB")
    return Seen(f"{len(said['jobs']):>8}", said["looked"], said["in_time"])


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


@contextmanager
def place(which: str) -> Iterator[str]:
    if which == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/jobs.db?durable=false"
        return
    with durable_server() as server, database(server) as name:
        yield server.dsn(name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--on", choices=["sqlite", "postgres"], help="only there")
    args = parser.parse_args()
    well = True
    for which in [args.on] if args.on else ["sqlite", "postgres"]:
        print(f"\n{which}")
        with place(which) as url:
            well = asyncio.run(measure(url, args.jobs, args.rounds)) and well
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
