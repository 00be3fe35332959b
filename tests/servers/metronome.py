"""How much of the time others had: a machine that is busy with something else is no slow program of ours."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import asyncpg

from tests.servers.pgbouncer import Pooler
from tests.servers.postgres import Server

BEAT: Final = 0.01
USUAL: Final = 0.01
"""Seconds that a beat and the server's answer may take longer where nobody is in the way."""


class Metronome:
    """Beats on the loop of a test, and has each beat answered by the server: what comes late others have taken.

    But for the time in which this process was at work: whatever of ours is slow must not count as theirs.
    """

    def __init__(self) -> None:
        self._late = 0.0
        self._began = self._now()

    @property
    def taken(self) -> float:
        """Seconds that others have had so far, those of the beat that is under way included."""
        return self._late + self._of(self._began)

    def _of(self, began: float) -> float:
        return max(0.0, self._now() - began - BEAT - USUAL)

    def _now(self) -> float:
        return time.monotonic() - time.process_time()

    async def beat(self, connection: "asyncpg.Connection") -> None:
        while True:
            self._began = self._now()
            await asyncio.sleep(BEAT)
            await connection.execute("SELECT 1")
            self._late += self._of(self._began)


@asynccontextmanager
async def metronome(server: Server | Pooler) -> AsyncIterator[Metronome]:
    """Have one beat for as long as the block runs."""
    connection = await asyncpg.connect(server.dsn())
    found = Metronome()
    beating = asyncio.create_task(found.beat(connection))
    try:
        yield found
        assert not beating.done(), beating.exception()
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        connection.terminate()
