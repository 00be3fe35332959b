"""Detection of a store's clock that was ahead: a step back, and schedules that were decided ahead of it."""

from datetime import datetime, timedelta
from typing import Final

from mainspring.clock import Clock
from mainspring.core.limits import CLOCK_STEP
from mainspring.core.steps import is_ahead
from mainspring.runtime.events import log
from mainspring.stores.port import Store

CHECK_INTERVAL_S: Final = 3600.0
PAGE: Final = 500
MAX_NAMED: Final = 5


class ClockWatch:
    """Warns of a clock that was set back, once a step, and of schedules ahead of it, once an hour."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._last: tuple[datetime, float] | None = None
        self._check_at = float("-inf")

    def read(self, now: datetime) -> None:
        """Compare the store's clock, as it was just read, with the monotonic clock since the last time."""
        monotonic = self._clock.monotonic()
        if self._last is not None:
            before, since = self._last
            back = before + timedelta(seconds=monotonic - since) - now
            if back > CLOCK_STEP:
                self._check_at = float("-inf")
                log.warning(
                    "clock of the store: set back by %s to %s; jobs that were enqueued while it was ahead are due by as "
                    "much later, and schedules that were decided then make no jobs until that time; to have them go on, "
                    "run mainspring schedules reset NAME (mainspring doctor lists them)",
                    timedelta(seconds=round(back.total_seconds())),
                    now.isoformat(" ", "seconds"),
                )
        self._last = now, monotonic

    async def check_schedules(self) -> None:
        """Warn of schedules whose slots were decided while the clock was ahead; once an hour, and after a step."""
        if self._clock.monotonic() < self._check_at:
            return
        ahead: list[str] = []
        page = await self._store.list_schedules(limit=PAGE)
        while True:
            ahead += [str(look.schedule.name) for look in page.looks if is_ahead(look.schedule, page.now)]
            if page.after is None:
                break
            page = await self._store.list_schedules(limit=PAGE, after=page.after)
        self._check_at = self._clock.monotonic() + CHECK_INTERVAL_S
        if ahead:
            more = f" and {len(ahead) - MAX_NAMED:,} more" if len(ahead) > MAX_NAMED else ""
            log.warning(
                "schedules %s%s: decided for later than now, because the clock of the store was ahead; no slot before "
                "that makes a job; to have them go on, run mainspring schedules reset NAME",
                ", ".join(ahead[:MAX_NAMED]),
                more,
            )
