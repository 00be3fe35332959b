"""Every slot of a schedule is decided once, whatever happens between."""

from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mainspring.core.backoff import Backoff
from mainspring.core.job import State
from mainspring.core.missed import Missed, Reason
from mainspring.core.names import Name
from mainspring.core.releases import is_older
from mainspring.core.rules import Every, Manual, Once, Rule
from mainspring.core.schedule import Decision, Origin, Overlap, Plan, Run, Schedule, Template
from mainspring.core.steps import (
    ASK_AGAIN,
    MOST_GROWN,
    NEXT_TICK,
    backfill,
    cancel,
    change,
    create,
    decide,
    is_ahead,
    is_declared,
    pause,
    remove,
    reset,
    resume,
    run_again,
    run_now,
)
from mainspring.errors import ScheduleError

T0 = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NAME = Name("", "nightly")
TEMPLATE = Template(task=Name("", "report"), payload=b"{}", backoff=Backoff.fixed(1), max_attempts=1)


class Story:
    """A schedule on a clock of its own, looked at whenever it wants to be, with runs that end when they are told to."""

    def __init__(self, plan: Plan, now: datetime = T0) -> None:
        self.now = now
        self.made: dict[UUID, Run] = {}
        self.cancelled = 0
        self.shut: Reason | None = None
        """Whether the breaker of its task is open."""
        self._numbers = count(1)
        self.schedule = self._written(create(NAME, plan, now))

    def ids(self) -> UUID:
        return UUID(int=next(self._numbers))

    @property
    def runs(self) -> list[Run]:
        return list(self.made.values())

    @property
    def fired(self) -> list[Run]:
        return [run for run in self.runs if run.reason is None]

    @property
    def dropped(self) -> list[Run]:
        return [run for run in self.runs if run.reason is not None]

    @property
    def open(self) -> list[Run]:
        return [run for run in self.runs if run.is_open]

    def look(self) -> None:
        """Do what a ticker does at this instant."""
        while self.schedule.next_at and self.schedule.next_at <= self.now:
            self.take(decide(self.schedule, self.now, self.ids, busy=bool(self.open), shut=self.shut))

    def tick(self, length: timedelta) -> None:
        """Let time pass with a ticker at work."""
        until = self.now + length
        while self.schedule.next_at and self.schedule.next_at <= until:
            self.now = max(self.now, self.schedule.next_at)
            self.look()
        self.now = until

    def sleep(self, length: timedelta) -> None:
        """Let time pass with nobody there, who comes back then."""
        self.now += length
        self.look()

    def end(self, state: State = State.SUCCEEDED) -> None:
        """Have the oldest run that is open end, as a store writes it."""
        if not self.open:
            return
        run = self.open[0]
        self.made[run.id] = replace(run, state=state, finished_at=self.now)
        if self.schedule.waits:
            self.schedule = replace(
                self.schedule,
                last_end=self.now,
                waits=False,
                next_at=None if self.schedule.paused else self.now,
                revision=self.schedule.revision + 1,
            )
        self.look()

    def take(self, decision: Decision) -> None:
        assert decision.before == self.schedule
        self.schedule = self._written(decision)
        self.cancelled += decision.cancels

    def _written(self, decision: Decision) -> Schedule:
        self.made.update({run.id: run for run in decision.runs})
        assert decision.after is not None
        assert decision.before is None or decision.after.revision > decision.before.revision
        assert decision.before is None or decision.after.cursor >= decision.before.cursor
        after = decision.after
        if after.waits and not self.open and not after.paused:  # what a store sees to (port, move 4)
            after = replace(after, next_at=self.now)
        return after


def plan_of(rule: Rule | None = None, **options: object) -> Plan:
    return Plan(rule=rule or Every(HOUR), template=TEMPLATE, **options)  # type: ignore[arg-type]  # checked by the tests


def slots(runs: list[Run]) -> list[datetime | None]:
    return [run.slot for run in runs]


def told(story: Story) -> list[tuple[Reason | None, int]]:
    return [(run.reason, run.count) for run in story.dropped]


