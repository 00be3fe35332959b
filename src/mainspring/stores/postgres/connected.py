"""An open connection, each of whose statements is answered in time or never."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from mainspring.stores.postgres.verb import Row

T = TypeVar("T")

_GRACE: Final = 0.05
"""Seconds that are waited on when the time is over. It may have been this event loop that was busy, and the answer is
there and only has to be read."""


class Connection(Protocol):
    """What is used of a connection of asyncpg's."""

    def fetch(self, query: str, /, *args: object) -> Awaitable[Any]: ...  # rows, of a type of its own

    def execute(self, query: str, /) -> Awaitable[str]: ...

    def add_listener(self, channel: str, callback: Callable[..., None]) -> Awaitable[None]: ...

    def remove_listener(self, channel: str, callback: Callable[..., None]) -> Awaitable[None]: ...

    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...

    def get_server_pid(self) -> int: ...

    def is_in_transaction(self) -> bool: ...

    def is_closed(self) -> bool: ...

    async def close(self, *, timeout: float | None = None) -> None: ...  # noqa: ASYNC109 -- asyncpg's signature

    def terminate(self) -> None: ...


class Connected:
    """A connection, on the event loop that opened it.

    A statement that has no answer in time ends the connection, and with it everything that waits on it; that is the
    one way out that never waits for the other side. (Cancelling a statement of asyncpg's opens a second connection to
    say so, and what is frozen does not answer that one either.)
    """

    __slots__ = ("_doubted", "_is_late", "_loop", "connection", "generation", "host", "pooled", "within")

    def __init__(self, connection: Connection, within: float, *, pooled: bool, host: int) -> None:
        self.connection = connection
        self.within = within
        """Seconds for each statement; may be changed."""
        self.pooled = pooled
        """Whether two transactions may run on different server connections."""
        self.host = host
        """The position of its host in the DSN."""
        self.generation = 0
        self._loop = asyncio.get_running_loop()
        self._is_late = False
        self._doubted: asyncio.TimerHandle | None = None

    async def fetch(self, text: str, /, *values: object) -> Sequence[Row]:
        """Run a statement; returns its rows."""
        rows: Sequence[Row] = await self._in_time(self.connection.fetch(text, *values))
        return rows

    async def execute(self, text: str) -> str:
        """Run statements without values; returns the last one's status."""
        return await self._in_time(self.connection.execute(text))

    async def listen(self, channel: str, heard: Callable[..., None]) -> None:
        """Have `heard(connection, pid, channel, payload)` called for every notification."""
        await self._in_time(self.connection.add_listener(channel, heard))

    async def unlisten(self, channel: str, heard: Callable[..., None]) -> None:
        await self._in_time(self.connection.remove_listener(channel, heard))

    @property
    def is_closed(self) -> bool:
        return self.connection.is_closed()

    @property
    def is_clean(self) -> bool:
        """Whether it can be used by somebody else."""
        return not self.connection.is_closed() and not self.connection.is_in_transaction()

    def terminate(self) -> None:
        """End it at once, whatever is under way. On its own loop only."""
        if not self.connection.is_closed():
            self.connection.terminate()

    async def close(self, seconds: float) -> None:
        """End it in good order if that goes soon."""
        timer = self._loop.call_later(seconds, self.connection.terminate)
        try:
            await self.connection.close()
        except Exception:  # noqa: BLE001 -- it is over either way
            self.connection.terminate()
        finally:
            timer.cancel()

    async def _in_time(self, answer: Awaitable[T]) -> T:
        timer = self._loop.call_later(self.within, self._doubt)
        try:
            return await answer
        except Exception as error:
            if self._is_late:
                raise TimeoutError(f"no answer within {self.within:g} s") from error
            if isinstance(error, AttributeError) and self.connection.is_closed():  # asyncpg's own, of what is gone
                raise ConnectionResetError("the connection was closed") from error
            raise
        finally:
            timer.cancel()
            if self._doubted is not None:
                self._doubted.cancel()
                self._doubted = None

    def _doubt(self) -> None:
        self._doubted = self._loop.call_later(_GRACE, self._give_up)

    def _give_up(self) -> None:
        self._is_late = True
        self.connection.terminate()
