"""A worker whose handlers write the id of their job to a file as their first act, until it is killed or stopped.

python killed_worker.py URL FILE CONCURRENCY
"""

import asyncio
import os
import signal
import sys

from mainspring import Context, Mainspring
from mainspring.task import Task


def an_app(url: str, file: str = os.devnull) -> tuple[Mainspring, dict[str, Task[[], None]]]:
    """Make an app and its tasks, by name."""
    app = Mainspring(url)
    log = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)  # one `write` a line: what was written outlives a kill

    @app.task(name="long")
    async def long(ctx: Context) -> None:
        os.write(log, f"{ctx.job}\n".encode())
        await asyncio.sleep(0 if ctx.attempt > 1 else 3600)

    @app.task(name="short")
    async def short(ctx: Context) -> None:
        os.write(log, f"{ctx.job}\n".encode())
        await asyncio.sleep(0.05)

    @app.task(name="once", max_attempts=1)
    async def once(ctx: Context) -> None:
        os.write(log, f"{ctx.job}\n".encode())

    @app.task(name="quick")
    async def quick(ctx: Context) -> None:
        os.write(log, f"{ctx.job}\n".encode())

    return app, {"long": long, "short": short, "once": once, "quick": quick}


async def main() -> None:
    url, file, concurrency = sys.argv[1:]
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    app, _ = an_app(url, file)
    async with app.node(concurrency=int(concurrency), grace=0):
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
