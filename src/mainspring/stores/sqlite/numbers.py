"""Numbers of jobs are given in the order in which they were enqueued, so that a time is soon found among them.

Where the clock was set back, jobs of a later number have an earlier time: what is found then is off by as much.
"""

from typing import Final

from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_BOUNDS: Final = statement("numbers_bounds")
_NEXT: Final = statement("numbers_next")


def given_since(session: Session, at: int) -> range:
    """Return the numbers that were given then or later, some of which may belong to nobody any more."""
    low: int | None
    last: int | None
    low, last = session.rows(_BOUNDS)[0]
    if low is None or last is None:
        return range(0)
    high = last + 1
    while low < high:
        middle = (low + high) // 2
        number, enqueued_at = session.rows(_NEXT, (middle,))[0]
        if enqueued_at < at:
            low = number + 1
        else:
            high = middle
    return range(low, last + 1)
