"""Copies of the state of schedules in a graph: one node `(:_BackgroundJob {qname, …})` for each schedule of the store.

The store is the truth, and the copy is best effort: nothing waits for it. A pass reads all schedules, page by page, and
writes what is not as it was written last, many in one statement; then it deletes what is gone or was cancelled.
Whatever goes wrong, the pass raises, is tried again later, and begins anew with what the graph really holds. So the
next pass that works brings everything level.

The text of a statement is always one of the constants below. Whatever comes from outside is a parameter.
"""

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, LiteralString, TypeVar

from mainspring.core.backoff import Backoff
from mainspring.core.job import JobId
from mainspring.core.names import Name
from mainspring.duration import Duration, seconds
from mainspring.plugins.mirrored import Row, may_change_unseen, row_of, same, unreadable
from mainspring.plugins.sinks import CypherSink
from mainspring.stores.port import Store
from mainspring.stores.records import Look, RunFilter, SchedulePage
from mainspring.supervise import Directive, Notifier, Sleep

T = TypeVar("T")

PAGE: Final = 200  # schedules that are read, and rows that are written, at a time; more in one statement gains nothing
NAMES: Final = 1000  # names that are read from the graph, or deleted there, at a time
RUNS: Final = 20  # of each schedule, that are read to say how it has been going
AGAIN: Final = 50  # schedules whose runs are read in a pass although nothing seems to have changed
GAP: Final = 1.0  # seconds between two passes at least: a busy store hints all the time
SHARE: Final = 10  # a pass is followed by a rest of so many times its length: at most a tenth of the time goes to it
FLOOR: Final = 30.0  # seconds between two passes at most
UNSEEN: Final = 600.0  # seconds after which runs are read again: old ones are pruned, and no schedule changes by that
TIMEOUT: Final = 10.0  # seconds that one call of the sink may take
TRY_AGAIN: Final = Backoff.exponential("1s", cap="30s", jitter=0.3)

WRITE: Final = """\
UNWIND $rows AS row
MERGE (j:_BackgroundJob {qname: row.qname})
SET j.namespace = row.namespace,
    j.local = row.local,
    j.task = row.task,
    j.rule = row.rule,
    j.explained = row.explained,
    j.owner = row.owner,
    j.status = row.status,
    j.next_slot = row.next_slot,
    j.last_slot = row.last_slot,
    j.last_at = row.last_at,
    j.last_state = row.last_state,
    j.last_error = row.last_error,
    j.open_runs = row.open_runs,
    j.failures = row.failures,
    j.updated_at = row.updated_at"""
DELETE: Final = "UNWIND $qnames AS qname MATCH (j:_BackgroundJob {qname: qname}) DETACH DELETE j"
FIND: Final = "MATCH (j:_BackgroundJob) WHERE j.qname > $after RETURN j.qname AS qname ORDER BY j.qname LIMIT $most"

log: Final = logging.getLogger("mainspring.mirror")


@dataclass(frozen=True, slots=True)
class Copy:
    """What is known of one node of the graph."""

    row: Row | None = None
    """As it was written; None for one that was found there."""
    revision: int = 0
    open: tuple[JobId, ...] = ()
    """As they were when its runs were read; while neither changes, the runs do not either, but for what is `unseen`."""
    read_at: float = 0.0
    unseen: bool = False


