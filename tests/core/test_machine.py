"""The life of a job, checked against the table of the design and by random lives."""

import pickle
from datetime import UTC, datetime, timedelta
from itertools import product
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)
from msgspec.structs import replace

from mainspring.core.backoff import Backoff
from mainspring.core.command import CancelJob, Command, DeleteJob, MoveJob, RetryJob
from mainspring.core.job import FINISHED, WAITING, Cause, Claim, Job, JobId, NodeId, Retention, State, next_lease
from mainspring.core.machine import (
    TRANSITIONS,
    Change,
    Event,
    Fit,
    claim,
    command,
    decide,
    first_state,
    is_expired,
    target,
)
from mainspring.core.names import Name
from mainspring.core.outcome import (
    AttemptError,
    Deferred,
    Expired,
    HostNotReady,
    Interrupted,
    Lost,
    NoSuchTask,
    Outcome,
    Raised,
    Snooze,
    Snoozed,
    Succeeded,
    Unreadable,
)
from mainspring.errors import BadDuration, DeclarationError, IllegalTransition

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ERROR = AttemptError(type="ValueError", message="no")
NODE = NodeId("node-1")


def a_job(state: State = State.READY, **fields: object) -> Job:
    given = {
        "id": JobId(UUID(int=1)),
        "task": Name("", "resize"),
        "state": state,
        "run_at": NOW,
        "backoff": Backoff.fixed("10s"),
        "max_attempts": 3,
    }
    return Job(**(given | fields))  # type: ignore[arg-type]  # the fields of a test are right, or the test fails


def a_claim(**fields: object) -> Claim:
    return claim(a_job(State.READY, **fields), NODE, 1)


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
    ("ready", "moved"): "ready",
    ("scheduled", "moved"): "scheduled",
    ("retrying", "moved"): "retrying",
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
    pairs = [(step.source, step.event) for step in TRANSITIONS]
    assert len(pairs) == len(set(pairs))


def test_an_illegal_step_says_from_where_to_where_and_what_to_do() -> None:
    with pytest.raises(IllegalTransition, match="from running to gone: it is running; cancel it first"):
        command(a_claim().job, DeleteJob(), NOW)


@pytest.mark.parametrize("state", [state for state in State if state not in WAITING])
def test_only_what_waits_can_be_claimed(state: State) -> None:
    with pytest.raises(IllegalTransition):
        claim(a_job(state), NODE, 1)


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


def test_what_operators_grant_comes_on_top_of_the_limit() -> None:
    assert a_job(max_attempts=2, granted=2).attempts_allowed == 4


def test_an_error_that_is_not_worth_it_fails_at_once() -> None:
    change = decide(a_claim(), Raised(error=ERROR, retryable=False), NOW, 0.5)
    assert (after(change).state, after(change).cause) == (State.FAILED, Cause.REFUSED)
    assert after(change).keep_until == NOW + timedelta(days=7)


def test_a_lost_attempt_runs_again_at_once_and_keeps_its_position() -> None:
    change = decide(a_claim(), Lost(), NOW + MINUTE, 0.5)
    assert (after(change).state, after(change).run_at, after(change).losses) == (State.READY, NOW, 1)


def test_a_lost_last_attempt_fails_as_lost() -> None:
    change = decide(a_claim(max_attempts=1), Lost(), NOW, 0.5)
    assert (after(change).state, after(change).cause) == (State.FAILED, Cause.LOST)


@pytest.mark.parametrize(("losses", "limit", "suspect"), [(0, 1, False), (1, 3, False), (2, 3, True), (1, 2, True)])
def test_a_job_is_suspect_when_the_next_loss_would_be_its_last(losses: int, limit: int, *, suspect: bool) -> None:
    assert a_job(losses=losses, loss_limit=limit).is_suspect is suspect


