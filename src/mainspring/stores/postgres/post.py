"""The thread that sends and hears notifications, on one connection of its own.

It listens only while somebody watches, and asks now and then, by a notification to itself, whether it still hears: a
connection that the network has dropped in silence looks like one on which nothing happens. After every gap everybody is
rung, because something may have been missed. At rest it does nothing but ask.
"""

import asyncio
import logging
import math
import random
import secrets
from contextlib import suppress
from typing import Final, Protocol

from mainspring.stores.postgres.aside import Aside
from mainspring.stores.postgres.connect import connect
from mainspring.stores.postgres.connected import Connected
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.skew import Skew
from mainspring.stores.postgres.trouble import said

PAUSE: Final = 0.02
"""Seconds between two notifications of one process."""
PROBE_EVERY: Final = 15.0
PROBE_RARELY: Final = 300.0
"""Seconds between two looks whether notifications arrive; the second where they do not."""
CLOSING_TIME: Final = 2.0
"""Seconds that may pass until what is to be sent was sent, when the store is closed."""
_SHORTEST: Final = 0.1
_LONGEST: Final = 5.0
"""Seconds between tries to connect."""

_WORTH_A_WORD: Final = 4
"""Failures in a row, after about two seconds."""

_CLOCK: Final = "SELECT clock_timestamp()"

_logger: Final = logging.getLogger("mainspring.stores.postgres")


