"""Pruning: what is past its time goes, a little at a time.

Finished jobs of a day that has a table of its own are hidden by one instant and go when that is dropped; all others are
deleted row by row. Nothing here waits for a lock: what somebody is at is left for the next time.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Protocol, TypeVar

from mainspring.stores.postgres import partitions, runs
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Row, Verb

T = TypeVar("T")

_HISTORY: Final = statement("prune_history")
_WATERMARK: Final = statement("prune_watermark")
_PLACES: Final = statement("prune_places")
_COUNTED: Final = tuple(statement(f"prune_{what}") for what in ("runs", "nodes", "orders", "locks", "audit"))
_CLEAR: Final = statement("node_clear")
_HOLD: Final = statement("prune_unique_hold")
_STRAY: Final = statement("prune_unique_stray")
_UNIQUE_KEYS: Final = statement("prune_unique_keys")
_KEYS: Final = statement("prune_keys")
_MOVED: Final = statement("prune_moved")


class Runs(Protocol):
    """Who carries out verbs."""

    async def run(
        self,
        verb: Callable[[], Verb[T]],
        *,
        whole: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 -- of each statement
    ) -> T: ...


async def prune(connections: Runs, at: datetime | None, limit: int, pace: partitions.Pace) -> int:
    """Delete what is past its time, at most `limit` of it; returns how many.

    A day that is dropped counts as one, and what is hidden until then not at all. On a test's clock there are no days.
    """
    gone = await connections.run(lambda: pruned(at, limit), whole=True)
    if gone < limit and at is None:
        gone += await connections.run(lambda: partitions.upkeep(limit - gone, pace), whole=True)
    return gone


def pruned(at: datetime | None, limit: int) -> Verb[int]:
    """Delete what goes row by row, and hide the rest. Several statements."""
    ((gone,),) = yield Ask(_HISTORY, (at, limit))
    if gone < limit:
        yield Ask(_WATERMARK, (at,))
    ((vacated,),) = yield Ask(_PLACES, (limit,))
    if vacated:
        yield from runs.let_go(at)
    yield Ask(_CLEAR, (at,))
    for kind in _COUNTED:
        if gone < limit:
            ((some,),) = yield Ask(kind, (at, limit - gone))
            gone += some
    if gone < limit:
        gone += yield from _free((yield Ask(_HOLD, (at, limit - gone))))
    yield from _free((yield Ask(_STRAY, (limit,))))
    yield Ask(_KEYS, (at, limit))
    yield Ask(_MOVED, (at, limit))
    return int(gone)


def _free(held: Sequence[Row]) -> Verb[int]:
    """Free those of some keys that are not taken, which is asked once they are held."""
    if not held:
        return 0
    ((freed,),) = yield Ask(_UNIQUE_KEYS, ([task for task, _ in held], [key for _, key in held]))
    return int(freed)
