"""Values as they are kept: what goes in comes out, to the microsecond and to the last bit."""

import pickle
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.backoff import Backoff
from mainspring.core.job import JobId, Retention
from mainspring.core.outcome import AttemptError
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.errors import StoreError
from mainspring.stores.records import Facts
from mainspring.stores.sqlite import rows

INSTANTS = st.datetimes(datetime(1900, 1, 1), datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001 -- hypothesis adds the zone
SPANS = st.timedeltas(timedelta(0), timedelta(days=18_000))


@given(INSTANTS)
def test_an_instant_comes_back_to_the_microsecond(when: datetime) -> None:
    assert rows.instant(rows.micros(when)) == when
    assert rows.instant(rows.micros(when)).tzinfo is UTC


def test_an_instant_of_another_zone_is_the_same_instant() -> None:
    tokyo = datetime(2030, 1, 1, 9, tzinfo=timezone(timedelta(hours=9)))

    assert rows.micros(tokyo) == rows.micros(datetime(2030, 1, 1, tzinfo=UTC))


@given(st.binary(min_size=16, max_size=16))
def test_an_id_is_the_same_as_the_one_that_uuid_makes(stored: bytes) -> None:
    made, real = rows.job_id(stored), UUID(bytes=stored)

    assert made == real
    assert hash(made) == hash(real)
    assert str(made) == str(real)
    assert made.bytes == stored
    assert made.is_safe is real.is_safe
    assert pickle.loads(pickle.dumps(made)) == real
    assert {made: 1}[JobId(real)] == 1


@given(SPANS, SPANS, SPANS, st.floats(1, 100), st.floats(0, 1))
def test_a_policy_comes_back(first: timedelta, second: timedelta, third: timedelta, by: float, jitter: float) -> None:
    backoff = Backoff(
        initial=first, increment=third, cap=first + second, multiplier=1 if not first else by, jitter=jitter
    )
    retention = Retention(succeeded=second, failed=third)

    assert rows.policy(rows.policy_text(backoff, retention)) == (backoff, retention, False)
    assert rows.policy(rows.policy_text(backoff, retention, of_schedule=True)) == (backoff, retention, True)


@pytest.mark.parametrize("on_conflict", OnConflict)
@pytest.mark.parametrize("period", [None, timedelta(0), timedelta(days=1, microseconds=1)])
def test_a_unique_key_comes_back(on_conflict: OnConflict, period: timedelta | None) -> None:
    unique = UniqueKey(key='a "key"\0', period=period, on_conflict=on_conflict)

    assert rows.unique(rows.unique_text(unique)) == unique
    assert rows.unique(rows.unique_text(None)) is None


PARENT = JobId(UUID(int=7))


@pytest.mark.parametrize(
    "facts", [Facts(), Facts(parent=PARENT), Facts(tags=("a", "ü")), Facts(tags=("a",), parent=PARENT, owner="me")]
)
def test_facts_come_back(facts: Facts) -> None:
    parent = facts.parent.bytes if facts.parent else None

    assert rows.facts(rows.facts_text(facts), parent) == facts
    assert (rows.facts_text(facts) is None) == (not facts.tags and facts.owner is None)


def test_an_error_comes_back() -> None:
    error = AttemptError(type="E", message="\ud7ff\x00", traceback="…")

    assert rows.error(rows.error_text(error)) == error


def test_an_error_that_holds_what_is_no_character_is_kept_nevertheless() -> None:
    odd = AttemptError(type="OSError", message="no such file: 'caf\udce9'", traceback="\ud800")

    assert rows.error(rows.error_text(odd)) == AttemptError(
        type="OSError", message="no such file: 'caf\\udce9'", traceback="\\ud800"
    )


@pytest.mark.parametrize("span", [timedelta.max, timedelta.min])
def test_a_length_of_time_that_no_column_holds_is_refused(span: timedelta) -> None:
    with pytest.raises(StoreError, match="is longer than what can be kept"):
        rows.span_micros(span)


def test_an_instant_that_no_calendar_has_is_refused_when_it_is_written() -> None:
    now = rows.micros(datetime(2030, 1, 1, tzinfo=UTC))

    with pytest.raises(StoreError, match="from now is beyond the calendar's end"):
        rows.when_micros(timedelta(days=3_000_000), now)
    assert rows.when_micros(timedelta(days=2_900_000), now) == now + 2_900_000 * 86_400_000_000
