"""Reading cron expressions: what they mean, and what is refused."""

import time
from datetime import date

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mainspring.core.cron import fields
from mainspring.core.cron.days import LENGTHS, SHORTEST, length_of
from mainspring.core.cron.expression import LONGEST, MACROS, read
from mainspring.core.cron.fields import Field, bits
from mainspring.core.rules import Cron
from mainspring.errors import DeclarationError, ScheduleError
from tests.core.cron_by_hand import ByHand, utc
from tests.core.cron_drawn import expressions, thoroughly


@pytest.mark.parametrize(("field", "written", "meant"), [
    (fields.MINUTE, "*", set(range(60))),
    (fields.MINUTE, "0", {0}),
    (fields.MINUTE, "07", {7}),
    (fields.MINUTE, "0,15,30", {0, 15, 30}),
    (fields.MINUTE, "10-13", {10, 11, 12, 13}),
    (fields.MINUTE, "*/20", {0, 20, 40}),
    (fields.MINUTE, "*/60", {0}),
    (fields.MINUTE, "5/20", {5, 25, 45}),
    (fields.MINUTE, "10-30/10", {10, 20, 30}),
    (fields.MINUTE, "58-2", {58, 59, 0, 1, 2}),
    (fields.MINUTE, "7-7", {7}),
    (fields.HOUR, "22-2", {22, 23, 0, 1, 2}),
    (fields.HOUR, "22-2/2", {22, 0, 2}),
    (fields.HOUR, "1,3-5,*/12", {0, 1, 3, 4, 5, 12}),
    (fields.MONTH, "JAN,jul".upper(), {1, 7}),
    (fields.MONTH, "NOV-FEB", {11, 12, 1, 2}),
    (fields.MONTH, "*/3", {1, 4, 7, 10}),
    (fields.MONTH, "NOV/1", {11, 12}),
])  # fmt: skip
def test_numbers_are_read_as_people_mean_them(field: Field, written: str, meant: set[int]) -> None:
    assert set(bits(fields.read(field, written))) == meant


@pytest.mark.parametrize(("written", "meant"), [
    ("0", {0}), ("7", {0}), ("SUN", {0}), ("MON-FRI", {1, 2, 3, 4, 5}), ("FRI-MON", {5, 6, 0, 1}), ("6-7", {6, 0}),
    ("SAT-SUN", {6, 0}), ("7-2", {0, 1, 2}), ("MON-SUN", set(range(7))), ("0-7", set(range(7))), ("5/2", {5, 0}),
    ("*/2", {0, 2, 4, 6}), ("?", set(range(7))), ("FRI-MON/2", {5, 0}),
])  # fmt: skip
def test_sunday_is_0_and_7_and_weeks_go_round(written: str, meant: set[int]) -> None:
    assert set(bits(fields.read_week_days(written).numbers)) == meant


def test_the_fields_of_days_know_more_than_numbers() -> None:
    days = fields.read_month_days("1,L,L-3,LW,15W,31W")
    assert set(bits(days.numbers)) == {1}
    assert set(bits(days.from_last)) == {0, 3}
    assert set(bits(days.nearest)) == {15, 31}
    assert days.last_weekday
    weekdays = fields.read_week_days("MON#2,5#1,7#5,FRIL,7L,WED")
    assert set(bits(weekdays.numbers)) == {3}
    assert [set(bits(nth)) for nth in weekdays.nth] == [{5}, {1}, set(), set(), {0}]
    assert set(bits(weekdays.last)) == {5, 0}


def test_names_may_be_small_and_spaces_many() -> None:
    assert read("0  9\t* jan-MAR  mon-Fri") == read("0 9 * 1-3 1-5")
    assert Cron("  0 9\n*\u00a0* *  ") == Cron("0 9 * * *")


@pytest.mark.parametrize(("macro", "same"), [*MACROS.items(), ("@Daily", "0 0 * * *"), (" @hourly ", "0 * * * *")])
def test_a_macro_is_a_short_name(macro: str, same: str) -> None:
    assert read(macro) == read(macro.lower()) == read(same)


