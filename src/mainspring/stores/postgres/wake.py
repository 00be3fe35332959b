"""Notifications of commits: to watchers and nodes in this process, and by NOTIFY to other processes.

Commits of this process are reported directly. For other processes there is NOTIFY: sent after the commit and not within
it, where it takes a lock on the whole database; the first at once, then at most one every 20 ms, which stands for all
commits since the last. Reports of taken announcements have a limit of their own, so that neither delays the other. All of
it is a hint: nodes also poll. The payloads are in `payloads.py`.
"""

import itertools
import logging
import math
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from mainspring.stores.announcements import JobsAnnounced, JobsTaken, Notice, OtherChange
from mainspring.stores.postgres.payloads import (
    EPOCH,
    OTHER_CHANGE,
    Outgoing,
    Received,
    decode,
    encode_announcement,
    first_due_times,
)
from mainspring.stores.postgres.post import PAUSE, Post
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.skew import Skew

Ring: TypeAlias = Callable[[], None]
OnHint: TypeAlias = Callable[[datetime | None], None]

Listener: TypeAlias = Callable[[Notice], None]

_logger: Final = logging.getLogger("mainspring.stores.postgres")

_MAX_OWN_KEYS: Final = 1000
"""Own announcements that are remembered in order to ignore their notification when it comes back."""


class Hint(NamedTuple):
    """What a transaction is to notify: `SELECT pg_notify(channel, payload)`."""

    channel: str
    payload: str


def channel_of(schema: str) -> str:
    """Name the channel of a schema's store: a plain word, however the schema is called."""
    return f"mainspring_{blake2b(schema.encode(), digest_size=6).hexdigest()}"


