"""Lanes: everything that decides whether a node may take a job, but for its due time and its key.

A lane's number is made of its parts, by everyone alike, so that nobody has to look it up or write it down, and no
enqueue waits for another that met the same lane first. That two lanes get one number is as good as impossible: with a
million lanes, one chance in thirty million.
"""

from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from mainspring.core.job import Job
from mainspring.core.names import Name


class Lane(NamedTuple):
    """The waiting jobs of one queue, task and priority, suspects apart: whatever holds back one of them holds back all."""

    queue: str
    task: Name
    priority: int
    suspect: bool = False

    @property
    def number(self) -> int:
        return _number(self)


@lru_cache(65_536)
def _number(lane: Lane) -> int:
    text = "\0".join((lane.queue, str(lane.task), str(lane.priority), str(int(lane.suspect))))
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def lane_of(job: Job) -> Lane:
    return Lane(job.queue, job.task, job.priority, job.is_suspect)
