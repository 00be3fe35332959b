"""In which transactions the moves of a call are written.

Those that wait for nobody go first, all in one. What somebody had in hand then is asked for again, and so are schedules
whose jobs want unique keys: a key that somebody is about to insert cannot be stepped over. They wait for a moment. If a
key is not to be had by then they are halved, again and again, until those that want it are alone; these count as not
accepted, and all others are written.

Always true: what was committed is answered, whatever becomes of the rest.
"""

import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from mainspring.errors import StoreError, StoreUnavailable
from mainspring.stores.postgres.moves import Moved, Step
from mainspring.stores.postgres.trouble import met_a_lock

PATIENCE: Final = 0.3
"""Seconds for which a lock is waited for."""
_AGAIN: Final = 0.001
"""The same for a part of what has been waited for already: as good as not at all."""
_IN_ALL: Final = 0.6
"""Seconds after which no more parts are tried: other schedules come up meanwhile."""

Write: TypeAlias = Callable[[Sequence[Step], float | None], Awaitable[Moved]]
"""Writes moves in one transaction, which waits for what others have in hand so many seconds; None: not at all."""

_logger: Final = logging.getLogger("mainspring.stores.postgres")


async def carry_out(steps: Sequence[Step], write: Write) -> set[int]:
    """Write moves; returns the places of those that were accepted."""
    wanting = {step.name for step in steps if step.keys}
    quick = [step for step in steps if step.name not in wanting]
    accepted: set[int] = set()
    try:
        left: set[int] = set()
        if quick:
            moved = await write(quick, None)
            accepted |= moved.accepted
            left = moved.left
        if left:
            await _patiently([[step for step in quick if step.place in left]], write, accepted)
        if wanting:
            await _patiently(_groups([step for step in steps if step.name in wanting]), write, accepted)
    except StoreError as error:
        if not accepted:
            raise
        _logger.warning("steps of schedules could not be written together with others, and are left for now: %s", error)
    return accepted


def _groups(steps: Sequence[Step]) -> list[list[Step]]:
    """Put schedules together that want the same keys: where one of them cannot be written, no other can."""
    keys: dict[str, set[object]] = {}
    for step in steps:
        keys.setdefault(step.name, set()).update(step.keys)
    groups: dict[frozenset[object], list[Step]] = {}
    for step in steps:
        groups.setdefault(frozenset(keys[step.name]), []).append(step)
    return list(groups.values())


async def _patiently(groups: list[list[Step]], write: Write, accepted: set[int]) -> None:
    """Write groups of moves, together if that can be, else in parts; adds to what was accepted."""
    until = time.monotonic() + _IN_ALL
    patience = PATIENCE
    parts = [groups]
    while parts and time.monotonic() < until:
        part = parts.pop()
        try:
            moved = await write([step for group in part for step in group], patience)
        except StoreUnavailable as error:
            if not met_a_lock(error):
                raise
            random.shuffle(part)  # what there is no time left for is not the same each time
            middle = len(part) // 2
            parts += [half for half in (part[:middle], part[middle:]) if len(part) > 1]
        else:
            accepted |= moved.accepted
        patience = _AGAIN
