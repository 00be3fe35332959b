"""Lanes: everything that decides whether a node may take a job, but for its due time and its key.

A lane's number is made of its parts, by everyone alike, so that nobody has to look it up or write it down, and no
enqueue waits for another that met the same lane first. That two lanes get one number is as good as impossible: with a
million lanes, one chance in thirty million.
"""

from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from mainspring.core.job import Job, is_last_chance
from mainspring.core.names import Name
from mainspring.stores.records import NewJob


class Lane(NamedTuple):
    """The waiting jobs of one queue, task and priority, suspects and other last chances apart.

    Whatever holds back one of them holds back all.
    """

    queue: str
    task: Name
    priority: int
    suspect: bool = False
    last: bool = False
    """A loss would end its jobs, which are not suspects."""

    @property
    def is_last_chance(self) -> bool:
        """Whether its jobs are claimed only if they can start at once."""
        return self.suspect or self.last

    @property
    def number(self) -> int:
        return _number(self)


@lru_cache(65_536)
def _number(lane: Lane) -> int:
    text = "\0".join(
        (lane.queue, str(lane.task), str(lane.priority), "1" if lane.suspect else "2" if lane.last else "0")
    )
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def lane_of(job: Job) -> Lane:
    suspect = job.is_suspect
    return Lane(job.queue, job.task, job.priority, suspect, not suspect and job.is_last_chance)


def lane_of_new(job: NewJob) -> Lane:
    last = is_last_chance(attempts=job.max_attempts, losses=job.loss_limit)
    return Lane(job.queue, job.task, job.priority, last=last)
