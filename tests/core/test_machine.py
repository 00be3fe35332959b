"""The life of a job, checked against the table of the design and by random lives."""

from datetime import UTC, datetime, timedelta
from itertools import product
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mainspring.core.command import CancelJob, ChangeJob, Command, DeleteJob, RetryJob
from mainspring.core.job import FINISHED, WAITING, Cause, Claim, Job, JobId, NodeId, Retention, State
from mainspring.core.machine import STEPS, Change, Event, claim, command, decide, first_state, target
from mainspring.core.names import Name
from mainspring.core.outcome import (
    AttemptError,
    Deferred,
    Expired,
    Interrupted,
    Lost,
    NoSuchTask,
    Outcome,
    Raised,
    Snoozed,
    Succeeded,
)
from mainspring.core.retry import Retry
from mainspring.errors import DeclarationError, IllegalTransition

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ERROR = AttemptError(type="ValueError", message="no")
NODE = NodeId("node-1")
FINAL_EVENTS = {Event.SUCCEEDED, Event.FAILED, Event.CANCELLED}


def a_job(state: State = State.READY, **fields: object) -> Job:
    given = {
        "id": JobId(UUID(int=1)),
        "task": Name("", "resize"),
        "state": state,
        "run_at": NOW,
        "retry": Retry.fixed("10s", max_attempts=3),
    }
    return Job(**(given | fields))  # type: ignore[arg-type]  # the fields of a test are right, or the test fails


def a_claim(**fields: object) -> Claim:
    return claim(a_job(State.READY, **fields), NODE)


def after(change: Change) -> Job:
    assert change.after is not None
    return change.after


# The table of the design, written out a second time: what is not here must not happen.
LEGAL = {
    (None, "enqueued"): "ready",
    (None, "delayed"): "scheduled",
    ("ready", "claimed"): "running",
    ("scheduled", "claimed"): "running",
    ("retrying", "claimed"): "running",
    ("running", "succeeded"): "succeeded",
    ("running", "will_retry"): "retrying",
    ("running", "lost"): "ready",
    ("running", "given_back"): "ready",
    ("running", "snoozed"): "scheduled",
    ("running", "failed"): "failed",
    ("running", "cancel_requested"): "running",
    ("running", "cancelled"): "cancelled",
    ("ready", "cancelled"): "cancelled",
    ("scheduled", "cancelled"): "cancelled",
    ("retrying", "cancelled"): "cancelled",
    ("failed", "retried"): "ready",
    ("cancelled", "retried"): "ready",
    ("ready", "changed"): "ready",
    ("scheduled", "changed"): "scheduled",
    ("retrying", "changed"): "retrying",
    ("ready", "deleted"): None,
    ("scheduled", "deleted"): None,
    ("retrying", "deleted"): None,
    ("succeeded", "deleted"): None,
    ("failed", "deleted"): None,
    ("cancelled", "deleted"): None,
}


@pytest.mark.parametrize(("source", "event"), list(product([None, *State], Event)))
def test_every_state_and_event_does_what_the_design_says_or_is_refused(source: State | None, event: Event) -> None:
    if (source, event) in LEGAL:
        assert target(source, event) == LEGAL[source, event]
        return
    with pytest.raises(IllegalTransition) as refused:
        target(source, event)
    assert refused.value.source == (source or "new")
    assert refused.value.target in {*State, "new", "gone"}


def test_no_step_stands_in_the_table_twice() -> None:
    pairs = [(step.source, step.event) for step in STEPS]
    assert len(pairs) == len(set(pairs))


def test_an_illegal_step_says_from_where_to_where_and_what_to_do() -> None:
    with pytest.raises(IllegalTransition, match="from running to gone: it is running; cancel it first"):
        command(a_claim().job, DeleteJob(), NOW)


@pytest.mark.parametrize("state", [state for state in State if state not in WAITING])
def test_only_what_waits_can_be_claimed(state: State) -> None:
    with pytest.raises(IllegalTransition):
        claim(a_job(state), NODE)


@pytest.mark.parametrize("state", [state for state in State if state is not State.RUNNING])
def test_only_a_running_job_has_an_attempt_that_ends(state: State) -> None:
    with pytest.raises(IllegalTransition):
        decide(Claim(job=a_job(state), node=NODE), Succeeded(), NOW, 0.5)


def test_a_new_job_is_ready_when_due_and_scheduled_before() -> None:
    assert first_state(NOW, NOW) is target(None, Event.ENQUEUED)
    assert first_state(NOW + MINUTE, NOW) is target(None, Event.DELAYED)


