"""Positions of claims by themselves: what reads and announcements make of them, in any order."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Literal, TypeAlias
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.limits import Scope
from mainspring.core.names import Name
from mainspring.stores.postgres import claim_cache, positions
from mainspring.stores.postgres.claim_cache import ClaimCache
from mainspring.stores.postgres.lines import Line, LineIndex, Source, Subject
from mainspring.stores.postgres.positions import (
    MAX_READ_FROM_START_INTERVAL_S,
    READ_FROM_START_INTERVAL_S,
    SLOW_READ_S,
    START,
    Position,
    PositionCache,
    Positions,
    Progress,
    ReadEnd,
    Skipped,
)

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
TASKS = frozenset({Name("", "mail.send")})
LINE = Line(LineIndex.ALL, "", TASKS, None, rest=True)
SOURCE = Source(LINE, 50)
FULL: Subject = (Scope.QUEUE, "full")


@pytest.fixture(autouse=True)
def passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let seconds pass on the monotonic clock, which stands still otherwise."""
    now = 1000.0

    def pass_by(seconds: float) -> None:
        nonlocal now
        now += seconds

    for module in (positions, claim_cache):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    return pass_by


def at(minutes: float) -> Position:
    return NOON + timedelta(minutes=minutes), UUID(int=0)


def read(
    cache: PositionCache, minutes: float, *, is_end: bool = True, is_at_limit: bool = False, took: float = 0.0
) -> bool:
    """Record a claim that reads up to so many minutes after noon."""
    end = ReadEnd(at(minutes), took, is_end=is_end, is_at_limit=is_at_limit)
    return cache.advance(cache.positions(), {SOURCE: end}, NOON + 2 * HOUR)


def start(cache: PositionCache, *without: Subject) -> Position:
    return cache.positions().of(SOURCE, frozenset(without))


def due_for_a_read_from_the_start(cache: PositionCache) -> None:
    cache._progress = {source: one._replace(whole_at=0.0) for source, one in cache._progress.items()}


# Reads from the start.


@pytest.mark.parametrize("took", [0.0, 3.0, 3600.0])
def test_reads_from_the_start_are_repeated_soon_however_long_one_took(
    took: float, passes: Callable[[float], None]
) -> None:
    cache = PositionCache()
    read(cache, 1, took=took)
    assert start(cache) == at(1)
    passes(MAX_READ_FROM_START_INTERVAL_S)
    assert start(cache) == START


def test_a_read_that_several_claims_share_is_not_begun_anew_before_its_end(passes: Callable[[float], None]) -> None:
    cache = PositionCache()
    for minutes in range(1, 5):
        read(cache, minutes, is_end=False, took=1e9)
        passes(1e9)
        assert start(cache) == at(minutes)
    read(cache, 9, took=0.1)
    assert start(cache) == at(9)
    passes(MAX_READ_FROM_START_INTERVAL_S)
    assert start(cache) == START


def test_a_claim_that_has_to_find_all_goes_on_with_a_read_under_way() -> None:
    """Without notifications, each empty claim has to read from the start, and would never come to the end of this line."""
    cache = PositionCache()
    read(cache, 1, is_end=False, took=SLOW_READ_S / 2)
    assert cache.from_start().of(SOURCE) == at(1)
    read(cache, 2, took=SLOW_READ_S / 4)
    assert cache.from_start().of(SOURCE) == START
    due_for_a_read_from_the_start(cache)
    read(cache, 2, took=2 * SLOW_READ_S)
    assert cache.from_start().of(SOURCE) == at(2), "it took long a moment ago"


# Announcements.


def test_announcements_behind_the_position_discard_nothing() -> None:
    cache = PositionCache()
    for minutes in range(1, 9):
        began = cache.positions()
        cache.pull(NOON + HOUR)  # each claim has one meanwhile
        assert not cache.advance(began, {SOURCE: ReadEnd(at(minutes), is_end=False)}, NOON + 2 * HOUR)
        assert start(cache) == at(minutes)


def test_an_announcement_in_front_of_the_position_is_seen_by_claims_that_began_before_it() -> None:
    cache = PositionCache()
    read(cache, 10)
    began = cache.positions()
    cache.pull(at(5)[0])
    assert start(cache) == at(5)
    assert cache.advance(began, {SOURCE: ReadEnd(at(20))}, NOON + 2 * HOUR)
    assert start(cache) == at(5)
    assert not read(cache, 20)
    assert start(cache) == at(20)


