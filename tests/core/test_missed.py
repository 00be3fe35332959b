"""Missed slots: which of them make a job, and how much of a backlog one tick walks."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.missed import Missed, Reason, owed
from mainspring.core.rules import Cron, Every, Rule

T0 = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Counting:
    """A rule that counts how many slots it has named."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.named = 0

    def next(self, after: datetime) -> datetime | None:
        self.named += 1
        return self.rule.next(after)

    def previous(self, before: datetime) -> datetime | None:
        self.named += 1
        return self.rule.previous(before)

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        for slot in self.rule.between(start, end):
            self.named += 1
            yield slot

    def count(self, start: datetime, end: datetime) -> int:
        return self.rule.count(start, end)


def test_a_tick_names_no_more_slots_of_a_backlog_than_it_decides() -> None:
    rule = Counting(Cron("* * * * * *"))
    missed = Missed.all(limit=20_000, per_tick=5)
    now, cursor = T0 + timedelta(hours=10), T0
    for _ in range(3):
        found = owed(cast("Rule", rule), missed, after=cursor, until=now, now=now)
        assert len(found.chosen) == 5
        assert found.more
        cursor = found.chosen[-1]
    assert cursor == now - (20_000 - 15) * SECOND
    assert rule.named < 50


@given(
    interval=st.integers(1, 90),
    length=st.integers(0, 600),
    limit=st.integers(1, 20),
    per_tick=st.integers(1, 20),
    grace=st.integers(1, 700),
)
def test_the_newest_slots_within_limit_and_grace_make_a_job_and_the_others_say_why(
    interval: int, length: int, limit: int, per_tick: int, grace: int
) -> None:
    rule, now = Every(interval * SECOND, start=T0 + SECOND), T0 + length * SECOND
    every = list(rule.between(T0, now))
    young = [slot for slot in every if now - slot <= grace * SECOND][-limit:]

    found = owed(rule, Missed.all(limit=limit, per_tick=per_tick, grace=grace * SECOND), after=T0, until=now, now=now)

    assert list(found.chosen) == young[:per_tick]
    assert found.more == (len(young) > per_tick)
    assert sum(span.count for span in found.dropped) == len(every) - len(young)
    assert {span.reason for span in found.dropped} <= {Reason.TOO_OLD, Reason.SUPERSEDED}
