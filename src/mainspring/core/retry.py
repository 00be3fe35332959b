"""Whether an attempt that raised gets another, and when.

A policy is a number of attempts, a backoff between them, and the classes of exceptions that are worth another try.
It belongs to the task. A job keeps the number and the backoff; the classes stay in the program, because only the node
that caught an exception can tell its class.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from mainspring.core.backoff import QUARTER_HOUR, Backoff
from mainspring.duration import Duration
from mainspring.errors import DeclarationError

GREATEST: Final = 2**31 - 1
"""Of numbers that stores keep beside a job, in four bytes where they have a choice."""

Exceptions = tuple[type[BaseException], ...]


class Retry(Struct, frozen=True, kw_only=True):
    """A retry policy. `max_attempts` is the total number of executions: 1 means never again."""

    max_attempts: int
    backoff: Backoff
    retry_on: Exceptions = (Exception,)
    fail_on: Exceptions = ()

    def __post_init__(self) -> None:
        DeclarationError.unless("Retry", self._requirements())

    def _requirements(self) -> Iterator[tuple[bool, str]]:
        whole = type(self.max_attempts) is int and self.max_attempts >= 1
        yield whole, f"max_attempts counts the first execution too: a number, at least 1, not {self.max_attempts!r}"
        yield not whole or self.max_attempts <= GREATEST, f"max_attempts is {GREATEST:,} at most"
        for name, classes in (("retry_on", self.retry_on), ("fail_on", self.fail_on)):
            fits = isinstance(classes, tuple) and all(
                isinstance(one, type) and issubclass(one, BaseException) for one in classes
            )
            yield fits, f"{name} takes a tuple of exception classes, such as (OSError,), not {classes!r}"
            if not fits:
                return
        for both in set(self.retry_on) & set(self.fail_on):
            yield False, f"{both.__name__} stands in retry_on and in fail_on; take it out of one"

    @classmethod
    def none(cls) -> "Retry":
        """One attempt, and no other."""
        return cls(max_attempts=1, backoff=Backoff.fixed(0))

    @classmethod
    def fixed(
        cls,
        delay: Duration,
        *,
        max_attempts: int = 6,
        jitter: float = 0.0,
        retry_on: Exceptions = (Exception,),
        fail_on: Exceptions = (),
    ) -> "Retry":
        """Try again after the same wait every time."""
        return cls(
            max_attempts=max_attempts, backoff=Backoff.fixed(delay, jitter=jitter), retry_on=retry_on, fail_on=fail_on
        )

    @classmethod
    def linear(
        cls,
        initial: Duration,
        increment: Duration,
        *,
        cap: Duration = QUARTER_HOUR,
        max_attempts: int = 6,
        jitter: float = 0.0,
        retry_on: Exceptions = (Exception,),
        fail_on: Exceptions = (),
    ) -> "Retry":
        """Try again after a wait that grows by the same amount."""
        backoff = Backoff.linear(initial, increment, cap=cap, jitter=jitter)
        return cls(max_attempts=max_attempts, backoff=backoff, retry_on=retry_on, fail_on=fail_on)

    @classmethod
    def exponential(
        cls,
        initial: Duration = 1,
        *,
        multiplier: float = 2.0,
        cap: Duration = QUARTER_HOUR,
        max_attempts: int = 6,
        jitter: float = 0.25,
        retry_on: Exceptions = (Exception,),
        fail_on: Exceptions = (),
    ) -> "Retry":
        """Try again after a wait that doubles: the default of every task, 6 attempts, 1 s at first, 15 min at most."""
        backoff = Backoff.exponential(initial, multiplier=multiplier, cap=cap, jitter=jitter)
        return cls(max_attempts=max_attempts, backoff=backoff, retry_on=retry_on, fail_on=fail_on)

    def limit(self, own: int | None) -> int:
        """Return how many attempts a job gets that brings a limit of its own, or none: the lower of the two."""
        if own is None:
            return self.max_attempts
        if own < 1:
            raise DeclarationError("max_attempts", f"it counts the first execution too: at least 1, not {own}")
        return min(own, self.max_attempts)

    def names(self, group: type[BaseException]) -> bool:
        """Say whether a class of groups, or an ancestor that is more than a group as such, stands in either list."""
        any_group = set(ExceptionGroup.__mro__)
        return any(one in self.retry_on + self.fail_on for one in group.__mro__ if one not in any_group)

    def wants(self, error: BaseException) -> bool:
        """Say whether this error is worth another attempt: the class nearest to it that either list names decides."""
        for ancestor in type(error).__mro__:
            if ancestor in self.fail_on:
                return False
            if ancestor in self.retry_on:
                return True
        return False
