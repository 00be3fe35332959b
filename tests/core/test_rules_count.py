"""A count is the number of what `between` names."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.rules import Cron, Every, Manual, Once, Rule
from tests.core.cron_by_hand import utc
from tests.core.cron_drawn import expressions, instants
from tests.core.test_cron_walk import COMMON, places, rule_of

START = utc("2026-03-28T00:00Z")
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@given(
    expressions() | st.sampled_from([*COMMON, "*/7 * * * * *"]),
    places,
    st.integers(0, 3 * 86_400).map(lambda n: timedelta(seconds=n, microseconds=n)),
)
def test_of_cron(text: str, place: tuple[str, datetime], length: timedelta) -> None:
    tz, start = place
    rule = rule_of(text, tz)
    assert rule.count(start, start + length) == sum(1 for _ in rule.between(start, start + length))


@given(st.integers(10, 10**7).map(lambda n: timedelta(milliseconds=n)), instants, st.integers(0, 500), st.booleans())
def test_of_an_interval(interval: timedelta, start: datetime, many: int, anchored: bool) -> None:
    rule = Every(interval).anchored(start) if anchored else Every(interval)
    end = start + interval * many / 3
    assert rule.count(start, end) == sum(1 for _ in rule.between(start, end))


@pytest.mark.parametrize(
    ("rule", "count"), [(Once(START), 1), (Once(START + 2 * DAY), 0), (Manual(), 0), (Every(HOUR, after_end=True), 1)]
)
def test_of_others(rule: Rule, count: int) -> None:
    assert rule.count(START - HOUR, START + DAY) == count


@pytest.mark.parametrize("tz", ["UTC", "Europe/Berlin", "Australia/Lord_Howe"])
def test_a_century_of_seconds_is_counted_at_once(tz: str) -> None:
    century = utc("2126-03-28T00:00Z")
    assert Cron("* * * * * *", tz=tz).count(START, century) == (century - START).total_seconds()


def test_backwards_there_is_nothing() -> None:
    assert Every(HOUR).anchored(START).count(START + DAY, START) == 0
    assert Cron("* * * * *").count(START + DAY, START) == 0