class Letters(Protocol):
    """What is to be sent, and who is to hear."""

    @property
    def channel(self) -> str: ...

    @property
    def is_watched(self) -> bool: ...

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to be sent."""
        ...

    @property
    def has_changes(self) -> bool:
        """Whether anything but reports of taken announcements is waiting."""
        ...

    @property
    def is_urgent(self) -> bool:
        """Whether a report of taken announcements is waiting, without which other nodes claim in vain."""
        ...

    def take(self) -> list[str]:
        """Take what is to be sent, as payloads."""
        ...

    def put_back(self) -> None:
        """Keep what was taken last, because it could not be sent."""
        ...

    def came(self, payload: str) -> None:
        """Hear what another process sent."""
        ...

    def missed(self) -> None:
        """Learn that something may have come that was not heard."""
        ...


class Post:
    """Sends and hears, from `start` to `stop`."""

    def __init__(self, settings: Settings, letters: Letters, skew: Skew) -> None:
        self._settings = settings
        self._letters = letters
        self._skew = skew
        self._news = asyncio.Event()
        self._echo = asyncio.Event()
        self._ending = asyncio.Event()
        self._own_channel = f"{letters.channel}_{secrets.token_hex(4)}"
        self.hears = False
        """Whether what others commit is heard, as far as is known."""
        self._own_pid = 0
        self._host = 0
        self._sent_at = -math.inf
        self._urgent_at = -math.inf
        self._is_deaf = False
        self._is_cut_off = False
        self._aside = Aside("mainspring-postgres-post", self._serve, self._end)

    def start(self) -> None:
        self._aside.start()

    def look(self) -> None:
        """Say that there is something to be sent, or somebody who watches; in any thread."""
        self._aside.call(self._news.set)

    async def stop(self) -> None:
        """Send what waits, if that goes soon, and end the thread."""
        await self._aside.stop(CLOSING_TIME)

    # In the thread.

    async def _serve(self) -> None:
        failures = 0
        while not self._ending.is_set() or self._letters.is_waiting:
            connected: Connected | None = None
            is_last = self._ending.is_set()
            try:
                connected = await self._connect()
                failures = 0
                await self._attend(connected)
            except Exception as error:  # noqa: BLE001 -- whatever it is, nobody else would try again
                failures += 1
                self.hears = False
                self._tell_loss(error, failures)
                if is_last:
                    return
            finally:
                if connected is not None:
                    connected.terminate()
            longest = min(_SHORTEST * 2 ** min(failures, 10), _LONGEST)
            await _wait(self._ending, random.uniform(longest / 2, longest))  # noqa: S311 -- no secret

    async def _connect(self) -> Connected:
        dsn = self._settings.listen_dsn
        pooled = self._settings.pooled if dsn is None else None
        connected = await connect(self._settings, pooled=pooled, dsn=dsn, first=self._host)
        connected.connection.add_termination_listener(self._lost)
        self._host = connected.host
        self._own_pid = connected.connection.get_server_pid()
        if self._settings.listen and connected.pooled and dsn is None:
            self._tell_deaf(
                "they do not pass the pooler in between; add listen=HOST:PORT of the server itself to the URL, or listen=false"
            )
        return connected

    async def _attend(self, connected: Connected) -> None:
        """Send and hear on a connection, until it is lost or there is nothing more to do."""
        loop = asyncio.get_running_loop()
        if not connected.pooled:
            # A notification is a commit like any other, and would wait for the disk; nothing of it has to last.
            await connected.execute("SET synchronous_commit = off")
        can_listen = self._settings.listen and (not connected.pooled or self._settings.listen_dsn is not None)
        self.hears = listens = False
        probe_at = math.inf if connected.pooled and not can_listen else loop.time()
        while True:
            self._news.clear()
            if connected.is_closed:
                raise ConnectionError("it was closed")
            if can_listen and not listens and self._letters.is_watched:
                await self._listen(connected)
                self.hears = listens = True
            if self._letters.is_waiting and (self._ending.is_set() or loop.time() >= self._send_at):
                if self._letters.is_urgent:
                    self._urgent_at = loop.time()
                if self._letters.has_changes:
                    self._sent_at = loop.time()
                await self._send(connected)
            if self._ending.is_set() and not self._letters.is_waiting:
                return
            if loop.time() >= probe_at:
                if listens and not self._letters.is_watched:
                    await connected.unlisten(self._letters.channel, self._heard)
                    await connected.unlisten(self._own_channel, self._heard_myself)
                    self.hears = listens = False
                await self._probe(connected, listens)
                probe_at = loop.time() + (PROBE_RARELY if self._is_deaf else PROBE_EVERY)
            send_at = self._send_at if self._letters.is_waiting else math.inf
            await _wait(self._news, min(probe_at, send_at) - loop.time())

    @property
    def _send_at(self) -> float:
        """When the next notification may be sent. Reports of taken announcements have a limit of their own."""
        changes_at = self._sent_at if self._letters.has_changes else math.inf
        return min(changes_at, self._urgent_at if self._letters.is_urgent else math.inf) + PAUSE

    async def _listen(self, connected: Connected) -> None:
        await connected.listen(self._letters.channel, self._heard)
        await connected.listen(self._own_channel, self._heard_myself)
        if self._is_cut_off:
            self._is_cut_off = False
            _logger.warning("%s: notifications are heard again", self._settings.store)
        self._letters.missed()

    async def _send(self, connected: Connected) -> None:
        payloads = self._letters.take()
        try:
            # Simple statements: nothing is prepared, so that a pooler in between does not matter.
            await connected.execute("; ".join(f"NOTIFY {self._letters.channel}, '{payload}'" for payload in payloads))
        except BaseException:
            self._letters.put_back()
            raise

    async def _probe(self, connected: Connected, listens: bool) -> None:
        """See whether the connection still answers, and what time it is there; and whether notifications arrive."""
        clock = self._settings.clock
        before = clock.now()
        ((instant,),) = await connected.fetch(_CLOCK)
        self._skew.sample(before, instant, clock.now())
        if not listens:
            return
        self._echo.clear()
        await connected.execute(f"NOTIFY {self._own_channel}")
        await _wait(self._echo, self._settings.timeout)
        if self._echo.is_set():
            self._is_deaf, self.hears = False, True
        else:
            self._tell_deaf("the connection swallows them; is there a pooler in between?")

    def _heard(self, _: object, pid: int, __: str, payload: str) -> None:
        if pid != self._own_pid:  # this process was told when it committed
            self._letters.came(payload)

    def _heard_myself(self, *_: object) -> None:
        self._echo.set()

    def _lost(self, _: object) -> None:
        self.hears = False
        self._news.set()

    def _end(self) -> None:
        self._ending.set()
        self._news.set()

    def _tell_deaf(self, why: str) -> None:
        self.hears = False
        if not self._is_deaf:
            self._is_deaf = True
            _logger.warning(
                "%s: no notifications arrive: %s; jobs of other processes may start up to a second later",
                self._settings.store,
                why,
            )

    def _tell_loss(self, error: Exception, failures: int) -> None:
        """Say once that nothing is heard; that a connection was lost is worth no word, if the next one is there soon."""
        _logger.debug("%s: the connection that listens was lost", self._settings.store, exc_info=error)
        wanted = self._settings.listen and self._letters.is_watched and not self._ending.is_set()
        if wanted and not self._is_cut_off and failures >= _WORTH_A_WORD:
            self._is_cut_off = True
            _logger.warning(
                "%s: no notifications are heard for now (%s); trying again", self._settings.store, said(error)
            )


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for something, but no longer than that."""
    with suppress(TimeoutError):
        async with asyncio.timeout(None if seconds == math.inf else max(0.0, seconds)):
            await event.wait()
