"""What was counted, put together by span, and kept: from one look to the next, most of it is the same.

A look reads all that nodes have written about its time. Making sense of that costs far more than fetching it. So each
minute and each span of ten is put together when it is first seen, and again only when something was added to it; and
what all spans of a window come to is kept but for the last two, which are still being written. Fetching costs something,
too: of a day it is megabytes. So all of a window is fetched twice a minute, and in between only its last minutes.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import is_
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.machine import Event
from mainspring.core.tally import MINUTE, Counted, Sum, add_to, added, read, start_of
from mainspring.stores.overview import Overview, Tally

MOST: Final = 200
"""Spans of each length that are kept: three hours of minutes, and a day of spans of ten."""
WINDOWS: Final = 6
"""Windows whose sum is kept; people look at three of them."""
ALL_EVERY: Final = 30.0
"""Seconds. A node that was cut off writes about an hour that has passed; that is seen so much later."""
LAST: Final = 3 * MINUTE
"""What is fetched at every look."""
UNFINISHED: Final = 2
"""Spans at the end of a window that nodes still write to."""
AT_ONCE: Final = 10
"""Spans that are added up before others on the loop have their turn: some 3 ms, where there are 170 kinds of jobs."""


class Span(Struct, frozen=True, eq=False):
    """What was counted in a span, and what is often asked of it."""

    counted: Counted
    ends: Mapping[str, int]
    """How attempts ended, of all lines together."""
    attempts: Mapping[str, int]
    """How many there were, by queue."""

    @classmethod
    def of(cls, counted: Counted) -> "Span":
        ends: dict[str, int] = {}
        attempts: dict[str, int] = {}
        for line in counted.lines:
            add_to(ends, line.ends)
            add_to(attempts, {line.queue: attempts_in(line.ends)})
        return cls(counted, ends, attempts)


def attempts_in(ends: Mapping[str, int]) -> int:
    """How many attempts were made; what was given back does not count as one."""
    return sum(ends.values()) - ends.get(Event.GIVEN_BACK, 0)


Part: TypeAlias = bytes | Span
"""What a span is put together from: what was written, or spans that are shorter."""
Kept: TypeAlias = dict[datetime, tuple[tuple[Part, ...], Span]]
"""By when a span began: what it was put together from, and what came of it."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What was written about a window, all of it read at one time: what one of the two no longer has, the other has."""

    role: Overview
    at: float
    since: datetime
    minutes: Sequence[Tally]
    wider: Sequence[Tally]


class Fetching:
    """Fetches what nodes have written."""

    def __init__(self) -> None:
        self._kept: dict[timedelta, Fetched] = {}

    async def fetch(
        self, role: Overview, step: timedelta, *, minutes: datetime, wider: datetime, now: datetime, monotonic: float
    ) -> tuple[Sequence[Tally], Sequence[Tally]]:
        """Return minutes and wider spans, from when they are needed on; the latter only where a step is longer."""
        kept = self._kept.get(step)
        since = min(minutes, wider)
        if kept is None or kept.role is not role or kept.since > since or monotonic - kept.at >= ALL_EVERY:
            found = await role.tallies(MINUTE, minutes)
            tens = () if step == MINUTE else await role.tallies(step, wider)
            self._kept[step] = Fetched(role, monotonic, since, found, tens)
            return found, tens
        fresh = start_of(now, MINUTE) - LAST
        known = [tally for tally in kept.minutes if minutes <= tally.at < fresh]
        return [*known, *await role.tallies(MINUTE, fresh)], [tally for tally in kept.wider if tally.at >= wider]


class Spans:
    """Puts counts together, for one store."""

    def __init__(self) -> None:
        self._minutes: Kept = {}
        self._wider: Kept = {}
        self._sums: deque[tuple[tuple[Span, ...], Counted]] = deque(maxlen=WINDOWS)

    async def put_together(
        self, step: timedelta, minutes: Iterable[Tally], wider: Iterable[Tally]
    ) -> Mapping[datetime, Span]:
        """Say what was counted in each span. One that nodes have put together since is not counted twice.

        The first look of a program takes a second or more, in which everything else on the loop goes on.
        """
        bodies: dict[datetime, list[Part]] = {}
        for tally in minutes:
            bodies.setdefault(tally.at, []).append(tally.body)
        by_minute = await _spans(self._minutes, bodies)
        if step == MINUTE:
            return by_minute
        parts: dict[datetime, list[Part]] = {}
        for at, span in by_minute.items():
            parts.setdefault(start_of(at, step), []).append(span)
        parts |= {tally.at: [tally.body] for tally in wider}
        return await _spans(self._wider, parts)

    async def total(self, spans: Sequence[Span]) -> Counted:
        """Say what spans that follow each other come to. Of two weeks that takes a second; others go on meanwhile."""
        older, newer = tuple(spans[:-UNFINISHED]), spans[-UNFINISHED:]
        known = next((total for parts, total in self._sums if _same(parts, older)), None)
        if known is None:
            known = await _sum(older)
            self._sums.append((older, known))
        return added([known, *(span.counted for span in newer)])


async def _sum(spans: Iterable[Span]) -> Counted:
    total = Sum()
    for number, span in enumerate(spans, 1):
        total.add(span.counted)
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
    return total.counted()


async def _spans(kept: Kept, wanted: Mapping[datetime, list[Part]]) -> dict[datetime, Span]:
    found: dict[datetime, Span] = {}
    for at, parts in wanted.items():
        known = kept.get(at)
        if known is None or not _same(known[0], parts):
            counted = [one for part in parts if (one := _counted(part))]
            known = tuple(parts), Span.of(counted[0] if len(counted) == 1 else added(counted))
            kept[at] = known
            await asyncio.sleep(0)
        found[at] = known[1]
    for at in sorted(kept)[:-MOST]:
        kept.pop(at, None)
    return found


def _same(before: Sequence[Part], parts: Sequence[Part]) -> bool:
    """Compare what was written by what it says, and spans by which they are."""
    return len(before) == len(parts) and (all(map(is_, before, parts)) or list(before) == list(parts))


def _counted(part: Part) -> Counted | None:
    return part.counted if isinstance(part, Span) else read(part)


def last_census(minutes: Sequence[Tally], now: datetime) -> Counted:
    """Find the last census in minutes, by time. What is of the future was counted before a clock was set back."""
    for tally in reversed(minutes):
        if not tally.by and tally.at <= now:
            counted = read(tally.body)
            if counted and counted.counted_at:
                return replace(counted, lines=(), enqueued=0)
    return Counted()
