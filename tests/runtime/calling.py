"""What the stories about calls share: a task and an attempt made by hand, and a notebook in place of a store."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_type_hints
from uuid import UUID

from msgspec.structs import replace

from mainspring.clock import Clock, SystemClock
from mainspring.core.backoff import Backoff
from mainspring.core.codec import Arguments, Value
from mainspring.core.job import Claim, Job, JobId, NodeId, State
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError
from mainspring.runtime.call import CallFacts
from mainspring.runtime.context import Context
from mainspring.runtime.definition import Definition, ExecutorKind
from mainspring.runtime.executors.link import LoopLink
from mainspring.stores.records import Delivery, Facts, LogLine, Note, Progress

ROOT = Path(__file__).resolve().parents[2]
"""Where a program of a test finds this very module."""

JOB = JobId(UUID("018f0000-0000-7000-8000-000000000001"))
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def task(
    function: Callable[..., object], executor: ExecutorKind | str = ExecutorKind.COROUTINE, *, reference: str = ""
) -> Definition:
    """Declare a function as a task, by hand. Its parameter `ctx` takes the context."""
    context = "ctx" if "ctx" in get_type_hints(function) else None
    name = function.__qualname__
    return Definition(
        name=Name("", name.replace("<locals>.", "")),
        function=function,
        arguments=Arguments.of(function, subject=name, injected=[context] if context else ()),
        result=Value.of(get_type_hints(function).get("return", Any), subject=f"result of {name}"),
        executor=ExecutorKind(executor),
        context=context,
        reference=reference or f"{function.__module__}:{name}",
    )


def attempt(
    definition: Definition,
    *args: object,
    number: int = 1,
    timeout: float | None = None,
    saved: bytes | None = None,
    previous_error: AttemptError | None = None,
    **kwargs: object,
) -> CallFacts:
    """Make a running attempt of a job with these arguments."""
    job = Job(
        id=JOB,
        task=definition.name,
        state=State.RUNNING,
        run_at=NOON,
        backoff=Backoff.fixed(1),
        max_attempts=3,
        attempt=number,
        lease=number + 4,
        queue="mail",
        priority=75,
    )
    delivery = Delivery(
        source=State.READY,
        claim=Claim(job=job, node=NodeId("node-1")),
        payload=definition.arguments.encode(args, kwargs),
        enqueued_at=NOON - timedelta(minutes=5),
        key="customer 7",
        saved=saved,
        previous_error=previous_error,
        facts=Facts(tags=("red", "blue"), parent=JobId(UUID(int=9)), owner="ann", traceparent="00-trace"),
    )
    return CallFacts.of(delivery, timeout=timeout, started_at=NOON + timedelta(seconds=1))


class Notebook:
    """Takes notes as a store would, and remembers them."""

    def __init__(self, *, holds_lease: bool = True) -> None:
        self.holds_lease = holds_lease
        self.trouble: Exception | None = None
        self.notes: list[Note] = []

    async def write(self, note: Note) -> bool:
        if self.trouble:
            raise self.trouble
        if self.holds_lease:
            self.notes.append(note)
        return self.holds_lease

    @property
    def saved(self) -> list[bytes]:
        return [note.saved for note in self.notes if note.saved is not None]

    @property
    def progress(self) -> list[Progress]:
        return [note.progress for note in self.notes if note.progress is not None]

    @property
    def lines(self) -> list[LogLine]:
        return [line for note in self.notes for line in note.lines]


def context_of(facts: CallFacts, notebook: Notebook, clock: Clock | None = None) -> tuple[Context, LoopLink]:
    link = LoopLink(facts, notebook.write, clock=clock or SystemClock())
    return Context(facts, link), link


def granted_more(facts: CallFacts) -> CallFacts:
    """The same attempt, granted two more by operators."""
    claim = facts.delivery.claim
    job = replace(claim.job, granted=2)
    return replace(facts, delivery=replace(facts.delivery, claim=replace(claim, job=job)))