def test_a_read_below_the_limit_restarts_at_a_job_that_was_announced_in_front_of_it() -> None:
    """Other lines filled the claim: the job may precede all that were not read."""
    cache = PositionCache()
    read(cache, 10, is_end=False)
    began = cache.positions()
    for minutes in (7, 5):
        cache.pull(at(minutes)[0])
        assert start(cache) == at(minutes)
    assert cache.advance(began, {SOURCE: ReadEnd(at(20), is_end=False)}, NOON + 2 * HOUR)
    assert start(cache) == at(5)
    assert not read(cache, 20, is_end=False)
    assert start(cache) == at(20)
    assert not cache.positions().is_close(SOURCE)


def test_a_read_at_the_limit_finishes_before_the_job_that_was_announced_in_front_of_it() -> None:
    cache = PositionCache()
    read(cache, 10, is_end=False, is_at_limit=True)
    for minutes in (5, 7):
        cache.pull(at(minutes)[0])
    assert start(cache) == at(10)
    assert read(cache, 20, is_end=False)
    assert start(cache) == at(20)
    assert read(cache, 30)
    assert start(cache) == at(5)
    assert not read(cache, 30)
    assert start(cache) == at(30)


def test_a_read_comes_to_its_end_however_often_jobs_are_announced_in_front_of_it() -> None:
    cache = PositionCache()
    for minutes in range(10, 60):
        began = cache.positions()
        cache.pull(NOON)
        end = ReadEnd(at(minutes), is_end=False, is_at_limit=minutes == 10)
        assert cache.advance(began, {SOURCE: end}, NOON + 2 * HOUR)
    assert start(cache) == at(59)
    assert read(cache, 60)
    assert start(cache) == at(0), "then it begins there"


def test_only_a_position_behind_which_a_read_has_ended_is_close() -> None:
    cache = PositionCache()
    assert not cache.positions().is_close(SOURCE)
    read(cache, 10, is_end=False)
    assert not cache.positions().is_close(SOURCE)
    read(cache, 20)
    assert cache.positions().is_close(SOURCE)
    cache.pull(NOON)
    assert not cache.positions().is_close(SOURCE)
    read(cache, 20)
    assert cache.positions().is_close(SOURCE)


def test_after_more_announcements_than_are_remembered_a_claim_begins_too_early_rather_than_too_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(positions, "MAX_PULLS", 3)
    cache = PositionCache()
    read(cache, 50)
    began = cache.positions()
    for minutes in range(10, 40):
        cache.pull(at(minutes)[0])
    assert len(cache._log) == 3
    cache.advance(began, {SOURCE: ReadEnd(at(60))}, NOON + 2 * HOUR)
    assert start(cache) == at(10)


def test_positions_that_were_dropped_meanwhile_are_not_set_again() -> None:
    cache = PositionCache()
    began = cache.positions()
    cache.forget()
    assert cache.advance(began, {SOURCE: ReadEnd(at(10))}, NOON + 2 * HOUR)
    assert start(cache) == START


def test_of_two_claims_at_once_the_one_that_came_less_far_decides() -> None:
    cache = PositionCache()
    one, other = cache.positions(), cache.positions()
    cache.advance(one, {SOURCE: ReadEnd(at(10))}, NOON + 2 * HOUR)
    cache.advance(other, {SOURCE: ReadEnd(at(20))}, NOON + 2 * HOUR)
    assert start(cache) == at(10)
    read(cache, 20)
    assert start(cache) == at(20)


@pytest.mark.parametrize("count", [2, 4, positions.MAX_RECENT])
def test_a_read_of_claims_that_always_overlap_comes_to_its_end(count: int) -> None:
    """The nodes of a process share the positions; before one claim has ended, the others have begun."""
    cache = PositionCache()
    began = [cache.positions() for _ in range(count)]
    for turn in range(count * 30):
        one = turn % count
        place = began[one].of(SOURCE)
        reached = min(60, (0 if place == START else (place[0] - NOON) / timedelta(minutes=1)) + 5)
        cache.advance(began[one], {SOURCE: ReadEnd(at(reached), is_end=reached == 60)}, NOON + 2 * HOUR)
        began[one] = cache.positions()
    assert start(cache) == at(60)


