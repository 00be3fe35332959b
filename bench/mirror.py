"""What the mirror costs: nodes written many in one statement and one by one, and a pass in which nothing has changed.

Into a ladybug database in a temporary file, out of a store in memory. The ratio says more than the figures: the target
is that rows in batches are ten times as fast.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.schedules import A_YEAR, an_app, fill
from mainspring.plugins.mirror import PAGE, WRITE, Mirror
from mainspring.plugins.mirrored import row_of
from mainspring.plugins.sinks import LadybugSink

SCHEDULES = 10_000
ALONE = 500


async def seconds(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def measure(folder: Path) -> None:
    app = an_app("memory://")
    async with app:
        await fill(app, SCHEDULES, due=0, at=A_YEAR)
        mirror = Mirror(lambda: app.store, LadybugSink(folder / "all.lbug"), timeout=60)
        first = await seconds(mirror.step)
        mirror._pass_at = 0.0  # noqa: SLF001 - no rest between the two
        second = await seconds(mirror.step)
        page = await app.store.list_schedules(limit=max(PAGE, ALONE))
        rows = [row_of(look, (), page.now) for look in page.looks]
    sink = LadybugSink(folder / "some.lbug")
    await sink.prepare()

    async def alone() -> None:
        for row in rows[:ALONE]:
            await sink.run(WRITE, {"rows": [row]})

    async def together() -> None:
        for start in range(0, len(rows), PAGE):
            await sink.run(WRITE, {"rows": rows[start : start + PAGE]})

    one_by_one = ALONE / await seconds(alone)
    for row in rows:
        row["status"] = "paused"
    batched = len(rows) / await seconds(together)
    await sink.close()
    print(f"{SCHEDULES:,} schedules, first pass     {first:8.2f} s   {SCHEDULES / first:8,.0f} nodes/s")
    print(f"{SCHEDULES:,} schedules, nothing new    {second:8.2f} s   {SCHEDULES / second:8,.0f} schedules/s")
    print(f"one by one                       {one_by_one:10,.0f} nodes/s")
    print(f"{PAGE} in a statement               {batched:10,.0f} nodes/s   {batched / one_by_one:.1f} times as many")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(measure(Path(name)))
