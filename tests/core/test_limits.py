"""How many jobs may run at a time, and how many may start in a while."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.limits import CLOCK_STEP, MOMENT, Gate, Limit, Rate, Scope
from mainspring.duration import LONGEST
from mainspring.errors import BadDuration, DeclarationError

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)

rates = st.builds(
    Rate,
    count=st.integers(1, 50),
    period=st.timedeltas(timedelta(microseconds=50), timedelta(hours=1)),
    burst=st.integers(1, 20),
)
waits = st.timedeltas(timedelta(0), timedelta(seconds=2)) | st.timedeltas(timedelta(0), timedelta(hours=2))


def starts(rate: Rate, asked: list[tuple[timedelta, int]]) -> list[datetime]:
    """Ask for so many starts after each wait, and return when those were that there was room for."""
    began: list[datetime] = []
    now, spent_until = NOW, None
    for wait, wanted in asked:
        now += wait
        given = min(wanted, rate.room(spent_until, now))
        if given:
            spent_until = rate.take(spent_until, now, given)
        began += [now] * given
    return began


@given(rates, st.lists(st.tuples(waits, st.integers(1, 30)), max_size=30))
def test_no_window_of_any_length_sees_more_starts_than_a_burst_and_the_steady_pace(
    rate: Rate, asked: list[tuple[timedelta, int]]
) -> None:
    began = starts(rate, asked)
    for first, start in enumerate(began):
        for last, end in enumerate(began[first:], first):
            window = end - start
            assert last - first + 1 <= rate.burst + window // rate.interval
            assert last - first + 1 <= rate.burst + window * rate.count // rate.period  # as it was declared, unrounded


@given(rates, st.lists(st.tuples(waits, st.integers(1, 30)), max_size=10), waits)
def test_room_take_and_opens_at_agree(rate: Rate, asked: list[tuple[timedelta, int]], wait: timedelta) -> None:
    now, spent_until = NOW, None
    for pause, wanted in asked:
        now += pause
        if given := min(wanted, rate.room(spent_until, now)):
            spent_until = rate.take(spent_until, now, given)
    now += wait
    room = rate.room(spent_until, now)
    opens_at = rate.opens_at(spent_until)
    assert (room > 0) == (opens_at is None or opens_at <= now)
    assert 0 <= room <= rate.burst
    if opens_at is not None and opens_at > now:
        assert rate.room(spent_until, opens_at - MOMENT) == 0
        assert rate.room(spent_until, opens_at) == 1
    one_by_one = spent_until
    for left in range(room, 0, -1):
        assert rate.room(one_by_one, now) == left
        one_by_one = rate.take(one_by_one, now, 1)
    assert rate.room(one_by_one, now) == 0
    if room:
        assert one_by_one == rate.take(spent_until, now, room)


def test_a_steady_rate_spreads_its_starts_evenly() -> None:
    rate = Rate(count=10, period=SECOND)
    began = starts(rate, [(timedelta(milliseconds=20), 5)] * 50)
    assert {later - earlier for earlier, later in pairwise(began)} == {rate.interval}
    assert rate.interval == timedelta(milliseconds=100)


def test_a_burst_may_start_at_once_and_comes_back_one_by_one() -> None:
    rate = Rate(count=10, period=SECOND, burst=3)
    assert (rate.room(None, NOW), rate.opens_at(None)) == (3, None)
    spent_until = rate.take(None, NOW, 3)
    assert rate.room(spent_until, NOW) == 0
    assert rate.opens_at(spent_until) == NOW + rate.interval
    assert [rate.room(spent_until, NOW + rate.interval * passed) for passed in range(6)] == [0, 1, 2, 3, 3, 3]


def test_a_quiet_time_saves_up_no_more_than_a_burst() -> None:
    rate = Rate(count=10, period=SECOND, burst=3)
    later = NOW + timedelta(days=1)
    spent_until = rate.take(rate.take(None, NOW, 3), later, 3)
    assert (rate.room(spent_until, later), rate.opens_at(spent_until)) == (0, later + rate.interval)


def test_a_clock_that_is_set_back_makes_the_next_start_later_by_as_much_and_no_more() -> None:
    rate = Rate(count=1, period=SECOND)
    spent_until = rate.take(None, NOW, 1)
    back = NOW - timedelta(minutes=1)
    assert rate.room(spent_until, back) == 0
    assert rate.opens_at(spent_until) == back + timedelta(minutes=1) + SECOND


def test_an_account_written_while_the_clock_was_ahead_allows_one_start_after_the_correction() -> None:
    rate = Rate(count=6, period=timedelta(minutes=1), burst=3)
    ahead = NOW + timedelta(days=1)
    spent_until = rate.corrected(rate.take(None, ahead, 3), NOW)
    assert rate.room(spent_until, NOW) == 1
    after = rate.take(spent_until, NOW, 1)
    assert (rate.room(after, NOW), rate.opens_at(after)) == (0, NOW + rate.interval)


@given(rate=rates, back=st.timedeltas(timedelta(0), CLOCK_STEP))
def test_an_account_of_a_clock_set_back_by_up_to_a_minute_stays_as_it_is(rate: Rate, back: timedelta) -> None:
    spent_until = rate.take(None, NOW, rate.burst)
    assert rate.corrected(spent_until, NOW - back) == spent_until
    assert rate.corrected(None, NOW - back) is None


@given(rate=rates)
def test_no_start_is_further_ahead_than_the_longest_wait(rate: Rate) -> None:
    opens_at = rate.opens_at(rate.take(None, NOW, rate.burst))
    assert opens_at is not None
    assert opens_at <= NOW + Gate(scope=Scope.TASK, name="t", rate=rate).longest_wait
    assert Gate(scope=Scope.TASK, name="t", concurrency=1).longest_wait == CLOCK_STEP


def test_an_interval_that_does_not_come_out_even_is_rounded_to_the_slower_side() -> None:
    assert Rate(count=3, period=SECOND).interval == timedelta(microseconds=333_334)
    assert Rate(count=700_000, period=SECOND).interval == 2 * MOMENT


@pytest.mark.parametrize(("text", "count", "period"), [
    ("10/s", 10, SECOND),
    (" 10 / s ", 10, SECOND),
    ("100/5m", 100, timedelta(minutes=5)),
    ("1/1h30m", 1, timedelta(minutes=90)),
    ("1/1h 30m", 1, timedelta(minutes=90)),
    ("3/ms", 3, timedelta(milliseconds=1)),
    ("2/1.5s", 2, timedelta(seconds=1.5)),
])  # fmt: skip
def test_a_rate_is_read_as_people_write_it(text: str, count: int, period: timedelta) -> None:
    assert Rate.of(text) == Rate(count=count, period=period, burst=count)
    assert Rate.of(text, burst=2) == Rate(count=count, period=period, burst=2)


@pytest.mark.parametrize(
    "text", ["", "10", "10/", "/s", "-1/s", "1.5/s", "10/.5s", "10 s", "ten/s", "10/S", "٣/s", "9" * 5000 + "/s"]
)
def test_what_is_no_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(DeclarationError, match="cannot be read; write how many in which time, like '10/s'"):
        Rate.of(text)


def test_a_period_that_is_no_duration_is_refused_as_one() -> None:
    with pytest.raises(BadDuration, match="'1fortnight' is no valid duration"):
        Rate.of("10/fortnight")


@pytest.mark.parametrize(("count", "period", "burst", "problem"), [
    (0, SECOND, 1, "at least one start in a period, not 0"),
    (2.5, SECOND, 1, "at least one start in a period, not 2.5"),
    (True, SECOND, 1, "at least one start in a period, not True"),
    (1, SECOND, 0, "a burst of at least one, not 0"),
    (1, timedelta(0), 1, "a period of more than nothing and at most a century, not 0:00:00"),
    (1, -SECOND, 1, "a period of more than nothing and at most a century, not -1 day, 23:59:59"),
    (1, LONGEST + MOMENT, 1, "a period of more than nothing and at most a century, not 36525 days"),
    (1_000_001, SECOND, 1, "more than a million starts a second cannot be told apart"),
    (1, timedelta(days=1), 36_526, "a burst of 36526 would take more than a century to be paid for"),
])  # fmt: skip
def test_a_rate_that_cannot_be_kept_is_refused(count: int, period: timedelta, burst: int, problem: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        Rate(count=count, period=period, burst=burst)
    assert str(refused.value).startswith(f"Rate: {problem}")
    assert ";" not in str(refused.value)


def test_all_that_is_wrong_with_a_rate_is_told_at_once() -> None:
    with pytest.raises(DeclarationError, match=r"in a period, not 0; a burst .* not -1; a period .* not 0:00:00$"):
        Rate(count=0, period=timedelta(0), burst=-1)


def test_the_fastest_and_the_slowest_rate_can_be_kept() -> None:
    fastest = Rate(count=1_000_000, period=SECOND, burst=1_000_000)
    assert fastest.opens_at(fastest.take(None, NOW, 1_000_000)) == NOW + MOMENT
    slowest = Rate(count=7, period=LONGEST, burst=7)
    assert slowest.opens_at(slowest.take(None, NOW, 7)) == NOW + slowest.interval


def test_a_limit_says_how_many_at_a_time_or_in_which_time() -> None:
    assert Limit(concurrency=1).pace is None
    assert Limit(rate="10/s").pace == Rate.of("10/s")
    assert Limit(rate=Rate.of("10/s", burst=1)).pace == Rate(count=10, period=SECOND)


@pytest.mark.parametrize(("key", "keys"), [(None, ()), ("customer", ("customer",)), (("a", "b"), ("a", "b"))])
def test_a_limit_counts_by_one_argument_or_several(key: str | tuple[str, ...] | None, keys: tuple[str, ...]) -> None:
    assert Limit(concurrency=1, key=key).keys == keys


@pytest.mark.parametrize(("fields", "problem"), [
    ({}, "say how many: concurrency=1, or rate='10/s'"),
    ({"concurrency": 0}, "concurrency of at least 1, not 0"),
    ({"concurrency": "3"}, "concurrency of at least 1, not '3'"),
    ({"rate": 10}, "a rate is written as '10/s', not 10"),
    ({"concurrency": 1, "key": ()}, "a key is the name of an argument, or several of them"),
    ({"concurrency": 1, "key": ""}, "a key is the name of an argument, or several of them"),
    ({"concurrency": 1, "key": ("a", "")}, "a key is the name of an argument, or several of them"),
    ({"concurrency": -1, "key": ()}, "concurrency of at least 1, not -1; a key is the name of an argument, or several of them"),
])  # fmt: skip
def test_a_limit_that_limits_nothing_or_the_wrong_thing_is_refused(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        Limit(**fields)  # type: ignore[arg-type]  # what no type checker lets through is what is tried here
    assert str(refused.value) == f"Limit: {problem}"


def test_a_rate_that_cannot_be_read_is_refused_where_the_limit_is_declared() -> None:
    with pytest.raises(DeclarationError, match="'often' cannot be read"):
        Limit(rate="often")


@pytest.mark.parametrize("text", ["5/s", "100/5m", "1/90m", "7/h", "2/d", "3/250ms", "1/90s"])
def test_a_rate_is_written_as_it_is_read(text: str) -> None:
    assert Rate.of(str(Rate.of(text))) == Rate.of(text)


def test_a_rate_is_written_in_the_largest_unit() -> None:
    assert [str(Rate.of(text)) for text in ("5/1s", "100/300s", "3/250ms")] == ["5/s", "100/5m", "3/250ms"]
