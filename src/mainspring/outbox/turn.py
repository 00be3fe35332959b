"""A delivery that was begun, and what is to be written when it has ended. Nothing here waits for anything."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from mainspring.core.outbox import (
    LOST,
    Delivery,
    Ended,
    Next,
    Stand,
    Trouble,
    Verdict,
    end,
    end_aside,
    lost,
    release,
)
from mainspring.outbox.caller import Given
from mainspring.stores.outbox import Aside, Message, NewLetter, Stride


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A delivery under way: of messages behind the cursor, or of some that were set aside."""

    stand: Stand
    """As it was written when the delivery began."""
    span: tuple[Message, ...] = ()
    """The messages behind the cursor that it holds, without a gap."""
    skipped: frozenset[int] = frozenset()
    """The `seq` of those among them whose key is set aside: they are set aside too when the cursor passes them."""
    asides: tuple[Aside, ...] = ()
    """Instead of a span: what was set aside, as it was before this delivery was counted."""
    counted: tuple[Aside, ...] = ()
    """The same as it is with this delivery: if that is lost, the count is there."""

    @property
    def given(self) -> list[Given]:
        """What the handler is given."""
        if self.asides:
            return [Given(one.message, one.attempts + 1) for one in self.asides]
        first = self.span[0].seq if self.span else 0
        return [
            Given(one, self.stand.attempts + 1 if one.seq == first else 1)
            for one in self.span
            if one.seq not in self.skipped
        ]

    def is_last_chance(self, rules: Delivery) -> bool:
        """Say whether it was lost before, and would be a dead letter if it were lost again."""
        if self.asides:
            return any(_is_last_chance(one.attempts, one.error, rules) for one in self.asides)
        return _is_last_chance(self.stand.attempts, self.stand.error, rules)


class Came(NamedTuple):
    """What came of a delivery."""

    done: int = 0
    """How many of the messages that the handler was given, from the first on, need no more."""
    rejected: Mapping[int, str] = {}
    """Why some of them were rejected, by their place."""
    trouble: Trouble | None = None


@dataclass(slots=True)
class Draft:
    """A stride that is being put together."""

    stand: Stand
    """What stands there after it, while nothing new has begun."""
    letters: list[NewLetter] = field(default_factory=list)
    aside: dict[int, Aside] = field(default_factory=dict)
    back: list[int] = field(default_factory=list)
    buried: list[NewLetter] = field(default_factory=list)
    """Those of the letters that no delivery was asked about: they were lost in their last one."""
    verdict: Verdict = Verdict.NONE
    undone: int = 0
    """The `seq` of the message that was to blame."""
    attempts: int = 0
    retry_at: datetime | None = None
    error: str = ""
    acknowledged: int = 0
    rejected: int = 0

    def decided(self, after: Next, message: Message, error: str) -> None:
        """Take note of what becomes of the message that was to blame."""
        self.verdict, self.attempts, self.retry_at, self.error = after.verdict, after.attempts, after.retry_at, error
        self.undone = message.seq
        if after.verdict is Verdict.DEAD:
            self.letters.append(NewLetter(message=message, attempts=after.attempts, error=error))
        elif after.verdict is Verdict.ASIDE:
            self.put_aside([Aside(message=message, attempts=after.attempts, retry_at=after.retry_at, error=error)])

    def bury(self, one: Aside) -> None:
        """Make a dead letter of a message that was set aside, and is delivered no more."""
        letter = NewLetter(message=one.message, attempts=one.attempts, error=one.error)
        self.letters.append(letter)
        self.buried.append(letter)
        self.back.append(one.message.seq)

    def put_aside(self, asides: Iterable[Aside]) -> None:
        self.aside.update({one.message.seq: one for one in asides})

    @property
    def keys(self) -> frozenset[str]:
        """The keys of what is set aside by this stride."""
        return frozenset(one.message.key for one in self.aside.values() if one.message.key is not None)

    def touches(self, seq: int) -> bool:
        return seq in self.aside or seq in self.back

    def stride(self, outbox: str, partition: int) -> Stride:
        return Stride(
            outbox=outbox,
            partition=partition,
            before=self.stand.revision - 1,
            after=self.stand,
            letters=tuple(self.letters),
            aside=tuple(self.aside.values()),
            back=tuple(self.back),
        )


