"""What all measured programs share: each takes an action and its options, does it, and prints the answer as JSON.

    python -m bench.postgres.peers.raw drain '{"dsn": "postgresql://…", "jobs": 1000}'

Standard library only: the peers run this in environments of their own, where Mainspring is not installed.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, TypeAlias

LONGEST = 600.0  # seconds that one action may take

Action: TypeAlias = Callable[..., Coroutine[Any, Any, object]]


def serve(actions: Mapping[str, Action], run: Callable[[Coroutine[Any, Any, object]], object] = asyncio.run) -> None:
    """Do what the command line asks for."""
    _, name, options = sys.argv

    async def act() -> object:
        async with asyncio.timeout(LONGEST):
            return await actions[name](**json.loads(options))

    print(json.dumps(run(act())), flush=True)


def ready() -> None:
    """Tell the parent that what it waits for can begin."""
    print("ready", flush=True)


async def told() -> None:
    """Wait for a line from the parent, or for its last word."""
    await asyncio.to_thread(sys.stdin.readline)


class Took(NamedTuple):
    """Seconds that something took, by the clock and of processor time, all threads together."""

    clock: float
    processor: float


class Reading:
    """The time, and how much of it the processors have spent on this process."""

    def __init__(self) -> None:
        self._time = time.monotonic()
        self._spent = time.process_time()

    def since(self) -> Took:
        return Took(time.monotonic() - self._time, time.process_time() - self._spent)


class Drain:
    """Counts from the first start to the last settle of so many jobs."""

    def __init__(self, jobs: int) -> None:
        self._left = jobs
        self._first: Reading | None = None
        self._end: asyncio.Future[Took] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        if self._first is None:
            self._first = Reading()

    def settle(self, count: int) -> None:
        self._left -= count
        if self._left <= 0 and self._first is not None and not self._end.done():
            self._end.set_result(self._first.since())

    async def end(self) -> Took:
        return await self._end


class Marks:
    """When each job began, by the clock that all processes of a machine share."""

    def __init__(self) -> None:
        self.all: list[tuple[int, int]] = []

    def start(self, number: int) -> None:
        self.all.append((number, time.monotonic_ns()))


async def be_idle(warm: float, seconds: float) -> dict[str, float]:
    """Let a node do nothing: for a while that does not count, and for one that does. Say what it cost, and when."""
    await asyncio.sleep(warm)
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.time()
    await asyncio.sleep(seconds)
    after, ended = resource.getrusage(resource.RUSAGE_SELF), time.time()
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu": spent / (ended - began) * 100, "began": began, "ended": ended}
