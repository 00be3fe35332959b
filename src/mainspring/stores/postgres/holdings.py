"""Jobs that a node holds, as recorded from the answers to its claims.

A renewal reads these by their ids. Times are not compared: a claim can become visible long after it was sent (its commit
waits for a synchronous standby), and the database's clock can be set back. A claim without an answer is found by a scan
of all running jobs of the node: when an answer is missing, after a gap between renewals, and every 30 s. The scan reads
the index entries of every job that the node has run since the oldest snapshot began, so it is limited to a twentieth of
the time. After a scan that failed the next one is due after a short pause.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from mainspring.core.job import JobId
from mainspring.stores.postgres.verb import Verb

T = TypeVar("T")

WHOLE_LOOK_INTERVAL_S: Final = 30.0
GAP_S: Final = 3.0
"""Between two renewals: twice the longest beat."""
_SCAN_PAUSE_FACTOR: Final = 20
_FAILED_LOOK_PAUSE_S: Final = 10.0
"""A renewal waits for its look: without a pause, looks that run into their timeout would delay every renewal."""


class Holdings:
    """The jobs of one node. Safe in any thread: a node claims on one loop and renews on another."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._added: dict[JobId, int] = {}
        """The jobs, each with the number of the renewal during which it was added."""
        self._renewal = 0
        self._renewed_at: float | None = None
        self._is_doubtful = False
        self._look_at = 0.0
        self._not_before = 0.0

    def add(self, jobs: Iterable[JobId]) -> None:
        """Add the jobs that a claim was answered with."""
        with self._guard:
            self._added.update(dict.fromkeys(jobs, self._renewal))

    def doubt(self) -> None:
        """Record that a claim was left without an answer."""
        self._is_doubtful = True

    def tried(self, verb: Callable[[], Verb[T]], on_failure: Callable[[], None]) -> Callable[[], Verb[T]]:
        """Wrap a claim: before each retry, record that the try before had no answer, and call `on_failure`."""
        calls = 0

        def call() -> Verb[T]:
            nonlocal calls
            calls += 1
            if calls > 1:
                self.doubt()
                on_failure()
            return verb()

        return call

    def begin_renewal(self, now: float) -> tuple[int, list[JobId], bool]:
        """Return the number of the renewal, the jobs to look up, and whether a look at all jobs is due."""
        with self._guard:
            number = self._renewal
            self._renewal += 1
            is_late = self._renewed_at is None or now - self._renewed_at > GAP_S
            self._renewed_at = now
            is_due = now >= self._look_at or self._is_doubtful or is_late
            return number, list(self._added), is_due and now >= self._not_before

    def begin_look(self) -> None:
        """Begin a look at all jobs: it finds the claims that were left without an answer up to now."""
        self._is_doubtful = False

    def end_look(self, now: float, took: float) -> None:
        """Plan the next look at all jobs, after one that took so many seconds."""
        self._look_at = now + WHOLE_LOOK_INTERVAL_S
        self._not_before = now + _SCAN_PAUSE_FACTOR * took

    def fail_look(self, now: float) -> None:
        """Plan the next look at all jobs, after one that failed."""
        self._is_doubtful = True
        self._not_before = now + _FAILED_LOOK_PAUSE_S

    def end_renewal(self, number: int, held: Iterable[JobId]) -> None:
        """Remove jobs that were not reported, except those added since the renewal began."""
        with self._guard:
            kept = {job: added for job, added in self._added.items() if added > number}
            self._added = dict.fromkeys(held, number) | kept