def ended(
    turn: Turn,
    came: Came,
    rules: Delivery,
    now: datetime,
    roll: float,
) -> Draft:
    """Say what is to be written after a delivery."""
    if turn.asides:
        return _ended_aside(turn, came, rules, now, roll)
    given, (done, rejected, trouble) = turn.given, came
    passed = len(turn.span) if done == len(given) else given[done].message.seq - turn.span[0].seq
    if trouble is None and not passed:
        return Draft(release(turn.stand))
    after = end(turn.stand, Ended(passed, trouble), rules, now, roll)
    draft = Draft(after.stand)
    _reject(draft, given[:done], rejected)
    draft.put_aside(
        Aside(message=one) for one in turn.span if one.seq in turn.skipped and one.seq <= after.stand.cursor
    )
    if after.verdict is not Verdict.NONE and trouble is not None:
        draft.decided(after, turn.span[passed], trouble.error)
    return draft


def _ended_aside(
    turn: Turn,
    came: Came,
    rules: Delivery,
    now: datetime,
    roll: float,
) -> Draft:
    done, rejected, trouble = came
    draft = Draft(release(turn.stand))
    _reject(draft, turn.given[:done], rejected)
    draft.back += [one.message.seq for one in turn.asides[:done]]
    left: Sequence[Aside] = turn.asides[done:]
    if left and trouble is not None:
        blamed, *left = left
        after = end_aside(blamed.attempts, trouble, rules, now, roll)
        draft.decided(after, blamed.message, trouble.error)
        if after.verdict is Verdict.DEAD:
            draft.back.append(blamed.message.seq)
    draft.put_aside(left)  # as if nothing had happened to them
    return draft


def _reject(draft: Draft, done: list[Given], rejected: Mapping[int, str]) -> None:
    for place, (message, attempt) in enumerate(done):
        if place in rejected:
            draft.letters.append(NewLetter(message=message, attempts=attempt, error=rejected[place]))
            draft.rejected += 1
        else:
            draft.acknowledged += 1


def left_behind(stand: Stand, head: Message | None, rules: Delivery, now: datetime, roll: float) -> Draft:
    """Say what is to be written about a delivery that nobody is at any more."""
    after = lost(stand, rules, now, roll)
    draft = Draft(after.stand)
    if head is not None:
        draft.decided(after, head, LOST)
    return draft


def counted(aside: Aside, rules: Delivery, now: datetime, roll: float) -> Aside:
    """Count a delivery of what was set aside before it begins: if it is lost, the count is there."""
    attempts = aside.attempts + 1
    retry_at = now + rules.backoff.delay(attempts, roll)
    return Aside(message=aside.message, attempts=attempts, retry_at=retry_at, error=LOST)


def is_used_up(aside: Aside, rules: Delivery) -> bool:
    """Say whether a message that was set aside was lost in its last delivery."""
    return aside.attempts >= rules.max_attempts


def company(due: Sequence[Aside], rules: Delivery) -> tuple[Aside, ...]:
    """Choose what is delivered together of what was set aside; what may have ended a node is delivered alone."""
    if not due:
        return ()
    first, *others = due
    if not rules.by_message or _is_suspect(first, rules):
        return (first,)
    return (first, *(one for one in others if not _is_suspect(one, rules)))


def _is_last_chance(attempts: int, error: str, rules: Delivery) -> bool:
    return error == LOST and attempts >= rules.max_attempts - 1


def _is_suspect(aside: Aside, rules: Delivery) -> bool:
    return aside.error == LOST or aside.attempts >= rules.max_attempts - 1
