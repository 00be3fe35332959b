"""What it costs to keep schedules in a file: changes per second, with group commit and with one sync for each.

Each change is a step of a schedule, with a run and its job. With one sync each, a change waits for the one before it;
with group commit, many callers wait at the same time and share documents. The disk's own pace is measured beside it: a
file of the same size written, synced, renamed and its folder synced, again and again.

The whole document is written each time, so that what a change costs grows with the schedules that there are: measured
with few and with many.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from mainspring import Every, Mainspring
from mainspring.client.plans import plan_of
from mainspring.core.command import CancelJob
from mainspring.core.machine import command
from mainspring.core.names import Name
from mainspring.core.steps import create, run_now
from mainspring.ids import new_id
from mainspring.runtime.firing import move_of
from mainspring.stores.records import Settlement
from mainspring.stores.sidecar.file import DocumentFile, SystemFiles

CALLERS = 100


def an_app(folder: str) -> Mainspring:
    app = Mainspring(f"sidecar:///{folder}")

    @app.task(name="nothing")
    async def nothing() -> None: ...

    return app


class CountedFiles(SystemFiles):
    """Counts how often a file was brought to the disk."""

    syncs = 0

    def sync(self, file: int) -> None:
        CountedFiles.syncs += 1
        super().sync(file)


async def fill(app: Mainspring, count: int) -> list[Name]:
    now = app.store.now()
    plan = plan_of("bench", Every("365d"), app.find("nothing").call(), {})
    names = [Name("", f"schedule-{number}") for number in range(count)]
    if not all(await app.store.move([move_of(create(name, plan, now)) for name in names])):
        sys.exit("A schedule was there already.")
    return names


async def change(app: Mainspring, name: Name) -> None:
    """Make a job and cancel it: two changes, so that the document does not grow."""
    store = app.store
    look = (await store.look([name])).looks[0]
    decision = run_now(look.schedule, store.now(), lambda: new_id(store.now()))
    if await store.move([move_of(decision)]) != (True,):
        sys.exit("Somebody else was faster.")
    (view,) = await store.get([decision.runs[0].id])  # type: ignore[list-item]  # the job of a run has its id
    if view:
        await store.settle([Settlement(change=command(view.job, CancelJob(), store.now()))])


async def measure(count: int, callers: int, seconds: float) -> tuple[float, float, int]:
    """Return changes per second, changes for each sync, and the size of the document."""
    with tempfile.TemporaryDirectory() as folder:
        app = an_app(folder)
        async with app:
            app.store._file._files = CountedFiles()  # type: ignore[attr-defined]  # noqa: SLF001 -- to count
            names = await fill(app, count)
            done = 0

            async def call(mine: list[Name]) -> None:
                nonlocal done
                until = time.perf_counter() + seconds
                while time.perf_counter() < until:
                    for name in mine:
                        await change(app, name)
                        done += 2

            syncs, began = CountedFiles.syncs, time.perf_counter()
            await asyncio.gather(*(call(names[number::callers][:10]) for number in range(callers)))
            took = time.perf_counter() - began
            size = (await asyncio.to_thread(Path(folder, "_system", "background_jobs.json").stat)).st_size
            return done / took, done / (CountedFiles.syncs - syncs), size


def disk(size: int, seconds: float) -> float:
    """Return how often a second the disk takes a whole file of that size."""
    with tempfile.TemporaryDirectory() as folder:
        file = DocumentFile(Path(folder), SystemFiles())
        file.make_folder()
        content, done, began = b"x" * size, 0, time.perf_counter()
        while time.perf_counter() < began + seconds:
            file.replace(content)
            done += 1
        return done / (time.perf_counter() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    for count in (100, 1000, 10_000):
        print(f"\n{count:,} schedules")
        alone, size = 0.0, 0
        for callers in (1, CALLERS):
            rounds = [asyncio.run(measure(count, callers, args.seconds)) for _ in range(args.rounds)]
            rate = statistics.median(one[0] for one in rounds)
            each = statistics.median(one[1] for one in rounds)
            alone = alone or rate
            size = rounds[0][2]
            print(
                f"  {callers:>4} at a time  {rate:9,.0f} changes/s  {each:6.1f} for each sync  {rate / alone:6.1f} times"
                f" one by one"
            )
        print(f"  the disk alone {disk(size, args.seconds):9,.0f} documents/s of {size / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
