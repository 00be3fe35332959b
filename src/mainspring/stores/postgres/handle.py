"""What the verbs of a PostgreSQL store are carried out by: its connections, what it remembers, and whom it tells."""

import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Final, TypeVar
from uuid import UUID

from mainspring.clock import Clock, SystemClock
from mainspring.core.job import WAITING, NodeId
from mainspring.core.limits import Scope
from mainspring.duration import Duration, seconds
from mainspring.errors import DeclarationError
from mainspring.stores.announcements import JobsTaken, Notice
from mainspring.stores.postgres import gates, log, nodes, partitions
from mainspring.stores.postgres.claim_cache import ClaimCache
from mainspring.stores.postgres.connections import Connections
from mainspring.stores.postgres.head import Head
from mainspring.stores.postgres.holdings import Holdings
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.skew import Skew
from mainspring.stores.postgres.transaction import PostgresTransaction
from mainspring.stores.postgres.verb import Verb
from mainspring.stores.postgres.wake import Bells, Hint
from mainspring.stores.records import NewJob, Settlement

T = TypeVar("T")

SYSTEM_CLOCK: Final = SystemClock()
HINTS_AT_ONCE: Final = 5
"""User transactions that may notify in a burst before the rate limit of one in 20 ms applies."""


class Handle:
    """A schema of a database that may be opened and closed."""

    def __init__(
        self,
        dsn: str,
        *,
        clock: Clock = SYSTEM_CLOCK,
        schema: str = "mainspring",
        connections: int = 5,
        timeout: Duration = "5s",
        patience: Duration = "10s",
        listen: bool = True,
        listen_dsn: str | None = None,
        notify: bool = True,
    ) -> None:
        self._settings = Settings(
            dsn=dsn,
            clock=clock,
            schema=schema,
            own_time=not isinstance(clock, SystemClock),
            connections=connections,
            timeout=seconds(timeout),
            patience=seconds(patience),
            listen=listen,
            listen_dsn=listen_dsn,
            notify=notify,
        )
        self._identity = UUID(int=0)
        self._claim_cache = ClaimCache()
        self._head = Head()
        self._marks = log.Marks()
        self._pace = partitions.Pace()
        self._woken_until = gates.FIRST_KEY
        self._settled: dict[int, str] = {}  # by line of an outbox: `outboxes.Look.settled`
        self._holdings: dict[NodeId, Holdings] = {}
        self._records: nodes.Records = {}
        self._skew = Skew(self._settings)
        self._connections = Connections(self._settings)
        self._bells = Bells(self._settings, on_hint=self._hinted, skew=self._skew)
        self._claim_cache.hears = self._bells.hears
        self._claim_cache.now = self.now
        _ALL.add(self)

    def after_fork(self) -> None:
        """Reset the state in a forked child; connections and notifications reset themselves."""
        self._claim_cache.after_fork()
        self._head.after_fork()

    def now(self) -> datetime:
        return self._skew.now()

    @property
    def _at(self) -> datetime | None:
        """What to tell the database about the time: nothing, unless a test's clock gives it."""
        return self._settings.clock.now() if self._settings.own_time else None

    async def _run(self, verb: Callable[[], Verb[T]], *, whole: bool = False, again: bool = True) -> T:
        return await self._connections.run(verb, whole=whole, again=again)

    def _hinted(self, least: datetime | None) -> None:
        self._claim_cache.announced(least)
        self._head.pull(least)

    def subscribe(self, listener: Callable[[Notice], None], group: Callable[[], str]) -> Callable[[], None]:
        """As `Announcements` says."""
        self._connections.must_be_open()
        return self._bells.subscribe(listener, group)

    def report_taken(self, taken: JobsTaken) -> None:
        if self._connections.is_open:
            self._bells.report_taken(taken)

    @property
    def receives_announcements(self) -> bool:
        return self._bells.hears()

    def _enqueued(self, new: Sequence[NewJob], due_times: AbstractSet[datetime]) -> None:
        """Announce jobs that were enqueued, and nothing else."""
        if self._connections.is_open:
            self._bells.announce(due_times, len(new))

    def _settled_changes(self, written: Sequence[Settlement]) -> None:
        """Report changes of jobs: announce what became claimable by them."""
        if not written or not self._connections.is_open:
            return
        changes = [one.change for one in written]
        again = [change.after for change in changes if change.after is not None and change.after.state in WAITING]
        waiting = [job.run_at for job in again]
        frees = self._may_free(written)
        if any(job.is_suspect for job in again):
            self._claim_cache.suspects = True
        of_schedule = any(change.before.of_schedule for change in changes)  # a slot may wait for the end of its run
        if waiting or frees:
            jobs = None if frees else len(waiting)
            self._bells.announce(waiting, jobs, were_held_back=frees, other_change=of_schedule)
        elif of_schedule:
            self._bells.committed(None)
        else:
            self._bells.report_ended()

    def _may_free(self, written: Iterable[Settlement]) -> bool:
        """Return whether these ends may have freed a place of a limit, or closed a breaker."""
        rules = self._claim_cache.rules
        if rules.version == 0 or any(one.term is not None for one in written):  # not read yet, or has a breaker
            return True
        if not rules.gates:
            return False
        jobs = [one.change.before for one in written]
        limited = {(scope, str(job.task)) for job in jobs for scope in (Scope.TASK, Scope.KEY)}
        return not rules.gates.keys().isdisjoint(limited | {(Scope.QUEUE, job.queue) for job in jobs})

    def _committed(self, least: datetime | None) -> None:
        """Tell everyone that something may be claimed, due since `least` at the earliest; None: it has only finished."""
        if self._connections.is_open:  # else the thread that tells would be started again, and nobody would end it
            self._bells.committed(least)

    def _since(self, new: Sequence[NewJob]) -> datetime:
        """Since when the first of these is due."""
        return min(self._due_times(new))

    def _due_times(self, new: Sequence[NewJob]) -> set[datetime]:
        """Return when these are due.

        Call it before the transaction that enqueues them: positions advance until its commit.
        """
        now = self.now()
        return {when if isinstance(when, datetime) else now + when for when in {job.run_at for job in new}}

    def _hint(self, least: datetime) -> Hint | None:
        """Return the notification of a user's transaction, due now at the latest: positions move on before it commits."""
        return self._users_hint(min(self.now(), least))

    def _users_hint(self, least: datetime | None) -> Hint | None:
        """Return the notification of a user's own transaction; None if another one was sent a moment ago.

        PostgreSQL commits transactions that notify one after the other, and prepares none for a two-phase commit.
        """
        due_times = () if least is None else (least,)
        return self._bells.hint(due_times, burst=HINTS_AT_ONCE) if self._settings.notify else None

    def _own(self, transaction: PostgresTransaction) -> PostgresTransaction:
        if not transaction.is_on(self._settings):
            raise DeclarationError("tx", f"it is a transaction of another store, and not of {self._settings.store}")
        return transaction

    def _opened_up(self) -> None:
        """Report that jobs which were held back may be claimable, however long they have been due."""
        self._claim_cache.positions.forget()
        if self._connections.is_open:
            self._bells.announce_all_jobs()


_ALL: Final["weakref.WeakSet[Handle]"] = weakref.WeakSet()


def _after_fork() -> None:
    for handle in tuple(_ALL):
        handle.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