@pytest.mark.parametrize(
    ("fields", "last"),
    [
        ({"attempt": 1, "max_attempts": 3}, False),
        ({"attempt": 2, "max_attempts": 3}, True),
        ({"attempt": 2, "max_attempts": 3, "granted": 1}, False),
        ({"losses": 1, "loss_limit": 3}, False),
        ({"losses": 2, "loss_limit": 3}, True),
        ({"loss_limit": 1}, True),
    ],
)
def test_a_job_has_its_last_chance_when_a_loss_of_its_next_attempt_would_end_it(
    fields: dict[str, int], *, last: bool
) -> None:
    assert a_job(State.READY, **fields).is_last_chance is last


def test_a_host_that_is_not_ready_is_a_snooze_that_says_in_which_way() -> None:
    signal = pickle.loads(pickle.dumps(HostNotReady("5s", "no camera", 2)))
    assert (signal.delay, signal.reason, signal.code) == (timedelta(seconds=5), "no camera", 2)
    assert isinstance(signal, Snooze)


def test_a_job_that_kills_its_worker_stops_as_poison() -> None:
    job = a_job(max_attempts=100)
    for _ in range(3):
        change = decide(claim(job, NODE, 1), Lost(), NOW, 0.5)
        job = after(change)
    assert (job.state, job.cause, job.attempt) == (State.FAILED, Cause.POISON, 3)


@pytest.mark.parametrize(("between", "kept"), [
    (Raised(error=ERROR), 0),
    (Snoozed(delay=MINUTE), 0),
    (Deferred(delay=MINUTE), 2),
    (Interrupted(started=True), 2),
])  # fmt: skip
def test_only_an_attempt_that_ran_to_its_end_breaks_a_row_of_losses(between: Outcome, kept: int) -> None:
    job = a_job(max_attempts=100, losses=2)
    assert after(decide(claim(job, NODE, 1), between, NOW, 0.5)).losses == kept


@pytest.mark.parametrize(("outcome", "state", "run_at"), [
    (Snoozed(delay=MINUTE), State.SCHEDULED, NOW + 2 * MINUTE),
    (Deferred(delay=MINUTE), State.SCHEDULED, NOW + 2 * MINUTE),
    (Interrupted(started=True), State.READY, NOW),
    (Interrupted(started=False), State.READY, NOW),
])  # fmt: skip
def test_an_attempt_that_is_given_back_is_as_if_it_had_never_been(
    outcome: Outcome, state: State, run_at: datetime
) -> None:
    job = a_job(attempt=1, lease=next_lease(0, 4))
    change = decide(claim(job, NODE, 1), outcome, NOW + MINUTE, 0.5)
    assert (after(change).state, after(change).run_at, after(change).attempt) == (state, run_at, 1)
    assert after(change).claims == 2


@pytest.mark.parametrize(
    ("outcome", "cause"),
    [
        (Expired(), Cause.EXPIRED),
        (NoSuchTask(), Cause.UNKNOWN_TASK),
        (Unreadable(ERROR), Cause.UNREADABLE),
    ],
)
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
    Interrupted(started=True),
    Lost(),
    Expired(),
    NoSuchTask(),
    Unreadable(ERROR),
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
    job = after(command(a_job(state), MoveJob(priority=90, queue="mail", run_at=NOW + MINUTE), NOW))
    assert (job.state, job.priority, job.queue, job.run_at) == (state, 90, "mail", NOW + MINUTE)
    assert after(command(job, MoveJob(), NOW)) == replace(job, revision=job.revision + 1)


@pytest.mark.parametrize("priority", [-1, 101])
def test_a_priority_outside_the_scale_is_refused(priority: int) -> None:
    with pytest.raises(DeclarationError, match="from 0 to 100"):
        MoveJob(priority=priority)


@pytest.mark.parametrize("state", WAITING + FINISHED)
def test_anything_but_a_running_job_can_be_deleted(state: State) -> None:
    change = command(a_job(state), DeleteJob(), NOW)
    assert (change.event, change.after) == (Event.DELETED, None)


