"""Whether an attempt that raised gets another."""

from datetime import timedelta

import pytest

from mainspring.core.outcome import (
    AttemptError,
    Deferred,
    Fail,
    HostNotReady,
    Outcome,
    Raised,
    RetryIn,
    Signal,
    Snooze,
    Snoozed,
    Succeeded,
    Unreadable,
    error_of,
    outcome_of,
)
from mainspring.core.retry import GREATEST, Retry
from mainspring.errors import DeclarationError

ERROR = AttemptError(type="E", message="m", traceback="t")


def group(*members: Exception) -> ExceptionGroup[Exception]:
    return ExceptionGroup("several", members)


def test_the_kinds_of_policy() -> None:
    assert Retry.none().max_attempts == 1
    assert Retry.fixed("5s").backoff.delay(4, 0.5) == timedelta(seconds=5)
    assert Retry.linear("5s", "1s").backoff.delay(4, 0.5) == timedelta(seconds=8)
    assert Retry.exponential().max_attempts == 6
    assert Retry.exponential().backoff.delay(4, 0.5) == timedelta(seconds=8)


def test_everything_is_worth_another_attempt_unless_said_otherwise() -> None:
    assert Retry.exponential().wants(ValueError())
    assert not Retry.exponential().wants(KeyboardInterrupt())


def test_a_list_of_what_to_retry_leaves_out_the_rest() -> None:
    policy = Retry.fixed(1, retry_on=(ConnectionError,))
    assert policy.wants(ConnectionResetError())
    assert not policy.wants(ValueError())


def test_a_list_of_what_to_fail_on_leaves_the_rest_to_be_retried() -> None:
    policy = Retry.linear(1, 1, fail_on=(ValueError,))
    assert policy.wants(OSError())
    assert not policy.wants(UnicodeError())  # a ValueError


def test_the_nearest_class_decides_whichever_list_it_stands_in() -> None:
    harsh = Retry.exponential(retry_on=(OSError,), fail_on=(FileNotFoundError,))
    assert harsh.wants(PermissionError())
    assert not harsh.wants(FileNotFoundError())
    kind = Retry.exponential(retry_on=(FileNotFoundError,), fail_on=(OSError,))
    assert kind.wants(FileNotFoundError())
    assert not kind.wants(PermissionError())


def test_a_class_in_both_lists_is_refused() -> None:
    with pytest.raises(DeclarationError, match="OSError stands in retry_on and in fail_on"):
        Retry.exponential(retry_on=(OSError,), fail_on=(OSError,))


@pytest.mark.parametrize("attempts", [0, -1, 2.5, "5", True])
def test_a_limit_counts_the_first_execution_too(attempts: int) -> None:
    with pytest.raises(DeclarationError, match="at least 1"):
        Retry.fixed(1, max_attempts=attempts)


def test_a_limit_is_one_that_every_store_can_keep() -> None:
    assert Retry.fixed(1, max_attempts=GREATEST).max_attempts == 2**31 - 1
    with pytest.raises(DeclarationError, match="max_attempts is 2,147,483,647 at most"):
        Retry.fixed(1, max_attempts=GREATEST + 1)


@pytest.mark.parametrize("classes", [OSError, ("OSError",), (int,), [OSError]])
def test_a_list_of_classes_is_a_tuple_of_exceptions(classes: tuple[type[Exception], ...]) -> None:
    with pytest.raises(DeclarationError, match="retry_on takes a tuple of exception classes"):
        Retry.exponential(retry_on=classes)
    with pytest.raises(DeclarationError, match="fail_on takes a tuple of exception classes"):
        Retry.exponential(fail_on=classes)


def test_the_lower_of_the_jobs_and_the_policys_limit_holds() -> None:
    assert Retry.exponential(max_attempts=3).limit(2) == 2
    assert Retry.exponential(max_attempts=3).limit(9) == 3
    assert Retry.exponential(max_attempts=3).limit(None) == 3
    with pytest.raises(DeclarationError, match="at least 1, not 0"):
        Retry.exponential().limit(0)


@pytest.mark.parametrize(("raised", "outcome"), [
    (ValueError("x"), Raised(error=ERROR)),
    (OSError("x"), Raised(error=ERROR, retryable=False)),
    (RetryIn("5m", "busy"), Raised(error=ERROR, retry_in=timedelta(minutes=5))),
    (Snooze("1h", "closed"), Snoozed(delay=timedelta(hours=1), reason="closed")),
    (HostNotReady("5s", "starting", 0xD21), Deferred(delay=timedelta(seconds=5), reason="starting")),
    (group(HostNotReady("5s", "a", 0xD21), Snooze("1s", "b")), Snoozed(delay=timedelta(seconds=5), reason="a")),
    (Fail("no such customer"), Raised(error=ERROR, retryable=False)),
    (group(ValueError()), Raised(error=ERROR)),
    (group(ValueError(), OSError()), Raised(error=ERROR, retryable=False)),
    (group(ValueError(), group(Fail("no"))), Raised(error=ERROR, retryable=False)),
    (group(Snooze("1h", "a"), Snooze("2h", "b")), Snoozed(delay=timedelta(hours=2), reason="b")),
    (group(Snooze("1h"), ValueError()), Raised(error=ERROR, retry_in=timedelta(hours=1))),
    (group(RetryIn("1h"), RetryIn("5m"), ValueError()), Raised(error=ERROR, retry_in=timedelta(hours=1))),
    (group(RetryIn("1h"), OSError()), Raised(error=ERROR, retryable=False)),
])  # fmt: skip
def test_what_a_handler_raises_is_its_word_or_the_policys(raised: Exception, outcome: Outcome) -> None:
    assert outcome_of(raised, ERROR, Retry.exponential(fail_on=(OSError,))) == outcome


class Batch(ExceptionGroup[Exception]):
    """A group that means something by itself."""


def test_a_group_that_the_policy_names_speaks_for_itself() -> None:
    batch = Batch("several", [ValueError()])
    assert outcome_of(batch, ERROR, Retry.exponential(fail_on=(Batch,))) == Raised(error=ERROR, retryable=False)
    assert outcome_of(batch, ERROR, Retry.exponential(retry_on=(Batch,))) == Raised(error=ERROR)
    assert outcome_of(batch, ERROR, Retry.exponential(fail_on=(ValueError,))) == Raised(error=ERROR, retryable=False)


@pytest.mark.parametrize("signal", [RetryIn("5m", "a"), Snooze("5m", "a"), Fail("a")])
def test_signals_carry_their_reason(signal: Signal) -> None:
    assert getattr(signal, "reason", None) == "a"


def test_an_outcome_has_an_error_if_the_handler_raised_or_the_row_cannot_be_decoded() -> None:
    assert error_of(Raised(error=ERROR)) == ERROR
    assert error_of(Unreadable(error=ERROR)) == ERROR
    assert error_of(Succeeded()) is None
    assert error_of(None) is None
