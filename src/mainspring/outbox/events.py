"""What is told and counted of deliveries, after they were committed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from msgspec import Struct

from mainspring.core.job import NodeId
from mainspring.core.outbox import Verdict
from mainspring.runtime.events import Events, log

LOGGED: Final = {Verdict.AGAIN, Verdict.ASIDE, Verdict.DEAD}


class DeliveryEnded(Struct, frozen=True, kw_only=True):
    """A delivery has ended, and what came of it is written."""

    outbox: str
    partition: int
    node: NodeId
    first: int
    """The `seq` of its first message."""
    given: int
    """How many messages the handler was given."""
    acknowledged: int
    rejected: int
    """Dead letters that the handler made itself."""
    verdict: Verdict
    """What becomes of the first message that was left undone."""
    undone: int = 0
    """The `seq` of that one; 0: there is none."""
    attempts: int = 0
    """How many deliveries that one has had."""
    retry_at: datetime | None = None
    error: str = ""
    seconds: float = 0.0
    """How long the handler took."""


DeliveryListener: TypeAlias = Callable[[DeliveryEnded], None]


@dataclass(slots=True)
class Counts:
    """What this program has delivered of one partition, since it began."""

    deliveries: int = 0
    delivered: int = 0
    """Messages that were given to a handler, those that were given again among them."""
    acknowledged: int = 0
    retried: int = 0
    """Deliveries whose rest is given again."""
    rejected: int = 0
    dead: int = 0
    """Messages whose attempts were used up, or that no further attempt could help."""
    aside: int = 0
    seconds: float = 0.0
    """That handlers took."""

    def add(self, ended: DeliveryEnded) -> None:
        self.deliveries += 1
        self.delivered += ended.given
        self.acknowledged += ended.acknowledged
        self.retried += ended.verdict is Verdict.AGAIN
        self.rejected += ended.rejected
        self.dead += ended.verdict is Verdict.DEAD
        self.aside += ended.verdict is Verdict.ASIDE
        self.seconds += ended.seconds


def tell(events: Events, listeners: Sequence[DeliveryListener], counts: Counts, ended: DeliveryEnded) -> None:
    """Count a delivery, write a line if it went badly, and tell listeners: one that raises stops nobody."""
    counts.add(ended)
    events.count("messages_acknowledged", ended.acknowledged)
    if ended.verdict is Verdict.DEAD:
        events.count("messages_dead")
    _log(ended)
    for listener in tuple(listeners):
        try:
            listener(ended)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - any error of a listener is counted and logged
            events.count("listener_errors")
            log.exception("a listener of outbox %s raised; its messages go on", ended.outbox)


def _log(ended: DeliveryEnded) -> None:
    where = f"{ended.outbox}/{ended.partition}/{ended.undone}"
    if ended.rejected:
        text = (
            "outbox %s: the handler has made %s of messages in partition %d; `mainspring outbox deadletters` says why"
        )
        made = "a dead letter" if ended.rejected == 1 else f"{ended.rejected} dead letters"
        log.error(text, ended.outbox, made, ended.partition)
    if ended.verdict is Verdict.DEAD:
        log.error("message %s is a dead letter after %d attempts: %s", where, ended.attempts, ended.error)
    elif ended.verdict in LOGGED and ended.retry_at is not None:
        again = ended.retry_at.isoformat(timespec="seconds")
        log.warning("message %s failed (attempt %d), again at %s: %s", where, ended.attempts, again, ended.error)
