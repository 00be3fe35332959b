"""The rules of an outbox: which partition a key belongs to, and how the delivery of a partition goes on.

Messages of a partition are delivered in the order of their numbers, by one node at a time. Where that stands is one
value, the `Stand`: how far everything is done, who is at it, and what came of the last delivery. Every step makes a new
one, under the next revision, and a store takes it only in place of the one that it was made from. So whoever was
overtaken finds out when it writes, and no clock has a say in that.

A delivery begins before its messages are handed out: whoever finds one under way whose node is gone knows that it was
lost, and with what. A failing batch shrinks until the message that is to blame stands alone; that one is tried until
its attempts are used up, and becomes a dead letter then. Its partition goes on.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.backoff import Backoff
from mainspring.core.job import NodeId
from mainspring.errors import BadOutboxName, BadPayloadType, DeclarationError

MOST_PARTITIONS: Final = 64
LARGEST_PAYLOAD: Final = 65_536
"""Bytes that a message may carry. What is larger is kept elsewhere, and its key sent."""
LONGEST_NAME: Final = 1024
LOST: Final = "the node that was at it is gone"

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_TYPE: Final = re.compile(r"[ -~]+")


def check_name(name: object) -> str:
    """Return the name of an outbox, or raise `BadOutboxName`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise BadOutboxName(name)
    return name


def check_type(type_: object) -> str:
    """Return the name of a payload's type, or raise `BadPayloadType`."""
    if not isinstance(type_, str) or not _TYPE.fullmatch(type_) or len(type_) > LONGEST_NAME:
        raise BadPayloadType(type_)
    return type_


def check_partitions(outbox: str, partitions: object) -> int:
    """Return how many partitions an outbox is to have, or raise `DeclarationError`."""
    fits = type(partitions) is int and 1 <= partitions <= MOST_PARTITIONS and partitions.bit_count() == 1
    if not fits or not isinstance(partitions, int):
        raise DeclarationError(f"outbox {outbox}", f"partitions is a power of two from 1 to 64, not {partitions!r}")
    return partitions


def partition_of(key: str, partitions: int) -> int:
    """Say where messages with this key go: the same in every program and for ever, since their order hangs on it."""
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % partitions


class Order(StrEnum):
    """What waits while a message is to be tried again."""

    PARTITION = "partition"
    """Everything behind it in its partition."""
    KEY = "key"
    """Only what has the same key; it is set aside until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The rules by which the partitions of an outbox are delivered."""

    batch: int
    """How many messages a delivery may hold."""
    max_attempts: int
    """Deliveries that a message may have altogether."""
    degrade_after: int
    """Failures in a row after which a batch that is handled as a whole is taken apart."""
    backoff: Backoff
    order: Order = Order.PARTITION
    by_message: bool = True
    """Whether each message is handled by itself, so that it is known which one failed."""


class Stand(Struct, frozen=True, kw_only=True):
    """Where the delivery of one partition stands, as a store keeps it."""

    revision: int = 0
    cursor: int = 0
    """Everything up to this number is done: acknowledged, set aside, or a dead letter."""
    holder: NodeId | None = None
    """Who is at it. One that is not alive any more is none."""
    given: int = 0
    """How many messages the delivery under way was given, of those behind the cursor; 0: none is under way."""
    width: int = 0
    """How many the next delivery may be given; 0: as many as the rules say."""
    attempts: int = 0
    """Deliveries of the message right behind the cursor that have failed or were lost."""
    retry_at: datetime | None = None
    """Nothing behind the cursor is delivered before."""
    error: str = ""
    """Why the last delivery failed; empty after one that did not."""


class Trouble(NamedTuple):
    """Why a delivery did not come to its end."""

    error: str
    after: timedelta | None = None
    """How long to wait until the next try, if the handler has said so."""
    final: bool = False
    """No further attempt can help."""
    counts: bool = True
    """Whether the delivery is one of those that a message may have; not if the handler has put it off."""


class Ended(NamedTuple):
    """What came of a delivery."""

    done: int
    """How many of its messages, from the first on, need no more: handled, or rejected by the handler."""
    trouble: Trouble | None = None
    """What happened to the one behind these, or to all that were left; None: there was none left."""


class Verdict(StrEnum):
    """What becomes of the first message that a delivery left undone."""

    NONE = "none"
    """There is none."""
    AGAIN = "again"
    """It is delivered again, and what is behind it waits."""
    ASIDE = "aside"
    """It is set aside with what has the same key, to be delivered again from there."""
    DEAD = "dead"
    """It becomes a dead letter."""


class Next(NamedTuple):
    """A stand that follows, and what becomes of the message that was to blame."""

    stand: Stand
    verdict: Verdict
    attempts: int
    """How many deliveries that message has had."""
    retry_at: datetime | None
    """When it is to be delivered again."""