def test_a_success_keeps_its_result_for_the_time_of_successes() -> None:
    change = decide(a_claim(), Succeeded(b"7"), NOW, 0.5)
    assert (change.event, change.outcome) == (Event.SUCCEEDED, Succeeded(b"7"))
    assert (after(change).finished_at, after(change).keep_until) == (NOW, NOW + timedelta(hours=24))


def test_an_error_with_attempts_left_waits_as_the_policy_says() -> None:
    change = decide(a_claim(), Raised(error=ERROR), NOW, 0.5)
    assert (after(change).state, after(change).run_at) == (State.RETRYING, NOW + timedelta(seconds=10))


def test_the_handlers_own_time_wins_over_the_policys() -> None:
    change = decide(a_claim(), Raised(error=ERROR, retry_in=3 * MINUTE), NOW, 0.5)
    assert (after(change).state, after(change).run_at) == (State.RETRYING, NOW + 3 * MINUTE)


def test_the_handlers_own_time_buys_no_attempt_beyond_the_limit() -> None:
    change = decide(a_claim(max_attempts=1), Raised(error=ERROR, retry_in=MINUTE), NOW, 0.5)
    assert (after(change).state, after(change).cause) == (State.FAILED, Cause.EXHAUSTED)


def test_the_lower_of_the_jobs_and_the_policys_limit_holds() -> None:
    assert a_job(max_attempts=2).attempts_allowed == 2
    assert a_job(max_attempts=9).attempts_allowed == 3
    assert a_job().attempts_allowed == 3
    assert a_job(max_attempts=2, granted=2).attempts_allowed == 4


def test_an_error_that_is_not_worth_it_fails_at_once() -> None:
    change = decide(a_claim(), Raised(error=ERROR, retryable=False), NOW, 0.5)
    assert (after(change).state, after(change).cause) == (State.FAILED, Cause.REFUSED)
    assert after(change).keep_until == NOW + timedelta(days=7)


def test_a_lost_attempt_runs_again_at_once() -> None:
    change = decide(a_claim(), Lost(), NOW, 0.5)
    assert (after(change).state, after(change).run_at, after(change).losses) == (State.READY, NOW, 1)


def test_a_lost_last_attempt_fails_as_lost() -> None:
    change = decide(a_claim(max_attempts=1), Lost(), NOW, 0.5)
    assert (after(change).state, after(change).cause) == (State.FAILED, Cause.LOST)


def test_a_job_that_kills_its_worker_stops_as_poison() -> None:
    job = a_job(retry=Retry.fixed(1, max_attempts=100))
    for _ in range(3):
        change = decide(claim(job, NODE), Lost(), NOW, 0.5)
        job = after(change)
    assert (job.state, job.cause, job.attempt) == (State.FAILED, Cause.POISON, 3)


@pytest.mark.parametrize(("between", "kept"), [
    (Raised(error=ERROR), 0),
    (Snoozed(delay=MINUTE), 0),
    (Deferred(delay=MINUTE), 2),
    (Interrupted(), 2),
])  # fmt: skip
def test_only_an_attempt_that_ran_to_its_end_breaks_a_row_of_losses(between: Outcome, kept: int) -> None:
    job = a_job(retry=Retry.fixed(1, max_attempts=100), losses=2)
    assert after(decide(claim(job, NODE), between, NOW, 0.5)).losses == kept


@pytest.mark.parametrize(("outcome", "state", "run_at"), [
    (Snoozed(delay=MINUTE), State.SCHEDULED, NOW + MINUTE),
    (Deferred(delay=MINUTE), State.SCHEDULED, NOW + MINUTE),
    (Interrupted(), State.READY, NOW),
])  # fmt: skip
def test_an_attempt_that_is_given_back_is_as_if_it_had_never_been(
    outcome: Outcome, state: State, run_at: datetime
) -> None:
    job = a_job(attempt=1, lease=4)
    change = decide(claim(job, NODE), outcome, NOW, 0.5)
    assert (after(change).state, after(change).run_at, after(change).attempt) == (state, run_at, 1)
    assert after(change).lease == 5


@pytest.mark.parametrize(("outcome", "cause"), [(Expired(), Cause.EXPIRED), (NoSuchTask(), Cause.UNKNOWN_TASK)])
def test_a_job_whose_handler_was_never_called_fails_without_an_attempt(outcome: Outcome, cause: Cause) -> None:
    change = decide(a_claim(), outcome, NOW, 0.5)
    assert (after(change).state, after(change).cause, after(change).attempt) == (State.FAILED, cause, 0)


