"""What is kept between two looks changes nothing that is seen: only how long it takes."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring import Mainspring
from mainspring.client import spans as module
from mainspring.client.spans import MOST, Fetching, Spans
from mainspring.core.tally import MINUTE, TEN_MINUTES, Counted, Line, added, read, start_of, written
from mainspring.stores.memory import MemoryStore
from mainspring.stores.overview import Overview, Tally
from mainspring.testing import VirtualTime

START = datetime(2026, 1, 1, tzinfo=UTC)


def tally(at: datetime, span: timedelta, by: str, number: int) -> Tally:
    line = Line(queue=f"queue-{number % 3}", task="send", ends={"succeeded": number, "given_back": 1}, runs={number: 1})
    return Tally(at=at, span=span, by=by, body=written(Counted(lines=(line,), enqueued=number)))


def plainly(step: timedelta, minutes: list[Tally], wider: list[Tally]) -> dict[datetime, Counted]:
    """The same, by hand: everything is read and added anew."""
    bodies: dict[datetime, list[bytes]] = {}
    for one in minutes:
        bodies.setdefault(start_of(one.at, step), []).append(one.body)
    bodies |= {one.at: [one.body] for one in wider}
    return {at: added(counted for body in many if (counted := read(body))) for at, many in bodies.items()}


writes = st.lists(
    st.tuples(st.integers(0, 25), st.sampled_from(["a", "b", ""]), st.integers(1, 50), st.booleans()), max_size=30
)


@given(writes=writes, folded=st.sets(st.integers(0, 2)))
def test_what_is_kept_is_what_would_be_put_together_anew(
    writes: list[tuple[int, str, int, bool]], folded: set[int]
) -> None:
    spans = Spans()
    there: dict[tuple[int, str], Tally] = {}
    for minute, by, number, day in writes:
        there[minute, by] = tally(START + minute * MINUTE, MINUTE, by, number)
        minutes = [there[key] for key in sorted(there)]
        step = TEN_MINUTES if day else MINUTE
        wider = [tally(START + place * TEN_MINUTES, TEN_MINUTES, "", 7) for place in folded] if day else []
        found = asyncio.run(spans.put_together(step, minutes, wider))
        expected = plainly(step, minutes, wider)
        assert {at: span.counted for at, span in found.items()} == expected
        total = asyncio.run(spans.total([found[at] for at in sorted(found)]))
        assert total == added(expected[at] for at in sorted(expected))


def test_what_is_the_same_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[bytes] = []

    def noted(body: bytes) -> Counted | None:
        reads.append(body)
        return read(body)

    monkeypatch.setattr(module, "read", noted)
    minutes = [tally(START + number * MINUTE, MINUTE, "a", number + 1) for number in range(20)]
    spans = Spans()
    for step in (MINUTE, TEN_MINUTES, MINUTE, TEN_MINUTES):
        asyncio.run(spans.put_together(step, minutes, []))
    assert len(reads) == 20
    minutes[-1] = tally(minutes[-1].at, MINUTE, "a", 99)
    asyncio.run(spans.put_together(TEN_MINUTES, minutes, []))
    assert reads[20:] == [minutes[-1].body]


@pytest.mark.usefixtures("virtual_time")
async def test_everything_else_goes_on_while_counts_are_put_together() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    going_on = asyncio.create_task(others())
    spans = Spans()
    found = await spans.put_together(MINUTE, [tally(START + n * MINUTE, MINUTE, "a", n + 1) for n in range(100)], [])
    assert turns >= 100
    turns = 0
    await spans.total([*found.values()])
    going_on.cancel()
    assert turns >= 9


def test_no_more_is_kept_than_a_day_has() -> None:
    spans = Spans()
    for begin in (0, 1000):
        some = [tally(START + (begin + number) * MINUTE, MINUTE, "a", 1) for number in range(2 * MOST)]
        assert len(asyncio.run(spans.put_together(MINUTE, some, []))) == 2 * MOST
        assert len(spans._minutes) == MOST


async def test_all_who_watch_cost_as_much_as_one(virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Mainspring(MemoryStore(virtual_time.clock), clock=virtual_time.clock)
    async with app:
        looks: list[int] = []
        plain = app.overview._look

        async def counted(minutes: int) -> object:
            looks.append(minutes)
            await asyncio.sleep(0.1)
            return await plain(minutes)

        monkeypatch.setattr(app.overview, "_look", counted)
        first, *others = await asyncio.gather(*(app.overview.look(no_older_than="1s") for _ in range(50)))
        assert looks == [60]
        assert all(one is first for one in others)
        await app.overview.look(minutes=1440, no_older_than="1s")
        await app.overview.look()
        assert looks == [60, 1440, 60]
        await asyncio.sleep(1)
        assert (await app.overview.look(no_older_than="1s")).at > first.at
        assert looks == [60, 1440, 60, 60]
        for minutes in range(1, 100):
            await app.overview.look(minutes=minutes, no_older_than="1s")
        assert len(app.overview._held) <= 8


class Written:
    """A store that has nothing but tallies, and notes what is asked for."""

    def __init__(self) -> None:
        self.there: dict[tuple[timedelta, datetime, str], Tally] = {}
        self.asked: list[tuple[timedelta, datetime]] = []

    def write(self, *tallies: Tally) -> None:
        self.there |= {(one.span, one.at, one.by): one for one in tallies}

    def fold(self, at: datetime) -> None:
        """Put ten minutes together, as the census does."""
        minutes = [one for key, one in self.there.items() if key[0] == MINUTE and at <= key[1] < at + TEN_MINUTES]
        whole = added(counted for one in minutes if (counted := read(one.body)))
        self.there = {key: one for key, one in self.there.items() if one not in minutes}
        self.write(Tally(at=at, span=TEN_MINUTES, by="", body=written(whole)))

    async def tallies(self, span: timedelta, since: datetime) -> tuple[Tally, ...]:
        self.asked.append((span, since))
        found = [one for one in self.there.values() if one.span == span and one.at >= since]
        return tuple(sorted(found, key=lambda one: (one.at, one.by)))


class Watching:
    """Somebody who looks at the last hours again and again."""

    def __init__(self, store: Written, hours: int) -> None:
        self.seconds = 0.0
        self._store = store
        self._fetching, self._spans = Fetching(), Spans()
        self._hours = hours

    async def enqueued(self) -> int:
        now = START + timedelta(hours=self._hours, seconds=self.seconds)
        step = MINUTE if self._hours <= 3 else TEN_MINUTES
        minutes, wider = await self._fetching.fetch(
            cast("Overview", self._store),
            step,
            minutes=max(START, now - timedelta(hours=3, minutes=30)),
            wider=START,
            now=now,
            monotonic=self.seconds,
        )
        spans = await self._spans.put_together(step, minutes, wider)
        return sum(span.counted.enqueued for span in spans.values())


@pytest.mark.parametrize("hours", [2, 24])
@pytest.mark.usefixtures("virtual_time")
async def test_what_is_new_is_seen_at_once_and_what_comes_late_in_half_a_minute(hours: int) -> None:
    store = Written()
    watching = Watching(store, hours)
    now = START + timedelta(hours=hours)
    store.write(*(tally(now - number * MINUTE, MINUTE, "a", 1) for number in range(100)))
    assert await watching.enqueued() == 100
    watching.seconds = 10
    store.write(tally(now, MINUTE, "a", 5), tally(now - 2 * MINUTE, MINUTE, "b", 7))
    assert await watching.enqueued() == 100 + 4 + 7
    store.write(tally(now - 50 * MINUTE, MINUTE, "b", 9))
    assert await watching.enqueued() == 111
    assert store.asked[-1] == (MINUTE, now - 3 * MINUTE)
    watching.seconds = 30
    assert await watching.enqueued() == 120


@pytest.mark.usefixtures("virtual_time")
async def test_ten_minutes_that_are_put_together_count_once_whenever_somebody_looks() -> None:
    store = Written()
    watching = Watching(store, 24)
    old = START + timedelta(hours=20, minutes=40)
    store.write(*(tally(old + number * MINUTE, MINUTE, "a", 3) for number in range(20)))
    for second in range(100):
        watching.seconds = second
        if second in {7, 43}:
            store.fold(old if second == 7 else old + TEN_MINUTES)
        assert await watching.enqueued() == 60


@pytest.mark.usefixtures("virtual_time")
async def test_another_store_and_a_wider_window_are_read_anew() -> None:
    store, other = Written(), Written()
    store.write(tally(START, MINUTE, "a", 1))
    other.write(tally(START, MINUTE, "a", 2))
    fetching = Fetching()
    found = []
    for one, back in ((store, 0), (other, 0), (other, 60), (other, 0)):
        since = START - back * MINUTE
        minutes, _ = await fetching.fetch(
            cast("Overview", one), MINUTE, minutes=since, wider=since, now=START, monotonic=0
        )
        found.append(next(read(tally.body) for tally in minutes))
    assert [one and one.enqueued for one in found] == [1, 2, 2, 2]
    assert other.asked == [(MINUTE, START), (MINUTE, START - 60 * MINUTE), (MINUTE, START - 3 * MINUTE)]
