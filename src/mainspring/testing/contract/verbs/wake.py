# ruff: noqa: S101 -- a suite of tests is built on assert
"""Hints that something has changed: they come, they come soon, and none is lost."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from mainspring.core.command import MoveJob, RetryJob
from mainspring.core.limits import Gate, Scope
from mainspring.stores.records import Place
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import FATAL, HOUR, RESIZE, SEND, World

PATIENCE = 20.0
"""Real seconds after which a hint will not come any more."""


class Bell:
    """What is given to `watch`: knows when it was rung."""

    def __init__(self) -> None:
        self.rung_at = 0.0
        self._rung = threading.Event()

    def __call__(self) -> None:
        self.rung_at = time.perf_counter()
        self._rung.set()

    def reset(self) -> None:
        self._rung.clear()

    @property
    def is_rung(self) -> bool:
        return self._rung.is_set()

    async def wait(self) -> None:
        assert await asyncio.to_thread(self._rung.wait, PATIENCE), "no hint came"


class WakeContract(Contract):
    """The role Wake. Needs the roles Jobs, Nodes, Operator and Inspector too."""

    @obligation("watch", 1)
    async def test_a_commit_rings_for_the_same_handle_and_for_another(self, world: World) -> None:
        other = await world.open()
        for store in (world.store, other):
            bell = Bell()
            stop = store.watch(bell)
            await world.enqueue()
            await bell.wait()
            stop()

    @obligation("watch", 1)
    async def test_a_lock_that_is_resigned_rings(self, world: World) -> None:
        bell = Bell()
        stop = (await world.open()).watch(bell)
        lock = await world.store.acquire("name", "holder", HOUR)
        assert lock is not None
        bell.reset()
        await world.store.resign(lock)
        await bell.wait()
        stop()

    @obligation("watch", 1)
    async def test_whatever_makes_a_job_claimable_or_ends_one_rings(self, world: World) -> None:
        node, bell = await world.node(), Bell()
        stop = (await world.open()).watch(bell)
        await world.store.declare([Gate(scope=Scope.TASK, name=str(SEND), concurrency=1)])
        await world.store.pause("paused")
        await world.enqueue_all(world.new(RESIZE, queue="paused") for _ in range(2))
        claim = await world.running(node, SEND)
        waiting = await world.enqueue(SEND)

        for change in (
            lambda: world.end(claim, FATAL, keeps_place=True),  # finished
            lambda: world.store.release(node.id, [Place(claim.job.id, claim.job.lease)]),  # a place is free
            lambda: world.command(waiting, MoveJob(run_at=world.now - HOUR)),
            lambda: world.command(claim.job.id, RetryJob()),
            lambda: world.store.resume("paused"),
            lambda: world.store.declare([Gate(scope=Scope.TASK, name=str(SEND))]),
        ):
            await quiet(bell)
            await change()
            await bell.wait()
        stop()

    @obligation("watch", 1)
    async def test_who_looks_after_every_ring_misses_nothing(self, world: World) -> None:
        other, bell = await world.open(), Bell()
        stop = other.watch(bell)
        new = [world.new() for _ in range(60)]

        async def write() -> None:
            for one in new:
                await world.store.enqueue([one])

        async def look() -> None:
            while None in await other.get([one.id for one in new]):
                await bell.wait()
                bell.reset()

        await asyncio.gather(write(), look())
        stop()

    @obligation("watch")
    async def test_who_has_stopped_watching_hears_nothing(self, world: World) -> None:
        leaver, stayer = Bell(), Bell()
        leave, stay = world.store.watch(leaver), world.store.watch(stayer)
        await world.enqueue()
        await leaver.wait()
        await stayer.wait()
        leave()
        await quiet(stayer)
        leaver.reset()

        await world.enqueue()
        await stayer.wait()

        assert not leaver.is_rung
        stay()

    @obligation("watch", 2)
    async def test_a_ring_comes_within_milliseconds(self, world: World) -> None:
        """The best of several, and a generous bound: who else is at work on the machine is not the store's fault."""
        other, bell = await world.open(), Bell()
        stop = other.watch(bell)
        delays: list[float] = []
        while len(delays) < 30 and min(delays, default=1.0) >= 0.05:
            await quiet(bell)
            await world.enqueue()
            committed = time.perf_counter()
            await bell.wait()
            delays.append(bell.rung_at - committed)
        stop()

        assert min(delays) < 0.05, delays


async def heard(world: World, bell: Bell) -> None:
    """Wait until a watcher hears what others commit: a store may take a moment to begin, and ring then."""
    await world.store.pause("nowhere")
    await world.store.resume("nowhere")
    await bell.wait()
    await quiet(bell)


async def quiet(bell: Bell) -> None:
    """Wait until what was rung for before has been heard: two commits may ring once, or twice."""
    while True:
        bell.reset()
        await asyncio.to_thread(time.sleep, 0.02)
        if not bell.is_rung:
            return


async def check_that_the_commit_rings(writing: Callable[[], AbstractAsyncContextManager[object]], *bells: Bell) -> None:
    """Check that what is written in a transaction rings when that is committed, at the end of the block, and not before.

    A ring may come late, for what was done before: so it is done once more, in another transaction, if one comes too
    early. A store that rings too early does so in each of them.
    """
    for _ in range(5):
        for bell in bells:
            await quiet(bell)
        async with writing():
            await asyncio.to_thread(time.sleep, 0.1)
            is_early = any(bell.is_rung for bell in bells)
        for bell in bells:
            await bell.wait()
        if not is_early:
            return
    raise AssertionError("somebody was woken before the commit")
