"""What an operator may ask of a job; `machine.command` says what becomes of it."""

from datetime import datetime
from typing import Final, TypeAlias

from msgspec import Struct

from mainspring.errors import DeclarationError

LOWEST_PRIORITY: Final = 0
HIGHEST_PRIORITY: Final = 100


class CancelJob(Struct, frozen=True):
    """Cancel it: at once if it waits, as a request if it runs."""


class RetryJob(Struct, frozen=True):
    """Run a failed or cancelled job again, with one more attempt than it had."""


class DeleteJob(Struct, frozen=True):
    """Forget it, unless it runs."""


class MoveJob(Struct, frozen=True, kw_only=True):
    """Give a waiting job another priority, queue or time; what is left out stays."""

    priority: int | None = None
    queue: str | None = None
    run_at: datetime | None = None

    def __post_init__(self) -> None:
        if self.priority is not None and not LOWEST_PRIORITY <= self.priority <= HIGHEST_PRIORITY:
            raise DeclarationError("priority", f"from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}, not {self.priority}")
        if self.run_at is not None and self.run_at.tzinfo is None:
            raise DeclarationError(
                "run_at", f"{self.run_at} has no time zone; add tzinfo=UTC, or the zone it is meant in"
            )


Command: TypeAlias = CancelJob | RetryJob | DeleteJob | MoveJob
