"""Lanes: (task, queue, priority, care), the few rows that determine which nodes may claim the jobs behind them.

They are permanent, so whoever has read one from a committed transaction may remember it for ever. What was made or read
in one that may yet be rolled back is remembered only within it: its number may go to another lane later.

A lane whose row was damaged is closed to claims, which read it again until it is corrected; it affects no other lane.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol

from mainspring.core.job import Job, is_last_chance
from mainspring.core.names import Name
from mainspring.errors import StoreError
from mainspring.stores.records import ClaimRequest, NewJob
from mainspring.stores.sqlite.statements import statement

_BY_ID: Final = statement("lane_by_id")
_FIND: Final = statement("lane_find")
_ADD: Final = statement("lane_add")
_SINCE: Final = statement("lanes_since")
_MAX_REQUESTS: Final = 64
_logger: Final = logging.getLogger("mainspring.stores.sqlite")


class Executes(Protocol):
    """Whatever runs a statement and gives back its rows."""

    store: str

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]: ...


class Care(IntEnum):
    """How jobs are claimed, as it is stored in the column `suspect`."""

    NONE = 0
    SUSPECT = 1
    LAST_CHANCE = 2
    """A loss would end them; they are not suspects."""

    @classmethod
    def of(cls, job: Job) -> "Care":
        if job.is_suspect:
            return cls.SUSPECT
        return cls.LAST_CHANCE if job.is_last_chance else cls.NONE

    @classmethod
    def of_new(cls, job: NewJob) -> "Care":
        last = is_last_chance(attempts=job.max_attempts, losses=job.loss_limit)
        return cls.LAST_CHANCE if last else cls.NONE


class Lane(NamedTuple):
    """What decides whether a node may take a job, but for its due time and its key."""

    id: int
    task: Name
    queue: str
    priority: int
    care: Care

    @property
    def suspect(self) -> bool:
        return self.care is Care.SUSPECT

    def is_named_by(self, request: ClaimRequest) -> bool:
        """Return whether a request names its task and queue."""
        if self.task not in request.tasks:
            return False
        return request.queues is None or request.others or self.queue in request.queues


@dataclass(slots=True)
class RequestLanes:
    """The lanes of the tasks and queues of a claim request, and how such requests scan for jobs."""

    lanes: list[Lane] = field(default_factory=list)
    read_to: int = 0
    claims_by_lane: int = 0
    """How many more claims scan by lane, because the claim order was full of jobs that they may not take."""


@dataclass(slots=True)
class Known:
    """Lanes that were read."""

    by_id: dict[int, Lane] = field(default_factory=dict)
    by_place: dict[tuple[Name, str, int, Care], Lane] = field(default_factory=dict)
    read_to: int = 0
    """All lanes up to this number were read."""
    unreadable: set[int] = field(default_factory=set)
    """Those of them that could not be; claims that scan by lane read them again."""
    reported: set[int] = field(default_factory=set)
    """Lanes that were logged as unreadable."""
    of_requests: dict[tuple[object, ...], RequestLanes] = field(default_factory=dict)

    def add(self, lane: Lane) -> None:
        self.by_id[lane.id] = self.by_place[lane.task, lane.queue, lane.priority, lane.care] = lane

    def of_request(self, request: ClaimRequest) -> RequestLanes:
        queues = None if request.queues is None or request.others else frozenset(request.queues)
        if any(number in self.by_id for number in self.unreadable):
            self.unreadable.difference_update(self.by_id)
            self.of_requests.clear()
        found = self.of_requests.get((request.tasks, queues))
        if found is None:
            if len(self.of_requests) >= _MAX_REQUESTS:
                self.of_requests.clear()
            found = self.of_requests[request.tasks, queues] = RequestLanes()
        if found.read_to < self.read_to:
            lanes = tuple(self.by_id.values())  # readers add to it in other threads
            found.lanes = [lane for lane in lanes if lane.id <= self.read_to and lane.is_named_by(request)]
            found.read_to = self.read_to
        return found


class Lanes:
    """The lanes that one transaction knows: those that all know, and what it learns itself."""

    def __init__(self, common: Known) -> None:
        self._common = common
        self._learnt = Known()

    def keep(self) -> None:
        """Tell everyone what was learnt: the transaction has been committed."""
        for lane in self._learnt.by_id.values():
            self._common.add(lane)
        if self._learnt.read_to:  # only in the writer's thread
            self._common.read_to = max(self._common.read_to, self._learnt.read_to)
            self._common.unreadable |= self._learnt.unreadable

    def forget(self) -> None:
        """Unlearn: what was learnt may have been rolled back."""
        self._learnt = Known()

    def get(self, source: Executes, number: int) -> Lane:
        found = self._common.by_id.get(number) or self._learnt.by_id.get(number)
        if found:
            return found
        rows = source.rows(_BY_ID, (number,))
        if not rows:
            raise StoreError(
                source.store, f"there are jobs in lane {number}, and there is no such lane: it was deleted"
            )
        return self._learn(number, rows[0])

    def get_readable(self, source: Executes, number: int) -> Lane | None:
        """Return a lane, or None if its row is missing or cannot be read, which is logged once."""
        try:
            return self.get(source, number)
        except (StoreError, ValueError) as error:
            self._report(source, number, error)
            return None

    def rank(self, source: Executes, number: int) -> int:
        """Return the rank of claimable jobs in a lane, as far as it can be read."""
        lane = self.get_readable(source, number)
        if lane is not None:
            return -lane.priority
        rows = source.rows(_BY_ID, (number,))
        return -rows[0][2] if rows and isinstance(rows[0][2], int) else 0

    def find(self, source: Executes, task: Name, queue: str, priority: int, care: Care) -> Lane:
        """Return the lane, made if it was not there."""
        place = (task, queue, priority, care)
        found = self._common.by_place.get(place) or self._learnt.by_place.get(place)
        if found:
            return found
        values = (str(task), queue, priority, int(care))
        rows = source.rows(_FIND, values) or source.rows(_ADD, values)
        return self._learn(rows[0][0], values)

    def of_request(self, source: Executes, request: ClaimRequest) -> list[Lane]:
        """Return all lanes of the tasks and queues of a request, those that other processes have added too."""
        common, learnt = self._common, self._learnt
        for number, *values in source.rows(_SINCE, (max(common.read_to, learnt.read_to),)):
            try:
                self._learn(number, tuple(values))
            except ValueError as error:
                learnt.unreadable.add(number)
                self._report(source, number, error)
            learnt.read_to = max(learnt.read_to, number)
        known = common.of_request(request).lanes
        for number in common.unreadable:
            self.get_readable(source, number)
        return known + [
            lane
            for lane in learnt.by_id.values()
            if (lane.id > common.read_to or lane.id in common.unreadable) and lane.is_named_by(request)
        ]

    def consume_lane_scan(self, request: ClaimRequest) -> bool:
        """Return whether a claim scans by lane at once, and count it: to be called once for each claim.

        Claims of a node with queues of its own always do.
        """
        if request.queues is not None and not request.others:
            return True
        known = self._common.of_request(request)
        if known.claims_by_lane:
            known.claims_by_lane -= 1
            return True
        return False

    def prefer_lane_scan(self, request: ClaimRequest, claims: int) -> None:
        """Let the next claims like this one scan by lane."""
        self._common.of_request(request).claims_by_lane = claims

    def _learn(self, number: int, values: tuple[Any, ...]) -> Lane:
        """Remember a lane for this transaction. Raises ValueError if its row cannot be read."""
        task, queue, priority, care = values
        if not (isinstance(task, str) and isinstance(queue, str) and isinstance(priority, int)):
            raise ValueError("a column of the lane has a value of another type")  # noqa: TRY004 -- as for a value that is not valid
        lane = Lane(number, Name.parse(task), queue, priority, Care(care))
        self._learnt.add(lane)
        return lane

    def _report(self, source: Executes, number: int, error: Exception) -> None:
        if number in self._common.reported:
            return
        self._common.reported.add(number)
        _logger.error(
            "%s: lane %d cannot be read, and its jobs are not claimed (%s); correct its row in the table mainspring_lanes",
            source.store,
            number,
            error.problem if isinstance(error, StoreError) else error,
        )
