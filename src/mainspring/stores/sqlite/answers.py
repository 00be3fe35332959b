"""Bringing answers from our threads back to the event loops that wait for them."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Generic, TypeVar

from mainspring.clock import outside

T = TypeVar("T")


class Answer(Generic[T]):
    """One answer that a caller waits for on its own event loop."""

    __slots__ = ("_error", "_future", "_value", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._future: asyncio.Future[T] = self.loop.create_future()
        self._value: T
        self._error: BaseException | None = None

    @property
    def is_unwanted(self) -> bool:
        """Whether the caller has given up."""
        return self._future.cancelled()

    async def wait(self, what: str) -> T:
        """Wait for it; on virtual time, the clock stands still meanwhile."""
        with outside(what):
            return await self._future

    def set(self, value: T) -> None:
        """Decide it, in any thread; the caller learns of it by `bring`. The last word holds: a group may be done again."""
        self._value, self._error = value, None

    def fail(self, error: BaseException) -> None:
        self._error = error

    def deliver(self) -> None:
        """Let the caller go on; on its own loop."""
        if self._future.done():
            return
        if self._error is not None:
            self._future.set_exception(self._error)
        else:
            self._future.set_result(self._value)

    @staticmethod
    def bring(answers: "Iterable[Answer[T]]") -> None:
        """Hand over decided answers, with one call for each loop however many there are."""
        by_loop: defaultdict[asyncio.AbstractEventLoop, list[Answer[T]]] = defaultdict(list)
        for answer in answers:
            by_loop[answer.loop].append(answer)
        for loop, all_of_them in by_loop.items():
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(_deliver_all, all_of_them)


def _deliver_all(answers: "list[Answer[T]]") -> None:
    for answer in answers:
        answer.deliver()


async def in_thread(what: str, step: Callable[[], T]) -> T:
    """Do something that blocks in a thread of its own, and wait for it.

    Not in the loop's default executor: that may be full of work that waits for this store.
    """
    answer: Answer[T] = Answer()

    def run() -> None:
        try:
            answer.set(step())
        except BaseException as error:  # noqa: BLE001 -- the caller gets it
            answer.fail(error)
        Answer.bring([answer])

    try:
        threading.Thread(target=run, name="mainspring-sqlite", daemon=True).start()
    except RuntimeError:  # Python 3.12.0 and 3.12.1 start no thread in an atexit callback, where the store is closed
        run()
    return await answer.wait(what)