OUTCOMES: list[Outcome] = [
    Succeeded(),
    Raised(error=ERROR),
    Raised(error=ERROR, retryable=False),
    Raised(error=ERROR, retry_in=MINUTE),
    Snoozed(delay=MINUTE),
    Deferred(delay=MINUTE),
    Interrupted(),
    Lost(),
    Expired(),
    NoSuchTask(),
]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_requested_cancel_wins_over_every_end_but_success(outcome: Outcome) -> None:
    held = a_claim()
    asked = command(held.job, CancelJob(), NOW)
    change = decide(Claim(job=after(asked), node=NODE), outcome, NOW, 0.5)
    expected = State.SUCCEEDED if isinstance(outcome, Succeeded) else State.CANCELLED
    assert after(change).state is expected


def test_a_second_request_to_cancel_keeps_the_time_of_the_first() -> None:
    asked = after(command(a_claim().job, CancelJob(), NOW))
    again = after(command(asked, CancelJob(), NOW + MINUTE))
    assert (asked.state, again.cancel_requested_at) == (State.RUNNING, NOW)


@pytest.mark.parametrize("state", WAITING)
def test_what_has_not_run_is_cancelled_at_once(state: State) -> None:
    change = command(a_job(state), CancelJob(), NOW)
    assert (change.event, after(change).state, after(change).finished_at) == (Event.CANCELLED, State.CANCELLED, NOW)


@pytest.mark.parametrize("state", [State.FAILED, State.CANCELLED])
def test_an_operators_retry_goes_on_counting_and_forgets_the_end(state: State) -> None:
    ended = a_job(
        state, attempt=3, losses=2, lease=7, cause=Cause.EXHAUSTED, finished_at=NOW, keep_until=NOW + MINUTE,
        cancel_requested_at=NOW, expires_at=NOW,
    )  # fmt: skip
    job = after(command(ended, RetryJob(), NOW + MINUTE))
    assert (job.state, job.run_at, job.attempt, job.granted, job.lease) == (State.READY, NOW + MINUTE, 3, 1, 7)
    assert (job.losses, job.cause, job.finished_at, job.keep_until) == (0, None, None, None)
    assert (job.cancel_requested_at, job.expires_at) == (None, None)
    assert job.has_attempts_left


@pytest.mark.parametrize("state", WAITING)
def test_an_operator_moves_a_waiting_job_and_leaves_its_state(state: State) -> None:
    job = after(command(a_job(state), ChangeJob(priority=90, queue="mail", run_at=NOW + MINUTE), NOW))
    assert (job.state, job.priority, job.queue, job.run_at) == (state, 90, "mail", NOW + MINUTE)
    assert after(command(job, ChangeJob(), NOW)) == job


@pytest.mark.parametrize("priority", [-1, 101])
def test_a_priority_outside_the_scale_is_refused(priority: int) -> None:
    with pytest.raises(DeclarationError, match="from 0 to 100"):
        ChangeJob(priority=priority)


@pytest.mark.parametrize("state", WAITING + FINISHED)
def test_anything_but_a_running_job_can_be_deleted(state: State) -> None:
    change = command(a_job(state), DeleteJob(), NOW)
    assert (change.event, change.after) == (Event.DELETED, None)


def test_retention_is_the_jobs_own() -> None:
    held = a_claim(retention=Retention(succeeded=MINUTE, failed=2 * MINUTE))
    assert after(decide(held, Succeeded(), NOW, 0.5)).keep_until == NOW + MINUTE
    assert after(decide(held, Raised(error=ERROR, retryable=False), NOW, 0.5)).keep_until == NOW + 2 * MINUTE


def test_a_change_fits_only_the_holder_of_the_same_lease() -> None:
    held = a_claim()
    change = decide(held, Succeeded(), NOW, 0.5)
    assert change.fits(held.job, NODE)
    assert not change.fits(held.job, NodeId("node-2"))
    assert not change.fits(held.job, None)
    assert not change.fits(after(change), NODE)
    given_back = after(decide(held, Interrupted(), NOW, 0.5))
    claimed_again = claim(given_back, NODE)
    assert claimed_again.job.attempt == held.job.attempt  # which is why the attempt is no fence
    assert not change.fits(claimed_again.job, NODE)


