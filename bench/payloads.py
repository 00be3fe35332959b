"""Time for which jobs with long payloads block the event loop of a dashboard.

A dashboard runs in its host's event loop: while that is blocked, no request of the host is answered. A heartbeat on the
loop is due every millisecond; measured is the longest time between two beats while one request is answered, over ASGI, on
SQLite. The payloads are as long as every task accepts by default, 256 KiB.

With `--before PATH`, another checkout of the project, both are measured in turn, each in a process of its own, round by
round: on a busy machine figures of different minutes cannot be compared.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from mainspring import Context, Mainspring
from mainspring.web import Identity, dashboard

HERE = Path(__file__).resolve()
ZEROS = [0] * 130_000
LONG_NAMES = {f"{number:05}" + "a1" * 497: 0 for number in range(258)}
"""Names of a thousand characters, each of which has a thousand words."""
CASES = {
    "200 jobs, [0] * 130,000": ("zeros", ("/jobs?part=rows", "/jobs?limit=200", "/api/v1/jobs/list?limit=200")),
    "50 jobs, 258 names of 1,000 characters": ("names", ("/jobs?part=rows", "/api/v1/jobs/list?limit=50")),
    "50 jobs, the same in arguments, saved values and results": ("all", ("/jobs?part=rows", "job")),
}


def an_app(path: Path) -> Mainspring:
    app = Mainspring(f"sqlite:///{path}")

    @app.task(name="take")
    async def take(value: Any) -> None: ...  # noqa: ANN401 - any JSON

    @app.task(name="keep")
    async def keep(ctx: Context, value: Any) -> Any:  # noqa: ANN401 - as above
        await ctx.save("value", value)
        return value

    return app


async def fill(app: Mainspring, kind: str) -> None:
    if kind == "zeros":
        await app.enqueue_many([app.find("take").call(ZEROS) for _ in range(200)])
    elif kind == "names":
        await app.enqueue_many([app.find("take").call(LONG_NAMES) for _ in range(50)])
    else:
        jobs = await app.enqueue_many([app.find("keep").call(LONG_NAMES) for _ in range(50)])
        async with app.node():
            for job in jobs:
                await job.result("5m")


@asynccontextmanager
async def heartbeat() -> AsyncIterator[list[float]]:
    """Measure the longest time for which the loop does nothing else."""
    longest = [0.0]

    async def beat() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest[0] = max(longest[0], now - last)
            last = now

    task = asyncio.create_task(beat())
    await asyncio.sleep(0.05)
    longest[0] = 0.0
    try:
        yield longest
    finally:
        task.cancel()


async def measure(kind: str, addresses: tuple[str, ...]) -> list[dict[str, Any]]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        app = an_app(Path(folder) / "jobs.db")
        async with app:
            await fill(app, kind)
            last = (await app.jobs(limit=1)).jobs[0].job.id
            asgi = dashboard(app, auth=lambda _: Identity.of("bench", "viewer"))
            transport = httpx.ASGITransport(asgi, client=("127.0.0.1", 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=600) as client:
                await client.get("/queues")  # templates are compiled
                for address in addresses:
                    path = f"/job?id={last}" if address == "job" else address
                    async with heartbeat() as longest:
                        began = time.perf_counter()
                        response = await client.get(path)
                        took = time.perf_counter() - began
                        await asyncio.sleep(0.01)
                    response.raise_for_status()
                    blocked = longest[0]
                    found.append({"address": address, "blocked": blocked, "took": took, "bytes": len(response.content)})
    return found


def in_checkout(checkout: Path, kind: str) -> list[dict[str, Any]]:
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(
        [sys.executable, str(HERE), "--measure", kind], env=environment, check=True, stdout=subprocess.PIPE
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="another checkout, measured in turn with this one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=[kind for kind, _ in CASES.values()], help="one of the cases")
    parser.add_argument("--measure", choices=[kind for kind, _ in CASES.values()], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        addresses = dict(CASES.values())[options.measure]
        print(json.dumps(asyncio.run(measure(options.measure, addresses))))
        return
    checkouts = {"now": HERE.parents[1]} | ({"before": options.before} if options.before else {})
    seen: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for _ in range(options.rounds):
        for case, (kind, _) in CASES.items():
            if options.only not in {None, kind}:
                continue
            for name, checkout in checkouts.items():
                for one in in_checkout(checkout, kind):
                    seen.setdefault((case, one["address"], name), []).append(one)
    print(f"median of {options.rounds} rounds; blocked: the longest time between two beats of the event loop\n")
    print("| stored | request | checkout | loop blocked | answered after | answer |")
    print("| --- | --- | --- | --- | --- | --- |")
    for (case, address, name), every in seen.items():
        blocked, took = (statistics.median(one[field] for one in every) for field in ("blocked", "took"))
        size = every[-1]["bytes"] / 1000
        print(f"| {case} | `{address}` | {name} | {1000 * blocked:,.0f} ms | {1000 * took:,.0f} ms | {size:,.0f} kB |")


if __name__ == "__main__":
    main()
