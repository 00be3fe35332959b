"""Jobs of which there shall be only one at a time."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.unique import OnConflict, Unique, UniqueKey, is_taken
from mainspring.errors import BadDuration, DeclarationError

NOW = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
MOMENT = timedelta(microseconds=1)


@pytest.mark.parametrize(("key", "keys"), [(None, None), ("customer", ("customer",)), (("a", "b"), ("a", "b"))])
def test_a_key_is_made_of_one_argument_of_several_or_of_all(
    key: str | tuple[str, ...] | None, keys: tuple[str, ...] | None
) -> None:
    assert Unique(key=key).keys == keys


@pytest.mark.parametrize("key", [(), "", ("a", "")])
def test_a_key_of_nothing_is_refused(key: str | tuple[str, ...]) -> None:
    with pytest.raises(DeclarationError, match="Unique: a key is the name of an argument, or several of them"):
        Unique(key=key)


def test_what_happens_on_conflict_is_one_of_three() -> None:
    assert Unique().on_conflict is OnConflict.RETURN
    assert [Unique(on_conflict=str(one)).on_conflict for one in OnConflict] == ["return", "replace", "raise"]
    with pytest.raises(DeclarationError, match="on_conflict is one of 'return', 'replace', 'raise', not 'ignore'"):
        Unique(on_conflict="ignore")


def test_a_period_is_a_duration() -> None:
    assert Unique(period="1d").period == "1d"
    with pytest.raises(BadDuration, match="time does not run backwards"):
        Unique(period=-1)


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(DeclarationError, match=r"a key is .*; on_conflict is one of .*, not 'x'"):
        Unique(key=(), on_conflict="x")


def test_a_key_with_a_period_stays_taken_from_its_enqueue_on() -> None:
    assert UniqueKey(key="k").taken_until(NOW) is None
    assert UniqueKey(key="k", period=HOUR).taken_until(NOW) == NOW + HOUR


def test_a_key_without_a_period_is_taken_while_its_job_is_active() -> None:
    assert is_taken(active=True, taken_until=None, now=NOW)
    assert not is_taken(active=False, taken_until=None, now=NOW)


def test_a_key_with_a_period_is_free_in_the_instant_that_it_ends() -> None:
    until = UniqueKey(key="k", period=HOUR).taken_until(NOW)
    assert is_taken(active=False, taken_until=until, now=NOW + HOUR - MOMENT)
    assert not is_taken(active=False, taken_until=until, now=NOW + HOUR)
    assert is_taken(active=True, taken_until=until, now=NOW + 2 * HOUR)


@given(
    st.booleans(),
    st.none() | st.timedeltas(timedelta(0), timedelta(days=9)),
    st.timedeltas(timedelta(0), timedelta(days=9)),
)
def test_a_key_that_is_free_stays_free_until_it_is_taken_again(
    active: bool, period: timedelta | None, passed: timedelta
) -> None:
    taken_until = UniqueKey(key="k", period=period).taken_until(NOW)
    if not is_taken(active=active, taken_until=taken_until, now=NOW + passed):
        assert not active
        assert not is_taken(active=False, taken_until=taken_until, now=NOW + passed + HOUR)