def test_an_operators_change_asks_for_no_holder() -> None:
    held = a_claim()
    change = command(held.job, CancelJob(), NOW)
    assert change.fits(held.job, NODE)
    assert not change.fits(claim(after(decide(held, Lost(), NOW, 0.5)), NODE).job, NODE)


outcomes = st.one_of(
    st.just(Succeeded()),
    st.builds(
        Raised,
        error=st.just(ERROR),
        retryable=st.booleans(),
        retry_in=st.none() | st.timedeltas(timedelta(0), timedelta(days=1)),
    ),
    st.builds(Snoozed, delay=st.timedeltas(timedelta(0), timedelta(days=1))),
    st.builds(Deferred, delay=st.timedeltas(timedelta(0), timedelta(days=1))),
    st.sampled_from([Interrupted(), Lost(), Expired(), NoSuchTask()]),
)
rolls = st.floats(0, 1, exclude_max=True)


class Life(RuleBasedStateMachine):
    """One job through attempts and commands in any order; what a store would keep is kept here."""

    @initialize(
        own=st.none() | st.integers(1, 5), policy=st.integers(1, 5), loss_limit=st.integers(1, 4), later=st.booleans()
    )
    def enqueue(self, own: int | None, policy: int, loss_limit: int, later: bool) -> None:
        self.now = NOW
        run_at = NOW + MINUTE if later else NOW
        retry = Retry.exponential(1, max_attempts=policy)
        self.job = a_job(first_state(run_at, NOW), run_at=run_at, retry=retry, max_attempts=own, loss_limit=loss_limit)
        self.limit = min(own or policy, policy)
        self.claim: Claim | None = None
        self.executions = 0  # attempts that count
        self.grants = 0

    def apply(self, change: Change) -> None:
        assert change.fits(self.job, NODE if self.claim else None)
        assert change.after is not None
        assert change.after.lease >= self.job.lease
        if self.job.state in FINISHED:
            assert change.event is Event.RETRIED
        if change.after.state in FINISHED:
            assert change.event in FINAL_EVENTS
            assert change.after.keep_until is not None
        else:
            assert change.after.keep_until is None
            assert change.after.cause is None
        self.job = change.after

    @precondition(lambda self: self.job.state in WAITING)
    @rule()
    def run(self) -> None:
        assert self.job.has_attempts_left
        before = self.job
        self.claim = claim(before, NODE)
        self.job = self.claim.job
        assert (self.job.lease, self.job.attempt) == (before.lease + 1, before.attempt + 1)

    @precondition(lambda self: self.job.state is State.RUNNING)
    @rule(outcome=outcomes, roll=rolls)
    def end(self, outcome: Outcome, roll: float) -> None:
        held = Claim(job=self.job, node=NODE)
        change = decide(held, outcome, self.now, roll)
        self.apply(change)
        self.claim = None
        given_back = isinstance(outcome, Snoozed | Deferred | Interrupted | Expired | NoSuchTask)
        if not given_back or change.event is Event.CANCELLED:
            self.executions += 1
        assert self.job.run_at >= NOW

    @rule(order=st.sampled_from([CancelJob(), RetryJob(), ChangeJob(priority=75), DeleteJob()]))
    def operate(self, order: Command) -> None:
        try:
            change = command(self.job, order, self.now)
        except IllegalTransition:
            return
        if change.after is None:
            assert self.job.state is not State.RUNNING
            return  # a deleted job has no further life to test
        self.grants += change.event is Event.RETRIED
        self.apply(change)

    @rule(minutes=st.integers(1, 100))
    def time_passes(self, minutes: int) -> None:
        self.now += minutes * MINUTE

    @invariant()
    def counts_hold(self) -> None:
        assert self.job.attempt == self.executions + (self.job.state is State.RUNNING)
        assert self.job.attempt <= self.limit + self.grants
        assert self.job.granted == self.grants
        assert (self.job.finished_at is not None) == (self.job.state in FINISHED)
        assert (self.job.cause is not None) == (self.job.state is State.FAILED)


TestLife = Life.TestCase


@given(
    job=st.builds(a_job, state=st.sampled_from(State)), order=st.sampled_from([CancelJob(), RetryJob(), DeleteJob()])
)
def test_a_command_is_obeyed_or_refused_and_never_half_done(job: Job, order: Command) -> None:
    try:
        change = command(job, order, NOW)
    except IllegalTransition:
        return
    assert change.before == job
    assert target(job.state, change.event) == (change.after.state if change.after else None)