class TestAClockThatWasAhead:
    """A schedule that was decided while the clock was a day ahead, and is to go on when the clock is corrected."""

    def corrected(self, plan: Plan, *, created: datetime = T0) -> Story:
        story = Story(plan, created)
        story.now = T0 + DAY
        story.look()
        story.now = T0 + MINUTE
        return story

    def reset(self, story: Story) -> None:
        decision = reset(story.schedule, story.now, busy=bool(story.open))
        assert decision.before == story.schedule
        assert decision.after is not None
        story.schedule = decision.after

    def test_it_makes_jobs_again_from_now_on(self) -> None:
        story = self.corrected(plan_of())
        assert is_ahead(story.schedule, story.now)
        self.reset(story)
        assert not is_ahead(story.schedule, story.now)
        story.tick(2 * HOUR)
        assert slots(story.fired) == [T0 + DAY, T0 + HOUR, T0 + 2 * HOUR]

    def test_a_slot_that_has_a_job_is_passed_over(self) -> None:
        story = self.corrected(plan_of(missed=Missed.all(limit=100, per_tick=100)))
        made = slots(story.fired)
        self.reset(story)
        story.now = T0 + 26 * HOUR
        done = [slot for slot in made if slot]
        story.take(decide(story.schedule, story.now, story.ids, busy=False, done=done))
        assert slots(story.fired) == [*made, T0 + 25 * HOUR, T0 + 26 * HOUR]
        assert story.schedule.next_at == T0 + 27 * HOUR

    def test_a_held_slot_that_has_a_job_is_passed_over(self) -> None:
        story = Story(plan_of(overlap=Overlap.QUEUE_ONE))
        story.tick(2 * HOUR)
        assert story.schedule.held
        held = story.schedule.held.at
        story.take(decide(story.schedule, story.now, story.ids, busy=False, done=[held]))
        assert held not in slots(story.fired)
        assert not story.schedule.waits

    def test_a_fixed_delay_counts_from_now(self) -> None:
        story = Story(plan_of(Every(HOUR, after_end=True)))
        story.tick(HOUR)
        story.now = T0 + DAY
        story.end()
        story.now = T0 + 2 * HOUR
        assert is_ahead(story.schedule, story.now)
        self.reset(story)
        assert story.schedule.next_at == T0 + 3 * HOUR

    def test_a_rule_that_counts_from_a_creation_ahead_counts_from_now(self) -> None:
        story = self.corrected(plan_of(), created=T0 + DAY)
        self.reset(story)
        assert story.schedule.next_at == T0 + MINUTE + HOUR

    def test_a_first_slot_that_was_given_stays(self) -> None:
        story = self.corrected(plan_of(Every(HOUR, start=T0 + 3 * HOUR)), created=T0 + DAY)
        self.reset(story)
        assert story.schedule.next_at == T0 + 3 * HOUR

    def test_one_that_is_not_ahead_is_not_reset(self) -> None:
        story = Story(plan_of())
        story.tick(HOUR)
        story.now -= 4 * MINUTE
        with pytest.raises(ScheduleError, match="not ahead of the clock"):
            reset(story.schedule, story.now, busy=False)


class TestTheUsualCase:
    def test_each_slot_makes_one_run_at_its_time(self) -> None:
        story = Story(plan_of())
        story.tick(3 * HOUR)
        assert slots(story.runs) == [T0 + HOUR, T0 + 2 * HOUR, T0 + 3 * HOUR]
        assert {run.is_catch_up for run in story.runs} == {False}
        assert [run.job for run in story.runs] == [run.id for run in story.runs]
        assert story.schedule.next_slot == T0 + 4 * HOUR

    def test_nothing_before_its_creation_is_owed(self) -> None:
        story = Story(plan_of(Every(HOUR, start=T0 - 100 * DAY)))
        story.look()
        assert story.runs == []
        assert story.schedule.next_at == T0 + HOUR

    def test_a_look_too_early_changes_nothing(self) -> None:
        story = Story(plan_of())
        decision = decide(story.schedule, T0 + MINUTE, story.ids, busy=False)
        assert decision.runs == ()
        assert decision.after is not None
        assert decision.after.next_at == T0 + HOUR

    def test_a_clock_that_is_set_back_decides_no_slot_twice(self) -> None:
        story = Story(plan_of())
        story.tick(3 * HOUR)
        story.now -= 2 * HOUR
        story.tick(2 * HOUR)
        assert slots(story.runs) == [T0 + HOUR, T0 + 2 * HOUR, T0 + 3 * HOUR]

    def test_once_is_once(self) -> None:
        story = Story(plan_of(Once(T0 + HOUR)))
        story.tick(DAY)
        assert slots(story.runs) == [T0 + HOUR]
        assert story.schedule.is_over
        story.sleep(DAY)
        assert len(story.runs) == 1

    def test_a_manual_one_does_nothing_by_itself(self) -> None:
        story = Story(plan_of(Manual()))
        story.tick(365 * DAY)
        assert story.runs == []
        assert not story.schedule.is_over

    def test_no_slot_after_the_end_date(self) -> None:
        story = Story(plan_of(until=T0 + 2 * HOUR))
        story.tick(DAY)
        assert slots(story.runs) == [T0 + HOUR, T0 + 2 * HOUR]
        assert story.schedule.is_over

    def test_no_slot_after_the_last_run(self) -> None:
        story = Story(plan_of(max_runs=2))
        story.tick(DAY)
        assert slots(story.runs) == [T0 + HOUR, T0 + 2 * HOUR]
        assert story.schedule.is_over

    def test_a_backlog_does_not_go_beyond_the_last_run(self) -> None:
        story = Story(plan_of(max_runs=2, missed=Missed.all()))
        story.sleep(4 * HOUR)
        assert len(story.fired) == 2
        assert story.schedule.is_over

    def test_slots_beyond_the_last_run_are_told_of_by_nobody_even_if_they_overlap_with_it(self) -> None:
        story = Story(plan_of(overlap=Overlap.SKIP, max_runs=1, missed=Missed.all(limit=3, per_tick=3)))
        story.now += 3 * HOUR
        story.look()
        assert (len(story.fired), story.dropped) == (1, [])


