"""A task's circuit breaker."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from mainspring.core.backoff import Backoff
from mainspring.core.breaker import (
    Attempt,
    Breaker,
    Circuit,
    Pass,
    Phase,
    Refusal,
    Verdict,
    admit,
    force,
    free,
    is_shut,
    record,
    refusal,
    reset,
    verdict,
)
from mainspring.core.command import CancelJob
from mainspring.core.job import Claim, Job, JobId, NodeId, State
from mainspring.core.machine import claim, command, decide
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
    Unreadable,
)
from mainspring.errors import BadDuration, DeclarationError

NOW = datetime(2030, 1, 1, tzinfo=UTC)
COOLDOWN = timedelta(seconds=30)
RULE = Breaker()


def an_attempt(number: int) -> Attempt:
    return Attempt(JobId(UUID(int=number)), 1)


def failing(circuit: Circuit, times: int, now: datetime = NOW) -> Circuit:
    for number in range(times):
        circuit = record(RULE, circuit, an_attempt(number), term=circuit.term, verdict=Verdict.BAD, now=now)
    return circuit


def probing(circuit: Circuit, attempt: Attempt, now: datetime = NOW + COOLDOWN) -> Circuit:
    answer = admit(RULE, circuit, attempt, now)
    assert isinstance(answer, Pass)
    return answer.circuit


def test_ten_failures_in_a_row_open_it_for_thirty_seconds() -> None:
    nearly = failing(Circuit(), 9)
    assert nearly.phase is Phase.CLOSED
    opened = failing(nearly, 1)
    assert opened.phase is Phase.OPEN
    assert admit(RULE, opened, an_attempt(1), NOW + COOLDOWN / 2) == Refusal(until=NOW + COOLDOWN)


def test_a_success_in_between_starts_the_count_anew() -> None:
    circuit = failing(Circuit(), 9)
    circuit = record(RULE, circuit, an_attempt(1), term=0, verdict=Verdict.GOOD, now=NOW)
    assert failing(circuit, 9).phase is Phase.CLOSED


def test_a_success_of_a_healthy_task_changes_nothing() -> None:
    circuit = Circuit()
    assert record(RULE, circuit, an_attempt(1), term=0, verdict=Verdict.GOOD, now=NOW) is circuit


def test_after_the_cooldown_exactly_one_probe_goes_through() -> None:
    opened = failing(Circuit(), 10)
    probe, other = an_attempt(1), an_attempt(2)
    half = probing(opened, probe)
    assert (half.phase, half.probe) == (Phase.HALF_OPEN, probe)
    assert admit(RULE, half, other, NOW + COOLDOWN) == Refusal(until=None)
    assert isinstance(admit(RULE, half, probe, NOW + COOLDOWN), Pass)  # its first answer may have got lost


def test_a_good_probe_closes_it() -> None:
    half = probing(failing(Circuit(), 10), an_attempt(1))
    closed = record(RULE, half, an_attempt(1), term=half.term, verdict=Verdict.GOOD, now=NOW)
    assert (closed.phase, closed.failures) == (Phase.CLOSED, 0)


def test_a_bad_probe_opens_it_for_another_cooldown_without_ten_more_failures() -> None:
    half = probing(failing(Circuit(), 10), an_attempt(1))
    later = NOW + 2 * COOLDOWN
    reopened = record(RULE, half, an_attempt(1), term=half.term, verdict=Verdict.BAD, now=later)
    assert admit(RULE, reopened, an_attempt(2), later) == Refusal(until=later + COOLDOWN)


def test_failures_in_a_row_stay_to_be_seen_until_a_probe_is_good_or_somebody_says_so() -> None:
    half = probing(failing(Circuit(), 10), an_attempt(1))
    assert half.failures == 10
    reopened = record(RULE, half, an_attempt(1), term=half.term, verdict=Verdict.BAD, now=NOW)
    assert reopened.failures == 11
    again = probing(reopened, an_attempt(2))
    assert record(RULE, again, an_attempt(2), term=again.term, verdict=Verdict.GOOD, now=NOW).failures == 0
    assert reset(reopened).failures == force(reopened, Phase.OPEN, NOW).failures == 0


def test_a_probe_without_a_verdict_frees_its_place() -> None:
    half = probing(failing(Circuit(), 10), an_attempt(1))
    freed = record(RULE, half, an_attempt(1), term=half.term, verdict=Verdict.NONE, now=NOW)
    assert probing(freed, an_attempt(2)).probe == an_attempt(2)


def test_only_the_probe_judges_a_half_open_breaker() -> None:
    half = probing(failing(Circuit(), 10), an_attempt(1))
    assert record(RULE, half, an_attempt(2), term=half.term, verdict=Verdict.GOOD, now=NOW) is half


def test_whoever_is_let_through_is_told_the_term() -> None:
    answer = admit(RULE, failing(Circuit(), 10), an_attempt(1), NOW + COOLDOWN)
    assert isinstance(answer, Pass)
    assert (answer.term, answer.circuit.revision) == (2, 11)


def test_an_end_without_a_verdict_leaves_a_closed_breaker_as_it_was() -> None:
    circuit = failing(Circuit(), 3)
    assert record(RULE, circuit, an_attempt(1), term=0, verdict=Verdict.NONE, now=NOW) is circuit


def test_late_ends_of_an_earlier_term_count_for_nothing() -> None:
    half = probing(failing(Circuit(), 10), an_attempt(1))
    for word in Verdict:
        assert record(RULE, half, an_attempt(1), term=half.term - 1, verdict=word, now=NOW) is half


def test_an_end_while_it_is_open_changes_nothing() -> None:
    opened = failing(Circuit(), 10)
    assert record(RULE, opened, an_attempt(1), term=opened.term, verdict=Verdict.GOOD, now=NOW) is opened


def test_an_end_without_a_term_counts_only_if_it_is_that_of_the_probe() -> None:
    closed = failing(Circuit(), 3)
    half = probing(failing(Circuit(), 10), an_attempt(1))
    for word in Verdict:
        assert record(RULE, closed, an_attempt(1), term=None, verdict=word, now=NOW) is closed
        assert record(RULE, half, an_attempt(2), term=None, verdict=word, now=NOW) is half
        there = record(RULE, half, an_attempt(1), term=half.term, verdict=word, now=NOW)
        assert record(RULE, half, an_attempt(1), term=None, verdict=word, now=NOW) == there


def test_a_clock_that_was_set_back_keeps_it_open_for_one_more_cooldown_at_most() -> None:
    opened = failing(Circuit(), 10)
    assert refusal(RULE, opened, NOW - COOLDOWN) == Refusal(until=NOW + COOLDOWN)
    assert refusal(RULE, opened, NOW - COOLDOWN - timedelta(microseconds=1)) is None
    assert isinstance(admit(RULE, opened, an_attempt(1), NOW - timedelta(days=1)), Pass)
    forced = force(Circuit(), Phase.OPEN, NOW)
    assert refusal(RULE, forced, NOW - timedelta(days=1)) == Refusal(until=None)


def test_whoever_asks_for_nobody_is_told_what_everybody_would_be_told() -> None:
    opened = failing(Circuit(), 10)
    half = probing(opened, an_attempt(1))
    for circuit in (Circuit(), opened, half, free(half), force(Circuit(), Phase.OPEN, NOW), reset(opened)):
        for now in (NOW, NOW + COOLDOWN):
            refused = refusal(RULE, circuit, now)
            answer = admit(RULE, circuit, an_attempt(9), now)
            assert answer == refused if refused else isinstance(answer, Pass)
            assert is_shut(RULE, circuit, now) == (circuit.phase is Phase.OPEN and refused is not None)


def test_rules_that_say_the_same_are_equal() -> None:
    assert Breaker(cooldown="30s") == Breaker(cooldown=COOLDOWN) == Breaker(cooldown=30)


def test_forced_open_it_stays_open_until_it_is_reset() -> None:
    forced = force(Circuit(), Phase.OPEN, NOW)
    assert admit(RULE, forced, an_attempt(1), NOW + 1000 * COOLDOWN) == Refusal(until=None)
    assert isinstance(admit(RULE, reset(forced), an_attempt(1), NOW), Pass)


def test_forced_closed_it_lets_failures_pass_until_it_is_reset() -> None:
    forced = force(failing(Circuit(), 10), Phase.CLOSED, NOW)
    assert failing(forced, 50) == forced
    assert failing(reset(forced), 10).phase is Phase.OPEN


def test_it_cannot_be_forced_half_open() -> None:
    with pytest.raises(DeclarationError, match="forced open or closed"):
        force(Circuit(), Phase.HALF_OPEN, NOW)


def test_a_rule_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(DeclarationError, match="at least 1"):
        Breaker(threshold=0)
    with pytest.raises(DeclarationError, match="at least 1"):
        Breaker(threshold=2.5)  # type: ignore[arg-type] # the mistake
    with pytest.raises(BadDuration):
        Breaker(cooldown="soon")


JOB = Job(
    id=JobId(UUID(int=1)),
    task=Name("", "a"),
    state=State.READY,
    run_at=NOW,
    backoff=Backoff.exponential(),
    max_attempts=2,
)
ERROR = AttemptError(type="E", message="m")


@pytest.mark.parametrize(("outcome", "said"), [
    (Succeeded(), Verdict.GOOD),
    (Raised(error=ERROR), Verdict.BAD),
    (Raised(error=ERROR, retryable=False), Verdict.BAD),
    (Snoozed(delay=COOLDOWN), Verdict.NONE),
    (Deferred(delay=COOLDOWN), Verdict.NONE),
    (Interrupted(started=True), Verdict.NONE),
    (Lost(), Verdict.NONE),
    (Expired(), Verdict.NONE),
    (NoSuchTask(), Verdict.NONE),
    (Unreadable(ERROR), Verdict.NONE),
])  # fmt: skip
def test_only_a_handler_that_returned_or_raised_gives_a_verdict(outcome: Outcome, said: Verdict) -> None:
    assert verdict(decide(claim(JOB, NodeId("n"), 1), outcome, NOW, 0.5)) is said


def test_a_cancelled_run_is_no_verdict() -> None:
    held = claim(JOB, NodeId("n"), 1)
    asked = command(held.job, CancelJob(), NOW).after
    assert asked is not None
    assert verdict(decide(Claim(job=asked, node=held.node), Raised(error=ERROR), NOW, 0.5)) is Verdict.NONE


class Nodes(RuleBasedStateMachine):
    """Any number of nodes that ask and report in any order: one probe at most, and no trouble from the past."""

    under_way = Bundle[tuple[Attempt, int]]("under_way")

    @initialize(threshold=st.integers(1, 3))
    def begin(self, threshold: int) -> None:
        self.rule = Breaker(threshold=threshold, cooldown="30s")
        self.now = NOW
        self.circuit = Circuit()
        self.next = 0
        self.running: dict[Attempt, int] = {}

    def becomes(self, circuit: Circuit) -> None:
        assert circuit.term >= self.circuit.term
        assert (circuit == self.circuit) == (circuit.revision == self.circuit.revision)
        self.circuit = circuit

    @rule(target=under_way)
    def ask(self) -> tuple[Attempt, int] | MultipleResults[tuple[Attempt, int]]:
        self.next += 1
        attempt = an_attempt(self.next)
        answer = admit(self.rule, self.circuit, attempt, self.now)
        if isinstance(answer, Refusal):
            assert self.circuit.phase is not Phase.CLOSED
            return multiple()
        self.becomes(answer.circuit)
        self.running[attempt] = answer.term
        return attempt, answer.term

    @rule(started=consumes(under_way), word=st.sampled_from(Verdict))
    def report(self, started: tuple[Attempt, int], word: Verdict) -> None:
        attempt, term = started
        before = self.circuit
        self.becomes(record(self.rule, before, attempt, term=term, verdict=word, now=self.now))
        del self.running[attempt]
        if term != before.term:
            assert self.circuit is before
        if (self.circuit.phase, before.phase) == (Phase.CLOSED, Phase.HALF_OPEN):
            assert (word, attempt) == (Verdict.GOOD, before.probe)

    @rule(seconds=st.integers(1, 60))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(how=st.sampled_from([Phase.OPEN, Phase.CLOSED, None]))
    def operate(self, how: Phase | None) -> None:
        self.becomes(force(self.circuit, how, self.now) if how else reset(self.circuit))

    @invariant()
    def one_probe_at_most(self) -> None:
        in_this_term = [attempt for attempt, term in self.running.items() if term == self.circuit.term]
        if self.circuit.phase is Phase.HALF_OPEN:
            assert in_this_term == ([self.circuit.probe] if self.circuit.probe else [])
        if self.circuit.phase is Phase.CLOSED:
            assert self.circuit.failures < self.rule.threshold
        elif not self.circuit.forced:
            assert self.circuit.failures >= self.rule.threshold


TestNodes = Nodes.TestCase
