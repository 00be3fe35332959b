"""A store that misbehaves on purpose: it drops, delays and duplicates what is asked of it, and loses its answers.

Wrapped around any store, it shows what becomes of a program when the database has a bad day. Faults are set per verb
and used up in the order in which they were set; a verb without faults does what the store does.
"""

import asyncio
import inspect
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from mainspring.duration import Duration, seconds
from mainspring.errors import DeclarationError, StoreUnavailable
from mainspring.stores.port import Store


class Kind(StrEnum):
    """What can go wrong with a call."""

    DROP = "drop"  # it never reaches the store
    LOSE_ANSWER = "lose answer"  # the store does it, and the caller never learns
    DUPLICATE = "duplicate"  # the store does it twice; the caller gets the second answer
    DELAY = "delay"  # it reaches the store late


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one call."""

    kind: Kind
    delay: float = 0.0


class FaultyStore:
    """Stands in for a store. `store.drop("settle")` has the next `settle` fail; `times` sets how many of them do."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.calls: list[str] = []
        """The verbs that were called, in order, whatever became of them."""
        self._faults: dict[str, deque[Fault]] = defaultdict(deque)

    @property  # type: ignore[misc]  # read-only, as in unittest.mock with a spec
    def __class__(self) -> type[Any]:
        """The class of the store within: since Python 3.12, `isinstance` with a Protocol no longer sees `__getattr__`."""
        return type(self.inner)

    @property
    def as_store(self) -> Store:
        """This object, for a type checker, which cannot see that it has every verb of the store within."""
        return cast("Store", self)

    def drop(self, verb: str, *, times: int = 1) -> None:
        """Have calls raise `StoreUnavailable` without having reached the store."""
        self._set(verb, Fault(Kind.DROP), times)

    def lose_answer(self, verb: str, *, times: int = 1) -> None:
        """Have calls raise `StoreUnavailable` after the store has done what was asked."""
        self._set(verb, Fault(Kind.LOSE_ANSWER), times)

    def duplicate(self, verb: str, *, times: int = 1) -> None:
        """Have calls reach the store twice."""
        self._set(verb, Fault(Kind.DUPLICATE), times)

    def delay(self, verb: str, time: Duration, *, times: int = 1) -> None:
        """Have calls reach the store late."""
        self._set(verb, Fault(Kind.DELAY, seconds(time)), times)

    def heal(self) -> None:
        """Forget all faults that have not happened yet."""
        self._faults.clear()

    def _set(self, verb: str, fault: Fault, times: int) -> None:
        if not inspect.iscoroutinefunction(getattr(self.inner, verb, None)):
            raise DeclarationError("FaultyStore", f"{verb!r} is no verb of a store")
        self._faults[verb].extend([fault] * times)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store within has under that name
        attribute = getattr(self.inner, name)
        return self._verb(name, attribute) if inspect.iscoroutinefunction(attribute) else attribute

    def _verb(self, name: str, verb: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def call(*args: object, **kwargs: object) -> object:
            self.calls.append(name)
            faults = self._faults[name]
            fault = faults.popleft() if faults else None
            match fault:
                case Fault(Kind.DROP):
                    raise StoreUnavailable("a faulty store", f"{name} was dropped")
                case Fault(Kind.DELAY, delay):
                    await asyncio.sleep(delay)
                case Fault(Kind.DUPLICATE):
                    await verb(*args, **kwargs)
                case _:
                    pass
            answer = await verb(*args, **kwargs)
            if fault and fault.kind is Kind.LOSE_ANSWER:
                raise StoreUnavailable("a faulty store", f"the answer to {name} was lost")
            return answer

        return call