def test_of_two_claims_at_once_the_later_read_from_the_start_counts(passes: Callable[[float], None]) -> None:
    cache = PositionCache()
    read(cache, 10)
    passes(READ_FROM_START_INTERVAL_S / 2)
    late = cache.positions()
    passes(READ_FROM_START_INTERVAL_S / 2)
    from_start = cache.positions()
    cache.advance(from_start, {SOURCE: ReadEnd(at(20))}, NOON + 2 * HOUR)
    cache.advance(late, {SOURCE: ReadEnd(at(15))}, NOON + 2 * HOUR)
    assert start(cache) == at(15)


# Queues that are left out.


def test_a_queue_that_was_left_out_is_read_from_where_that_began() -> None:
    cache = PositionCache()
    read(cache, 10)
    for minutes in (20, 30):
        cache.advance(cache.positions(), {SOURCE: ReadEnd(at(minutes), without={FULL})}, NOON + 2 * HOUR)
        assert start(cache, FULL) == at(minutes)
        assert start(cache) == at(10)
    read(cache, 30)
    assert start(cache) == at(30)


def test_a_job_that_is_announced_in_a_queue_that_is_left_out_is_read_when_it_is_not() -> None:
    cache = PositionCache()
    read(cache, 30)
    cache.advance(cache.positions(), {SOURCE: ReadEnd(at(40), without={FULL})}, NOON + 2 * HOUR)
    cache.pull(at(20)[0])
    cache.advance(cache.positions(), {SOURCE: ReadEnd(at(50), without={FULL})}, NOON + 2 * HOUR)
    assert start(cache, FULL) == at(50)
    assert start(cache) == at(20)


def test_a_read_from_the_start_of_other_queues_does_not_send_back_the_one_that_is_left_out() -> None:
    """Queues open and close at any claim: each would be read from its start again, over all dead entries."""
    cache = PositionCache()
    read(cache, 10)
    cache.advance(cache.positions(), {SOURCE: ReadEnd(at(20), without={FULL})}, NOON + 2 * HOUR)
    due_for_a_read_from_the_start(cache)
    assert start(cache, FULL) == START
    cache.advance(cache.positions(), {SOURCE: ReadEnd(at(30), without={FULL})}, NOON + 2 * HOUR)
    assert start(cache, FULL) == at(30)
    assert start(cache) == at(10)


def test_queues_that_are_left_out_in_turn_do_not_restart_a_read_at_the_limit() -> None:
    """Each claim of a busy node may leave out another queue; such a read would never come to its end."""
    cache = PositionCache()
    others: Subject = (Scope.QUEUE, "full at other times")
    cut_short = False
    for minutes in range(10, 70, 10):
        without = {FULL} if minutes % 20 else {others}
        began = cache.positions()
        assert began.of(SOURCE, without) == (START if minutes == 10 else at(minutes - 10))
        is_end = minutes == 60
        cut_short = cache.advance(
            began, {SOURCE: ReadEnd(at(minutes), is_end=is_end, is_at_limit=True, without=without)}, NOON + 2 * HOUR
        )
    assert cut_short, "the queue that is open now was left out before"
    assert start(cache, others) == START
    assert start(cache, FULL) == at(10)
    assert start(cache, FULL, others) == at(60)


def test_a_queue_that_reads_from_the_start_left_out_is_read_from_the_start_once_it_is_not(
    passes: Callable[[float], None],
) -> None:
    """A job whose transaction committed late is in front of the position at which the queue was left out."""
    cache = PositionCache()
    read(cache, 10)
    cache.advance(cache.positions(), {SOURCE: ReadEnd(at(20), without={FULL})}, NOON + 2 * HOUR)
    passes(READ_FROM_START_INTERVAL_S)
    cache.advance(cache.positions(), {SOURCE: ReadEnd(at(30), without={FULL})}, NOON + 2 * HOUR)
    assert start(cache, FULL) == at(30)
    assert start(cache) == START, "the last read from the start left it out"
    read(cache, 30)
    for minutes in (40, 50):  # it is left out and read again, without another read from the start
        cache.advance(cache.positions(), {SOURCE: ReadEnd(at(minutes), without={FULL})}, NOON + 2 * HOUR)
        assert start(cache) == at(minutes - 10)
        read(cache, minutes)
    passes(READ_FROM_START_INTERVAL_S)
    assert start(cache) == START


