"""Named leases. Their terms come from one count for all of them, so that a lock that was pruned does not begin again."""

from datetime import timedelta
from typing import Final

from mainspring.core.limits import CLOCK_STEP
from mainspring.stores.records import Lock
from mainspring.stores.sqlite.rows import instant, span_micros, when_micros
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_FIND: Final = statement("lock_find")
_NEXT_TERM: Final = statement("lock_next_term")
_SET: Final = statement("lock_set")
_EXTEND: Final = statement("lock_extend")
_RESIGN: Final = statement("lock_resign")
_CLOCK_STEP: Final = span_micros(CLOCK_STEP)


def acquire(session: Session, name: str, holder: str, ttl: timedelta) -> Lock | None:
    """Take a lock that is free or expired, or the holder's own.

    Another holder's lock that was granted while the clock was ahead expires one ttl from now: it is refused until then.
    """
    now, expires_at = session.now, when_micros(ttl, session.now)
    found = session.row(_FIND, (name,))
    if found is None:
        (term,) = session.rows(_NEXT_TERM)[0]
    else:
        owner, term, until, granted_at = found
        is_ahead = granted_at is not None and now + _CLOCK_STEP < granted_at < until
        if owner == holder:
            expires_at = expires_at if is_ahead else max(expires_at, until)
        elif is_ahead:
            session.run(_SET, (name, owner, term, now + until - granted_at, now))
            return None
        elif until > now:
            return None
        else:
            (term,) = session.rows(_NEXT_TERM)[0]
    session.run(_SET, (name, holder, term, expires_at, now))
    return Lock(name=name, holder=holder, term=term, expires_at=instant(expires_at))


def extend(session: Session, lock: Lock, ttl: timedelta) -> Lock | None:
    """Keep a lock for longer, if nobody else has taken it."""
    expires_at = when_micros(ttl, session.now)
    if not session.run(_EXTEND, (expires_at, session.now, lock.name, lock.holder, lock.term)):
        return None
    return Lock(name=lock.name, holder=lock.holder, term=lock.term, expires_at=instant(expires_at))


def resign(session: Session, lock: Lock) -> bool:
    resigned = bool(session.run(_RESIGN, (lock.name, lock.holder, lock.term)))
    session.woke = session.woke or resigned
    return resigned
