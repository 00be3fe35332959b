"""Which unique keys are taken, by whom and until when."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from mainspring.core.job import JobId
from mainspring.core.names import Name
from mainspring.core.unique import is_taken
from mainspring.stores.memory.turns import Turns
from mainspring.stores.records import JobView

UniqueName: TypeAlias = tuple[Name, str]
"""A key within its task."""


@dataclass(slots=True)
class Hold:
    """What a job has of its key."""

    job: JobId
    active: bool
    taken_until: datetime | None

    def is_taken(self, now: datetime) -> bool:
        return is_taken(active=self.active, taken_until=self.taken_until, now=now)


class Uniques:
    """The keys, apart from the jobs: a period may be longer than the time for which a finished job is kept."""

    def __init__(self) -> None:
        self._holds: dict[UniqueName, Hold] = {}
        self._ending: Turns[UniqueName] = Turns()  # those of finished jobs, by the end of their period

    def taken_by(self, name: UniqueName, now: datetime) -> JobId | None:
        hold = self._holds.get(name)
        return hold.job if hold and hold.is_taken(now) else None

    def take(self, view: JobView) -> None:
        """Give a job that has become active its key; who had it before has it no longer."""
        if view.unique:
            name = view.job.task, view.unique.key
            self._ending.drop(name)
            self._holds[name] = Hold(view.job.id, active=True, taken_until=view.unique.taken_until(view.enqueued_at))

    def finish(self, view: JobView, now: datetime) -> None:
        """Free the key of a job that has finished, at once or at the end of its period."""
        if (name := self._name(view)) is None:
            return
        hold = self._holds[name]
        hold.active = False
        if hold.taken_until and hold.is_taken(now):
            self._ending.put(name, (hold.taken_until, hold.job.int))
        else:
            self._free(name)

    def forget(self, view: JobView) -> None:
        """Free the key of a job that an operator deletes, whatever its period says."""
        if name := self._name(view):
            self._free(name)

    def prune(self, limit: int, now: datetime) -> int:
        """Forget keys whose period has ended, at most so many; returns how many."""
        pruned = 0
        while pruned < limit and (first := self._ending.first()) and first[0][0] <= now:
            self._free(first[1])
            pruned += 1
        return pruned

    def _name(self, view: JobView) -> UniqueName | None:
        """Name the key that a job has now, which another may have taken since."""
        name = (view.job.task, view.unique.key) if view.unique else None
        hold = self._holds.get(name) if name else None
        return name if hold and hold.job == view.job.id else None

    def _free(self, name: UniqueName) -> None:
        self._ending.drop(name)
        del self._holds[name]
