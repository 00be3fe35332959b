"""A program with a node whose thread task holds the interpreter's lock: `python -m tests.runtime.busy_worker URL`."""

import asyncio
import sys
import time

from mainspring import Mainspring

LEASE = "2s"
HELD = 4.0  # seconds: two lease times
SWITCH = 0.005


def make_app(url: str) -> Mainspring:
    app = Mainspring(url)

    @app.task(name="hold", queue="first")
    def hold() -> str:
        # No other thread asks for the lock before the interval is over: as in a C function that never releases it.
        sys.setswitchinterval(1000)
        end = time.monotonic() + HELD
        while time.monotonic() < end:
            pass
        sys.setswitchinterval(SWITCH)
        return "held"

    @app.task(name="innocent", queue="first")
    async def innocent() -> str:
        await asyncio.sleep(HELD + 1)
        return "done"

    return app


async def work(url: str) -> None:
    async with make_app(url).node(lease=LEASE, queues=["first"]):
        print("works", flush=True)  # noqa: T201 - what the test waits for
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