class TestMissedSlots:
    def test_latest_makes_up_for_all_once(self) -> None:
        story = Story(plan_of())
        story.sleep(3 * DAY + 30 * MINUTE)
        assert slots(story.fired) == [T0 + 3 * DAY]
        assert story.fired[0].is_catch_up
        assert told(story) == [(Reason.SUPERSEDED, 71)]
        (dropped,) = story.dropped
        assert (dropped.slot, dropped.last) == (T0 + HOUR, T0 + 3 * DAY - HOUR)

    def test_latest_makes_none_if_the_newest_is_too_old(self) -> None:
        story = Story(plan_of(Every(DAY)))
        story.sleep(3 * DAY + 2 * HOUR)
        assert story.fired == []
        assert told(story) == [(Reason.TOO_OLD, 3)]
        assert story.schedule.next_at == T0 + 4 * DAY

    def test_skip_makes_none(self) -> None:
        story = Story(plan_of(missed=Missed.skip()))
        story.sleep(3 * HOUR + 30 * MINUTE)
        assert story.fired == []
        assert told(story) == [(Reason.SKIPPED, 3)]

    def test_skip_lets_a_slow_tick_pass(self) -> None:
        story = Story(plan_of(missed=Missed.skip()))
        story.sleep(HOUR + timedelta(seconds=59))
        assert slots(story.fired) == [T0 + HOUR]

    def test_all_makes_the_newest_ten_oldest_first_five_at_a_time(self) -> None:
        story = Story(plan_of(missed=Missed.all()))
        story.sleep(20 * HOUR)
        assert slots(story.fired) == [T0 + n * HOUR for n in range(11, 16)]
        assert story.schedule.next_at == story.now + NEXT_TICK
        story.tick(2 * NEXT_TICK)
        assert slots(story.fired) == [T0 + n * HOUR for n in range(11, 21)]
        assert [run.is_catch_up for run in story.fired] == [True] * 9 + [False]
        assert told(story) == [(Reason.SUPERSEDED, 10)]

    def test_all_makes_none_that_is_too_old(self) -> None:
        story = Story(plan_of(missed=Missed.all(limit=100, per_tick=100, grace="3h")))
        story.sleep(20 * HOUR)
        assert slots(story.fired) == [T0 + n * HOUR for n in range(17, 21)]
        assert told(story) == [(Reason.TOO_OLD, 16)]

    def test_a_day_of_seconds_is_one_run(self) -> None:
        story = Story(plan_of(Every(timedelta(seconds=1))))
        story.sleep(DAY)
        assert told(story) == [(Reason.SUPERSEDED, 86_399)]
        assert len(story.fired) == 1

    @pytest.mark.parametrize("per_tick", [1, 5])
    def test_all_catches_up_with_what_comes_many_times_a_second(self, per_tick: int) -> None:
        story = Story(plan_of(Every(timedelta(milliseconds=100)), missed=Missed.all(per_tick=per_tick)))
        story.sleep(timedelta(seconds=2))
        story.tick(timedelta(seconds=10))
        assert told(story) == [(Reason.SUPERSEDED, 10)]
        assert len(story.fired) == 110
        assert not story.fired[-1].is_catch_up

    def test_a_run_without_a_job_does_not_grow_for_ever(self) -> None:
        story = Story(plan_of(Every(timedelta(seconds=1)), overlap=Overlap.SKIP))
        story.tick(timedelta(seconds=1 + 2 * (MOST_GROWN + 1) + 7))
        assert told(story) == [(Reason.OVERLAPPED, MOST_GROWN + 1)] * 2 + [(Reason.OVERLAPPED, 7)]

    def test_dropped_neighbours_share_a_run(self) -> None:
        story = Story(plan_of(missed=Missed.skip()))
        for _ in range(3):
            story.sleep(2 * HOUR + 10 * MINUTE)
        assert told(story) == [(Reason.SKIPPED, 6)]

    @pytest.mark.parametrize(
        ("make", "problem"),
        [
            (lambda: Missed.all(limit=0), "a limit of at least 1"),
            (lambda: Missed.all(per_tick=0), "at least 1 a tick"),
            (lambda: Missed.latest(grace=-1), "time does not run backwards"),
            (lambda: Missed.latest(grace=0), "a grace of at least 1 s"),
            (lambda: Missed.skip(grace="5ms"), "a grace of at least 1 s"),
        ],
    )
    def test_nonsense_is_refused(self, make: object, problem: str) -> None:
        with pytest.raises(ValueError, match=problem):
            make()  # type: ignore[operator]  # a function, as the list above shows