def test_a_queue_that_was_left_out_of_a_read_from_the_start_counts_as_read_when_it_was_read_last(
    passes: Callable[[float], None],
) -> None:
    cache = PositionCache()
    read(cache, 10)
    passes(READ_FROM_START_INTERVAL_S * 0.8)
    cache.advance(cache.positions(), {SOURCE: ReadEnd(at(10), without={FULL})}, NOON + 2 * HOUR)
    due_for_a_read_from_the_start(cache)
    cache.advance(cache.positions(), {SOURCE: ReadEnd(at(10), without={FULL})}, NOON + 2 * HOUR)
    read(cache, 20)
    assert start(cache) == at(20)
    passes(READ_FROM_START_INTERVAL_S * 0.3)
    assert start(cache) == START


A: Subject = (Scope.QUEUE, "a")
B: Subject = (Scope.QUEUE, "b")


@pytest.mark.parametrize(
    "turns",
    [
        [{A}, {B}],
        [{A}, {A}, {B}],
        [{A}, set()],
        [{A, B}, {A}, {A, B}, {B}],
    ],
    ids=["in turn", "one longer", "open and full", "both between"],
)
@pytest.mark.parametrize("nodes", [1, 2])
def test_queues_that_are_full_at_some_claims_lead_to_few_reads_from_the_start(
    turns: list[set[Subject]], nodes: int, passes: Callable[[float], None]
) -> None:
    cache = PositionCache()
    began = [cache.positions() for _ in range(nodes)]
    from_start = 0
    for number in range(2_000):
        node, without = number % nodes, turns[number % len(turns)]
        from_start += began[node].of(SOURCE, without) == START
        passes(READ_FROM_START_INTERVAL_S / 100)
        cache.advance(began[node], {SOURCE: ReadEnd(at(30), without=without)}, NOON + 2 * HOUR)
        began[node] = cache.positions()
    assert 20 <= from_start <= 4 * 20 * nodes


def test_an_announcement_takes_precedence_over_what_another_claim_recorded_before_it() -> None:
    cache = PositionCache()
    read(cache, 60)
    long, short = cache.positions(), cache.positions()
    cache.advance(short, {SOURCE: ReadEnd(at(80))}, NOON + 2 * HOUR)
    cache.pull(at(30)[0])
    assert cache.advance(long, {SOURCE: ReadEnd(at(100), is_end=False, is_at_limit=True)}, NOON + 2 * HOUR)
    assert start(cache) == at(30)


def test_jobs_that_were_announced_during_a_read_are_also_read_in_a_queue_that_another_claim_left_out() -> None:
    """The read has to finish first, and it included the queue."""
    left_out = Progress(at(30), 1.0, 0.0, announced=at(30), skipped={FULL: Skipped(at(30), 1.0)})
    long = Progress(at(75), 2.0, 0.0, is_under_way=True, must_finish=True, announced=at(30))
    merged = positions._merged(left_out, long)
    assert merged.announced == merged.position == at(30)
    assert merged.skipped[FULL].position == at(30)


# All of it in any order.

Step: TypeAlias = tuple[Literal["read", "left out", "announce", "expire", "forget", "begin", "end"], int, bool, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["read", "read", "announce", "left out", "expire", "forget", "begin", "end", "end"]),
        st.integers(1, 59),
        st.booleans(),
        st.integers(1, 30),
    ),
    max_size=40,
)


def minute_of(place: Position) -> int:
    return 0 if place == START else round((place[0] - NOON).total_seconds() / 60)


