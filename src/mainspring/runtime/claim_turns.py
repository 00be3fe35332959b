"""Announcements of jobs for which this node has not claimed yet, each with the timer of its turn.

The rule is `core.turns`. An announcement is handled by a claim that began after it was received: if the claim left no due
job, other nodes need not claim for it. While the node is full, an announcement waits here until a place is free or another
node has taken its jobs.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, assert_never

from mainspring.core.job import NodeId
from mainspring.core.names import Name
from mainspring.core.turns import group_name, wave_delay_s, wave_number
from mainspring.stores.announcements import Announcements, JobsAnnounced, JobsTaken, Notice, OtherChange
from mainspring.stores.records import NodeRecord, NodeView
from mainspring.supervise import Notifier

HORIZON_S: Final = 2.0
"""Seconds ahead for which due times are remembered; later ones are read again by the poll once a second."""
MAX_PENDING: Final = 1000
"""Announcements that are remembered; beyond that all are dropped, and the node claims for every free place."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(slots=True)
class PendingAnnouncement:
    """An announcement and its turn."""

    jobs: int | None
    timer: asyncio.TimerHandle | None
    """None: the turn has come."""


class ClaimStart(NamedTuple):
    """Announcements that a claim handles, and what was known when it began."""

    keys: tuple[str, ...]
    jobs: int | None
    """How many jobs were announced; None: unknown."""
    was_drained: bool
    """The claim before left no due job."""


