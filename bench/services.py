"""What supervision costs a step, against a bare loop that only lets others run between two steps.

Also how long sixteen virtual hours take, with a service that wakes every minute.
"""

import asyncio
import statistics
import time

from mainspring.supervise import NO_PAUSE, Bulkhead, Directive, Idle, Lane, Proceed, Service, Stop, TaskSet, every
from mainspring.testing import VirtualTime

ROUNDS, STEPS = 9, 5_000


async def bare() -> None:
    done = 0

    async def step() -> Directive:
        nonlocal done
        done += 1
        return Proceed()

    while done < STEPS:
        await step()
        await asyncio.sleep(0)


async def supervised(bulkhead: Bulkhead) -> None:
    stop, done = Stop(), 0

    async def step() -> Directive:
        nonlocal done
        done += 1
        if done == STEPS:
            stop.set()
        return Proceed()

    await Service("bench", step, pacing=NO_PAUSE, bulkhead=bulkhead).run(stop)


async def sixteen_hours() -> None:
    async def step() -> Directive:
        return Idle()

    async with TaskSet() as tasks:
        tasks.start(Service("bench", step, wake=[every("1m")]))
        await asyncio.sleep(16 * 3600)


def main() -> None:
    times: dict[str, list[float]] = {"bare loop": [], "service": [], "service in a lane": []}
    for _ in range(ROUNDS):
        for name, took in times.items():
            began = time.perf_counter()
            match name:
                case "bare loop":
                    asyncio.run(bare())
                case "service":
                    asyncio.run(supervised(Bulkhead()))
                case _:
                    asyncio.run(supervised(Bulkhead(Lane(1))))
            took.append((time.perf_counter() - began) / STEPS * 1e6)
    base = statistics.median(times["bare loop"])
    print(f"{'one step':<24}{'µs':>8}{'spread':>16}{'× bare':>9}")
    for name, took in times.items():
        median = statistics.median(took)
        print(f"{name:<24}{median:>8.2f}{f'{min(took):.2f}-{max(took):.2f}':>16}{median / base:>9.1f}")
    began = time.perf_counter()
    with VirtualTime() as virtual:
        virtual.run(sixteen_hours())
    took_real = time.perf_counter() - began
    print(f"\n16 virtual hours, 960 steps: {took_real * 1000:.0f} ms, {16 * 3600 / took_real:,.0f} times real time")


if __name__ == "__main__":
    main()
