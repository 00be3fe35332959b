"""Trying again while somebody else has a lock.

Always at random: SQLite's own busy handler, where all wait for the same times, gave two of four processes nothing at
all. The first pauses are short, because most locks are held for a millisecond or two.
"""

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from mainspring.stores.sqlite.trouble import is_busy

T = TypeVar("T")

SHORTEST: Final = 0.001
LONGEST: Final = 0.016


def pauses() -> Iterator[float]:
    """How long to wait before each further try, in seconds."""
    highest = SHORTEST
    while True:
        yield random.uniform(0, highest)  # noqa: S311 -- no secret
        highest = min(2 * highest, LONGEST)


def persist(step: Callable[[], T], patience: float) -> T:
    """Do it as often as somebody is in the way; raises SQLite's own error after `patience` seconds."""
    give_up_at = time.monotonic() + patience
    for pause in pauses():
        try:
            return step()
        except sqlite3.Error as error:
            if not is_busy(error) or time.monotonic() >= give_up_at:
                raise
        time.sleep(pause)
    raise AssertionError  # the pauses do not end
