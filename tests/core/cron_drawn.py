"""Cron expressions, drawn at random; many more of them in `make test-full`."""

from datetime import UTC, datetime

from hypothesis import settings
from hypothesis import strategies as st

from tests.core.cron_by_hand import MONTHS, WEEKDAYS
from tests.tier import FULL

thoroughly = settings(max_examples=1_000 if FULL else 100)

LIMITS = {"second": (0, 59), "minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 7)}
NAMES = {"month": dict(enumerate(MONTHS, 1)), "weekday": dict(enumerate(WEEKDAYS))}

instants = st.datetimes(datetime(1972, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - it adds UTC


@st.composite
def items(draw: st.DrawFn, field: str, *, plain: bool) -> str:
    """Draw one item of a field; a plain one is what every cron reads in the same way."""
    first, last = LIMITS[field]
    size = 7 if field == "weekday" else last - first + 1
    number = st.integers(first, last)
    named = number if plain else number.map(lambda one: NAMES.get(field, {}).get(one, one))
    step = draw(st.integers(2, size).map("/{}".format) | st.just(""))
    match draw(st.sampled_from(["*", "one", "span", "wrapped"])):
        case "*":
            return f"*{step}"
        case "span":
            low, high = sorted((draw(number), draw(number)))
            return f"{low}-{high}{step if low < high else ''}"
        case "wrapped" if not plain:
            return f"{draw(named)}-{draw(named)}{step}"
        case _:
            return f"{draw(named)}{step}"


def special(field: str, *, plain: bool) -> st.SearchStrategy[str]:
    match field, plain:
        case "day", True:
            return st.sampled_from(["L", "LW"])
        case "day", False:
            distances = st.integers(1, 30).map("L-{}".format)
            return st.sampled_from(["L", "LW"]) | distances | st.integers(1, 31).map("{}W".format)
        case "weekday", True:
            return st.integers(0, 7).map("{}L".format) | st.builds("{}#{}".format, st.integers(0, 7), st.integers(1, 5))
        case _:
            days = st.sampled_from([*WEEKDAYS, *range(8)])
            return days.map("{}L".format) | st.builds("{}#{}".format, days, st.integers(1, 5))


def fields(field: str, *, plain: bool = False) -> st.SearchStrategy[str]:
    one = items(field, plain=plain)
    if field in {"day", "weekday"}:
        one = one | special(field, plain=plain)
    listed = st.lists(one, min_size=1, max_size=3).map(",".join)
    if field in {"day", "month", "weekday"}:  # left open more often, so that something happens
        listed = st.just("*") | listed
    if field in {"day", "weekday"} and not plain:
        listed = listed | st.just("?")
    return listed


def expressions(*, plain: bool = False, seconds: bool = False) -> st.SearchStrategy[str]:
    """Draw expressions of 5 fields, or of 6; some of them can never fire."""
    words = ("second",) * seconds + ("minute", "hour", "day", "month", "weekday")
    return st.tuples(*(fields(word, plain=plain) for word in words)).map(" ".join)