def may_begin(stand: Stand, now: datetime, *, is_held: bool) -> bool:
    """Say whether somebody may begin a delivery. A new message never shortens a wait."""
    return not is_held and (stand.retry_at is None or stand.retry_at <= now)


def width_of(stand: Stand, rules: Delivery) -> int:
    """Say how many messages the next delivery may be given; one that has its last chance is given alone.

    Were it lost in company, nobody could tell whether it is the one to blame.
    """
    if stand.attempts >= rules.max_attempts - 1:
        return 1
    return min(stand.width, rules.batch) if stand.width else rules.batch


def begin(stand: Stand, node: NodeId, given: int) -> Stand:
    """Begin a delivery of so many messages. It is to be written before anybody handles them."""
    return replace(stand, revision=stand.revision + 1, holder=node, given=given, retry_at=None)


def begin_next(after: Stand, node: NodeId, given: int) -> Stand:
    """Begin the next delivery in the very step that ends the one before.

    One of nothing behind the cursor, but of what was set aside, leaves the wait for the others as it is.
    """
    return replace(after, holder=node, given=given, retry_at=None if given else after.retry_at)


def release(stand: Stand) -> Stand:
    """Leave a partition for anybody; what was given and is not done is given again, and counts for nothing."""
    return replace(stand, revision=stand.revision + 1, holder=None, given=0)


def lost(stand: Stand, rules: Delivery, now: datetime, roll: float) -> Next:
    """Take over what a node has left behind that is gone. It may have been one of the messages that ended it."""
    alone = replace(stand, width=1)
    return _failed(alone, Ended(0, Trouble(LOST)), rules, now, roll, blamed=stand.given == 1)


def end_aside(attempts: int, trouble: Trouble, rules: Delivery, now: datetime, roll: float) -> Next:
    """Decide about a message that had been set aside, has had so many deliveries before, and has failed again."""
    attempts += trouble.counts
    if trouble.final or attempts >= rules.max_attempts:
        return Next(Stand(), Verdict.DEAD, attempts, None)
    return Next(Stand(), Verdict.ASIDE, attempts, _retry_at(trouble, attempts, rules, now, roll))


def end(stand: Stand, ended: Ended, rules: Delivery, now: datetime, roll: float) -> Next:
    """End a delivery: of what is done the cursor takes note, for the rest it is decided how it goes on."""
    if ended.trouble is not None and ended.done < stand.given:
        blamed = rules.by_message or stand.given - ended.done == 1
        return _failed(stand, ended, rules, now, roll, blamed=blamed)
    after = replace(
        _advanced(stand, ended.done),
        width=_wider(stand, rules),
        attempts=0,
        error="",
    )
    return Next(after, Verdict.NONE, 0, None)


def _failed(stand: Stand, ended: Ended, rules: Delivery, now: datetime, roll: float, *, blamed: bool) -> Next:
    done, trouble = ended.done, ended.trouble or Trouble(LOST)
    attempts = trouble.counts + (0 if done else stand.attempts)
    retry_at = _retry_at(trouble, attempts, rules, now, roll)
    after = replace(_advanced(stand, done), error=trouble.error)
    if not blamed:
        enough = min(rules.degrade_after, rules.max_attempts - 1)
        taken_apart = 0 < stand.width < rules.batch or attempts >= enough or trouble.final
        width = 1 if trouble.counts and taken_apart else stand.width
        again = replace(after, attempts=attempts, width=width, retry_at=retry_at)
        return Next(again, Verdict.AGAIN, attempts, retry_at)
    if trouble.final or attempts >= rules.max_attempts:
        return Next(_past(after), Verdict.DEAD, attempts, None)
    if rules.order is Order.KEY:
        return Next(_past(after), Verdict.ASIDE, attempts, retry_at)
    return Next(replace(after, attempts=attempts, retry_at=retry_at), Verdict.AGAIN, attempts, retry_at)


def _advanced(stand: Stand, done: int) -> Stand:
    return replace(stand, revision=stand.revision + 1, cursor=stand.cursor + done, holder=None, given=0, retry_at=None)


def _past(stand: Stand) -> Stand:
    """Go past the message behind the cursor."""
    return replace(stand, cursor=stand.cursor + 1, attempts=0)


def _wider(stand: Stand, rules: Delivery) -> int:
    """Grow back by doubling, up to what the rules say."""
    wider = stand.width * 2
    return 0 if wider >= rules.batch else wider


def _retry_at(trouble: Trouble, attempts: int, rules: Delivery, now: datetime, roll: float) -> datetime:
    return now + (rules.backoff.delay(max(attempts, 1), roll) if trouble.after is None else trouble.after)
