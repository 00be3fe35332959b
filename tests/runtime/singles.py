"""Programs that share one store, each with the same singleton, on virtual time."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from mainspring import Mainspring, Sleep
from mainspring.client.services import ServiceContext
from mainspring.runtime.node import Node
from mainspring.stores.memory import MemoryStore
from mainspring.testing import VirtualTime
from mainspring.testing.faults import FaultyStore

TTL = 15.0
NAME = "service:sweep"
LOCKS = ("acquire", "extend", "resign")


@dataclass(frozen=True, slots=True)
class Line:
    """What a step wrote down."""

    who: str
    term: int
    at: float
    what: str


class Deaf(MemoryStore):
    """A store whose hints get lost."""

    def another(self) -> "Deaf":
        return Deaf(shared=self._shared)

    def watch(self, ring: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002 - nobody rings
        return lambda: None


@dataclass(slots=True)
class World:
    """All of them, and what they wrote."""

    time: VirtualTime
    memory: MemoryStore
    lines: list[Line] = field(default_factory=list)

    @classmethod
    def on(cls, time: VirtualTime) -> "World":
        return cls(time, MemoryStore(clock=time.clock))

    @classmethod
    def without_hints(cls, time: VirtualTime) -> "World":
        """With a store that hints at nothing, as behind a pooler; in memory, every commit is a hint."""
        return cls(time, Deaf(clock=time.clock))

    def program(self, who: str) -> "Program":
        return Program(self, who)

    def sweepers(self, count: int, **options: Any) -> "list[Program]":  # noqa: ANN401 - of `sweeps`
        programs = [self.program(who) for who in "abcdef"[:count]]
        for program in programs:
            program.sweeps(**options)
        return programs

    def of(self, who: str) -> list[Line]:
        return [line for line in self.lines if line.who == who]

    def terms(self) -> list[tuple[str, int]]:
        """Who ran it under which term, each once, in order."""
        return list(dict.fromkeys((line.who, line.term) for line in self.lines))

    async def until(self, holds: Callable[[], object], *, within: float = 60) -> float:
        """Let time pass until something is true; returns how long that took."""
        began = self.time.elapsed
        async with asyncio.timeout(within):
            while not holds():
                await asyncio.sleep(0.01)
        return self.time.elapsed - began


class Program:
    """One program, on a connection of its own that can have faults."""

    def __init__(self, world: World, who: str) -> None:
        self.world = world
        self.who = who
        self.store = FaultyStore(world.memory.another())
        self.app = Mainspring(store=self.store.as_store, clock=world.time.clock)

    def sweeps(self, *, lasts: float = 0.0, **options: Any) -> None:  # noqa: ANN401 - of `app.service`
        """Have it run the singleton `sweep`, whose steps have a second between them."""

        async def sweep(ctx: ServiceContext) -> Sleep:
            self.write(ctx, "step")
            try:
                await asyncio.sleep(lasts)
            finally:
                self.write(ctx, "end")
            return Sleep(1)

        self.app.service(name="sweep", singleton=True, **options)(sweep)

    def write(self, ctx: ServiceContext, what: str) -> None:
        self.world.lines.append(Line(self.who, ctx.term, self.world.time.elapsed, what))

    def lose_touch(self) -> None:
        """Have nothing reach the store any more that is about locks."""
        for verb in LOCKS:
            self.store.drop(verb, times=10_000)

    def node(self, **settings: Any) -> AbstractAsyncContextManager[Node]:  # noqa: ANN401 - of `app.node`
        """A node that is about services only; schedules are another matter."""
        return self.app.node(**{"ticker": False, **settings})