class Bells:
    """Watchers and subscribers of one store.

    `on_hint` is called for every notification, be it of a commit of this process or of another one, in any thread, before
    any watcher or subscriber is called: with the least due time of the jobs that became claimable, or None.
    """

    def __init__(self, settings: Settings, *, on_hint: OnHint, skew: Skew) -> None:
        self._settings = settings
        self._on_hint = on_hint
        self._skew = skew
        self._channel = channel_of(settings.schema)
        self._guard = threading.Lock()
        self._watchers: dict[object, Ring] = {}
        self._subscribers: dict[object, tuple[Listener, Callable[[], str]]] = {}
        self._outgoing = Outgoing()
        self._sending = Outgoing()
        self._own_keys: dict[str, None] = {}
        """Keys of own announcements that were reported here already, and whose NOTIFY will come back."""
        self._keys = _new_keys()
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

    def subscribe(self, listener: Listener, group: Callable[[], str]) -> Callable[[], None]:
        """Have `listener` called with notices, in any thread; returns a function that ends this."""
        subscriber = object()
        with self._guard:
            self._subscribers = {**self._subscribers, subscriber: (listener, group)}
        if self._settings.listen:
            self._awake().look()

        def end() -> None:
            with self._guard:
                self._subscribers = {one: each for one, each in self._subscribers.items() if one is not subscriber}

        return end

    def committed(self, least: datetime | None) -> None:
        """Report a commit of this process that may have changed anything: here at once, to other processes soon.

        `least` is the earliest due time of the jobs that became claimable; None: no job did.
        """
        self._send(Received(None if least is None else self._announcement([least]), other_change=True))

    def announce_all_jobs(self) -> None:
        """Report a commit of this process after which any job may be claimable, however long it has been due."""
        self._send(Received(self._all_jobs(), other_change=True))

    def announce(
        self,
        due_times: Iterable[datetime],
        jobs: int | None,
        *,
        were_held_back: bool = False,
        other_change: bool = False,
    ) -> None:
        """Report that so many jobs became claimable; `were_held_back`: by a limit or a breaker, until now.

        Without `other_change`, nothing else changed.
        """
        announced = self._announcement(due_times, jobs, were_held_back=were_held_back)
        self._send(Received(announced, other_change=other_change))

    def report_ended(self) -> None:
        """Report ends of jobs that made nothing claimable."""
        self._send(Received())

    def told(self, hint: Hint) -> None:
        """Report a commit whose transaction has notified other processes by itself."""
        received = decode(hint.payload, local=True)
        if received.announced is not None and self.hears():
            with self._guard:
                if len(self._own_keys) >= _MAX_OWN_KEYS:  # their notifications did not come: nothing is received here
                    self._own_keys.clear()
                self._own_keys[received.announced.key] = None
        self._report(received)

    def report_taken(self, taken: JobsTaken) -> None:
        """Report that the jobs of announcements are taken."""
        self._notify(taken)
        with self._guard:
            self._outgoing.report_taken(taken)
        self._awake().look()

    def hint(
        self,
        due_times: Collection[datetime] = (),
        *,
        jobs: int | None = None,
        other_change: bool = True,
        pause: float = PAUSE,
        burst: int = 1,
    ) -> Hint | None:
        """Return the notification of a transaction at its commit: one in `pause` seconds, and up to `burst` at once.

        Without `other_change`, the transaction changes nothing but these jobs.
        """
        now = time.monotonic()
        with self._guard:
            self._hints_left = min(burst, self._hints_left + (now - self._counted_at) / pause)
            self._counted_at = now
            if self._hints_left < 1:
                return None
            self._hints_left -= 1
        if not due_times:
            return Hint(self._channel, OTHER_CHANGE)
        return Hint(self._channel, encode_announcement(self._announcement(due_times, jobs), other_change=other_change))

    def hears(self) -> bool:
        """Return whether notifications of other processes are received here."""
        post = self._post
        return post is not None and post.hears

    async def close(self) -> None:
        """Send what is to be sent, if that goes soon, and end the thread. Nobody is rung any more."""
        with self._guard:
            self._watchers, self._subscribers = {}, {}
            post, self._post = self._post, None
        if post is not None:
            await post.stop()

    def after_fork(self) -> None:
        """Begin anew in a child: thread and connection stayed with the parent."""
        _LEFT_BEHIND.append(self._post)
        self._skew.after_fork()
        self._guard = threading.Lock()
        self._watchers, self._subscribers = {}, {}
        self._outgoing, self._own_keys = Outgoing(), {}
        self._keys = _new_keys()
        self._post = None

    # For the thread that sends and hears.

    @property
    def channel(self) -> str:
        return self._channel

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers or self._subscribers)

    @property
    def is_waiting(self) -> bool:
        return self._outgoing.is_waiting

    @property
    def has_changes(self) -> bool:
        return self._outgoing.has_changes

    @property
    def is_urgent(self) -> bool:
        return bool(self._outgoing.taken)

    def take(self) -> list[str]:
        with self._guard:
            self._sending, self._outgoing = self._outgoing, Outgoing()
        return self._sending.payloads(self._skew.now())

    def put_back(self) -> None:
        with self._guard:
            self._sending.merge(self._outgoing)
            self._outgoing = self._sending

    def came(self, payload: str) -> None:
        received = decode(payload)
        if received.announced is not None and received.announced.key in self._own_keys:
            with self._guard:
                self._own_keys.pop(received.announced.key, None)
            return
        self._report(received)

    def missed(self) -> None:
        self._report(Received(self._all_jobs(), other_change=True))

    def _all_jobs(self) -> JobsAnnounced:
        return self._announcement([EPOCH], for_all_nodes=True)

    def _announcement(
        self,
        due_times: Iterable[datetime],
        jobs: int | None = None,
        *,
        were_held_back: bool = False,
        for_all_nodes: bool = False,
    ) -> JobsAnnounced:
        groups = [group() for _, group in self._subscribers.values()]
        return JobsAnnounced(
            key=next(self._keys),
            due_times=first_due_times(due_times, self._skew.now()),
            were_held_back=were_held_back,
            jobs=jobs,
            for_all_nodes=for_all_nodes,
            local=True,
            group=groups[0] if groups else "",
        )

    def _send(self, change: Received) -> None:
        """Report a commit here at once, and have it sent."""
        self._report(change)
        with self._guard:
            is_first = not self._outgoing.is_waiting
            if change.announced is not None:
                self._outgoing.announce(change.announced)
            self._outgoing.other_change |= change.other_change
            self._outgoing.ended |= change.announced is None and not change.other_change
        if is_first:
            self._awake().look()

    def _report(self, received: Received) -> None:
        """Call the listeners in this process that a notification concerns."""
        if received.taken is not None:
            self._notify(received.taken)
            return
        announced = received.announced
        self._on_hint(announced.due_times[0] if announced is not None and announced.due_times else None)
        if announced is not None:
            self._notify(announced)
        if received.other_change:
            self._notify(OtherChange())
        for ring in self._watchers.values():
            try:
                ring()
            except Exception:  # what was committed is committed, whatever a listener makes of it
                _logger.exception("a watcher of the PostgreSQL store raised")

    def _notify(self, notice: Notice) -> None:
        for listener, _ in self._subscribers.values():
            try:
                listener(notice)
            except Exception:  # as above
                _logger.exception("a subscriber of the PostgreSQL store raised")

    def _awake(self) -> Post:
        with self._guard:
            if self._post is None:
                self._post = Post(self._settings, self, self._skew)
                self._post.start()
            return self._post


def _new_keys() -> Iterator[str]:
    """Return keys of announcements that no other process uses."""
    process = secrets.token_hex(4)
    return (f"{process}{number:x}" for number in itertools.count())


_ALL: Final["weakref.WeakSet[Bells]"] = weakref.WeakSet()
_LEFT_BEHIND: Final[list[Post | None]] = []
"""What a forked child has of its parent's: never to be closed or collected there."""


def _after_fork() -> None:
    for bells in tuple(_ALL):
        bells.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