class TestOverlap:
    def test_allow_makes_its_job_all_the_same(self) -> None:
        story = Story(plan_of())
        story.tick(3 * HOUR)
        assert len(story.open) == 3

    def test_skip_makes_none_while_the_run_before_is_open(self) -> None:
        story = Story(plan_of(overlap=Overlap.SKIP))
        story.tick(4 * HOUR)
        assert slots(story.fired) == [T0 + HOUR]
        assert told(story) == [(Reason.OVERLAPPED, 3)]
        story.end()
        story.tick(HOUR)
        assert slots(story.fired) == [T0 + HOUR, T0 + 5 * HOUR]

    def test_queue_one_holds_the_newest_until_the_end(self) -> None:
        story = Story(plan_of(overlap=Overlap.QUEUE_ONE))
        story.tick(4 * HOUR + 30 * MINUTE)
        assert slots(story.fired) == [T0 + HOUR]
        assert story.schedule.waits
        assert told(story) == [(Reason.SUPERSEDED, 2)]
        story.end()
        assert slots(story.fired) == [T0 + HOUR, T0 + 4 * HOUR]
        assert not story.schedule.waits

    def test_slots_of_a_task_whose_breaker_is_open_make_no_job(self) -> None:
        story = Story(plan_of())
        story.tick(HOUR)
        story.shut = Reason.BREAKER_OPEN
        story.tick(3 * HOUR)
        story.shut = None
        story.tick(HOUR)
        assert slots(story.fired) == [T0 + HOUR, T0 + 5 * HOUR]
        assert told(story) == [(Reason.BREAKER_OPEN, 3)]
        assert story.schedule.runs == 2

    def test_a_fixed_delay_goes_on_counting_from_the_slot_that_a_breaker_has_skipped(self) -> None:
        story = Story(plan_of(Every(HOUR, after_end=True)))
        story.shut = Reason.BREAKER_OPEN
        story.tick(2 * HOUR)
        story.shut = None
        story.tick(HOUR)
        assert slots(story.fired) == [T0 + 3 * HOUR]
        assert told(story) == [(Reason.BREAKER_OPEN, 2)]

    def test_a_held_slot_makes_no_job_if_the_breaker_is_open_when_its_turn_comes(self) -> None:
        story = Story(plan_of(overlap=Overlap.QUEUE_ONE))
        story.tick(2 * HOUR)
        story.shut = Reason.BREAKER_OPEN
        story.end()
        assert slots(story.fired) == [T0 + HOUR]
        assert told(story) == [(Reason.BREAKER_OPEN, 1)]
        assert story.schedule.held is None

    def test_cancel_previous_asks_for_the_end_and_waits_for_it(self) -> None:
        story = Story(plan_of(overlap=Overlap.CANCEL_PREVIOUS))
        story.tick(2 * HOUR)
        assert story.cancelled == 1
        assert slots(story.fired) == [T0 + HOUR]
        story.end(State.CANCELLED)
        assert slots(story.fired) == [T0 + HOUR, T0 + 2 * HOUR]

    def test_cancel_previous_asks_again_for_whoever_died_before_asking(self) -> None:
        story = Story(plan_of(overlap=Overlap.CANCEL_PREVIOUS))
        story.tick(2 * HOUR)
        assert story.schedule.next_at == story.now + ASK_AGAIN
        story.tick(ASK_AGAIN)
        assert story.cancelled == 2

    def test_a_run_that_ended_while_the_slot_was_held_is_not_waited_for(self) -> None:
        story = Story(plan_of(overlap=Overlap.QUEUE_ONE))
        story.tick(HOUR)
        (run,) = story.open
        story.now += HOUR
        decision = decide(story.schedule, story.now, story.ids, busy=True)
        story.made[run.id] = replace(run, state=State.SUCCEEDED)  # between the look and the write
        story.take(decision)
        assert story.schedule.next_at == story.now
        story.look()
        assert slots(story.fired) == [T0 + HOUR, T0 + 2 * HOUR]

    @pytest.mark.parametrize("overlap", [Overlap.QUEUE_ONE, Overlap.CANCEL_PREVIOUS])
    def test_a_held_slot_makes_no_job_if_a_newer_one_has_come_up(self, overlap: Overlap) -> None:
        story = Story(plan_of(overlap=overlap))
        story.tick(2 * HOUR)
        (run,) = story.open
        story.made[run.id] = replace(run, state=State.SUCCEEDED)  # and nobody is there to look, until a slot later
        story.sleep(HOUR)
        assert slots(story.fired) == [T0 + HOUR, T0 + 3 * HOUR]
        assert told(story) == [(Reason.SUPERSEDED, 1)]
        assert not story.schedule.waits

    @pytest.mark.parametrize("overlap", [Overlap.QUEUE_ONE, Overlap.CANCEL_PREVIOUS])
    def test_of_a_backlog_the_newest_makes_a_job_and_none_is_held(self, overlap: Overlap) -> None:
        story = Story(plan_of(overlap=overlap, missed=Missed.all(per_tick=2)))
        story.sleep(5 * HOUR)
        assert slots(story.fired) == [T0 + 5 * HOUR]
        assert told(story) == [(Reason.SUPERSEDED, 4)]
        assert story.schedule.held is None
        assert story.schedule.next_at == T0 + 6 * HOUR

    def test_a_change_of_overlap_is_looked_at_at_once(self) -> None:
        story = Story(plan_of(overlap=Overlap.QUEUE_ONE))
        story.tick(2 * HOUR)
        plan = plan_of(overlap=Overlap.CANCEL_PREVIOUS)
        story.take(change(story.schedule, plan, story.now, story.ids, busy=True))
        story.look()
        assert story.cancelled == 1