@given(steps)
def test_no_job_is_in_front_of_a_position_that_was_announced_and_not_read(story: list[Step]) -> None:
    """Jobs at minutes; a read takes all due ones between where it begins and where it ends, except of a queue left out.

    While one claim is under way, from `begin` to `end`, others begin and end.
    """
    cache = PositionCache()
    open_claim: tuple[Positions, set[tuple[int, bool]]] | None = None
    jobs: set[tuple[int, bool]] = set()
    """Due minute, and whether it is of the queue that is left out at times."""
    for step, minute, is_full, length in story:
        match step:
            case "announce":
                jobs.add((minute, is_full))
                cache.pull(at(minute)[0])
            case "read" | "left out":
                without: set[Subject] = {FULL} if step == "left out" else set()
                began = cache.positions()
                first = minute_of(began.of(SOURCE, without))
                last = min(60, first + length)
                if is_full:  # a job is announced while the claim reads, and the claim does not see it
                    jobs.add((minute, not without))
                    cache.pull(at(minute)[0])
                    jobs_seen = jobs - {(minute, not without)}
                else:
                    jobs_seen = set(jobs)
                jobs -= {
                    (due, of_full) for due, of_full in jobs_seen if first <= due < last and not (of_full and without)
                }
                end = ReadEnd(at(last), is_end=last == 60, is_at_limit=length > 10, without=without)
                cut_short = cache.advance(began, {SOURCE: end}, NOON + 2 * HOUR)
                progress = cache._progress[SOURCE]
                if last == 60 and not cut_short:
                    assert not {
                        due for due, of_full in jobs if not (of_full and without) and at(due) < progress.position
                    }
            case "begin":
                open_claim = cache.positions(), set(jobs)
            case "end":
                if open_claim is None:
                    continue
                began, jobs_seen = open_claim
                open_claim = None
                without = {FULL} if is_full else set()
                first = minute_of(began.of(SOURCE, without))
                last = min(60, first + length)
                jobs -= {
                    (due, of_full) for due, of_full in jobs_seen if first <= due < last and not (of_full and without)
                }
                end = ReadEnd(at(last), is_end=last == 60, is_at_limit=length > 10, without=without)
                cache.advance(began, {SOURCE: end}, NOON + 2 * HOUR)
            case "expire":
                due_for_a_read_from_the_start(cache)
            case "forget":
                cache.forget()
    for _ in range(
        200
    ):  # what is left is found by reads that go on, without another announcement or read from the start
        began = cache.positions()
        first = minute_of(began.of(SOURCE))
        last = min(60, first + 7)
        jobs = {(due, of_full) for due, of_full in jobs if not first <= due < last}
        if not cache.advance(began, {SOURCE: ReadEnd(at(last), is_end=last == 60)}, NOON + 2 * HOUR) and last == 60:
            break
    else:
        pytest.fail("the reads came to no end")
    assert not jobs


# Priorities.


def test_a_line_is_read_in_the_priorities_that_it_has_had() -> None:
    cache = ClaimCache()
    queues = [Line(LineIndex.QUEUE, name, TASKS, None) for name in ("a", "b")]
    cache.learn([(queues[0], priority) for priority in (7, 90)])
    assert [(source.line.name, source.priority) for source in cache.sources(queues)] == [
        ("a", 90),
        ("a", 50),
        ("a", 7),
        ("b", 50),
    ]
    began = cache.positions.positions()
    gaps = cache.gaps(queues, whole=False)
    assert [(gap.line.name, gap.above, gap.below) for gap in gaps] == [
        ("a", -1, 7),
        ("a", 7, 50),
        ("a", 50, 90),
        ("a", 90, 101),
        ("b", -1, 50),
        ("b", 50, 101),
    ]
    cache.looked_into_gaps(began, gaps, 0.0)
    assert cache.gaps(queues, whole=False) == []
    assert cache.gaps(queues, whole=True) == gaps
    cache.announced(NOON)
    assert cache.gaps(queues, whole=False) == gaps


def test_gaps_that_take_long_are_not_looked_into_at_each_announcement() -> None:
    """They are full of entries of claimed jobs with priorities that this store has never seen."""
    cache = ClaimCache()
    gaps = cache.gaps([LINE], whole=True)
    began = cache.positions.positions()
    cache.announced(NOON)
    cache.looked_into_gaps(began, gaps, 2 * SLOW_READ_S)
    cache.announced(NOON)
    assert cache.gaps([LINE], whole=False) == []
    assert cache.gaps([LINE], whole=True) == []


def test_a_job_that_is_announced_while_a_claim_looks_into_gaps_may_be_in_one_of_them() -> None:
    cache = ClaimCache()
    began = cache.positions.positions()
    gaps = cache.gaps([LINE], whole=False)
    cache.announced(NOON)
    cache.looked_into_gaps(began, gaps, 0.0)
    cache.expect(began, expects=False)
    assert cache.gaps([LINE], whole=False) == gaps
    assert cache.expects


def test_priorities_outlive_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "MAX_POSITIONS", 3)
    cache = ClaimCache()
    cache.learn([(LINE, priority) for priority in range(10)])
    for source in cache.sources([LINE]):
        cache.positions.advance(cache.positions.positions(), {source: ReadEnd(at(1))}, NOON + 2 * HOUR)
    assert len(cache.positions._progress) <= 4
    assert len(cache.sources([LINE])) == 11
