"""The network between a client and a server: it can hang without closing anything, heal, and be cut."""

import asyncio
from collections.abc import Coroutine
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.servers.postgres import Server, dsn_of
from tests.servers.system import HOST, PATIENCE

T = TypeVar("T")


class Wire:
    """Listens on a port of its own and passes on what comes, both ways; in a thread, with a loop of its own.

    What was on its way when it hung arrives when it heals, as with TCP, and is lost where it is cut. Its methods may be
    called from any thread, and what they do is done when they return.
    """

    def __init__(self, host: str, port: int, database: str | None = None) -> None:
        self.host = HOST
        self._database = database
        self._behind = (host, port)
        self._requests = asyncio.Event()
        self._answers = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self.accepted = 0
        """How many connections there have been."""
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="wire", daemon=True)
        self._thread.start()
        self._listener = self._do(asyncio.start_server(self._connected, self.host, 0))
        self.port: int = self._listener.sockets[0].getsockname()[1]
        self.heal()

    @classmethod
    def to(cls, server: Server) -> Self:
        """Make the network between clients and a server; `dsn` names the server's database."""
        return cls(server.host, server.port, server.database)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def dsn(self, database: str | None = None, user: str | None = None) -> str:
        return dsn_of(self.host, self.port, database or self._database, user)

    def hang(self, *, answers_only: bool = False) -> None:
        """Pass nothing on, and close nothing; new connections are accepted and hang as well.

        With `answers_only`, what a client asks still reaches the server: it commits, and the client never hears of it.
        """
        self._do(self._hang(answers_only=answers_only))

    def heal(self) -> None:
        """Pass everything on again, what has waited first."""
        self._do(self._heal())

    def cut(self) -> None:
        """Close all connections at both ends; new ones are accepted."""
        self._do(self._cut())

    def close(self) -> None:
        """Cut it and stop listening; harmless the second time."""
        if self._loop.is_closed():
            return
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _hang(self, *, answers_only: bool) -> None:
        self._answers.clear()
        if not answers_only:
            self._requests.clear()

    async def _heal(self) -> None:
        self._requests.set()
        self._answers.set()

    async def _cut(self) -> None:
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _end(self) -> None:
        self._listener.close()
        while asyncio.all_tasks() - {
            asyncio.current_task()
        }:  # what was accepted may still be on its way to `_connected`
            await self._cut()
            await asyncio.sleep(0)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        connection = self._loop.create_task(self._carry(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)
        # One that is cut before it has begun comes to no `finally`.
        connection.add_done_callback(lambda _: writer.transport.abort())

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from a client's arrival until both sides have closed or one has gone."""
        ends = [writer]
        try:
            await self._requests.wait()
            answers, requests = await asyncio.open_connection(*self._behind)
            ends.append(requests)
            async with asyncio.TaskGroup() as both:
                both.create_task(_pass(reader, requests, self._requests))
                both.create_task(_pass(answers, writer, self._answers))
        except* OSError:
            pass  # the server is not there, or a side has gone: so has the connection
        finally:
            for end in ends:
                end.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: asyncio.Event) -> None:
    while data := await reader.read(65_536):
        await way.wait()
        writer.write(data)
        await writer.drain()
    await way.wait()
    writer.write_eof()
