"""What becomes of slots that nobody decided when they came up: no node was there, or the clock was set forward.

A slot is owed from the moment that it comes up. Usually that is one, and it is decided at once. When more are owed, or
one has become old, the policy of the schedule says which of them still make a job: `chosen`. All others are `dropped`,
and say why; neighbours are told of together, so that a day of seconds is one span and not 86,400.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import force_setattr

from mainspring.core.rules import Rule
from mainspring.duration import Duration, duration
from mainspring.errors import DeclarationError

MOMENT: Final = timedelta(microseconds=1)
_MOST: Final = 2**31 - 1
_WHOLE: Final = ", in whole numbers, not "
LEAST_GRACE: Final = timedelta(seconds=1)
"""Every slot is decided some milliseconds late. With no grace at all none would ever make a job."""


class Reason(StrEnum):
    """Why a slot made no job."""

    SKIPPED = "skipped"  # it was missed, and the policy skips what was
    SUPERSEDED = "superseded"  # a later one stands for it
    TOO_OLD = "too_old"  # nobody was there in time
    OVERLAPPED = "overlapped"  # the run before it had not ended
    PAUSED = "paused"  # the schedule was paused
    BREAKER_OPEN = "breaker_open"  # the breaker of its task was open
    NO_PROVIDER = "no_provider"  # the plugin of its task was installed nowhere
    TAKEN = "taken"  # another job had the unique key of its job


class Span(Struct, frozen=True, kw_only=True):
    """Slots in a row that made no job, for one reason."""

    first: datetime
    last: datetime
    count: int
    reason: Reason


class Policy(StrEnum):
    """Which of the slots that are owed make a job."""

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


class Missed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do about missed slots. Made by `skip`, `latest` or `all`."""

    policy: Policy = Policy.LATEST
    grace: timedelta = timedelta(hours=1)
    """How late a slot may still make a job."""
    limit: int = 1
    """How many make one in total, of those that are owed at a time."""
    per_tick: int = 1
    """How many of them at once; the others follow a second apart."""

    def __post_init__(self) -> None:
        force_setattr(self, "grace", duration(self.grace))
        is_policy = self.policy in list(Policy)
        limit = f"a limit of at least 1{_WHOLE}{self.limit!r}; to make no job there is Missed.skip()"
        late = f"every slot is decided a little late: a grace of at least 1 s, not {self.grace}"
        DeclarationError.unless(
            "Missed",
            (
                (is_policy, f"a policy is one of {', '.join(Policy)}, not {self.policy!r}"),
                (self.grace >= LEAST_GRACE, f"{late}; to make up for nothing there is Missed.skip()"),
                (_is_count(self.limit), limit),
                (_is_count(self.per_tick), f"at least 1 a tick{_WHOLE}{self.per_tick!r}"),
            ),
        )
        force_setattr(self, "policy", Policy(self.policy))

    @classmethod
    def skip(cls, *, grace: Duration = "1m") -> "Missed":
        """Leave out what was missed: more than `grace` too late, or with a later one behind it."""
        return cls(policy=Policy.SKIP, grace=duration(grace))

    @classmethod
    def latest(cls, *, grace: Duration = "1h") -> "Missed":
        """Make up for all of them once, by the newest, if it is not older than `grace`. The default."""
        return cls(policy=Policy.LATEST, grace=duration(grace))

    @classmethod
    def all(cls, *, limit: int = 10, per_tick: int = 5, grace: Duration = "24h") -> "Missed":
        """Make up for each, the oldest first: the newest `limit` of them, none older than `grace`."""
        return cls(policy=Policy.ALL, grace=duration(grace), limit=limit, per_tick=per_tick)


def _is_count(value: object) -> bool:
    return type(value) is int and 1 <= value <= _MOST


class Owed(Struct, frozen=True, kw_only=True):
    """What is to be decided now: first what is dropped, then what makes a job, oldest first."""

    dropped: tuple[Span, ...] = ()
    chosen: tuple[datetime, ...] = ()
    more: bool = False
    """There are others after these, which have to wait for the next tick."""

    @property
    def last(self) -> datetime | None:
        """The newest slot that is decided by this."""
        if self.chosen:
            return self.chosen[-1]
        return self.dropped[-1].last if self.dropped else None


def owed(rule: Rule, missed: Missed, *, after: datetime, until: datetime, now: datetime) -> Owed:
    """Say what becomes of the slots of a rule that came up `after` an instant and `until` another, by `now`."""
    first = rule.next(after)
    if first is None or first > until:
        return Owed()
    begin = _begin_of_newest(rule, missed, after=after, until=until, now=now)
    # Forward from there, and no further than one tick takes: a backlog is not walked as a whole at each of its ticks.
    found = tuple(islice(rule.between(begin, until), missed.per_tick + 1))
    chosen, more = found[: missed.per_tick], found[missed.per_tick :]
    last = rule.previous(chosen[0] if chosen else until + MOMENT)
    if last is None or last < first:
        dropped: tuple[Span, ...] = ()
    else:
        reason = _reason(missed, age=now - last, has_later=bool(chosen))
        dropped = span(rule, reason, after=after, until=last)
    return Owed(dropped=dropped, chosen=chosen, more=bool(more))


def _reason(missed: Missed, *, age: timedelta, has_later: bool) -> Reason:
    """Say why slots are dropped of which the newest is so old."""
    if missed.policy is Policy.SKIP:
        return Reason.SKIPPED
    if missed.policy is Policy.LATEST:
        return Reason.SUPERSEDED if has_later else Reason.TOO_OLD
    return Reason.TOO_OLD if age > missed.grace else Reason.SUPERSEDED


def span(rule: Rule, reason: Reason, *, after: datetime, until: datetime) -> tuple[Span, ...]:
    """Tell of all slots that came up in between, for one reason; of none there is nothing to tell."""
    first, last = rule.next(after), rule.previous(until + MOMENT)
    if first is None or last is None or last < first:
        return ()
    return (Span(first=first, last=last, count=rule.count(after, until), reason=reason),)


def _begin_of_newest(rule: Rule, missed: Missed, *, after: datetime, until: datetime, now: datetime) -> datetime:
    """Find an instant after which the slots are worth a job: none is too old, and there are no more than the limit."""
    begin = max(after, now - missed.grace - MOMENT)
    if begin >= until or rule.count(begin, until) <= missed.limit:
        return begin
    enough = until
    while enough - begin > MOMENT:
        middle = begin + (enough - begin) // 2
        if rule.count(middle, until) > missed.limit:
            begin = middle
        else:
            enough = middle
    return enough