class Mirror:
    """The step of a service; `wake` is notified when the store has hinted at a change.

    One mirror at a time writes into a graph, and the graph holds nodes of the label for one store.
    """

    def __init__(self, store: Callable[[], Store], sink: CypherSink, *, timeout: Duration = TIMEOUT) -> None:
        self.wake = Notifier()
        self.passes = 0
        """That have brought everything level."""
        self.written = 0
        """Nodes that were made or changed."""
        self.deleted = 0
        self.errors = 0
        """Passes that failed."""
        self.last_error: BaseException | None = None
        """Why the last pass failed; None if it did not."""
        self._store = store
        self._sink = sink
        self._timeout = seconds(timeout)
        self._term: int | None = None
        self._pass_at = float("-inf")
        self._is_level = False
        self._copies: dict[str, Copy] = {}
        self._unwatch: Callable[[], None] | None = None

    async def step(self, term: int = 0) -> Directive:
        """Make one pass, unless the last was a moment ago. Under a new term the graph may be as another has left it."""
        began = asyncio.get_running_loop().time()
        if began < self._pass_at:
            return Sleep(max(0.001, self._pass_at - began))  # what is too short to be a sleep lets no time pass
        # Until it has gone well, it is due: a rest in between would end the backoff.
        self._pass_at = float("-inf")
        self._is_level = self._is_level and term == self._term
        self._term = term
        try:
            await self._closing(self._pass())
        except Exception as error:
            self._failed(error)
            raise
        self._went_well()
        took = asyncio.get_running_loop().time() - began
        self._pass_at = began + took + min(FLOOR, max(GAP, SHARE * took))
        return Sleep(FLOOR, wakeable=True)

    def _failed(self, error: Exception) -> None:
        self.errors += 1
        if self.last_error is None:
            log.warning("the mirror cannot go on, and will catch up when it can again: %r", error)
        self.last_error = error

    def _went_well(self) -> None:
        self.passes += 1
        if self.last_error is not None:
            log.info("the mirror shows what the store holds again")
        self.last_error = None

    async def _closing(self, work: Awaitable[None]) -> None:
        try:
            await work
        except BaseException:
            with suppress(Exception):  # what went wrong first is what counts
                await self._bounded(self._sink.close())
            raise
        await self._bounded(self._sink.close())

    # A pass.

    async def _pass(self) -> None:
        store = self._store()
        self._watch(store)  # before it reads: what changes from here on will be told
        was_level, self._is_level = self._is_level, False
        if not was_level:
            self._copies = {}
            await self._bounded(self._sink.prepare())
            await self._find()
        seen: set[str] = set()
        page = await store.list_schedules(limit=PAGE)
        while True:
            looks = [look for look in page.looks if not look.schedule.is_cancelled]  # the others are to be deleted
            seen.update(str(look.schedule.name) for look in looks)
            seen.update(page.unreadable)
            await self._write(await self._news(store, looks, page))
            if page.after is None:
                break
            page = await store.list_schedules(limit=PAGE, after=page.after)
        await self._delete(self._copies.keys() - seen)
        await self._look_again(store)
        self._is_level = True

    def _watch(self, store: Store) -> None:
        """Have the store tell of changes. Anew in each pass: it may have been closed and opened since, or be another."""
        before, self._unwatch = self._unwatch, store.watch(self.wake.notify_one)
        if before:
            before()

    async def _find(self) -> None:
        """Learn what the graph holds: all of it is to be written again, or deleted."""
        after = ""
        while names := [str(found["qname"]) for found in await self._run(FIND, {"after": after, "most": NAMES})]:
            self._copies |= dict.fromkeys(names, Copy())
            after = names[-1]

    async def _news(self, store: Store, looks: Iterable[Look], page: SchedulePage) -> dict[str, Copy]:
        """Make rows of those on a page that are not as they were written; `looks` are those that are to be shown."""
        copies = {
            qname: Copy(unreadable(qname, problem, page.now), read_at=self._now)
            for qname, problem in page.unreadable.items()
        }
        for look in looks:
            copy = self._copies.get(str(look.schedule.name))
            if not copy or copy.row is None or (copy.revision, copy.open) != (look.schedule.revision, look.open):
                copies[str(look.schedule.name)] = await self._copy(store, look)
        return copies

    async def _look_again(self, store: Store) -> None:
        """Read runs that may have changed although their schedules have not, those first that were read longest ago."""
        now = self._now
        due = [
            qname for qname, copy in self._copies.items() if copy.row and (copy.unseen or now - copy.read_at > UNSEEN)
        ]
        names = heapq.nsmallest(AGAIN, due, key=lambda qname: self._copies[qname].read_at)
        if names:
            looked = await store.look([Name.parse(qname) for qname in names])
            looks = [look for look in looked.looks if not look.schedule.is_cancelled]
            await self._write({str(look.schedule.name): await self._copy(store, look) for look in looks})

    async def _copy(self, store: Store, look: Look) -> Copy:
        read_at = self._now
        runs = (await store.runs(RunFilter(schedule=look.schedule.name, with_job=True), limit=RUNS)).runs
        row = row_of(look, runs, store.now())
        return Copy(row, look.schedule.revision, look.open, read_at, may_change_unseen(look, row))

    async def _write(self, copies: Mapping[str, Copy]) -> None:
        rows = [copy.row for qname, copy in copies.items() if copy.row and self._is_news(qname, copy.row)]
        if rows:
            await self._run(WRITE, {"rows": rows})
        self.written += len(rows)
        self._copies |= copies

    def _is_news(self, qname: str, row: Row) -> bool:
        copy = self._copies.get(qname)
        return copy is None or copy.row is None or not same(copy.row, row)

    async def _delete(self, gone: Iterable[str]) -> None:
        names = sorted(gone)
        for start in range(0, len(names), NAMES):
            part = names[start : start + NAMES]
            await self._run(DELETE, {"qnames": part})
            self.deleted += len(part)
            for qname in part:
                del self._copies[qname]

    # The sink.

    async def _run(self, statement: LiteralString, parameters: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
        return await self._bounded(self._sink.run(statement, parameters))

    async def _bounded(self, call: Awaitable[T]) -> T:
        async with asyncio.timeout(self._timeout):
            return await call

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()
