"""Rules in English."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainspring.core.cron.days import Calendar, calendar
from mainspring.core.cron.expression import Expression, read
from mainspring.core.cron.fields import EVERY_DAY, EVERY_WEEKDAY, MonthDays, WeekDays
from mainspring.core.cron.sentence import sentence
from mainspring.core.rules import Cron
from mainspring.errors import ScheduleError
from tests.core.cron_drawn import expressions, thoroughly


@pytest.mark.parametrize(("text", "said"), [
    ("* * * * *", "Every minute"),
    ("*/5 * * * *", "Every 5 minutes"),
    ("0,30 * * * *", "Every 30 minutes"),
    ("*/7 * * * *", "At minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour"),
    ("0 * * * *", "At minute 0 of every hour"),
    ("@hourly", "At minute 0 of every hour"),
    ("5-10,30 * * * *", "At minutes 5 to 10 and 30 of every hour"),
    ("30 */2 * * *", "At minute 30 of every 2nd hour"),
    ("0 1-23/2 * * *", "At minute 0 of the hours 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21 and 23 every day"),
    ("0 9-17 * * *", "At minute 0 of the hours 9 to 17 every day"),
    ("* 9 * * *", "Every minute from 09:00 to 09:59 every day"),
    ("*/15 9-17 * * MON-FRI", "Every 15 minutes from 09:00 to 17:59 on Monday to Friday"),
    ("*/15 22-2 * * *", "Every 15 minutes from 00:00 to 02:59 and from 22:00 to 23:59 every day"),
    ("*/15 1,3,5 * * *", "Every 15 minutes of the hours 1, 3 and 5 every day"),
    ("0 9 * * MON-FRI", "At 09:00 on Monday to Friday"),
    ("30 2 * * *", "At 02:30 every day"),
    ("0 9,17 * * *", "At 09:00 and 17:00 every day"),
    ("0,30 8-10 * * SAT,SUN", "At 08:00, 08:30, 09:00, 09:30, 10:00 and 10:30 on Saturday and Sunday"),
    ("0 9 * * FRI-MON", "At 09:00 on Friday to Monday"),
    ("0 9 * * MON,WED,SUN", "At 09:00 on Sunday, Monday and Wednesday"),
    ("0 9 * * WED,SAT,SUN", "At 09:00 on Wednesday, Saturday and Sunday"),
    ("0 9 * JUN-AUG *", "At 09:00 every day from June to August"),
    ("0 9 * NOV-FEB SAT", "At 09:00 on Saturday from November to February"),
    ("0 9 * 6 *", "At 09:00 every day in June"),
    ("* * * 1,6-8 *", "Every minute in January and June to August"),
    ("0 0 1 * *", "At 00:00 on the 1st of every month"),
    ("0 0 1,15 * *", "At 00:00 on the 1st and the 15th of every month"),
    ("0 0 1-7 * *", "At 00:00 on the 1st to 7th of every month"),
    ("0 0 2,3,11,12,13,22,23 * *", "At 00:00 on the 2nd, the 3rd, the 11th to 13th, the 22nd and the 23rd of every month"),
    ("0 0 */2 * *", "At 00:00 on every 2nd day (1st, 3rd … 31st) of every month"),
    ("0 0 L * *", "At 00:00 on the last day of every month"),
    ("0 0 L-1 * *", "At 00:00 on the last day but one of every month"),
    ("0 0 L-3 * *", "At 00:00 on the 3rd day before the last of every month"),
    ("0 0 LW * *", "At 00:00 on the last weekday of every month"),
    ("0 0 1,15W * *", "At 00:00 on the 1st and the weekday nearest to the 15th of every month"),
    ("@yearly", "At 00:00 on the 1st of January"),
    ("0 0 1 JAN,JUL *", "At 00:00 on the 1st of January and July"),
    ("0 0 1 JUN-AUG *", "At 00:00 on the 1st of every month from June to August"),
    ("0 0 * * MON#2", "At 00:00 on the second Monday of every month"),
    ("0 0 * * FRIL", "At 00:00 on the last Friday of every month"),
    ("0 0 * 3 WED,FRIL", "At 00:00 on Wednesday in March and on the last Friday of March"),
    ("0 0 13 * FRI", "At 00:00 on the 13th of every month and on Friday"),
    ("0 0 13 3 FRI", "At 00:00 on the 13th of March and on Friday in March"),
    ("0 0 */2 * MON", "At 00:00 on Monday, where it falls on every 2nd day (1st, 3rd … 31st) of the month"),
    ("0 0 */30 * MON", "At 00:00 on Monday, where it falls on the 1st or the 31st of the month"),
    ("0 0 13 * 0-6", "At 00:00 every day"),
    ("0 0 1-31 * FRI", "At 00:00 every day"),
    ("* * * * * *", "Every second"),
    ("*/10 * * * * *", "Every 10 seconds"),
    ("*/10 * 9-17 * * *", "Every 10 seconds from 09:00 to 17:59 every day"),
    ("* 30 * * * *", "Every second of minute 30 of every hour"),
    ("5,10 * * * * *", "At seconds 5 and 10 of every minute"),
    ("15 */10 9-17 * * *", "At second 15 of every 10th minute from 09:00 to 17:59 every day"),
    ("30 0 9 * * *", "At 09:00:30 every day"),
    ("0 0 9 * * *", "At 09:00 every day"),
    ("0,30 0 9 * * *", "At 09:00:00 and 09:00:30 every day"),
])  # fmt: skip
def test_it_is_said_as_a_person_would(text: str, said: str) -> None:
    assert Cron(text).explain() == f"{said}, UTC."
    assert Cron(text, tz="Europe/Berlin").explain() == f"{said}, Europe/Berlin time."


def meaning(expression: Expression) -> tuple[object, ...]:
    """Return what decides when an expression matches."""
    by_month = [
        tuple(kind) if expression.months >> month & 1 else ()
        for month in range(1, 13)
        for length, kind in enumerate(expression.calendar, 28)
        if length in ((28, 29) if month == 2 else (30,) if month in {4, 6, 9, 11} else (31,))
    ]
    return expression.seconds, expression.minutes, expression.hours, by_month


def drawn(text: str) -> Expression | None:
    try:
        return read(text)
    except ScheduleError:
        return None


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[str, str]:
    """Draw two expressions that differ in one field at most."""
    words = draw(expressions(seconds=True)).split()
    others = draw(expressions(seconds=True)).split()
    place = draw(st.integers(0, 5))
    return " ".join(words), " ".join([*words[:place], others[place], *words[place + 1 :]])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@thoroughly
@given(neighbours())
def test_the_same_sentence_is_said_of_the_same_times_only(texts: tuple[str, str]) -> None:
    one, other = map(drawn, texts)
    if one and other and sentence(one, "UTC") == sentence(other, "UTC"):
        assert meaning(one) == meaning(other)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@thoroughly
@given(expressions(seconds=True), st.sampled_from(["seconds", "minutes", "hours", "months"]), st.integers(0, 59))
def test_one_number_more_or_less_is_heard(text: str, field: str, number: int) -> None:
    expression = drawn(text)
    size = {"seconds": 60, "minutes": 60, "hours": 24, "months": 12}[field]
    changed = getattr(expression, field, 0) ^ 1 << number % size + (field == "months")
    if expression and changed:
        assert sentence(replace(expression, **{field: changed}), "UTC") != sentence(expression, "UTC")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@thoroughly
@given(
    st.integers(1, EVERY_DAY >> 1), st.integers(0, 30), st.integers(0, EVERY_WEEKDAY), st.booleans(), st.integers(0, 30)
)
def test_one_day_more_or_less_is_heard(numbers: int, day: int, weekdays: int, starred: bool, last: int) -> None:
    some = WeekDays(numbers=weekdays, nth=(0, 4, 0, 0, 0), starred=starred)
    days = MonthDays(numbers=numbers << 1, from_last=1 << last)
    rest = read("0 0 * * *")
    heard: dict[str, Calendar] = {}
    for one in (
        days,
        replace(days, numbers=days.numbers ^ 2 << day),
        replace(days, from_last=days.from_last ^ 1 << day),
    ):
        matched = calendar(one, some)
        assert heard.setdefault(sentence(replace(rest, days=one, weekdays=some), "UTC"), matched) == matched