MINUTES = "expected 0 to 59"
DATES = "expected 1 to 31, L, L-3, LW or 15W"
MONTHS = "expected 1 to 12 or JAN to DEC"
WEEKDAYS = "expected 0 to 7 (0 and 7 are Sunday), SUN to SAT, MON#2 or FRIL"


@pytest.mark.parametrize(("written", "said"), [
    ("60 * * * *", f"minute: '60' is out of range; {MINUTES}"),
    ("* 24 * * *", "hour: '24' is out of range; expected 0 to 23"),
    ("60 * * * * *", f"second: '60' is out of range; {MINUTES}"),
    ("* * 0 * *", f"day of month: '0' is out of range; {DATES}"),
    ("* * 32 * *", f"day of month: '32' is out of range; {DATES}"),
    ("* * 1-32 * *", f"day of month: '32' is out of range; {DATES}"),
    ("* * L-31 * *", f"day of month: 'L-31' is out of range; {DATES}"),
    ("* * 0W * *", f"day of month: '0W' is out of range; {DATES}"),
    ("* * 32W * *", f"day of month: '32W' is out of range; {DATES}"),
    ("* * W * *", f"day of month: 'W' cannot be read; {DATES}"),
    ("* * MON * *", f"day of month: 'MON' cannot be read; {DATES}"),
    ("* * ?,5 * *", f"day of month: '?' cannot be read; {DATES}"),
    ("* * * 13 *", f"month: '13' is out of range; {MONTHS}"),
    ("* * * 0 *", f"month: '0' is out of range; {MONTHS}"),
    ("* * * JANUARY *", f"month: 'JANUARY' cannot be read; {MONTHS}"),
    ("* * * L *", f"month: 'L' cannot be read; {MONTHS}"),
    ("* * * * 8", f"day of week: '8' is out of range; {WEEKDAYS}"),
    ("* * * * MON#6", f"day of week: 'MON#6' is out of range; {WEEKDAYS}"),
    ("* * * * MON#0", f"day of week: 'MON#0' is out of range; {WEEKDAYS}"),
    ("* * * * 8#1", f"day of week: '8' is out of range; {WEEKDAYS}"),
    ("* * * * MOO", f"day of week: 'MOO' cannot be read; {WEEKDAYS}"),
    ("* * * * MON-FRI#2", f"day of week: 'MON-FRI#2' cannot be read; {WEEKDAYS}"),
    ("* * * * L", f"day of week: 'L' cannot be read; {WEEKDAYS}"),
    ("? * * * *", f"minute: '?' cannot be read; {MINUTES}"),
    ("*/0 * * * *", "minute: the step of '*/0' is out of range; expected 1 to 60"),
    ("*/90 * * * *", "minute: the step of '*/90' is out of range; expected 1 to 60; for other lengths of time there is"),
    ("* 1-5/25 * * *", "hour: the step of '1-5/25' is out of range; expected 1 to 24"),
    ("*/-1 * * * *", f"minute: '*/-1' cannot be read; {MINUTES}"),
    ("*-5 * * * *", f"minute: '*-5' cannot be read; {MINUTES}"),
    ("1-2-3 * * * *", f"minute: '1-2-3' cannot be read; {MINUTES}"),
    ("1/2/3 * * * *", f"minute: '1/2/3' cannot be read; {MINUTES}"),
    ("-5 * * * *", f"minute: '-5' cannot be read; {MINUTES}"),
    ("1.5 * * * *", f"minute: '1.5' cannot be read; {MINUTES}"),
    (", * * * *", f"minute: '' cannot be read; {MINUTES}"),
    ("1,,2 * * * *", f"minute: '' cannot be read; {MINUTES}"),
    ("1,2, * * * *", f"minute: '' cannot be read; {MINUTES}"),
    ("", "expected 5 fields (minute, hour, day of month, month, day of week), or 6 with the second first, not 0"),
    ("* * * *", "with the second first, not 4"),
    ("* * * * * * *", "with the second first, not 7"),
    ("@reboot", "for what runs when a node starts, use a service"),
    ("@every", "there is no such macro; expected one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hou"),
    ("@daily @daily", "there is no such macro"),
])  # fmt: skip
def test_a_refusal_names_the_field_and_what_was_expected(written: str, said: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        Cron(written)
    assert said in str(refused.value)
    assert refused.value.subject == f"Cron({written!r})"


def test_everything_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(ScheduleError) as refused:
        Cron("61 25 32 13 8", tz="Europe/Berln")
    told = str(refused.value)
    assert isinstance(refused.value, DeclarationError)
    for part in (
        "minute: '61'",
        "hour: '25'",
        "day of month: '32'",
        "month: '13'",
        "day of week: '8'",
        "Europe/Berlin",
    ):
        assert part in told


@pytest.mark.parametrize("written", [
    "0 0 31 2 *", "0 0 30 2 *", "0 0 30W 2 *", "0 0 31 2,4,6,9,11 *", "0 0 31W 4 *", "0 0 L-29 2 *", "0 0 L-30 4 *",
    "0 0 30-31 FEB ?",
])  # fmt: skip
def test_a_rule_that_can_never_fire_is_refused(written: str) -> None:
    with pytest.raises(ScheduleError, match="it can never fire: none of its months ever has such a day"):
        Cron(written)


@pytest.mark.parametrize("written", [
    "0 0 29 2 *", "0 0 L-28 2 *", "0 0 29W 2 *", "0 0 ? 2 MON#5", "0 0 31 2 MON", "0 0 */30 2 SAT#1",
])  # fmt: skip
def test_what_fires_in_some_years_or_by_its_weekday_is_fine(written: str) -> None:
    assert Cron(written).text == written


def test_a_rule_whose_times_are_always_left_out_is_refused_in_that_zone_only() -> None:
    with pytest.raises(ScheduleError, match="it can never fire: in America/New_York clocks are set forward past its"):
        Cron("*/5 2 ? 3 SUN#2", tz="America/New_York")
    assert Cron("*/5 2 ? 3 SUN#2", tz="America/Phoenix").tz == "America/Phoenix"
    assert Cron("5 2 ? 3 SUN#2", tz="America/New_York").tz == "America/New_York", "a fixed time is never left out"


# Hostile texts.


@pytest.mark.parametrize("written", [
    "*/1," * 10_000 + "* * * * *",
    "0-59," * 190 + " * * * *",
    "9" * 900 + " * * * *",
    "*/" + "9" * 900 + " * * * *",
    "* " * 10_000,
    " " * 1_000_000,
    "\u0663 * * * *",
    "\uff13 * * * *",
    "\u00b9 * * * *",
    "* * * * \uff2d\uff2f\uff2e",
    "* * * \u017fep *",
    "\x00 * * * *",
    "* * * * *\x00",
    "\ud800 * * * *",
    "@" * 500,
    "1-" * 400,
    "L" * 900 + " * * * *",
    "0 0 " + "1W," * 300 + " * *",
    "a" * 999,
])  # fmt: skip
def test_a_hostile_text_ends_quickly_and_with_a_short_message(written: str) -> None:
    began = time.thread_time()
    with pytest.raises(ScheduleError) as refused:
        Cron(written)
    assert time.thread_time() - began < 1
    assert len(str(refused.value)) < 2 * LONGEST + 500


def test_the_longest_text_that_makes_sense_is_read_in_no_time() -> None:
    every = [
        ",".join(map(str, range(first, last + 1))) for first, last in ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12))
    ]
    text = " ".join([*every, "0,1,2,3,4,5,6"])
    assert len(text) < 540 < LONGEST
    began = time.thread_time()
    assert Cron(text).explain() == "Every second, UTC."
    assert Cron("*/1," * 240 + "* * * * *").explain() == "Every minute, UTC."
    assert time.thread_time() - began < 1