class ClaimTurns:
    """Announcements that wait for a claim of this node; used on its event loop, except `receive`."""

    def __init__(self, store: Announcements, *, now: Callable[[], datetime], wake: Notifier) -> None:
        self._store = store
        self._now = now
        self._wake = wake
        self._home: tuple[asyncio.AbstractEventLoop, int] | None = None
        """The event loop and its thread."""
        self._is_ended = False
        self._other_change: Callable[[], None] = lambda: None
        self._me = NodeId("")
        self._claimed: tuple[frozenset[Name], frozenset[str] | None] = frozenset(), None
        """Tasks and queues of this node, as other nodes read them."""
        self._group = ""
        self._peers: tuple[NodeId, ...] = ()
        self._pending: dict[str, PendingAnnouncement] = {}
        self._may_be_left = True
        """Whether the last claim may have left jobs that are due."""

    @property
    def is_reliable(self) -> bool:
        """Whether announcements of other processes arrive."""
        return self._store.receives_announcements

    @property
    def expects_jobs(self) -> bool:
        """Whether a claim may find something, as far as is known here."""
        turn_has_come = any(one.timer is None for one in self._pending.values())
        return self._may_be_left or turn_has_come or not self.is_reliable

    def subscribe(self, other_change: Callable[[], None]) -> Callable[[], None]:
        """Receive notices, those of jobs on the running loop; `other_change` is called in any thread."""
        self._home = asyncio.get_running_loop(), threading.get_ident()
        self._is_ended = False
        self._other_change = other_change
        unsubscribe = self._store.subscribe(self.receive, lambda: self._group)

        def end() -> None:
            unsubscribe()
            self._is_ended = True
            self._forget_all()

        return end

    def renewed(self, me: NodeId, nodes: Sequence[NodeView]) -> None:
        """Record the live nodes that claim the same as this one, as a renewal found them."""
        mine = next((view.node for view in nodes if view.node.id == me), None)
        self._me = me
        self._group, self._peers = "", ()
        if mine is not None:
            self._claimed = _claimed_by(mine)
            self._group = group_name(*self._claimed)
            self._peers = tuple(
                view.node.id for view in nodes if view.alive and _claimed_by(view.node) == self._claimed
            )

    def _wait(self, key: str, jobs: int | None = None, *, after: bool = False) -> float:
        """Return the seconds until the turn of this node; `after`: one wave later."""
        wave = wave_number(key, self._me, self._peers, jobs=jobs or 1)
        return wave_delay_s(wave + after)

    # Notifications.

    def receive(self, notice: Notice) -> None:
        """Handle a notification; may be called from any thread."""
        match notice:
            case OtherChange():
                self._other_change()
            case JobsAnnounced() | JobsTaken():
                if self._home is None or self._home[1] == threading.get_ident():
                    self._handle(notice)
                else:
                    with suppress(RuntimeError):  # the loop has been closed
                        self._home[0].call_soon_threadsafe(self._handle, notice)
            case _:
                assert_never(notice)

    def _handle(self, notice: JobsAnnounced | JobsTaken) -> None:
        if self._is_ended:  # a notification from another thread arrived after the end
            return
        if isinstance(notice, JobsAnnounced):
            self._announce(notice)
        elif notice.group == self._group:
            for key in notice.keys:
                self._forget(key)
            for at in notice.due_times:
                self.remember_due(at)

    def _announce(self, notice: JobsAnnounced) -> None:
        now = self._now()
        later = [at for at in notice.due_times if at > now]
        for at in later:
            self.remember_due(at)
        if len(later) == len(notice.due_times) and not notice.were_held_back:
            return
        if notice.local or notice.for_all_nodes:
            self._add(notice.key, notice.jobs, 0.0)
        else:
            sender_comes_first = bool(notice.group) and notice.group == self._group
            self._add(notice.key, notice.jobs, self._wait(notice.key, notice.jobs, after=sender_comes_first))

    def remember_due(self, at: datetime) -> None:
        """Claim when a waiting job is due; nodes that have read the same instant take turns."""
        key = f"@{(at - _EPOCH) // _MICROSECOND}"
        due_in = (at - self._now()).total_seconds()
        pending = self._pending.get(key)
        is_early = (
            pending is not None and pending.timer is None and due_in > 0
        )  # by the clock, the timer fired too soon
        if due_in <= HORIZON_S and (pending is None or is_early):
            self._add(key, None, max(0.0, due_in) + self._wait(key))

    def _add(self, key: str, jobs: int | None, wait: float) -> None:
        self._forget(key)
        if len(self._pending) >= MAX_PENDING:
            self._forget_all()
            self._may_be_left = True
        if wait > 0:
            timer = asyncio.get_running_loop().call_later(wait, self._start_turn, key)
            self._pending[key] = PendingAnnouncement(jobs, timer)
        else:
            self._pending[key] = PendingAnnouncement(jobs, None)
            self._wake.notify_one()

    def _start_turn(self, key: str) -> None:
        """Claim now: it is this node's turn."""
        if key in self._pending:
            self._pending[key].timer = None
            self._wake.notify_one()

    # Claims.

    def begin_claim(self) -> ClaimStart:
        """Return what a claim that begins now handles: all announcements of jobs that are due."""
        now = (self._now() - _EPOCH) // _MICROSECOND
        keys = tuple(key for key in self._pending if not key.startswith("@") or int(key[1:]) <= now)
        counts = [self._pending[key].jobs for key in keys]
        known = [count for count in counts if count is not None]
        jobs = sum(known) if known and len(known) == len(counts) else None
        start = ClaimStart(keys=keys, jobs=jobs, was_drained=not self._may_be_left)
        self._may_be_left = True  # also if the claim fails
        return start

    def skip_claim(self, start: ClaimStart) -> None:
        """Record that there was no room to claim: announcements wait for the next free place."""
        self._may_be_left = not start.was_drained

    def end_claim(
        self,
        start: ClaimStart,
        *,
        tasks: frozenset[Name],
        jobs: int,
        is_drained: bool,
        next_due: datetime | None = None,
    ) -> None:
        """Record the end of a claim of these tasks that got so many jobs; `is_drained`: the store has no more due ones.

        A claim that took as many jobs as were announced also left none, provided that the claim before had left none. The
        report contains `next_due`: nodes that receive it drop their turns, and would otherwise not read that due time
        before their next poll.
        """
        is_drained = is_drained or (start.was_drained and start.jobs is not None and jobs >= start.jobs)
        self._may_be_left = not is_drained
        known = [key for key in start.keys if key in self._pending]
        for key in known:
            if is_drained or self._pending[key].timer is None:
                self._forget(key)
        # Plugins may change the tasks between two renewals: a claim of fewer tasks does not cover those of the group.
        if is_drained and known and len(self._peers) > 1 and tasks == self._claimed[0]:
            due_times = () if next_due is None else (next_due,)
            self._store.report_taken(JobsTaken(group=self._group, keys=tuple(known), due_times=due_times))

    def _forget(self, key: str) -> None:
        pending = self._pending.pop(key, None)
        if pending is not None and pending.timer is not None:
            pending.timer.cancel()

    def _forget_all(self) -> None:
        for key in tuple(self._pending):
            self._forget(key)


def _claimed_by(node: NodeRecord) -> tuple[frozenset[Name], frozenset[str] | None]:
    """Return the tasks and queues of which a node claims jobs."""
    return node.tasks, None if node.queues is None else frozenset(node.queues)
