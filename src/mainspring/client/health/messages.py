"""Checks of the outboxes in a store: whether somebody delivers their messages, and what was given up."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from mainspring.client.health.finding import Finding, fail, ok, warn
from mainspring.client.lags import Lag, Looked, lags
from mainspring.client.words import count, length
from mainspring.stores.outbox import Outboxes, OutboxView
from mainspring.stores.port import Store

UNHANDLED: Final = timedelta(seconds=10)
"""A message that may be delivered, and that nobody is at for so long, has nobody to deliver it."""
LATE: Final = timedelta(minutes=1)
FAILING: Final = 3
"""Failures in a row that are worth a line."""
MOST_LOOKED: Final = 64
"""Partitions that are behind of which it is asked since when; each costs a look of its own."""
MOST_NAMED: Final = 5


async def messages(store: Store, *, anyone: bool) -> list[Finding]:
    """Look at the outboxes; `anyone` says whether a node is at work. A store without any has nothing to tell."""
    if not isinstance(store, Outboxes):
        return []
    views = await store.outboxes()
    if not views:
        return []
    looked = await lags(store, [one.name for one in views], ages=MOST_LOOKED)
    found = [*_of_lags(looked, anyone=anyone), *_of_letters(views)]
    return found or [ok("outbox", _told(views, looked))]


def _of_lags(looked: Looked, *, anyone: bool) -> Iterable[Finding]:
    failing = [one for one in looked.lags if one.attempts >= FAILING and one.error]
    if failing:
        worst = max(failing, key=lambda one: one.attempts)
        others = f"keep failing: {_named(failing)}; " if len(failing) > 1 else ""
        says = f"{others}{_name(worst)} has failed {worst.attempts} times: {worst.error.splitlines()[0]}"
        do = "correct the handler; the message becomes a dead letter when its attempts are used up"
        yield warn("outbox", says, do, "outbox_failing")
    old = [one for one in looked.lags if one.age is not None and one not in failing]
    alone = [one for one in old if _is_alone(one, looked)]
    if alone:
        do = "start a node whose app has a handler for it: mainspring worker MODULE:APP"
        says = f"nobody delivers {count(sum(one.backlog for one in alone), 'message')} of {_named(alone)}"
        yield (warn if anyone else fail)("outbox", f"{says}; the oldest is of {_oldest(alone)} ago", do, "outbox_alone")
    late = [one for one in old if one not in alone and one.age is not None and one.age > LATE]
    if late:
        says = f"{count(sum(one.backlog for one in late), 'message waits', 'messages wait')} in {_named(late)}"
        do = 'see how long the handler takes; profile="high_throughput" and batches deliver more at a time'
        yield warn("outbox", f"{says}; the oldest is of {_oldest(late)} ago", do, "outbox_late")


def _is_alone(lag: Lag, looked: Looked) -> bool:
    waits = lag.retry_at is not None and lag.retry_at > looked.now - UNHANDLED
    return lag.holder is None and not waits and lag.age is not None and lag.age > UNHANDLED


def _of_letters(views: Iterable[OutboxView]) -> Iterable[Finding]:
    pending = [one for one in views if one.letters]
    if pending:
        told = ", ".join(f"{one.name} ({one.letters:,})" for one in pending[:MOST_NAMED])
        more = f" and {len(pending) - MOST_NAMED} more" if len(pending) > MOST_NAMED else ""
        do = "see why: mainspring outbox deadletters; then replay or discard them"
        yield warn("outbox", f"dead letters are pending: {told}{more}", do, "dead_letters")


def _told(views: Iterable[OutboxView], looked: Looked) -> str:
    names = [one.name for one in views]
    waiting = sum(one.backlog for one in looked.lags)
    return f"{count(len(names), 'outbox', 'outboxes')}, {count(waiting, 'message waits', 'messages wait')}"


def _oldest(found: Iterable[Lag]) -> str:
    return length(max(one.age for one in found if one.age is not None))


def _named(found: list[Lag]) -> str:
    more = len(found) - MOST_NAMED
    return ", ".join(map(_name, found[:MOST_NAMED])) + (f" and {more:,} more" if more > 0 else "")


def _name(lag: Lag) -> str:
    return f"{lag.outbox}/{lag.partition}"