def test_retention_is_the_jobs_own() -> None:
    held = a_claim(retention=Retention(succeeded=MINUTE, failed=2 * MINUTE))
    assert after(decide(held, Succeeded(), NOW, 0.5)).keep_until == NOW + MINUTE
    assert after(decide(held, Raised(error=ERROR, retryable=False), NOW, 0.5)).keep_until == NOW + 2 * MINUTE


def test_the_end_of_an_attempt_is_refused_unless_its_node_still_holds_its_lease() -> None:
    held = a_claim()
    change = decide(held, Succeeded(), NOW, 0.5)
    assert change.fit(held.job, NODE) is Fit.FITS
    assert change.fit(held.job, NodeId("node-2")) is Fit.REFUSED
    assert change.fit(held.job, None) is Fit.REFUSED
    assert change.fit(after(change), NODE) is Fit.REFUSED
    given_back = after(decide(held, Interrupted(started=True), NOW, 0.5))
    claimed_again = claim(given_back, NODE, 1)
    assert claimed_again.job.attempt == held.job.attempt  # which is why the attempt is no fence
    assert change.fit(claimed_again.job, NODE) is Fit.REFUSED


def test_a_cancel_that_comes_while_an_attempt_is_ending_is_not_undone_by_that_end() -> None:
    held = a_claim()
    ending = decide(held, Raised(error=ERROR), NOW, 0.5)
    asked = after(command(held.job, CancelJob(), NOW))
    assert ending.fit(asked, NODE) is Fit.STALE
    again = decide(Claim(job=asked, node=NODE), Raised(error=ERROR), NOW, 0.5)
    assert (again.fit(asked, NODE), after(again).state) == (Fit.FITS, State.CANCELLED)


def test_of_two_operators_who_saw_the_same_job_the_second_has_to_look_again() -> None:
    job = a_job()
    first, second = command(job, MoveJob(priority=90), NOW), command(job, MoveJob(queue="mail"), NOW)
    assert second.fit(after(first), None) is Fit.STALE


def test_an_old_command_does_not_fit_a_job_that_has_come_back_to_the_same_state() -> None:
    seen = a_job()
    old = command(seen, MoveJob(priority=90), NOW)
    cancelled = after(command(seen, CancelJob(), NOW))
    back = after(command(cancelled, RetryJob(), NOW))
    assert (back.state, back.lease) == (seen.state, seen.lease)
    assert old.fit(back, None) is Fit.STALE


def test_a_job_expires_only_before_its_handler_has_run() -> None:
    job = a_job(expires_at=NOW)
    assert is_expired(job, NOW)
    assert not is_expired(job, NOW - MINUTE)
    assert not is_expired(a_job(), NOW)
    for ran in (Raised(error=ERROR), Snoozed(delay=MINUTE), Lost(), Interrupted(started=True)):
        assert not is_expired(after(decide(claim(job, NODE, 1), ran, NOW, 0.5)), NOW)
    for did_not in (Deferred(delay=MINUTE), Interrupted(started=False)):
        assert is_expired(after(decide(claim(job, NODE, 1), did_not, NOW, 0.5)), NOW)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(DeclarationError, match="has no time zone"):
        MoveJob(run_at=datetime(2030, 1, 1))  # noqa: DTZ001 - that is what is tested


@pytest.mark.parametrize("span", [timedelta(days=-1), timedelta(days=10**7)])
def test_a_retention_that_no_date_could_hold_is_refused(span: timedelta) -> None:
    with pytest.raises(BadDuration):
        Retention(failed=span)


def test_all_that_a_job_knows_is_plain_data_that_a_store_can_keep() -> None:
    job = a_job(expires_at=NOW, cause=Cause.LOST)
    assert msgspec.json.decode(msgspec.json.encode(job), type=Job) == job


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
    st.sampled_from([Interrupted(started=True), Lost(), Expired(), NoSuchTask(), Unreadable(ERROR)]),
)
rolls = st.floats(0, 1, exclude_max=True)


