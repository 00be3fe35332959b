"""A program that embeds Mainspring with two plugins: a library of photos, which runs its own background work.

The library keeps its photos in a SQLite file of its own, and Mainspring its jobs in another beside it. Two plugins extend
it. Each is granted what it needs and no more: `thumbnails` may write to the library, `digest` may not.

    python examples/photo_library.py [FOLDER]

It adds a few photos, lets the plugins work on them for some seconds, tells what happened, and ends.
"""

import asyncio
import sqlite3
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from mainspring import Context, Every, Mainspring, Manual, Plugin
from mainspring.errors import CapabilityError, JobFailed
from mainspring.plugins import BackgroundJobs, Done, DoneAndReschedule, HostWrite, JobOutcome, Schedules

# What the authors of plugins write.

thumbnails = Plugin("thumbnails", "1.0", requires=[BackgroundJobs(max_concurrent=2), Schedules(), HostWrite()])
BATCH = 2


@thumbnails.job(schedule=Every("500ms"), docs="Makes thumbnails of photos that have none, a few at a time.")
async def make(ctx: Context) -> JobOutcome:
    statement = """
        UPDATE photos SET thumbnail = 'small-' || name
        WHERE id IN (SELECT id FROM photos WHERE thumbnail IS NULL LIMIT :most)
    """
    made = await ctx.host.execute_write(statement, {"most": BATCH})
    return DoneAndReschedule("100ms") if made == BATCH else Done()


digest = Plugin("digest", "2.1", requires=[BackgroundJobs(), Schedules()])


class Library:
    """What the program offers to its plugins, as a type of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, statement: str, params: Mapping[str, Any] | None = None) -> int:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            return connection.execute(statement, params or {}).rowcount

    def counts(self) -> tuple[int, int]:
        """Say how many photos there are, and how many of them have a thumbnail."""
        with closing(sqlite3.connect(self._path)) as connection:
            ((photos, small),) = connection.execute("SELECT count(*), count(thumbnail) FROM photos").fetchall()
        return photos, small


@digest.job(schedule=Manual(), docs="Tells how the library is doing.")
async def tell(ctx: Context) -> JobOutcome:
    photos, small = ctx.host.get(Library).counts()
    print(f"digest: {small} of {photos} photos have a thumbnail")
    return Done()


@digest.task(max_attempts=1)
async def overstep(ctx: Context) -> None:
    await ctx.host.execute_write("DELETE FROM photos", {})


# What the program does.


async def main(folder: Path) -> None:
    library = Library(folder / "library.db")
    library.write("CREATE TABLE IF NOT EXISTS photos (id INTEGER PRIMARY KEY, name TEXT NOT NULL, thumbnail TEXT)")
    for number in range(1, 8):
        library.write("INSERT INTO photos (name) VALUES (:name)", {"name": f"IMG_{number:04}.jpg"})

    app = Mainspring(f"sqlite:///{folder / 'jobs.db'}")
    app.host.offer(execute_write=library.write)
    app.host.provide(Library, library)
    try:
        app.install(thumbnails, grant=[BackgroundJobs(), Schedules()])
    except CapabilityError as error:
        print(f"refused: {error.capability}")  # it asks for HostWrite, and nothing of it is installed
    app.install(thumbnails, grant="all")
    app.install(digest, grant="all")

    async with app.node(concurrency=5):
        while (counts := library.counts())[0] != counts[1]:  # noqa: ASYNC110 - what it waits for is in a database
            await asyncio.sleep(0.05)
        await (await app.schedules.run("digest:tell")).result(timeout="10s")
        try:
            await (await overstep.enqueue()).result(timeout="10s")
        except JobFailed as failure:
            print(f"stopped: {failure.error.partition(': ')[2].partition(';')[0]}")
        await app.uninstall("thumbnails")
        if paused := (await app.schedules.get("thumbnails:make")).paused:
            print(f"uninstalled: {paused.reason}")
    print(f"photos left: {library.counts()[0]}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        asyncio.run(main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            asyncio.run(main(Path(temporary)))
