"""Slots: none missing, none outside of the rule, in order, there and back; and a few years told in full."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from mainspring.core.rules import Cron
from mainspring.errors import ScheduleError
from tests.core.cron_by_hand import ByHand, changes, moments, slots, utc
from tests.core.cron_drawn import expressions, instants, thoroughly
from tests.tier import FULL

ZONES = [
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Europe/Dublin", "Africa/Casablanca",
    "Africa/Cairo", "Asia/Beirut", "America/Sao_Paulo", "Pacific/Apia", "Asia/Kathmandu", "Asia/Gaza",
    "America/Santiago", "Antarctica/Troll", "America/Scoresbysund", "Pacific/Kwajalein",
]  # fmt: skip
SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
COMMON = ["* * * * *", "*/5 * * * *", "0 9 * * MON-FRI", "0 0 1 * *", "30 2 * * *", "0 0 * * *", "0 1,2,3 * * *"]


@lru_cache
def changes_of(tz: str) -> list[datetime]:
    return changes(ZoneInfo(tz), utc("1980-01-01T00:00Z"), utc("2038-01-01T00:00Z"))


@st.composite
def near_changes(draw: st.DrawFn) -> tuple[str, datetime]:
    """Draw a zone, and an instant some hours before its clocks are set."""
    tz = draw(st.sampled_from(ZONES[1:]))
    return tz, draw(st.sampled_from(changes_of(tz))) - draw(st.integers(0, 8)) * HOUR


places = near_changes() | st.tuples(st.sampled_from(ZONES), instants)


def rule_of(text: str, tz: str) -> Cron:
    try:
        return Cron(text, tz=tz)
    except ScheduleError:
        assume(False)
        raise


# Properties.


@pytest.mark.slow
@pytest.mark.timeout(1800)
@thoroughly
@given(expressions() | st.sampled_from(COMMON), places)
def test_no_slot_is_missing_and_none_is_outside_of_the_rule(text: str, place: tuple[str, datetime]) -> None:
    tz, start = place
    rule = rule_of(text, tz)
    start = start.replace(second=0, microsecond=0)
    end = start + 12 * HOUR
    by_hand = slots(ByHand(text), moments(ZoneInfo(tz), start, end))
    assert list(rule.between(start - SECOND, end)) == by_hand
    assert list(backwards(rule, end + SECOND, start)) == by_hand[::-1]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=500 if FULL else 50)
@given(expressions(seconds=True), places)
def test_nor_with_seconds(text: str, place: tuple[str, datetime]) -> None:
    tz, start = place
    rule = rule_of(text, tz)
    start = start.replace(microsecond=0)
    end = start + HOUR
    by_hand = slots(ByHand(text), moments(ZoneInfo(tz), start, end, SECOND, before=3 * HOUR))
    assert list(rule.between(start - SECOND, end)) == by_hand
    assert list(backwards(rule, end + SECOND, start)) == by_hand[::-1]


def backwards(rule: Cron, before: datetime, start: datetime) -> Iterator[datetime]:
    slot = rule.previous(before)
    while slot and slot >= start:
        yield slot
        slot = rule.previous(slot)


@pytest.mark.timeout(1800)
@thoroughly
@given(expressions() | expressions(seconds=True) | st.sampled_from(COMMON), st.sampled_from(ZONES), instants)
def test_slots_are_in_order_there_and_back(text: str, tz: str, after: datetime) -> None:
    rule = rule_of(text, tz)
    found = list(islice(rule.between(after, datetime.max.replace(tzinfo=UTC)), 5))
    assert found[0] > after
    assert all(earlier < later for earlier, later in pairwise(found))
    for earlier, later in pairwise(found):
        assert rule.next(earlier) == rule.next(later - SECOND) == later
        assert rule.previous(later) == rule.previous(earlier + SECOND) == earlier
    for slot in found:
        assert slot.tzinfo is UTC
        assert slot.microsecond == 0
        assert rule.matches(slot)
        assert not rule.matches(slot + timedelta(microseconds=1))
    before = rule.previous(found[0])
    assert before is not None
    assert before <= after
    assert rule.next(before) == found[0]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@thoroughly
@given(expressions(), st.sampled_from(ZONES), instants, instants)
def test_between_is_next_again_and_again(text: str, tz: str, start: datetime, end: datetime) -> None:
    rule = rule_of(text, tz)
    expected: list[datetime] = []
    slot = rule.next(start)
    while slot and slot <= end and len(expected) < 20:
        expected.append(slot)
        slot = rule.next(slot)
    assert list(islice(rule.between(start, end), 20)) == expected


def test_between_leaves_out_its_start_takes_in_its_end_and_is_lazy() -> None:
    rule = Cron("0 * * * *")
    assert list(rule.between(utc("2026-01-01T00:00Z"), utc("2026-01-01T02:00Z"))) == [
        utc("2026-01-01T01:00Z"),
        utc("2026-01-01T02:00Z"),
    ]
    assert list(rule.between(utc("2026-01-01T02:00Z"), utc("2026-01-01T00:00Z"))) == []
    for_ever = Cron("* * * * * *").between(utc("0002-01-01T00:00Z"), utc("9990-01-01T00:00Z"))
    assert next(for_ever) == utc("0002-01-01T00:00:01Z")


# Against cronsim, where it reads the same and is right.


@pytest.mark.slow
@pytest.mark.timeout(1800)
@thoroughly
@given(expressions(plain=True) | expressions(plain=True, seconds=True), instants)
@example("0 0 13 * 5", utc("2026-01-01T00:00Z"))
@example("0 0 */2 * 1", utc("2026-01-01T00:00Z"))
def test_it_agrees_with_cronsim_in_utc(text: str, after: datetime) -> None:
    rule = rule_of(text, "UTC")
    assert list(islice(rule.between(after, after + 4000 * DAY), 5)) == simulated(text, after, after + 4000 * DAY)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@thoroughly
@given(
    expressions(plain=True),
    st.sampled_from(["Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Sydney", "Asia/Tehran"]),
    st.integers(1990, 2036),
    st.integers(0, 363),
)
@example("30 2 * * *", "Europe/Berlin", 2026, 86)
def test_it_agrees_with_cronsim_in_zones_that_change_by_hours(text: str, tz: str, year: int, day: int) -> None:
    rule = rule_of(text, tz)
    noon = datetime(year, 1, 1, 12, tzinfo=ZoneInfo(tz)) + day * DAY  # far from any change
    assert list(islice(rule.between(noon, noon + 300 * DAY), 5)) == simulated(text, noon, noon + 300 * DAY)


def simulated(text: str, after: datetime, end: datetime) -> list[datetime]:
    try:
        walk = CronSim(text, after)
    except CronSimError:
        assume(False)  # it refuses some that fire in leap years
        raise
    found: list[datetime] = []
    for slot in walk:
        if slot.astimezone(UTC) > end.astimezone(UTC) or len(found) == 5:
            break
        found.append(slot.astimezone(UTC))
    return found


# Instants at the edges.


def test_an_instant_of_any_zone_will_do_and_a_naive_one_will_not() -> None:
    rule = Cron("0 9 * * *", tz="Europe/Berlin")
    slot = utc("2026-07-01T07:00Z")
    for zone in (UTC, ZoneInfo("Asia/Tokyo"), timezone(timedelta(hours=-11, minutes=-30)), ZoneInfo("Europe/Berlin")):
        after = (slot - SECOND).astimezone(zone)
        assert rule.next(after) == slot
        assert rule.matches(slot.astimezone(zone))
    naive = datetime(2026, 7, 1)  # noqa: DTZ001 - that is the point
    for ask in (
        rule.next,
        rule.previous,
        rule.matches,
        lambda it: rule.between(it, slot),
        lambda it: rule.between(slot, it),
    ):
        with pytest.raises(ScheduleError, match="expected an aware datetime"):
            ask(naive)
    with pytest.raises(ScheduleError, match="expected an aware datetime"):
        rule.next("2026-07-01T00:00Z")  # type: ignore[arg-type]  # that is the point


def test_the_second_of_two_equal_times_is_told_apart_by_its_fold() -> None:
    rule = Cron("*/30 2 * * *", tz="Europe/Berlin")
    first = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert rule.next(first) == utc("2026-10-25T01:00Z"), "the same half-hours come again"
    assert rule.next(first.replace(fold=1)) == utc("2026-10-26T01:00Z")


def test_parts_of_a_second_are_no_slots() -> None:
    rule = Cron("0 * * * *")
    slot = utc("2026-01-01T01:00Z")
    moment = timedelta(microseconds=1)
    assert rule.next(slot - moment) == slot
    assert rule.next(slot) == rule.next(slot + moment) == slot + HOUR
    assert rule.previous(slot + moment) == slot
    assert rule.previous(slot) == rule.previous(slot - moment) == slot - HOUR


@pytest.mark.parametrize("tz", ["UTC", "Asia/Tokyo", "America/Los_Angeles", "Pacific/Kiritimati"])
@pytest.mark.parametrize("text", ["* * * * *", "0 0 1 1 *", "0 0 29 2 *", "59 23 31 12 *"])
def test_time_ends_with_the_year_9998_and_begins_with_the_year_2(text: str, tz: str) -> None:
    rule = Cron(text, tz=tz)
    last, first = utc("9999-01-01T00:00Z"), utc("0002-01-01T00:00Z")
    for late in (
        last,
        last - SECOND,
        datetime.max.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=timezone(-DAY / 2)),
    ):
        assert rule.next(late) is None
    for early in (first, datetime.min.replace(tzinfo=UTC), datetime.min.replace(tzinfo=timezone(DAY / 2))):
        assert rule.previous(early) is None
    some = rule.previous(datetime.max.replace(tzinfo=UTC))
    assert some is not None
    assert last - 8 * 366 * DAY < some < last
    assert rule.next(some) is None
    some = rule.next(datetime.min.replace(tzinfo=UTC))
    assert some is not None
    assert first <= some < first + 8 * 366 * DAY
    assert rule.previous(some) is None


def test_what_comes_once_in_forty_years_is_found() -> None:
    rule = Cron("0 12 ? 2 FRI#5")
    assert rule.next(utc("2026-01-01T00:00Z")) == utc("2036-02-29T12:00Z")
    assert rule.next(utc("2092-03-01T00:00Z")) == utc("2104-02-29T12:00Z")
    assert rule.next(utc("2064-03-01T00:00Z")) == utc("2092-02-29T12:00Z")
    assert Cron("0 0 29 2 ?").next(utc("2097-01-01T00:00Z")) == utc("2104-02-29T00:00Z"), "2100 is no leap year"
    assert Cron("0 0 29 2 ?").previous(utc("2104-01-01T00:00Z")) == utc("2096-02-29T00:00Z")


# Stories.


def year(text: str, tz: str) -> dict[str, str]:
    """Name the slots of 2026, as time of day by date, both in UTC."""
    found = list(Cron(text, tz=tz).between(utc("2025-12-31T12:00Z"), utc("2026-12-31T12:00Z")))
    return {f"{slot:%m-%d}": f"{slot:%H:%M}" for slot in found}


def test_a_year_of_half_past_two_in_berlin() -> None:
    told = year("30 2 * * *", "Europe/Berlin")
    assert len(told) == 365, "one a day, none left out, none twice"
    assert told["03-28"] == "01:30"
    assert told["03-29"] == "01:00", "clocks went from 02:00 to 03:00, which is when it fires"
    assert told["03-30"] == "00:30"
    assert told["10-24"] == "00:30"
    assert told["10-25"] == "00:30", "02:30 was shown twice, and the first one counts"
    assert told["10-26"] == "01:30"
    assert {time for day, time in told.items() if "03-30" <= day <= "10-25"} == {"00:30"}
    assert {time for day, time in told.items() if not "03-29" <= day <= "10-25"} == {"01:30"}


def test_a_year_of_half_past_two_in_new_york() -> None:
    told = year("30 2 * * *", "America/New_York")
    assert len(told) == 365
    assert told["03-07"] == "07:30"
    assert told["03-08"] == "07:00", "clocks went from 02:00 to 03:00"
    assert told["03-09"] == "06:30"
    assert told["10-31"] == "06:30"
    assert told["11-01"] == "07:30", "here it is 01:30 that was shown twice"
    assert {time for day, time in told.items() if "03-09" <= day <= "10-31"} == {"06:30"}
    assert {time for day, time in told.items() if not "03-08" <= day <= "10-31"} == {"07:30"}


def test_a_year_of_quarter_past_two_in_lord_howe_where_half_an_hour_is_changed() -> None:
    told = year("15 2 * * *", "Australia/Lord_Howe")
    assert len(told) == 365
    assert told["04-03"] == "15:15"
    assert told["04-04"] == "15:45", "clocks went from 02:00 back to 01:30, so 02:15 was shown once, later"
    assert told["10-02"] == "15:45"
    assert told["10-03"] == "15:30", "clocks went from 02:00 to 02:30"
    assert told["10-04"] == "15:15"
    assert {time for day, time in told.items() if "04-04" <= day <= "10-02"} == {"15:45"}
    told = year("45 1 * * *", "Australia/Lord_Howe")
    assert len(told) == 365
    assert [told["04-03"], told["04-04"], told["04-05"]] == ["14:45", "14:45", "15:15"], "the first of two"


def test_a_rule_with_a_star_follows_the_clock_on_the_wall() -> None:
    rule = Cron("*/20 2 * * *", tz="Europe/Berlin")
    assert list(rule.between(utc("2026-03-28T12:00Z"), utc("2026-03-29T12:00Z"))) == [], "there was no 02:00"
    assert list(rule.between(utc("2026-10-24T12:00Z"), utc("2026-10-25T12:00Z"))) == [
        utc(f"2026-10-25T{time}Z") for time in ("00:00", "00:20", "00:40", "01:00", "01:20", "01:40")
    ]
    hourly = Cron("0 * * * *", tz="Europe/Berlin")
    for day in ("2026-03-29", "2026-10-25"):
        found = list(hourly.between(utc(f"{day}T00:00Z"), utc(f"{day}T06:00Z")))
        assert [slot.hour for slot in found] == [1, 2, 3, 4, 5, 6], "once an hour, whatever the clocks do"


def test_several_times_in_one_gap_are_one_slot() -> None:
    rule = Cron("0,20,40 2,3 * * *", tz="Europe/Berlin")
    assert list(rule.between(utc("2026-03-29T00:00Z"), utc("2026-03-29T12:00Z"))) == [
        utc("2026-03-29T01:00Z"),  # 02:00, 02:20, 02:40 and 03:00
        utc("2026-03-29T01:20Z"),
        utc("2026-03-29T01:40Z"),
    ]


def test_with_seconds_the_seconds_count_as_the_minutes_do() -> None:
    starred = Cron("*/30 30 2 * * *", tz="Europe/Berlin")
    fixed = Cron("0,30 30 2 * * *", tz="Europe/Berlin")
    spring, autumn = utc("2026-03-29T00:00Z"), utc("2026-10-25T00:00Z")
    assert list(starred.between(spring, spring + 6 * HOUR)) == []
    assert len(list(starred.between(autumn, autumn + 6 * HOUR))) == 4
    assert list(fixed.between(spring, spring + 6 * HOUR)) == [utc("2026-03-29T01:00Z")]
    assert len(list(fixed.between(autumn, autumn + 6 * HOUR))) == 2


@pytest.mark.parametrize(("tz", "text", "start", "expected"), [
    # A day without midnight.
    ("America/Sao_Paulo", "0 0 * * *", "2018-11-03T00", ["2018-11-03T03:00", "2018-11-04T03:00", "2018-11-05T02:00"]),
    ("Africa/Cairo", "0 0 * * *", "2024-04-25T00", ["2024-04-25T22:00", "2024-04-26T21:00", "2024-04-27T21:00"]),
    ("Asia/Beirut", "30 0 * * *", "2026-03-28T00", ["2026-03-28T22:00", "2026-03-29T21:30", "2026-03-30T21:30"]),
    # An hour before midnight that comes twice.
    ("America/Sao_Paulo", "30 23 * * *", "2018-02-17T12", ["2018-02-18T01:30", "2018-02-19T02:30", "2018-02-20T02:30"]),
    # A day that was left out: 30 December 2011, and 21 August 1993.
    ("Pacific/Apia", "0 9 * * *", "2011-12-29T00", ["2011-12-29T19:00", "2011-12-30T10:00", "2011-12-30T19:00"]),
    ("Pacific/Apia", "0 9 30 12 *", "2011-06-01T00", ["2011-12-30T10:00", "2012-12-29T19:00", "2013-12-29T19:00"]),
    ("Pacific/Apia", "*/30 9 30 12 *", "2011-06-01T00", ["2012-12-29T19:00", "2012-12-29T19:30", "2013-12-29T19:00"]),
    ("Pacific/Kwajalein", "0 9 * * *", "1993-08-20T00", ["1993-08-20T21:00", "1993-08-21T12:00", "1993-08-21T21:00"]),
    # Summer time as the standard, and winter time as an hour less.
    ("Europe/Dublin", "30 1 * * *", "2026-03-28T00", ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]),
    ("Europe/Dublin", "30 1 * * *", "2026-10-24T00", ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"]),
    # An hour less in Ramadan: clocks went back on 15 February 2026, and forward on 22 March.
    ("Africa/Casablanca", "30 2 * * *", "2026-02-14T00", ["2026-02-14T01:30", "2026-02-15T01:30", "2026-02-16T02:30"]),
    ("Africa/Casablanca", "30 2 * * *", "2026-03-21T00", ["2026-03-21T02:30", "2026-03-22T02:00", "2026-03-23T01:30"]),
    # Two hours at once.
    ("Antarctica/Troll", "30 1 * * *", "2026-03-28T00", ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-29T23:30"]),
])  # fmt: skip
def test_clocks_change_in_many_ways(tz: str, text: str, start: str, expected: list[str]) -> None:
    found = islice(Cron(text, tz=tz).between(utc(f"{start}Z"), utc("2030-01-01T00:00Z")), len(expected))
    assert [f"{slot:%Y-%m-%dT%H:%M}" for slot in found] == expected
