"""Two stores on one clock, that must answer the same."""

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from mainspring.core.job import NodeId
from mainspring.errors import Conflict, MainspringError
from mainspring.stores.memory import MemoryStore
from mainspring.stores.port import Store
from mainspring.stores.records import Lock, NodeView, Order
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing.contract import SettableClock

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Side:
    """One of the two, with the numbers that it has given out: the port leaves those to the store."""

    store: Store
    terms: dict[NodeId, int] = field(default_factory=dict)
    counters: dict[NodeId, int] = field(default_factory=dict)
    orders: list[Order] = field(default_factory=list)
    locks: list[Lock] = field(default_factory=list)
    next_due: datetime | None = None
    """As told with the last claim: how much too early a store sends a node is its own affair."""

    def plain(self, view: NodeView) -> NodeView:
        """Take out what a store chooses by itself; a counter counts from where it was first seen."""
        assert view.term == self.terms[view.node.id]
        start = self.counters.setdefault(view.node.id, view.counter)
        return replace(view, term=0, counter=view.counter - start)


class Pair:
    """The memory store, which is the reference, and another."""

    def __init__(self, second: Callable[[Path, SettableClock], Store] | None = None) -> None:
        self.clock = SettableClock()
        self._loop = asyncio.new_event_loop()  # a Runner takes as long again to begin and end each call
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "jobs.db"
        self._sides = [Side(MemoryStore(clock=self.clock)), Side((second or sqlite)(path, self.clock))]
        for side in self._sides:
            self._loop.run_until_complete(side.store.open())
            side.store.watch(lambda: None)  # as a node does: a store may remember that there was nothing to claim

    @property
    def next_due(self) -> list[datetime | None]:
        return [side.next_due for side in self._sides]

    def close(self) -> None:
        for side in self._sides:
            self._loop.run_until_complete(side.store.close())
        self._loop.close()
        self._folder.cleanup()

    def ask(self, verb: Callable[[Side], Coroutine[Any, Any, T]]) -> T | MainspringError:
        """Call a verb on both sides; they must answer the same, or raise the same."""
        first, second = (self._loop.run_until_complete(_answer(verb(side))) for side in self._sides)
        if isinstance(first, MainspringError) or isinstance(second, MainspringError):
            assert _fixed(first) == _fixed(second)
        else:
            assert first == second
        return first

    def both(self, verb: Callable[[Side], Coroutine[Any, Any, T]]) -> T:
        """Call a verb that must not raise."""
        answer = self.ask(verb)
        assert not isinstance(answer, MainspringError), answer
        return answer


def sqlite(path: Path, clock: SettableClock) -> Store:
    return SqliteStore(path, clock=clock, durable=False)


async def _answer(verb: Coroutine[Any, Any, T]) -> T | MainspringError:
    try:
        return await verb
    except MainspringError as error:
        return error


def _fixed(answer: object) -> object:
    """What the port fixes of an error: its type; of a conflict also with whom. The words are each store's own."""
    return (type(answer), answer.args if isinstance(answer, Conflict) else ())
