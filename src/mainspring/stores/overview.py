"""The role of a store that is looked at as a whole: search, counts over time, what nodes say of themselves, who did what.

What holds for all verbs (G1 to G7 of `stores.port`) holds here too. A store need not play this role, and no promise
rests on it: what is counted is for people. Nothing here waits for a writer, and nothing that reads takes longer than it
is told to.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol, runtime_checkable

from msgspec import Struct

from mainspring.core.job import JobId, NodeId
from mainspring.core.limits import Rate
from mainspring.core.names import Name
from mainspring.core.schedule import Run
from mainspring.core.tally import Count
from mainspring.errors import DeclarationError
from mainspring.stores.records import JobFilter, JobView, Pause

A_SECOND: Final = timedelta(seconds=1)
MOST: Final = 10_000
"""Jobs of a queue and task that a census counts at most: each has to be read.

PostgreSQL reads the first `2 * MOST` due jobs of each task and priority, and as many later ones. Jobs of other queues behind
these are not counted, and the census is complete nevertheless.
"""
KEEP_AUDIT: Final = timedelta(days=90)
MOST_LINES: Final = 10_000
"""Lines of the audit log that are looked at for one answer: programs act too, and so there may be millions."""


class Argument(Struct, frozen=True, kw_only=True):
    """An argument that is looked for."""

    path: tuple[str, ...]
    """Where it is: its name, then keys of objects and places in lists, as `("order", "lines", "0", "sku")`."""
    value: bytes | None = None
    """What is there, as JSON; None: something is."""


class Search(JobFilter, frozen=True, kw_only=True):
    """Which jobs are looked for. All that is said must hold; what is left out does not matter."""

    key: str | None = None
    """What the task's keyed limit counts it under."""
    node: NodeId | None = None
    """That holds its lease, or held it last."""
    since: datetime | None = None
    """Enqueued then or later."""
    until: datetime | None = None
    """Enqueued before."""
    error: str | None = None
    """A text within the class and the message of its last error, "ValueError: no such user", in capitals or not."""
    argument: Argument | None = None


class Found(Struct, frozen=True, kw_only=True):
    """What a search came upon, the newest first."""

    jobs: tuple[JobView, ...]
    after: JobId | None = None
    """Where to go on; None if there is nothing older."""
    looked: int = 0
    """About how many jobs were looked at; those that an index left out are not."""
    back_to: datetime | None = None
    """When the last one that was looked at was enqueued; None if nothing was."""
    in_time: bool = True
    """Whether it ended because its page was full, or everything seen; False: its time was up."""


class Census(Struct, frozen=True, kw_only=True):
    """How many jobs there are that have not ended."""

    at: datetime
    counts: tuple[Count, ...]
    enqueued: int = 0
    """About how many were enqueued since the instant that was asked for, `MOST` at most for each second of it."""
    complete: bool = True
    """False: its time was up before everything was counted, up to `MOST`."""


class Tally(Struct, frozen=True, kw_only=True):
    """What somebody counted in a span of time. What is in it, `core.tally` says."""

    at: datetime
    """When the span begins."""
    span: timedelta
    by: str
    """Who counted: a node, or nobody, for what was put together from many."""
    body: bytes


class NodeReport(Struct, frozen=True, kw_only=True):
    """What a node says about how it is doing."""

    node: NodeId
    at: datetime
    body: bytes


class NewEntry(Struct, frozen=True, kw_only=True):
    """Something that a person had done."""

    who: str
    """Somebody who is known over HTTP, or "cli:user@host"."""
    action: str
    """Of the JSON API, as "jobs.retry", or of the command line alone, as "schedules.remove"."""
    about: str = ""
    """The job, the queue, the schedule… that it was done to; of many, which were meant."""
    count: int | None = None
    """To how many it was done."""
    outcome: str = "done"
    """Or why not."""
    detail: bytes | None = None
    """More of it, as JSON."""


class Entry(Struct, frozen=True, kw_only=True):
    """A line of the audit log."""

    id: int
    at: datetime
    entry: NewEntry


class EntryFilter(Struct, frozen=True, kw_only=True):
    """Which lines; what is left out does not matter."""

    who: str | None = None
    action: str | None = None
    about: str | None = None


class EntryPage(Struct, frozen=True, kw_only=True):
    """Some lines, the newest first."""

    entries: tuple[Entry, ...]
    after: int | None = None
    """Where to go on; None if there is nothing older."""


