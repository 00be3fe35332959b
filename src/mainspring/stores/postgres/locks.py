"""Named leases. Their terms come from one sequence for all of them, so that a lock that was pruned does not begin again."""

from datetime import datetime, timedelta
from typing import Final

from mainspring.core.limits import CLOCK_STEP
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Verb
from mainspring.stores.records import Lock

_ACQUIRE: Final = statement("lock_acquire")
_EXTEND: Final = statement("lock_extend")
_RESIGN: Final = statement("lock_resign")


def acquire(at: datetime | None, name: str, holder: str, ttl: timedelta) -> Verb[Lock | None]:
    """Take a lock that is free or expired, or the holder's own.

    Another holder's lock that was granted while the clock was ahead expires one ttl from now: it is refused until then.
    """
    rows = yield Ask(_ACQUIRE, (at, name, holder, ttl, CLOCK_STEP))
    if not rows or rows[0][2] != holder:
        return None
    term, expires_at, _ = rows[0]
    return Lock(name=name, holder=holder, term=term, expires_at=expires_at)


def extend(at: datetime | None, lock: Lock, ttl: timedelta) -> Verb[Lock | None]:
    """Keep a lock for longer, if nobody else has taken it."""
    kept = yield Ask(_EXTEND, (at, lock.name, lock.holder, lock.term, ttl))
    return Lock(name=lock.name, holder=lock.holder, term=lock.term, expires_at=kept[0][0]) if kept else None


def resign(at: datetime | None, lock: Lock) -> Verb[bool]:
    return bool((yield Ask(_RESIGN, (at, lock.name, lock.holder, lock.term))))