class TestFixedDelay:
    def plan(self, **options: object) -> Plan:
        return plan_of(Every(HOUR, after_end=True), **options)

    def test_the_next_slot_counts_from_the_end(self) -> None:
        story = Story(self.plan())
        story.tick(HOUR)
        assert slots(story.fired) == [T0 + HOUR]
        assert story.schedule.next_at is None
        assert story.schedule.next_slot is None
        story.tick(DAY)
        story.end(State.FAILED)
        assert story.schedule.next_slot == T0 + HOUR + DAY + HOUR
        story.tick(HOUR)
        assert slots(story.fired) == [T0 + HOUR, T0 + HOUR + DAY + HOUR]

    def test_a_change_while_it_runs_leaves_it_waiting_for_the_end(self) -> None:
        story = Story(self.plan())
        story.tick(HOUR + 10 * MINUTE)
        story.take(change(story.schedule, self.plan(description="x"), story.now, story.ids, busy=True))
        story.tick(40 * MINUTE)
        story.end()
        story.tick(HOUR)
        assert slots(story.fired) == [T0 + HOUR, T0 + 2 * HOUR + 50 * MINUTE]

    @pytest.mark.parametrize("changes", [False, True])
    def test_a_pause_while_it_runs_leaves_it_waiting_for_the_end(self, changes: bool) -> None:
        story = Story(self.plan())
        story.tick(HOUR + 10 * MINUTE)
        story.take(pause(story.schedule, story.now))
        if changes:
            story.take(change(story.schedule, self.plan(description="x"), story.now, story.ids, busy=True))
        story.take(resume(story.schedule, story.now, story.ids, busy=True))
        story.tick(40 * MINUTE)
        story.end()
        story.tick(HOUR)
        assert slots(story.fired) == [T0 + HOUR, T0 + 2 * HOUR + 50 * MINUTE]

    def test_one_that_is_too_late_is_dropped_and_the_next_counts_from_then(self) -> None:
        story = Story(self.plan())
        story.sleep(DAY)
        assert told(story) == [(Reason.TOO_OLD, 1)]
        assert story.schedule.next_at == T0 + DAY + HOUR

    def test_a_pause_owes_nothing(self) -> None:
        story = Story(self.plan())
        story.take(pause(story.schedule, story.now))
        story.now += DAY
        story.take(resume(story.schedule, story.now, story.ids, busy=bool(story.open)))
        assert story.runs == []
        assert story.schedule.next_at == T0 + DAY + HOUR


