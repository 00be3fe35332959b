"""Named leases. Their terms come from one count for all of them, so that a lock that was pruned does not begin again."""

from datetime import timedelta
from typing import Final

from mainspring.stores.records import Lock
from mainspring.stores.sqlite.rows import instant, when_micros
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_FIND: Final = statement("lock_find")
_NEXT_TERM: Final = statement("lock_next_term")
_SET: Final = statement("lock_set")
_EXTEND: Final = statement("lock_extend")
_RESIGN: Final = statement("lock_resign")


def acquire(session: Session, name: str, holder: str, ttl: timedelta) -> Lock | None:
    """Take a lock that is free or expired, or the holder's own."""
    expires_at = when_micros(ttl, session.now)
    found = session.row(_FIND, (name,))
    if found is not None and found[0] == holder:
        _, term, until = found
        expires_at = max(expires_at, until)
    elif found is not None and found[2] > session.now:
        return None
    else:
        (term,) = session.rows(_NEXT_TERM)[0]
    session.run(_SET, (name, holder, term, expires_at))
    return Lock(name=name, holder=holder, term=term, expires_at=instant(expires_at))


def extend(session: Session, lock: Lock, ttl: timedelta) -> Lock | None:
    """Keep a lock for longer, if nobody else has taken it."""
    expires_at = when_micros(ttl, session.now)
    if not session.run(_EXTEND, (expires_at, lock.name, lock.holder, lock.term)):
        return None
    return Lock(name=lock.name, holder=lock.holder, term=lock.term, expires_at=instant(expires_at))


def resign(session: Session, lock: Lock) -> bool:
    resigned = bool(session.run(_RESIGN, (lock.name, lock.holder, lock.term)))
    session.woke = session.woke or resigned
    return resigned
