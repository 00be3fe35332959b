"""Jobs of which there shall be only one at a time."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from mainspring.duration import Duration, duration
from mainspring.errors import DeclarationError


class OnConflict(StrEnum):
    """What an enqueue does whose key is taken."""

    RETURN = "return"  # nothing: the job that has the key is returned
    REPLACE = "replace"  # cancels the one that has the key if it still waits and takes its place; else as RETURN
    RAISE = "raise"  # `Conflict`, and nothing of the batch is enqueued


class Unique(Struct, frozen=True, kw_only=True):
    """One job at a time for each value of `key`: the names of arguments; without it, all arguments together.

    The key is taken while its job is active, and with a `period` at least for that long from its enqueue.
    """

    key: str | tuple[str, ...] | None = None
    period: Duration | None = None
    on_conflict: OnConflict | str = OnConflict.RETURN

    def __post_init__(self) -> None:
        if self.period is not None:
            duration(self.period)
        DeclarationError.unless("Unique", self._requirements())

    def _requirements(self) -> Iterator[tuple[bool, str]]:
        yield (
            self.keys is None or (self.keys != () and all(self.keys)),
            "a key is the name of an argument, or several of them",
        )
        known = ", ".join(repr(str(one)) for one in OnConflict)
        yield self.on_conflict in tuple(OnConflict), f"on_conflict is one of {known}, not {self.on_conflict!r}"

    @property
    def keys(self) -> tuple[str, ...] | None:
        """The names of the arguments that make up the key; None for all."""
        return (self.key,) if isinstance(self.key, str) else self.key


class UniqueKey(Struct, frozen=True, kw_only=True):
    """The key that one job takes, within its task."""

    key: str
    period: timedelta | None = None
    on_conflict: OnConflict = OnConflict.RETURN

    def taken_until(self, enqueued_at: datetime) -> datetime | None:
        """Say until when it stays taken even though its job has finished."""
        return None if self.period is None else enqueued_at + self.period


def is_taken(*, active: bool, taken_until: datetime | None, now: datetime) -> bool:
    """Say whether a key is to be had; `active` says whether the job that took it waits or runs."""
    return active or (taken_until is not None and now < taken_until)
