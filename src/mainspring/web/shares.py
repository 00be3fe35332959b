"""Limits per identity on shared resources: searches and lines of the audit log."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from mainspring.web.problems import Problem

log = logging.getLogger("mainspring.web")

SEARCHES: Final = 2
"""Concurrent searches of one identity: a SQLite store has two threads for searches, and each may take a second."""
WAITING_SEARCHES: Final = 50
"""Queued searches of one identity; more are refused."""
REFUSALS: Final = 20
"""Refused changes of one identity per minute that are stored as single lines."""
MINUTE_S: Final = 60.0
MAX_IDENTITIES: Final = 10_000


class Searches:
    """Concurrency limit for searches, by identity."""

    def __init__(self) -> None:
        self._turns: Final[dict[str, asyncio.Semaphore]] = {}
        self._asked: Final[Counter[str]] = Counter()

    @asynccontextmanager
    async def turn(self, identity: str, is_gone: Callable[[], Awaitable[bool]]) -> AsyncIterator[None]:
        """Wait for a turn. Raises `Problem` if the client has disconnected meanwhile."""
        if self._asked[identity] >= SEARCHES + WAITING_SEARCHES:
            raise Problem(429, "too_many", f"too many searches of {identity} are running", headers={"retry-after": "5"})
        turn = self._turns.setdefault(identity, asyncio.Semaphore(SEARCHES))
        has_to_wait = turn.locked()
        self._asked[identity] += 1
        try:
            async with turn:
                if has_to_wait and await is_gone():
                    raise Problem(499, "cut_off", "the client has closed the connection")
                yield
        finally:
            self._asked[identity] -= 1
            if not self._asked[identity]:
                del self._asked[identity], self._turns[identity]


class Refusals:
    """Refused changes of the last minute, by identity; above a limit they are only counted."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now: Final = now
        self._begun: Final[dict[str, float]] = {}
        self._count: Final[Counter[str]] = Counter()

    def add(self, identity: str) -> bool:
        """Count a refused change; False if it is above the limit of single lines."""
        if identity not in self._begun:
            if len(self._begun) >= MAX_IDENTITIES:
                return False
            self._begun[identity] = self._now()
        self._count[identity] += 1
        return self._count[identity] <= REFUSALS

    def over(self) -> list[tuple[str, int]]:
        """Remove identities whose minute has expired; return the number of refusals without a line of each."""
        ended = [identity for identity, begun in self._begun.items() if self._now() - begun >= MINUTE_S]
        found = [(identity, self._count.pop(identity) - REFUSALS) for identity in ended]
        for identity in ended:
            del self._begun[identity]
        return [(identity, number) for identity, number in found if number > 0]


class Strangers:
    """Requests without valid credentials, by address: one log line for each address and minute."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now: Final = now
        self._seen: Final[dict[str, tuple[float, int]]] = {}

    def came(self, address: str) -> None:
        """Count a request; the first of a minute is logged, with the number of those since the last line."""
        logged_at, number = self._seen.pop(address, (-MINUTE_S, 0))
        if self._now() - logged_at >= MINUTE_S:
            more = f", {number} more since the last such line" if number else ""
            log.warning("request without valid credentials from %s%s", address or "an unknown address", more)
            logged_at, number = self._now(), -1
        self._seen[address] = (logged_at, number + 1)
        if len(self._seen) > MAX_IDENTITIES:
            del self._seen[next(iter(self._seen))]
