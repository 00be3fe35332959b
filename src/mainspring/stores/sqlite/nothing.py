"""Remembers that there was nothing to be claimed: the same question has the same answer until somebody rings.

Whatever could give a claim more than it got is a commit that rings, or the time that the claim itself has named. So an
idle node that asks every second costs the file a look at its data version, and nothing else.
"""

import sqlite3
from datetime import datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from mainspring.core.job import NodeId
from mainspring.core.names import Name
from mainspring.stores.records import Claimed, ClaimRequest
from mainspring.stores.sqlite.statements import statement

_RINGS: Final = statement("rings")


class Rings:
    """The count of rings, as one connection sees it; read only when another connection has committed something."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection: Final = connection
        self._version: int | None = None
        self._count = 0

    def count(self) -> int:
        (version,) = self.connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            (self._count,) = self.connection.execute(_RINGS).fetchone()
            self._version = version
        return self._count

    def own(self, count: int) -> None:
        """Take note of a ring of this very connection, which does not change the data version that it sees."""
        self._count = count


class _Answer(NamedTuple):
    request: ClaimRequest
    claimed: Claimed
    rings: int
    at: datetime


class Nothing:
    """The last empty answer for each node of this process, and for each set of tasks that it asks for. Belongs to the writer's thread."""

    def __init__(self) -> None:
        self._answers: dict[tuple[NodeId, frozenset[Name]], _Answer] = {}

    def remember(self, request: ClaimRequest, claimed: Claimed, rings: int, at: datetime) -> None:
        if claimed.deliveries:
            self._answers.pop((request.node, request.tasks), None)
        else:
            self._answers[request.node, request.tasks] = _Answer(_question(request), claimed, rings, at)

    def still(self, request: ClaimRequest, rings: int, now: datetime) -> Claimed | None:
        """Return the answer that this question had, if nothing can have changed since."""
        last = self._answers.get((request.node, request.tasks))
        if last is None or last.rings != rings or last.request != _question(request):
            return None
        if now < last.at:  # the clock was set back, which a breaker that is open has to know
            return None
        due = last.claimed.next_due
        return last.claimed if due is None or due > now else None


def _question(request: ClaimRequest) -> ClaimRequest:
    """Return the request without its number, which is new for each claim and decides nothing about an empty answer."""
    return replace(request, number=0)