class Life(RuleBasedStateMachine):
    """One job, as a store keeps it, and changes that are decided now and written later, in any order.

    Whoever decides may hold a claim or a job that is long out of date; only what fits is written.
    """

    changes = Bundle[Change]("changes")
    claims = Bundle[Claim]("claims")
    seen = Bundle[Job]("seen")

    @initialize(target=seen, limit=st.integers(1, 5), loss_limit=st.integers(1, 4), later=st.booleans())
    def enqueue(self, limit: int, loss_limit: int, later: bool) -> Job:
        self.now = NOW
        run_at = NOW + MINUTE if later else NOW
        self.job: Job | None = a_job(first_state(run_at, NOW), run_at=run_at, max_attempts=limit, loss_limit=loss_limit)
        self.holder: NodeId | None = None
        self.limit = limit
        self.executions = 0  # attempts that count
        self.grants = 0
        return self.job

    @precondition(lambda self: self.job and self.job.state in WAITING)
    @rule(target=claims, node=st.sampled_from([NODE, NodeId("node-2")]))
    def claim(self, node: NodeId) -> Claim:
        before = self.job
        assert before is not None
        assert before.has_attempts_left
        held = claim(before, node, 7)
        assert (held.job.claims, held.job.attempt) == (before.claims + 1, before.attempt + 1)
        self.job, self.holder = held.job, node
        return held

    @rule(target=seen)
    def look(self) -> Job:
        return self.job or a_job()

    @precondition(lambda self: self.job)
    @rule(target=claims, held=claims)
    def hear_of_changes(self, held: Claim) -> Claim:
        """A node's heartbeat tells it what became of a job that it holds."""
        mine = self.job and self.job.lease == held.job.lease and self.holder == held.node
        return Claim(job=self.job, node=held.node) if self.job and mine else held

    @rule(target=changes, held=claims, outcome=outcomes, roll=rolls)
    def end(self, held: Claim, outcome: Outcome, roll: float) -> Change | MultipleResults[Change]:
        if held.job.state is not State.RUNNING:
            return multiple()
        return decide(held, outcome, self.now, roll)

    @rule(
        target=changes,
        job=seen,
        order=st.sampled_from([CancelJob(), RetryJob(), MoveJob(priority=75), DeleteJob()]),
    )
    def operate(self, job: Job, order: Command) -> Change | MultipleResults[Change]:
        try:
            return command(job, order, self.now)
        except IllegalTransition:
            return multiple()

    @rule(change=changes)
    def write(self, change: Change) -> None:
        if self.job is None or change.fit(self.job, self.holder) is not Fit.FITS:
            return
        before = self.job
        assert change.before == before  # what fits was decided on the job as it is
        assert target(before.state, change.event) == (change.after.state if change.after else None)
        self.job = change.after
        self.holder = self.holder if change.event is Event.CANCEL_REQUESTED else None
        if change.after is None:
            assert before.state is not State.RUNNING
            return
        assert change.after.lease >= before.lease
        if before.state in FINISHED:
            assert change.event is Event.RETRIED
        if before.cancel_requested_at and change.node:
            assert change.event in {Event.CANCELLED, Event.SUCCEEDED}
        given_back = isinstance(change.outcome, Snoozed | Deferred | Interrupted | Expired | NoSuchTask | Unreadable)
        if change.node and (not given_back or change.event is Event.CANCELLED):
            self.executions += 1
        self.grants += change.event is Event.RETRIED

    @rule(minutes=st.integers(1, 100))
    def time_passes(self, minutes: int) -> None:
        self.now += minutes * MINUTE

    @invariant()
    def counts_hold(self) -> None:
        if self.job is None:
            return
        finished = self.job.state in FINISHED
        assert self.job.attempt == self.executions + (self.job.state is State.RUNNING)
        assert self.job.attempt <= self.limit + self.grants
        assert self.job.granted == self.grants
        assert (self.job.finished_at is not None) == (self.job.keep_until is not None) == finished
        assert (self.job.cause is not None) == (self.job.state is State.FAILED)
        assert (self.holder is not None) == (self.job.state is State.RUNNING)


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
