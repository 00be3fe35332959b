"""Lengths of time as people write them."""

from datetime import timedelta

import pytest

from mainspring.duration import LONGEST, Duration, duration, seconds
from mainspring.errors import BadDuration


@pytest.mark.parametrize(("written", "meant"), [
    (90, timedelta(seconds=90)),
    (1.5, timedelta(seconds=1.5)),
    (timedelta(minutes=2), timedelta(minutes=2)),
    ("90s", timedelta(seconds=90)),
    ("15m", timedelta(minutes=15)),
    ("1d12h", timedelta(hours=36)),
    ("1d 12h", timedelta(hours=36)),
    ("2w", timedelta(days=14)),
    ("250ms", timedelta(milliseconds=250)),
    ("1.5h", timedelta(minutes=90)),
    ("1m30s500ms", timedelta(seconds=90.5)),
    (0, timedelta(0)),
    ("0s", timedelta(0)),
])  # fmt: skip
def test_what_people_write_is_read_as_they_mean_it(written: Duration, meant: timedelta) -> None:
    assert duration(written) == meant
    assert seconds(written) == meant.total_seconds()


@pytest.mark.parametrize(("written", "said"), [
    ("", "write it as"),
    ("90", "write it as"),
    ("1 0s", "write it as"),
    ("1h 5x", "write it as"),
    (" ", "write it as"),
    ("soon", "write it as"),
    ("5s3m", "largest first"),
    ("1s1s", "write it as"),
    ("-5s", "backwards"),
    ("1e3s", "write it as"),
    ("٣s", "write it as"),
    (True, "yes or no"),
    (-1, "backwards"),
    (timedelta(seconds=-1), "backwards"),
    (float("nan"), "finite"),
    (float("inf"), "finite"),
    (10**40, "finite"),
    ("9" * 400 + "w", "century"),
    ("99999999h", "century"),
    (LONGEST + timedelta(microseconds=1), "century"),
    (None, "give a number of seconds"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_advice(written: Duration, said: str) -> None:
    with pytest.raises(BadDuration, match=said) as refused:
        duration(written)
    assert refused.value.subject == repr(written)
