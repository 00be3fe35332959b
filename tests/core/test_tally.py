"""Counts of work: nothing is lost when they are put together, and percentiles are near the truth."""

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.core.tally import (
    LAST_STEP,
    MINUTE,
    MOST_ERRORS,
    OTHERS,
    SHORTEST,
    TEN_MINUTES,
    Count,
    Counted,
    Line,
    added,
    fewer,
    percentile,
    read,
    seconds_of,
    start_of,
    step_of,
    time_in,
    written,
)

T0 = datetime(2030, 1, 1, tzinfo=UTC)
A_STEP = 2 ** (1 / 4)
LONGEST = SHORTEST * 2**30
LENGTHS = st.floats(min_value=SHORTEST, max_value=LONGEST * 0.99)

numbers = st.integers(min_value=1, max_value=1000)
steps = st.dictionaries(st.integers(min_value=0, max_value=LAST_STEP), numbers, max_size=5)
names = st.sampled_from(["mail", "photos", "billing"])
lines = st.builds(
    Line,
    queue=names,
    task=names,
    ends=st.dictionaries(st.sampled_from(["succeeded", "failed", "will_retry"]), numbers),
    waits=steps,
    runs=steps,
    errors=st.dictionaries(st.sampled_from(["ValueError", "OSError", "KeyError"]), numbers),
)
counts = st.builds(Count, queue=names, task=names, due=numbers)


@st.composite
def some(draw: st.DrawFn) -> list[Counted]:
    """What several nodes counted, and who takes the census, each at a time of its own."""
    times = draw(st.lists(st.none() | st.integers(min_value=0, max_value=10_000), unique_by=_each, max_size=5))
    return [
        Counted(
            lines=tuple(draw(st.lists(lines, unique_by=lambda line: (line.queue, line.task), max_size=4))),
            enqueued=draw(numbers),
            counted_at=None if at is None else T0 + timedelta(seconds=at),
            complete=at is None or draw(st.booleans()),
            counts=() if at is None else tuple(draw(st.lists(counts, max_size=3))),
            nodes=0 if at is None else draw(numbers),
            places=0 if at is None else draw(numbers),
        )
        for at in times
    ]


def classes(many: list[int]) -> list[tuple[str, int]]:
    return [(OTHERS if place == 7 else f"Error{place}", number) for place, number in enumerate(many)]


def _each(at: int | None) -> object:
    return object() if at is None else at


# Lengths of time.


@given(LENGTHS)
def test_a_step_tells_a_length_to_within_half_of_it(seconds: float) -> None:
    told = seconds_of(step_of(seconds))

    assert max(told / seconds, seconds / told) <= math.sqrt(A_STEP) * 1.0001


@given(st.lists(LENGTHS, min_size=1), st.sampled_from([0.0, 0.07, 0.5, 0.95, 0.99, 1.0]))
def test_a_percentile_is_within_a_step_of_the_true_one(lengths: list[float], share: float) -> None:
    true = sorted(lengths)[max(math.ceil(share * len(lengths) - 1e-9), 1) - 1]

    told = percentile(Counter(map(step_of, lengths)), share)

    assert told is not None
    assert true / A_STEP <= told * 1.0001
    assert told <= true * A_STEP * 1.0001


@given(LENGTHS, LENGTHS)
def test_what_is_longer_is_in_no_earlier_step(one: float, other: float) -> None:
    assert (step_of(one) <= step_of(other)) or one > other


@pytest.mark.parametrize("seconds", [LONGEST, 1e12, math.inf, math.nan])
def test_what_is_longer_than_the_longest_is_in_the_last_step(seconds: float) -> None:
    assert step_of(seconds) == LAST_STEP
    assert seconds_of(LAST_STEP) < LONGEST


@pytest.mark.parametrize("seconds", [0.0, -3.0, 0.0009])
def test_what_is_shorter_than_the_shortest_is_in_the_first_step(seconds: float) -> None:
    assert step_of(seconds) == 0
    assert seconds_of(0) < SHORTEST


def test_of_nothing_there_is_no_percentile() -> None:
    assert percentile({}, 0.5) is None


@given(st.lists(LENGTHS))
def test_the_time_that_all_took_is_told_to_within_a_step(lengths: list[float]) -> None:
    true, told = sum(lengths), time_in(Counter(map(step_of, lengths)))

    assert true / A_STEP <= told * 1.0001
    assert told <= true * A_STEP * 1.0001


# Putting counts together.


@settings(max_examples=40)
@given(some(), st.integers(min_value=0, max_value=5))
def test_it_does_not_matter_which_are_put_together_first(many: list[Counted], cut: int) -> None:
    assert added([added(many[:cut]), added(many[cut:])]) == added(many)


@settings(max_examples=40)
@given(some(), st.randoms(use_true_random=False))
def test_it_does_not_matter_in_which_order_they_come(many: list[Counted], random: Random) -> None:
    shuffled = list(many)
    random.shuffle(shuffled)

    assert added(shuffled) == added(many)


@settings(max_examples=40)
@given(some())
def test_nothing_is_lost(many: list[Counted]) -> None:
    whole = added(many)

    assert whole.enqueued == sum(one.enqueued for one in many)
    for field in ("ends", "waits", "runs", "errors"):
        given = sum(sum(getattr(line, field).values()) for one in many for line in one.lines)
        assert sum(sum(getattr(line, field).values()) for line in whole.lines) == given


def test_of_several_censuses_the_last_one_counts_whole() -> None:
    early = Counted(counted_at=T0, counts=(Count(queue="mail", task="send", due=7),), nodes=3, places=60)
    late = Counted(counted_at=T0 + MINUTE, complete=False, places=20)

    assert added([late, early, Counted(enqueued=1)]) == Counted(
        enqueued=1, counted_at=T0 + MINUTE, complete=False, places=20
    )


@given(
    st.dictionaries(st.integers(min_value=0, max_value=MOST_ERRORS + 10).map(str) | st.just(OTHERS), numbers)
    | st.lists(numbers, min_size=MOST_ERRORS + 1, max_size=2 * MOST_ERRORS).map(lambda many: dict(classes(many)))
)
def test_fewer_classes_of_errors_are_as_many_errors(errors: dict[str, int]) -> None:
    kept = fewer(errors)

    assert sum(kept.values()) == sum(errors.values())
    assert len(kept) <= MOST_ERRORS
    assert all(errors[name] == number for name, number in kept.items() if name != OTHERS)
    named = [number for name, number in kept.items() if name != OTHERS]
    assert all(errors[name] <= min(named) for name in errors if name not in kept)


# How they are kept.


@settings(max_examples=40)
@given(some())
def test_what_is_written_down_is_read_back(many: list[Counted]) -> None:
    for one in many:
        assert read(written(one)) == one


@pytest.mark.parametrize("body", [b"", b"[]", b'{"lines": 7}', b"\xff"])
def test_what_cannot_be_understood_is_nothing(body: bytes) -> None:
    assert read(body) is None


@given(st.integers(min_value=-(10**9), max_value=10**9), st.integers(min_value=0, max_value=999_999))
def test_spans_begin_with_the_clock(seconds: int, microseconds: int) -> None:
    instant = T0 + timedelta(seconds=seconds, microseconds=microseconds)
    for span in (MINUTE, TEN_MINUTES):
        began = start_of(instant, span)
        assert began <= instant < began + span
        assert (began.second, began.microsecond, began.minute % (span // MINUTE)) == (0, 0, 0)
        assert start_of(began, span) == began