class TestWhatPeopleDo:
    def test_a_pause_makes_one_run_that_counts(self) -> None:
        story = Story(plan_of(Every(timedelta(seconds=1))))
        story.take(pause(story.schedule, story.now, by="a person", reason="maintenance"))
        assert story.schedule.next_at is None
        assert not story.schedule.is_over
        story.tick(DAY)
        story.take(resume(story.schedule, story.now, story.ids, busy=bool(story.open)))
        assert told(story) == [(Reason.PAUSED, 86_400)]
        story.tick(timedelta(seconds=1))
        assert slots(story.fired) == [T0 + DAY + timedelta(seconds=1)]

    def test_a_pause_without_a_slot_in_it_leaves_no_trace(self) -> None:
        story = Story(plan_of())
        story.take(pause(story.schedule, story.now))
        story.tick(MINUTE)
        story.take(resume(story.schedule, story.now, story.ids, busy=bool(story.open)))
        assert story.runs == []
        assert story.schedule.next_at == T0 + HOUR

    def test_a_held_slot_makes_no_job_after_a_pause(self) -> None:
        story = Story(plan_of(overlap=Overlap.QUEUE_ONE))
        story.tick(2 * HOUR)
        story.take(pause(story.schedule, story.now))
        story.end()
        assert len(story.fired) == 1
        story.now += 3 * DAY
        story.take(resume(story.schedule, story.now, story.ids, busy=bool(story.open)))
        story.look()
        assert slots(story.fired) == [T0 + HOUR]
        assert told(story) == [(Reason.PAUSED, 73)]
        assert not story.schedule.waits

    def test_what_is_over_tells_of_no_slots_that_it_would_have_had(self) -> None:
        story = Story(plan_of(max_runs=1))
        story.tick(HOUR)
        story.take(pause(story.schedule, story.now))
        story.tick(DAY)
        story.take(resume(story.schedule, story.now, story.ids, busy=False))
        story.take(decide(story.schedule, story.now + DAY, story.ids, busy=False))
        assert told(story) == []
        assert story.schedule.is_over

    def test_a_held_slot_makes_no_job_beyond_the_last_run(self) -> None:
        story = Story(plan_of(overlap=Overlap.QUEUE_ONE))
        story.tick(2 * HOUR)
        plan = plan_of(overlap=Overlap.QUEUE_ONE, max_runs=1)
        story.take(change(story.schedule, plan, story.now, story.ids, busy=True))
        story.end()
        assert slots(story.fired) == [T0 + HOUR]
        assert story.schedule.is_over

    def test_what_is_paused_is_not_decided(self) -> None:
        story = Story(plan_of())
        story.take(pause(story.schedule, story.now))
        story.take(decide(story.schedule, story.now + DAY, story.ids, busy=False))
        assert story.runs == []
        assert story.schedule.next_at is None

    def test_pausing_twice_or_resuming_what_runs_is_told(self) -> None:
        story = Story(plan_of())
        with pytest.raises(ScheduleError, match="it is not paused"):
            resume(story.schedule, story.now, story.ids, busy=bool(story.open))
        story.take(pause(story.schedule, story.now))
        assert story.schedule.next_slot is None
        with pytest.raises(ScheduleError, match="it is paused already"):
            pause(story.schedule, story.now)

    def test_a_run_by_hand_has_no_slot_and_moves_nothing(self) -> None:
        story = Story(plan_of())
        cursor = story.schedule.cursor
        story.take(run_now(story.schedule, story.now, story.ids))
        assert [(run.slot, run.origin) for run in story.fired] == [(None, Origin.MANUAL)]
        assert story.schedule.cursor == cursor
        assert story.schedule.runs == 0

    def test_a_run_that_asks_for_another_gets_one_unless_the_schedule_is_paused(self) -> None:
        story = Story(plan_of())
        story.take(run_again(story.schedule, story.now, story.ids()))
        story.take(pause(story.schedule, story.now))
        story.take(run_again(story.schedule, story.now, story.ids()))
        assert [(run.slot, run.origin, run.reason) for run in story.runs] == [
            (None, Origin.MANUAL, None),
            (None, Origin.MANUAL, Reason.PAUSED),
        ]

    def test_a_backfill_makes_jobs_for_the_past(self) -> None:
        story = Story(plan_of())
        story.take(backfill(story.schedule, [T0 - HOUR, T0], story.now, story.ids))
        assert [(run.slot, run.origin, run.is_catch_up) for run in story.fired] == [
            (T0 - HOUR, Origin.BACKFILL, True),
            (T0, Origin.BACKFILL, True),
        ]

    def test_a_backfill_beyond_what_is_remembered_is_refused(self) -> None:
        story = Story(plan_of(keep_runs=DAY))
        with pytest.raises(ScheduleError, match="too long ago"):
            backfill(story.schedule, [T0 - 2 * DAY], story.now, story.ids)

    def test_what_was_forgotten_before_a_change_stays_forgotten(self) -> None:
        story = Story(plan_of(keep_runs=HOUR))
        story.take(change(story.schedule, plan_of(keep_runs=DAY), story.now, story.ids, busy=bool(story.open)))
        story.take(
            change(story.schedule, plan_of(keep_runs=DAY, jitter=MINUTE), story.now, story.ids, busy=bool(story.open))
        )
        with pytest.raises(ScheduleError, match="too long ago"):
            backfill(story.schedule, [T0 - 2 * HOUR], story.now, story.ids)
        assert len(backfill(story.schedule, [T0 - MINUTE], story.now, story.ids).runs) == 1

    def test_another_rule_begins_now(self) -> None:
        story = Story(plan_of())
        story.tick(30 * MINUTE)
        story.take(change(story.schedule, plan_of(Every(10 * MINUTE)), story.now, story.ids, busy=bool(story.open)))
        story.tick(30 * MINUTE)
        assert slots(story.fired) == [T0 + 40 * MINUTE, T0 + 50 * MINUTE, T0 + HOUR]

    def test_the_same_rule_goes_on(self) -> None:
        story = Story(plan_of())
        story.tick(30 * MINUTE)
        story.take(
            change(
                story.schedule, plan_of(overlap=Overlap.SKIP), story.now, story.ids, busy=bool(story.open), owner="web"
            )
        )
        story.tick(30 * MINUTE)
        assert slots(story.fired) == [T0 + HOUR]
        assert story.schedule.owner == "web"

    def test_another_rule_for_a_paused_one_tells_of_what_was_paused(self) -> None:
        story = Story(plan_of())
        story.take(pause(story.schedule, story.now))
        story.tick(2 * HOUR)
        story.take(change(story.schedule, plan_of(Every(DAY)), story.now, story.ids, busy=bool(story.open)))
        assert told(story) == [(Reason.PAUSED, 2)]
        assert story.schedule.paused

    def test_removing_leaves_nothing_to_write(self) -> None:
        story = Story(plan_of())
        assert remove(story.schedule) == Decision(before=story.schedule, after=None)

    def test_one_may_begin_paused(self) -> None:
        paused = pause(Story(plan_of()).schedule, T0).after
        assert paused is not None
        decision = create(NAME, plan_of(), T0, paused=paused.paused)
        assert decision.after is not None
        assert decision.after.next_at is None


