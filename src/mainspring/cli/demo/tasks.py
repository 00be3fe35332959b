"""The tasks of `mainspring demo`, one for each fate. Workers import this module; the demo tells them which file by $MAINSPRING_URL."""

import asyncio
import itertools
import os
import signal
from typing import Final

from mainspring.app import Mainspring
from mainspring.core.outcome import Snooze
from mainspring.core.retry import Retry
from mainspring.runtime.context import Context

FRAMES: Final = 50
LOOKS: Final = 3

app: Final = Mainspring()


@app.task(name="quick")
async def quick(number: int) -> int:
    """Take next to no time."""
    await asyncio.sleep(0.02)
    return number * number


@app.task(name="film")
async def film(ctx: Context, seconds: float) -> str:
    """Take its time, say how far it is, and go on where an earlier attempt was lost."""
    done: int = ctx.load("frames", 0)
    for frame in range(done + 1, FRAMES + 1):
        await asyncio.sleep(seconds / FRAMES)
        await ctx.save("frames", frame)
        ctx.progress(100 * frame / FRAMES, f"frame {frame}")
    return f"{FRAMES - done} of {FRAMES} frames in the last attempt"


@app.task(name="flaky", retry=Retry.fixed("1s", max_attempts=6, jitter=0.5))
async def flaky(ctx: Context) -> str:
    """Fail twice."""
    await asyncio.sleep(0.1)
    if ctx.attempt <= 2:
        raise ConnectionError("hung up")
    return f"worked on try {ctx.attempt}"


@app.task(name="poison")
async def poison() -> None:
    """Kill the process that runs it: with no chance to clean up, as a fault in a C library would."""
    await asyncio.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(name="later")
async def later() -> None:
    """Be scheduled; that is all."""


@app.task(name="march")
async def march(ctx: Context) -> None:
    """Go on until someone says stop."""
    for step in itertools.count(1):
        await asyncio.sleep(0.1)
        ctx.progress(0, f"step {step}")


@app.task(name="parcel")
async def parcel(ctx: Context) -> str:
    """Look whether a parcel has come; if not, look again later. That uses up no attempts."""
    looks: int = ctx.load("looks", 0) + 1
    await ctx.save("looks", looks)
    if looks < LOOKS:
        raise Snooze("2s", "no parcel yet")
    return f"here at look {looks}"


@app.task(name="primes", executor="process")
def primes(below: int) -> int:
    """Keep a processor busy, in a process slot, where it hinders nobody."""
    sieve = bytearray([1]) * below
    sieve[:2] = b"\x00\x00"
    for number in range(2, int(below**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, below, number)))
    return sum(sieve)
