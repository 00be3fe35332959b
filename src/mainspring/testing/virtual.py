"""What a test on virtual time holds: the time itself, and a clock that tells it.

Elapsed and monotonic time are the loop's. Wall time follows them from a fixed start, and alone can be set forward or
back, as NTP or an operator would.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from mainspring.duration import Duration, duration
from mainspring.errors import DeclarationError
from mainspring.testing.loop import LIMIT, PATIENCE, VirtualLoop

START: Final = datetime(2030, 1, 1, tzinfo=UTC)
"""A Tuesday, far from the real now: a comparison with the system's clock shows at once."""

T = TypeVar("T")


class VirtualClock:
    """A `mainspring.clock.Clock` whose monotonic time is what `elapsed` says; a loop's `time`, as a rule."""

    jumped: timedelta
    """How far all jumps together moved the wall time."""

    def __init__(self, elapsed: Callable[[], float], start: datetime = START) -> None:
        if start.tzinfo is None:
            raise DeclarationError(f"start={start!r}", "it has no time zone; add tzinfo=UTC")
        self.jumped = timedelta(0)
        self._elapsed = elapsed
        self._start = start.astimezone(UTC)

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed()) + self.jumped

    def monotonic(self) -> float:
        return self._elapsed()

    def jump(self, by: Duration) -> None:
        """Set the wall time forward, or back by a negative number or `timedelta`. Timers do not notice."""
        match by:
            case timedelta():
                self.jumped += by
            case str():
                self.jumped += duration(by)
            case _:
                self.jumped += timedelta(seconds=by)


class VirtualTime:
    """Runs coroutines on virtual time; each `run` goes on where the last one stopped.

    Close it, or use it in a `with` block: tasks that are left are cancelled then, and the loop is closed.
    """

    loop: VirtualLoop
    clock: VirtualClock

    def __init__(self, *, start: datetime = START, patience: Duration = PATIENCE, limit: Duration = LIMIT) -> None:
        self.clock = VirtualClock(lambda: self.elapsed, start)
        self._open(VirtualLoop(patience=patience, limit=limit))

    @property
    def elapsed(self) -> float:
        """Virtual seconds since the start."""
        return self.loop.time()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return its result. Other tasks stop where they are, until the next run."""
        __tracebackhide__ = True  # for pytest: a failing test shows itself and not its surroundings
        return self._runner.run(main, context=copy_context())

    def restart(self) -> None:
        """Begin again: nothing runs, no time has passed, the clock has not jumped. The clock stays the same object."""
        self.close()
        self.clock.jumped = timedelta(0)
        self._open(VirtualLoop(patience=self.loop.patience, limit=self.loop.limit))

    def close(self) -> None:
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self._runner = asyncio.Runner(loop_factory=lambda: loop)
        self._runner.get_loop()  # from here on the loop is the runner's to close