class TestDeclarations:
    def test_what_is_declared_again_the_same_is_known(self) -> None:
        schedule = Story(plan_of()).schedule
        assert is_declared(schedule, plan_of(), "")
        assert not is_declared(schedule, plan_of(Every(MINUTE)), "")
        assert not is_declared(schedule, plan_of(jitter=MINUTE), "")
        assert not is_declared(schedule, plan_of(), "2")

    @pytest.mark.parametrize(
        ("older", "newer"),
        [
            ("1", "2"),
            ("1.9", "1.10"),
            ("2026-11-02", "2026-11-10"),
            ("v9", "v10"),
            ("1.9", "V1.10"),
            ("1.0", "1.0.1"),
            ("2.0.0-rc1", "2.0.0"),
            ("2.0.0-rc1", "2.0.0-rc2"),
            ("2.0.0a1", "2.0.0-rc.1"),
            ("2.0.0.dev3", "2.0.0"),
            ("1.9", "2.0.0-rc1"),
            ("2.0.0", "2.0.0-hotfix1"),
            ("2.0.0.post1", "2.0.1"),
            ("1.2-14-g2414721", "1.2-15-g0a1b2c3"),
        ],
    )
    def test_releases_are_told_apart_by_their_numbers(self, older: str, newer: str) -> None:
        assert is_older(older, newer)
        assert not is_older(newer, older)
        assert not is_older(older, older)

    def test_of_no_release_nothing_is_known(self) -> None:
        assert not is_older("", "2")
        assert not is_older("1", "")

    @pytest.mark.parametrize(
        ("one", "other"), [("3f2a91c", "a91c3f2"), ("3f2a91c", "4e2a91c"), ("main", "next"), ("main", "2"), ("v", "v2")]
    )
    def test_names_that_count_nothing_have_no_order(self, one: str, other: str) -> None:
        assert not is_older(one, other)
        assert not is_older(other, one)