class QueueRule(Struct, frozen=True, kw_only=True):
    """What holds for a queue over all nodes."""

    name: str
    paused: Pause | None = None
    declared: int | None = None
    """How many of its jobs may run at a time, as code has it."""
    rate: Rate | None = None
    """How many of its jobs may start in a period, as declared in code; an operator's limit does not replace it."""
    limit: int | None = None
    """The same, as an operator has it; it holds in place of the other."""
    by: str = ""


def must_be_a_limit(concurrency: int | None) -> None:
    """Refuse what is no limit of a queue: whoever wants none of its jobs to run pauses it."""
    if concurrency is not None:
        wanted = type(concurrency) is int and concurrency >= 1
        DeclarationError.unless("concurrency", [(wanted, f"at least one job at a time, not {concurrency!r}")])


@runtime_checkable
class Overview(Protocol):
    """A store as a whole."""

    async def search(
        self,
        which: Search,
        *,
        limit: int = 50,
        after: JobId | None = None,
        budget: timedelta = A_SECOND,
        preview: int | None = None,
        accept: Callable[[JobView], bool] | None = None,
    ) -> Found:
        """Look for jobs, by id, the newest first; `after` is the `after` of an earlier answer.

        1. Ends when its page is full, when there is nothing older, or soon after its `budget`, whichever is first.
        2. Who goes on with `after` until that is None has seen each job that fits and did not change meanwhile, once.
        3. By queue, task or key, and by a state that is neither ready nor succeeded, its cost grows with what it
           returns, however rare they are.
        4. An answer brings no more than `limit` jobs; one whose time was up may bring none, and an `after`.
        5. With a `preview`, jobs are returned as by `Inspector.get` with a preview.
        6. With `accept`, a job for which that returns False is left out, and nothing in the answer depends on whether it
           fits. It is called in any thread, and must not block.
        """
        ...

    async def census(self, since: datetime, *, budget: timedelta = A_SECOND) -> Census:
        """Count the jobs that have not ended, by queue and task.

        1. Soon after its `budget` it answers with what it has, and says that it is not complete.
        2. What there is more of than `MOST` costs no more than `MOST`.
        """
        ...

    async def write_tallies(self, tallies: Sequence[Tally], *, drop: tuple[timedelta, datetime] | None = None) -> None:
        """Keep tallies; with `drop`, forget those of that span that begin earlier, in the same transaction.

        1. One with the `at`, `span` and `by` of one that is there takes its place.
        """
        ...

    async def tallies(self, span: timedelta, since: datetime, until: datetime | None = None) -> tuple[Tally, ...]:
        """Read the tallies of one span that begin then or later, and before `until`, by time."""
        ...

    async def report(self, node: NodeId, term: int, body: bytes) -> None:
        """Say how a node is doing, in place of what it said before.

        1. Not alive under this term: `NodeGone`. 2. A node that is pruned takes what it said along.
        """
        ...

    async def reports(self) -> Mapping[NodeId, NodeReport]:
        """Read what nodes said last, those that are not alive any more too."""
        ...

    async def write_audit(self, entries: Sequence[NewEntry], *, at: datetime | None = None) -> None:
        """Add lines to the audit log, under the store's now, or under `at`, when they were asked for.

        They are kept for `KEEP_AUDIT`; `Jobs.prune` forgets them.
        """
        ...

    async def audit(self, which: EntryFilter, *, limit: int = 50, after: int | None = None) -> EntryPage:
        """Read a page of the audit log, the newest line first; `after` is a page's own `after`.

        1. No more than `MOST_LINES` are looked at for one answer; one that ends there may bring fewer than `limit`, or
           none, and an `after`.
        """
        ...

    async def limit_queue(self, queue: str, concurrency: int | None, *, by: str = "") -> bool:
        """Have at most so many jobs of a queue run at a time, over all nodes; None: as code has it. False: it was so.

        1. It holds in place of what is declared (`Jobs.declare`), for jobs that wait already too, and through later
           declarations, until it is taken back. 2. A declared rate stays as it is. 3. Less than one: `DeclarationError`.
        """
        ...

    async def queue_rules(self) -> tuple[QueueRule, ...]:
        """Read what holds for queues: those that are paused, limited or declared, by name."""
        ...

    async def last_runs(self, schedules: Sequence[Name], *, limit: int = 10) -> Mapping[Name, tuple[Run, ...]]:
        """Read the last runs of each of these schedules that has any, so many at most, newest decision first."""
        ...