alphabet = st.sampled_from("0123456789*/-,?LW#@ abMONJF") | st.characters()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@thoroughly
@given(
    st.text() | st.text(alphabet) | expressions() | expressions(seconds=True), st.sampled_from(["UTC", "Asia/Tokyo"])
)
@example("0 0 31 2 *", "UTC")
def test_any_text_is_a_rule_or_a_schedule_error(text: str, tz: str) -> None:
    try:
        rule = Cron(text, tz=tz)
    except ScheduleError:
        return
    assert rule.explain().endswith(("UTC.", "Asia/Tokyo time."))


@pytest.mark.parametrize(("text", "tz"), [(None, "UTC"), (5, "UTC"), ("* * * * *", None), (b"* * * * *", "UTC")])
def test_what_is_no_text_is_refused(text: str, tz: str) -> None:
    with pytest.raises(ScheduleError, match="is text, not"):
        Cron(text, tz=tz)


# Which days.


@pytest.mark.slow
@pytest.mark.timeout(1800)
@thoroughly
@given(expressions(), st.dates(date(1900, 1, 1), date(2300, 12, 31)))
def test_the_days_of_a_month_are_those_found_by_hand(text: str, day: date) -> None:
    try:
        expression = read(text)
    except ScheduleError:
        return
    by_hand = ByHand(text)
    length = length_of(day.year, day.month)
    first = day.replace(day=1).isoweekday() % 7
    found = expression.calendar[length - SHORTEST][first] if expression.months >> day.month & 1 else 0
    assert set(bits(found)) == {one for one in range(1, length + 1) if by_hand.is_meant(day.replace(day=one))}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@thoroughly
