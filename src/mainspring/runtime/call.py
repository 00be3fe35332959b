"""One call of a task's function: what is known of the attempt, and which attempt the running code belongs to."""

import threading
from contextvars import ContextVar
from datetime import datetime
from typing import Final

from msgspec import Struct

from mainspring.core.job import JobId, NodeId
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError
from mainspring.stores.records import Delivery, SlotFacts


class CallFacts(Struct, frozen=True, kw_only=True, gc=False):
    """Everything of an attempt that its handler may see; msgspec can write it, so that it crosses the pipe to a slot.

    A view on the delivery and no copy of it: a struct with a field for each of these takes 1.8 µs to make, this one
    0.5 µs, and every attempt makes one.
    """

    delivery: Delivery
    started_at: datetime
    timeout: float | None = None
    """Seconds."""

    @classmethod
    def of(cls, delivery: Delivery, *, timeout: float | None, started_at: datetime) -> "CallFacts":
        return cls(delivery=delivery, timeout=timeout, started_at=started_at)

    @property
    def job(self) -> JobId:
        return self.delivery.claim.job.id

    @property
    def task(self) -> str:
        """The printed name."""
        return str(self.delivery.claim.job.task)

    @property
    def lease(self) -> int:
        return self.delivery.claim.job.lease

    @property
    def node(self) -> NodeId:
        return self.delivery.claim.node

    @property
    def queue(self) -> str:
        return self.delivery.claim.job.queue

    @property
    def priority(self) -> int:
        return self.delivery.claim.job.priority

    @property
    def attempt(self) -> int:
        return self.delivery.claim.job.attempt

    @property
    def max_attempts(self) -> int:
        """What the job was given, and what operators granted on top."""
        return self.delivery.claim.job.attempts_allowed

    @property
    def previous_error(self) -> AttemptError | None:
        return self.delivery.previous_error

    @property
    def tags(self) -> tuple[str, ...]:
        return self.delivery.facts.tags

    @property
    def parent(self) -> JobId | None:
        return self.delivery.facts.parent

    @property
    def owner(self) -> str | None:
        return self.delivery.facts.owner

    @property
    def traceparent(self) -> str | None:
        return self.delivery.facts.traceparent

    @property
    def slot(self) -> SlotFacts | None:
        return self.delivery.facts.slot

    @property
    def key(self) -> str | None:
        return self.delivery.key

    @property
    def enqueued_at(self) -> datetime:
        return self.delivery.enqueued_at

    @property
    def run_at(self) -> datetime:
        return self.delivery.claim.job.run_at

    @property
    def payload(self) -> bytes:
        return self.delivery.payload

    @property
    def saved(self) -> bytes | None:
        return self.delivery.saved


current_call: Final[ContextVar[CallFacts | None]] = ContextVar("current_call", default=None)
"""The attempt that the running code belongs to: a job enqueued from there has it as its parent.

Executors set it and never reset it, which takes 0.05 µs: each attempt has a task of its own, and so a context of its
own, and threads and slots run each call in a copy.
"""

current_trace: Final[ContextVar[str | None]] = ContextVar("current_trace", default=None)
"""The span of the attempt that the running code belongs to, as a traceparent, where somebody traces."""

current_service: Final[ContextVar[Name | None]] = ContextVar("current_service", default=None)
"""The service that the running code belongs to."""

program_acts: Final[ContextVar[bool]] = ContextVar("program_acts", default=False)
"""Whether the running code is the program's own although a plugin's job or service has it run."""


def acting_namespace() -> str:
    """Name the plugin whose job or service runs here; empty for the program's own, and for all that is neither."""
    if program_acts.get():
        return ""
    service = current_service.get()
    if service is not None:
        return service.namespace
    call = current_call.get()
    return "" if call is None else call.delivery.claim.job.task.namespace


IN_SLOT: Final = threading.Event()
"""Set in the child process of a slot, before it imports anything of the user's.

A module that starts a node when it is imported, for want of `if __name__ == "__main__"`, can be told so.
"""


def storable(text: str, limit: int, *, head: float = 0.75) -> str:
    """Make any text fit to be kept: no lone surrogates, no NUL (PostgreSQL takes neither), and not endless.

    Of one that is too long the middle is left out; `head` is the share of the beginning in what stays.
    """
    if len(text) > limit:
        begin = int(limit * head)
        end = len(text) - (limit - begin)
        text = f"{text[:begin]}\n[… {end - begin:,} characters left out …]\n{text[end:]}"
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
