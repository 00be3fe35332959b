"""The four rules of schedules, and how they are kept."""

import copy
import pickle
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.rules import SHORTEST, Cron, Every, Manual, Once, Rule, same_rule
from mainspring.duration import LONGEST, Duration
from mainspring.errors import BadDuration, ScheduleError
from tests.core.cron_by_hand import utc

NOW = datetime(2026, 11, 15, 12, 0, 7, 250_000, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MOMENT = timedelta(microseconds=1)
END = datetime.max.replace(tzinfo=UTC)
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - that is the point

RULES: list[Rule] = [
    Cron("0 9 * * MON-FRI", tz="Europe/Berlin"),
    Cron("@daily"),
    Every("15m"),
    Every("1d12h", start="2026-01-01T00:00:00.000001Z"),
    Every(0.25, after_end=True),
    Once(NOW),
    Manual(),
]

intervals = st.timedeltas(SHORTEST, timedelta(days=400))
instants = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - adds UTC


# Every.


@given(intervals, instants, instants)
def test_slots_at_a_fixed_rate_are_whole_intervals_from_the_start(
    interval: timedelta, start: datetime, instant: datetime
) -> None:
    rule = Every(interval, start=start)
    later, earlier = rule.next(instant), rule.previous(instant)
    assert later is not None
    assert later > instant
    assert later >= start
    assert (later - start) % interval == timedelta(0)
    assert later == start or later - interval <= instant, "none is left out"
    if earlier is None:
        assert instant <= start
    else:
        assert start <= earlier < instant <= earlier + interval
        assert (earlier - start) % interval == timedelta(0)


@given(intervals, instants, instants)
def test_there_and_back_at_a_fixed_rate(interval: timedelta, start: datetime, instant: datetime) -> None:
    rule = Every(interval, start=start)
    slots = list(islice(rule.between(instant, END), 4))
    assert slots == sorted(set(slots))
    assert [rule.previous(slot) for slot in slots[1:]] == slots[:-1]
    assert [rule.next(slot) for slot in slots[:-1]] == slots[1:]
    assert list(rule.between(slots[0] - MOMENT, slots[2])) == slots[:3]
    assert list(rule.between(slots[0], slots[2] - MOMENT)) == slots[1:2]


def test_a_given_start_is_the_first_slot() -> None:
    rule = Every("15m", start=NOW)
    assert rule.next(NOW - MOMENT) == rule.next(NOW - 99 * MINUTE) == NOW
    assert rule.next(NOW) == NOW + 15 * MINUTE
    assert rule.previous(NOW) is None
    assert rule.previous(NOW + MOMENT) == NOW
    assert rule.previous(NOW + 15 * MINUTE) == NOW
    assert rule.anchored(NOW + MINUTE) == rule, "now is of no interest then"


def test_without_a_start_the_first_slot_is_an_interval_away_from_where_it_is_anchored() -> None:
    rule = Every("15m")
    assert rule.next(NOW) == NOW + 15 * MINUTE
    assert rule.previous(NOW) == NOW - 15 * MINUTE
    assert list(rule.between(NOW, NOW + 40 * MINUTE)) == [NOW + 15 * MINUTE, NOW + 30 * MINUTE]
    anchored = rule.anchored(NOW.astimezone(timezone(timedelta(hours=2))))
    assert anchored == Every("15m", start=NOW + 15 * MINUTE)
    assert anchored.next(NOW) == anchored.next(NOW - timedelta(days=1)) == NOW + 15 * MINUTE
    assert anchored.next(NOW + 16 * MINUTE) == NOW + 30 * MINUTE, "late is no reason to drift"
    assert anchored.anchored(NOW + timedelta(days=1)) == anchored


def test_a_fixed_delay_counts_from_the_end_of_a_run() -> None:
    rule = Every("15m", after_end=True)
    ended = NOW + MINUTE
    assert rule.next(ended) == ended + 15 * MINUTE
    anchored = rule.anchored(NOW)
    assert anchored.next(NOW) == NOW + 15 * MINUTE
    assert anchored.next(NOW + 17 * MINUTE) == NOW + 32 * MINUTE
    assert anchored.previous(END) is None, "only the runs know"
    assert list(anchored.between(NOW, NOW + timedelta(days=1))) == [NOW + 15 * MINUTE], "the next one waits for its end"
    assert list(anchored.between(NOW, NOW + MINUTE)) == []


def test_time_ends_for_intervals_too() -> None:
    for rule in (Every("100d"), Every("100d", start=NOW), Every("100d", after_end=True)):
        assert rule.next(END - timedelta(days=1)) is None
        assert list(rule.between(END - timedelta(days=1), END)) == []
    assert Every("1d").previous(datetime.min.replace(tzinfo=UTC)) is None


@pytest.mark.parametrize("interval", [0, "9ms", timedelta(microseconds=9_999)])
def test_an_interval_has_ten_milliseconds_at_least(interval: Duration) -> None:
    with pytest.raises(ScheduleError, match="10 ms or more"):
        Every(interval)
    assert Every("10ms").interval == SHORTEST


@pytest.mark.parametrize("interval", ["15", "soon", -1, None, LONGEST + MOMENT, True])
def test_an_interval_is_a_duration_of_a_century_at_most(interval: Duration) -> None:
    with pytest.raises(BadDuration):
        Every(interval)
    assert Every(LONGEST).interval == LONGEST


def test_after_end_is_yes_or_no() -> None:
    with pytest.raises(ScheduleError, match="after_end is yes or no, not 'yes'"):
        Every("1m", after_end="yes")  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize(("rule", "said"), [
    (Every("15m"), "Every 15 minutes."),
    (Every("1h"), "Every hour."),
    (Every("1d"), "Every day."),
    (Every(1), "Every second."),
    (Every("1d12h"), "Every 1 day and 12 hours."),
    (Every("1w1h1m1.5s"), "Every 7 days, 1 hour, 1 minute and 1.5 seconds."),
    (Every("10ms"), "Every 0.01 seconds."),
    (Every(LONGEST), "Every 36,525 days."),
    (Every(12.345678), "Every 12.345678 seconds."),
    (Every("1h", start="2026-01-01T01:00+01:00"), "Every hour, for the first time at 2026-01-01 00:00:00 UTC."),
    (Every("1h", after_end=True), "1 hour after the end of the run before."),
    (Every(3, start=NOW), "Every 3 seconds, for the first time at 2026-11-15 12:00:07 UTC."),
    (Once(NOW), "Once, at 2026-11-15 12:00:07 UTC."),
    (Once("2026-12-24T18:00+01:00"), "Once, at 2026-12-24 17:00:00 UTC."),
    (Manual(), "On demand only."),
])  # fmt: skip
def test_rules_explain_themselves(rule: Rule, said: str) -> None:
    assert rule.explain() == said


# Once and Manual.


def test_once_is_once() -> None:
    rule = Once("2026-11-15T13:00+01:00")
    when = utc("2026-11-15T12:00Z")
    assert rule.when == when
    assert rule.when.tzinfo is UTC
    assert rule.next(when - MOMENT) == when
    assert rule.next(when) is None
    assert rule.previous(when) is None
    assert rule.previous(when + MOMENT) == when
    assert list(rule.between(when - MINUTE, when)) == [when]
    assert list(rule.between(when, when + MINUTE)) == []


def test_manual_has_no_slots() -> None:
    assert Manual().next(NOW) is None
    assert Manual().previous(NOW) is None
    assert list(Manual().between(datetime.min.replace(tzinfo=UTC), END)) == []


@pytest.mark.parametrize("when", [NAIVE, "2026-01-01", "2026-01-01T00:00", "tomorrow", "", None, 5, NAIVE.date()])
def test_an_instant_has_an_offset(when: datetime) -> None:
    with pytest.raises(ScheduleError, match="expected an aware datetime, or text such as '2027-01-31T09:00"):
        Once(when)
    if when is not None:
        with pytest.raises(ScheduleError, match="expected an aware datetime"):
            Every("1h", start=when)


def test_an_instant_lies_within_the_calendar() -> None:
    with pytest.raises(ScheduleError, match="expected an aware datetime"):
        Once(datetime.max.replace(tzinfo=timezone(-timedelta(hours=5))))


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_takes_a_naive_instant(rule: Rule) -> None:
    for ask in (rule.next, rule.previous, lambda it: rule.between(it, NOW), lambda it: rule.between(NOW, it)):
        with pytest.raises(ScheduleError, match="expected an aware datetime"):
            ask(NAIVE)
    with pytest.raises(ScheduleError, match="expected an aware datetime"):
        Every("1h").anchored(NAIVE)


# Values.


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_a_value(rule: Rule) -> None:
    rule.next(NOW)  # what it has worked out is no part of it
    for twin in (pickle.loads(pickle.dumps(rule)), copy.copy(rule), copy.deepcopy(rule)):
        assert twin == rule
        assert hash(twin) == hash(rule)
        assert twin.next(NOW) == rule.next(NOW)
    with pytest.raises(AttributeError):
        rule.text = "* * * * *"  # type: ignore[union-attr,misc]  # that is the point


@pytest.mark.parametrize(("rule", "stored"), [
    (RULES[0], '{"type":"cron","text":"0 9 * * MON-FRI","tz":"Europe/Berlin"}'),
    (RULES[1], '{"type":"cron","text":"@daily","tz":"UTC"}'),
    (RULES[2], '{"type":"every","interval":"PT900S","after_end":false,"start":null}'),
    (RULES[3], '{"type":"every","interval":"P1DT43200S","after_end":false,"start":"2026-01-01T00:00:00.000001Z"}'),
    (RULES[4], '{"type":"every","interval":"PT0.25S","after_end":true,"start":null}'),
    (RULES[5], '{"type":"once","when":"2026-11-15T12:00:07.250000Z"}'),
    (RULES[6], '{"type":"manual"}'),
])  # fmt: skip
def test_the_stored_form_stays_what_it_is(rule: Rule, stored: str) -> None:
    assert msgspec.json.encode(rule).decode() == stored
    assert msgspec.json.decode(stored, type=Rule) == rule


@given(intervals, st.booleans(), st.none() | instants)
def test_intervals_are_kept_to_the_microsecond(interval: timedelta, after_end: bool, start: datetime | None) -> None:
    rule = Every(interval, after_end=after_end, start=start)
    assert msgspec.json.decode(msgspec.json.encode(rule), type=Rule) == rule


def test_a_store_can_keep_rules_in_records_of_its_own() -> None:
    class Row(msgspec.Struct):
        rule: Rule

    rows = [Row(rule) for rule in RULES]
    assert msgspec.json.decode(msgspec.json.encode(rows), type=list[Row]) == rows


def test_a_declaration_without_a_start_is_the_rule_that_was_anchored_from_it() -> None:
    declared = Every("15m")
    stored = declared.anchored(NOW)
    assert declared != stored
    assert same_rule(declared, stored)
    assert same_rule(declared, declared)
    assert same_rule(stored, stored)
    assert not same_rule(Every("20m"), stored)
    assert not same_rule(Every("15m", after_end=True), stored)
    assert not same_rule(Every("15m", start=NOW), stored), "it asks for a start of its own"
    assert not same_rule(Cron("*/15 * * * *"), stored)


def test_other_rules_are_the_same_if_they_say_the_same() -> None:
    for one in RULES:
        assert [other for other in RULES if same_rule(one, other)] == [one]
    assert same_rule(Cron("0  9 * * *"), Cron("0 9 * * *", tz="UTC"))
    assert not same_rule(Cron("0 9 * * *"), Cron("0 9 * * *", tz="Europe/Berlin"))
    assert same_rule(Once("2026-11-15T13:00:07.25+01:00"), Once(NOW))