@given(expressions())
def test_only_what_never_matches_a_day_is_refused(text: str) -> None:
    try:
        read(text)
    except ScheduleError:
        by_hand = ByHand(text)
        some = [date(year, month, 1) for year in range(2000, 2028) for month in by_hand.months]  # of every kind
        assert not any(by_hand.is_meant(one.replace(day=day)) for one in some for day in range(1, 1 + length(one)))


def length(day: date) -> int:
    return LENGTHS[day.month] + (day.month == 2 and day.year % 4 == 0)


@pytest.mark.parametrize(("written", "when"), [
    ("0 0 15W * *", {"2026-08": 14, "2026-11": 16, "2026-12": 15}),  # a Saturday, a Sunday, a Tuesday
    ("0 0 1W * *", {"2026-08": 3, "2026-11": 2}),  # never back into the month before
    ("0 0 31W 1,5 *", {"2026-01": 30, "2026-05": 29}),  # nor on into the next
    ("0 0 LW * *", {"2026-01": 30, "2026-05": 29, "2026-02": 27, "2026-06": 30}),
    ("0 0 L * *", {"2026-02": 28, "2028-02": 29, "2026-04": 30}),
    ("0 0 L-3 * *", {"2026-02": 25, "2028-02": 26, "2026-01": 28}),
    ("0 0 * * MON#2", {"2026-11": 9, "2026-06": 8}),
    ("0 0 * * FRIL", {"2026-11": 27, "2026-07": 31}),
    ("0 0 * * 0#5", {"2026-11": 29, "2026-05": 31}),
])  # fmt: skip
def test_special_days_fall_where_a_calendar_says(written: str, when: dict[str, int]) -> None:
    expression = read(written)
    for month, day in when.items():
        first = date.fromisoformat(f"{month}-01")
        found = expression.calendar[length_of(first.year, first.month) - SHORTEST][first.isoweekday() % 7]
        assert list(bits(found)) == [day]


def test_what_a_short_month_does_not_have_is_left_out_beside_others() -> None:
    calendar = read("0 0 L-29,30W * MON").calendar
    assert list(bits(calendar[0][1])) == [1, 8, 15, 22], "February 2027 begins on a Monday"
    assert list(bits(calendar[2][0])) == [1, 2, 9, 16, 23, 30]
    assert list(bits(read("0 0 L-28 * MON").calendar[0][1])) == [1, 8, 15, 22]
    for distance in (28, 30):
        rule = Cron(f"0 0 L-{distance} * TUE")
        assert rule.next(utc("2027-01-31T12:00Z")) == utc("2027-02-02T00:00Z")


def test_both_days_restricted_is_either_and_a_star_restricts_nothing() -> None:
    friday_13th = read("0 0 13 * FRI").calendar
    odd_mondays = read("0 0 */2 * MON").calendar
    assert list(bits(friday_13th[2][0])) == [6, 13, 20, 27]  # November 2026 began on a Sunday: the 13th is a Friday
    assert list(bits(friday_13th[2][1])) == [5, 12, 13, 19, 26]
    assert list(bits(odd_mondays[2][0])) == [9, 23]
    assert read("0 0 13 * ?").calendar == read("0 0 13 * *").calendar
