"""How long to wait after the n-th failure in a row."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainspring.core.backoff import Backoff
from mainspring.duration import Duration
from mainspring.errors import DeclarationError


def waits(backoff: Backoff, count: int, roll: float = 0.5) -> list[float]:
    return [backoff.delay(failures, roll).total_seconds() for failures in range(1, count + 1)]


@pytest.mark.parametrize(("backoff", "expected"), [
    (Backoff.fixed("5s"), [5, 5, 5, 5]),
    (Backoff.linear("1s", "2s", cap="6s"), [1, 3, 5, 6]),
    (Backoff.exponential("1s", jitter=0), [1, 2, 4, 8]),
    (Backoff.exponential("1s", multiplier=10, cap="1m", jitter=0), [1, 10, 60, 60]),
    (Backoff.fixed(0), [0, 0, 0, 0]),
])  # fmt: skip
def test_each_curve_waits_as_its_name_says(backoff: Backoff, expected: list[float]) -> None:
    assert waits(backoff, 4) == expected


def test_the_default_is_doubling_from_a_second_to_a_quarter_of_an_hour_give_or_take_a_quarter() -> None:
    assert waits(Backoff.exponential(), 12, roll=1.0)[-2:] == [900, 900]
    assert waits(Backoff.exponential(), 12, roll=0.0)[-2:] == [540, 540]
    assert Backoff.exponential().delay(1, 0.0).total_seconds() == 0.75
    assert Backoff.exponential().delay(1, 1.0).total_seconds() == 1.25


def test_jitter_moves_a_fixed_wait_both_ways() -> None:
    backoff = Backoff.fixed(10, jitter=0.2)
    assert (backoff.delay(1, 0.0).total_seconds(), backoff.delay(1, 1.0).total_seconds()) == (8, 12)


durations = st.integers(1, 10**6).map(lambda ms: timedelta(milliseconds=ms))
curves = st.one_of(
    st.builds(Backoff.fixed, durations, jitter=st.floats(0, 1)),
    st.builds(Backoff.linear, durations, durations, cap=st.just("1d"), jitter=st.floats(0, 1)),
    st.builds(Backoff.exponential, durations, multiplier=st.floats(1, 100), cap=st.just("1d"), jitter=st.floats(0, 1)),
)


@given(curve=curves, failures=st.integers(1, 10**9), roll=st.floats(0, 1))
def test_no_wait_is_negative_or_passes_the_cap_however_many_failures(
    curve: Backoff, failures: int, roll: float
) -> None:
    assert timedelta(0) <= curve.delay(failures, roll) <= curve.cap


def test_a_million_failures_are_not_too_many() -> None:
    assert Backoff.exponential(1, cap="1h", jitter=0).delay(10**6, 0.5) == timedelta(hours=1)


def test_at_the_cap_replicas_still_return_one_by_one() -> None:
    rolls = [roll / 1000 for roll in range(1000)]
    assert len({Backoff.exponential().delay(50, roll) for roll in rolls}) == 1000


@given(curve=curves, failures=st.integers(1, 10**6))
def test_without_jitter_a_wait_never_shrinks(curve: Backoff, failures: int) -> None:
    assert curve.delay(failures, 0.5) <= curve.delay(failures + 1, 0.5)


@pytest.mark.parametrize(("initial", "multiplier", "jitter", "said"), [
    ("1h", 2.0, 0.0, "longer than the cap"),
    ("1s", 0.5, 0.0, "at least 1"),
    ("1s", float("nan"), 0.0, "at least 1"),
    ("1s", float("inf"), 0.0, "at least 1"),
    ("1s", 2.0, 1.5, "from 0 to 1"),
    (0, 2.0, 0.0, "never grows"),
])  # fmt: skip
def test_a_curve_that_makes_no_sense_is_refused(initial: Duration, multiplier: float, jitter: float, said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        Backoff.exponential(initial, multiplier=multiplier, cap="1m", jitter=jitter)


@pytest.mark.parametrize(("field", "said"), [
    ({"initial": timedelta(seconds=-1)}, "negative"),
    ({"increment": timedelta(seconds=-1)}, "negative"),
    ({"cap": timedelta(days=10**6)}, "century"),
])  # fmt: skip
def test_a_curve_that_was_not_made_by_its_names_is_checked_too(field: dict[str, timedelta], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        replace(Backoff.fixed(1), **field)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(DeclarationError, match=r"longer than the cap; .*at least 1.*; .*from 0 to 1"):
        Backoff.exponential("1h", multiplier=0, cap="1m", jitter=7)