def test_what_is_cancelled_goes_or_stands_still_for_good() -> None:
    added = create(NAME, plan_of(), T0).after
    declared = create(NAME, plan_of(), T0, owner="app").after
    assert added is not None
    assert declared is not None
    paused = pause(declared, T0, by="somebody").after
    assert paused is not None
    assert not paused.is_cancelled

    assert cancel(added, T0).after is None
    for before in (declared, paused):
        after = cancel(before, T0 + HOUR).after
        assert after is not None
        assert (after.is_cancelled, after.next_at, after.revision) == (True, None, before.revision + 1)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    missed = st.sampled_from(
        [Missed.skip(), Missed.latest(), Missed.latest(grace="1d"), Missed.all(), Missed.all(limit=3, per_tick=1)]
    )
    return plan_of(
        Every(draw(st.sampled_from([MINUTE, 7 * MINUTE, HOUR]))),
        missed=draw(missed),
        overlap=draw(st.sampled_from(Overlap)),
    )


def steps() -> st.SearchStrategy[tuple[str, int]]:
    what = st.sampled_from(["tick", "sleep", "end", "pause", "resume", "run", "back", "shut"])
    return st.tuples(what, st.integers(1, 200))


@settings(max_examples=300, deadline=None)
@given(plan=plans(), script=st.lists(steps(), max_size=30))
def test_every_slot_is_accounted_for_once(plan: Plan, script: list[tuple[str, int]]) -> None:
    story = Story(plan)
    for what, minutes in script:
        _do(story, what, minutes)
        _check(story)


def _do(story: Story, what: str, minutes: int) -> None:
    match what:
        case "tick":
            story.tick(minutes * MINUTE)
        case "sleep":
            story.sleep(minutes * MINUTE)
        case "back":
            story.now = max(T0, story.now - minutes * MINUTE)
        case "end":
            story.end()
        case "shut":
            story.shut = None if story.shut else Reason.NO_PROVIDER
        case "run":
            story.take(run_now(story.schedule, story.now, story.ids))
        case "pause" if not story.schedule.paused:
            story.take(pause(story.schedule, story.now))
        case "resume" if story.schedule.paused:
            story.take(resume(story.schedule, story.now, story.ids, busy=bool(story.open)))
            story.look()
        case _:
            pass


def _check(story: Story) -> None:
    schedule = story.schedule
    of_slots = [run for run in story.runs if run.origin is Origin.SLOT]
    decided = sum(run.count for run in of_slots) + (schedule.held is not None)
    assert decided == schedule.plan.rule.count(T0, schedule.cursor), "a slot was lost, or decided twice"
    fired = [run.slot for run in of_slots if run.reason is None]
    assert len(set(fired)) == len(fired)
    assert all(slot and T0 < slot <= story.schedule.cursor for slot in fired)
    if schedule.plan.overlap is not Overlap.ALLOW:
        assert sum(run.origin is Origin.SLOT for run in story.open) <= 1, "two runs at a time"
    if schedule.held and not schedule.paused:
        assert schedule.waits
        assert story.open, "a slot is held for the end of nothing"
