"""Ids of jobs: UUIDs of version 7, made by the caller, growing within a process.

The layout is that of RFC 9562: 48 bits of milliseconds, then 42 bits that count within one of them, then 32 of chance.
Each millisecond starts its count at a random place in the lower half, so that two processes do not count side by side.
A wall clock that stands still or is set back makes the count go on from where it was: ids of one process never fall.
"""

import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import count
from typing import Final
from uuid import UUID

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_COUNTS: Final = 1 << 42
_VERSION: Final = 7 << 76
_VARIANT: Final = 0b10 << 62
_LAST_MOMENT: Final = (1 << 48) - 1
_LOW: Final = (1 << 30) - 1
_DRIFT: Final = 60_000
"""Milliseconds by which an id may be ahead of the time at which its job was enqueued; one further ahead is a stranger's."""
_DRAWN: Final = 1024
"""Bytes of chance that are drawn at a time, for 256 ids: asking the system takes longer than all else but the UUID."""


class Ids:
    """One line of ids. Safe in any number of threads; a forked child begins a line of its own."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget what was counted; a lock that another thread held when the process was forked is replaced."""
        self._lock = threading.Lock()
        self._moment = -1
        self._count = 0
        self._chances: Iterator[int] = iter(())

    def next(self, now: datetime) -> UUID:
        moment = (now - _EPOCH) // _MILLISECOND
        if not 0 <= moment <= _LAST_MOMENT:
            moment = min(max(moment, 0), _LAST_MOMENT)
        with self._lock:
            if moment > self._moment:
                self._moment = moment
                self._count = int.from_bytes(os.urandom(6), "big") % (_COUNTS >> 1)
            else:
                self._count += 1
                if self._count == _COUNTS:  # half of all counts, 2 ** 41, within a millisecond: lend one from the next
                    self._moment += 1
                    self._count = 0
            moment, count = self._moment, self._count
            chance = next(self._chances, None)
            if chance is None:
                self._chances = iter(memoryview(os.urandom(_DRAWN)).cast("I"))
                chance = next(self._chances)
        return UUID(int=moment << 80 | _VERSION | (count >> 30) << 64 | _VARIANT | (count & _LOW) << 32 | chance)


class ClaimNumbers:
    """Numbers of 32 bits, in sequence from a random start. Safe in threads; a forked child begins at another start."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._numbers = count(int.from_bytes(os.urandom(4), "big"))

    def next(self) -> int:
        return next(self._numbers) & 0xFFFF_FFFF


_IDS: Final = Ids()
_CLAIMS: Final = ClaimNumbers()
if hasattr(os, "register_at_fork"):
    # A child that went on counting beside its parent would be told from it by 32 bits of chance only.
    os.register_at_fork(after_in_child=_IDS.begin)
    os.register_at_fork(after_in_child=_CLAIMS.begin)  # or both would use the same numbers


def new_id(now: datetime) -> UUID:
    """Make an id that is greater than every other one made in this process; `now` is the wall time."""
    return _IDS.next(now)


def new_claim_number() -> int:
    """Return the number of a claim: 32 bits, in sequence from a random start, so that a process uses none twice."""
    return _CLAIMS.next()


def heir(parent: UUID, born: datetime) -> UUID:
    """Make the id of what follows a job, always the same one; `born` is when that job was enqueued.

    Whoever makes it twice has made one thing. It is later than the job's own, or lists by id would be out of order.
    """
    made = (born - _EPOCH) // _MILLISECOND
    own = parent.int >> 80 if parent.version == 7 else made
    moment = min(max(made, min(own, made + _DRIFT)) + 1, _LAST_MOMENT)
    chance = int.from_bytes(blake2b(parent.bytes, digest_size=10).digest(), "big")
    high, low = (chance >> 62) & 0xFFF, chance & ((1 << 62) - 1)
    return UUID(int=moment << 80 | _VERSION | high << 64 | _VARIANT | low)


def ordered(name: str, number: int, born: datetime) -> UUID:
    """Make the id of what follows the thing of this name, always the same one; those of one moment sort by number.

    `number` counts what came one after the other, and `born` is when the thing was made.
    """
    moment = min(max((born - _EPOCH) // _MILLISECOND, 0), _LAST_MOMENT)
    chance = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") & ((1 << 54) - 1)
    count = (number & 0xFFFFF) << 54 | chance
    return UUID(int=moment << 80 | _VERSION | (count >> 62) << 64 | _VARIANT | count & ((1 << 62) - 1))


def number_in(id_: UUID) -> int:
    """Read the end of the number, its last 20 bits, of an id that `ordered` made; any other id has one by chance."""
    count = (id_.int >> 64 & 0xFFF) << 62 | id_.int & ((1 << 62) - 1)
    return count >> 54
