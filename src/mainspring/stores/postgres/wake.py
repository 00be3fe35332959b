"""Telling those who watch that something may have changed.

Commits of this process are told directly. For other processes there is NOTIFY: sent after the commit and not within it,
where it takes a lock on the whole database; the first at once, then at most one every 20 ms, which stands for all that
came meanwhile. It is a hint: nodes look by themselves, too.
"""

import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from mainspring.stores.postgres.post import PAUSE, Post
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.skew import Skew

Ring: TypeAlias = Callable[[], None]
OnHint: TypeAlias = Callable[[datetime | None], None]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT: Final = timedelta(microseconds=1)

_logger: Final = logging.getLogger("mainspring.stores.postgres")


class Hint(NamedTuple):
    """What a transaction is to notify: `SELECT pg_notify(channel, payload)`."""

    channel: str
    payload: str


def channel_of(schema: str) -> str:
    """Name the channel of a schema's store: a plain word, however the schema is called."""
    return f"mainspring_{blake2b(schema.encode(), digest_size=6).hexdigest()}"


def payload_of(least: datetime | None) -> str:
    return "" if least is None else str((least - _EPOCH) // _MOMENT)


def least_of(payload: str) -> datetime | None:
    """Read a payload; one that is not ours says nothing."""
    try:
        return _EPOCH + int(payload) * _MOMENT if payload else None
    except (ValueError, OverflowError):
        return None


class Bells:
    """Whoever watches one store.

    `on_hint` is called for every hint, be it a commit of this process or what another sent, in any thread, before
    anybody is rung: with the least due time of what has become claimable, or None.
    """

    def __init__(self, settings: Settings, *, on_hint: OnHint, skew: Skew) -> None:
        self._settings = settings
        self._on_hint = on_hint
        self._skew = skew
        self._channel = channel_of(settings.schema)
        self._guard = threading.Lock()
        self._watchers: dict[object, Ring] = {}
        self._least: datetime | None = None
        self._without = False
        """What is to be sent: the least time, and whether there was something without one. Neither says the other."""
        self._hints_left = 0.0
        """Notifications that may be sent at once, as of that time; replenished over time."""
        self._counted_at = -math.inf
        self._post: Post | None = None
        _ALL.add(self)

    def watch(self, ring: Ring) -> Callable[[], None]:
        """Have `ring` called after commits, in any thread; returns how to end that."""
        watcher = object()
        with self._guard:
            self._watchers = {**self._watchers, watcher: ring}
        if self._settings.listen:
            self._awake().look()

        def end() -> None:
            with self._guard:
                self._watchers = {one: bell for one, bell in self._watchers.items() if one is not watcher}

        return end

    def committed(self, least: datetime | None) -> None:
        """Tell of a commit of this process: here at once, to other processes soon.

        With the least due time of what became claimable; None: something has only finished.
        """
        self._tell(least)
        with self._guard:
            is_first = not self.is_waiting
            self._add(least)
        if is_first:
            self._awake().look()

    def told(self, least: datetime | None) -> None:
        """Tell of a commit that has told other processes by itself."""
        self._tell(least)

    def hint(self, least: datetime | None = None, *, pause: float = PAUSE, burst: int = 1) -> Hint | None:
        """Return the notification of a transaction at its commit: one in `pause` seconds, and up to `burst` at once."""
        now = time.monotonic()
        with self._guard:
            self._hints_left = min(burst, self._hints_left + (now - self._counted_at) / pause)
            self._counted_at = now
            if self._hints_left < 1:
                return None
            self._hints_left -= 1
        return Hint(self._channel, payload_of(least))

    def hears(self) -> bool:
        """Say whether what other processes commit is heard here."""
        post = self._post
        return post is not None and post.hears

    async def close(self) -> None:
        """Send what is to be sent, if that goes soon, and end the thread. Nobody is rung any more."""
        with self._guard:
            self._watchers = {}
            post, self._post = self._post, None
        if post is not None:
            await post.stop()

    def after_fork(self) -> None:
        """Begin anew in a child: thread and connection stayed with the parent."""
        _LEFT_BEHIND.append(self._post)
        self._skew.after_fork()
        self._guard = threading.Lock()
        self._watchers = {}
        self._least, self._without = None, False
        self._post = None

    # For the thread that sends and hears.

    @property
    def channel(self) -> str:
        return self._channel

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    @property
    def is_waiting(self) -> bool:
        return self._without or self._least is not None

    def take(self) -> list[str]:
        with self._guard:
            least, without = self._least, self._without
            self._least, self._without = None, False
        return [*([] if least is None else [payload_of(least)]), *([payload_of(None)] if without else [])]

    def put_back(self, payloads: list[str]) -> None:
        with self._guard:
            for payload in payloads:
                self._add(least_of(payload))

    def came(self, payload: str) -> None:
        self._tell(least_of(payload))

    def missed(self) -> None:
        self._tell(_EPOCH)  # anything may have become claimable, due since whenever

    def _add(self, least: datetime | None) -> None:
        if least is None:
            self._without = True
        elif self._least is None or least < self._least:
            self._least = least

    def _tell(self, least: datetime | None) -> None:
        self._on_hint(least)
        for ring in self._watchers.values():
            try:
                ring()
            except Exception:  # what was committed is committed, whatever a listener makes of it
                _logger.exception("a watcher of the PostgreSQL store raised")

    def _awake(self) -> Post:
        with self._guard:
            if self._post is None:
                self._post = Post(self._settings, self, self._skew)
                self._post.start()
            return self._post


_ALL: Final["weakref.WeakSet[Bells]"] = weakref.WeakSet()
_LEFT_BEHIND: Final[list[Post | None]] = []
"""What a forked child has of its parent's: never to be closed or collected there."""


def _after_fork() -> None:
    for bells in tuple(_ALL):
        bells.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
