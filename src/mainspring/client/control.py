"""The one object by which a program steers what it embeds: `app.control`.

What a query language's procedures would be built on: schedules by their names and plain words (`add`, `cancel`, `list`,
`get`, `run`), statements that the host carries out (`submit`, `iterate`), and a checkpoint (`flush`). Errors have numbers that such a
layer can hand on, as their `code`. Twins for code without an event loop end in `_sync`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, Unpack, runtime_checkable
from uuid import UUID

from mainspring.client.arguments import payload_from
from mainspring.client.connection import Connection
from mainspring.client.kinds import Code, rule_of
from mainspring.client.plans import ScheduleOptions
from mainspring.client.schedules import Schedules
from mainspring.client.statements import BATCH, Iterated, Progress, StatementHost, Work
from mainspring.core import steps as core
from mainspring.core.job import JobId, State
from mainspring.core.names import Name
from mainspring.core.rules import Cron, Every, Manual, Once, Rule
from mainspring.core.schedule import Decision, Schedule
from mainspring.errors import BadName, ControlError, FlushFailed, NameTaken, StoreError, UnknownSchedule
from mainspring.handle import JobHandle
from mainspring.plugins.mirrored import failures_of, status_of
from mainspring.runtime.planned import look_at, step
from mainspring.runtime.ticker import cancel as cancel_jobs
from mainspring.stores.port import Store
from mainspring.stores.records import Look, RunFilter
from mainspring.stores.schedules import OPEN_SHOWN
from mainspring.task import Task

PAGE: Final = 500
RUNS: Final = 20  # of each schedule, that are read to say how it has been going


@runtime_checkable
class Flushes(Protocol):
    """A store that has something to bring anywhere."""

    async def flush(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How one schedule stands."""

    qname: str
    status: str
    """idle, open (a run has not ended), failed (the last one did), paused, cancelled, over."""
    consecutive_failures: int
    next: datetime | None
    last_started: datetime | None
    last_finished: datetime | None
    last_state: str | None
    last_error: str | None
    rule: Rule
    task: str


class Control:
    """Steers an app from outside of its code; `host` is whoever carries out statements at the moment."""

    def __init__(
        self,
        connection: Connection,
        schedules: Schedules,
        *,
        tasks: Mapping[Name, Task[..., Any]],
        find: Callable[[str], Task[..., Any]],
        host: Callable[[], StatementHost | None],
    ) -> None:
        self._connection = connection
        self._schedules = schedules
        self._tasks = tasks
        self._find = find
        self._host = host

    def arguments(self, qname: str, by_name: Mapping[str, object]) -> tuple[tuple[object, ...], dict[str, object]]:
        """Read arguments that came as JSON as the task of that name does: a text that is meant as a datetime becomes one.

        Returns what `args` and `kwargs` are to be, or raises `PayloadError`.
        """
        definition = self._find(str(self._name(qname, Code.BAD_NAME))).definition
        args, kwargs = definition.arguments.decode(payload_from(definition, (), by_name))
        return tuple(args), dict(kwargs)

    # Schedules.

    async def add(
        self,
        qname: str,
        kind: str | Rule,
        arg: object = None,
        *,
        task: str | None = None,
        args: Iterable[object] = (),
        kwargs: Mapping[str, object] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Have a schedule of a task be there, in place of one that has the name: `add("thumbnails:sweep", "periodic", 60)`.

        The task is that of the same name, unless one is given. `kind` is a rule, or a word: "periodic" (`arg` are whole
        seconds), "cron" (an expression), "once" (an instant), "manual" (no `arg`). One that was cancelled goes on.
        """
        name = self._name(qname, Code.BAD_NAME_TO_ADD)
        rule = kind if isinstance(kind, Cron | Every | Once | Manual) else rule_of(qname, kind, arg)
        call = self._find(str(name) if task is None else task).call(*args, **(kwargs or {}))
        try:
            return await self._schedules.add(str(name), rule, call, **options)
        except NameTaken:
            added = await self._schedules.change(str(name), rule, call, **options)
        if added.is_cancelled:
            added = await self._schedules.resume(str(name))
        return added

    async def cancel(self, qname: str) -> bool:
        """Take a schedule away for good, cancel its jobs that wait, and ask those that run to stop; False: there is none.

        One that is declared in code would come back with the next start: it stays, and is paused for good instead.
        """
        name = await self._kept(qname, Code.BAD_NAME)
        self._connection.guard.change_schedule(name)
        store = await self._connection.store()
        seen: list[Look] = []

        def take_away(look: Look, now: datetime) -> Decision:
            seen.append(look)
            return core.cancel(look.schedule, now)

        try:
            await step(store, name, take_away)
        except UnknownSchedule:
            return False
        open_ = await _open_jobs(store, seen[-1])
        await cancel_jobs(store, open_)
        for view in await store.get(open_) if self._connection.on_cancel else ():
            if view and view.job.state is State.RUNNING and self._connection.on_cancel:
                self._connection.on_cancel(view.job.id, view.job.lease)  # else it would see it with the next beat
        return True

    async def run(
        self, qname: str, *, args: Iterable[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> JobHandle[Any]:
        """Make one job now: of the schedule of that name, whatever its rule says, or of the task, if there is none.

        With arguments it is a job of the task: a schedule has arguments of its own.
        """
        name = str(await self._kept(qname, Code.BAD_NAME))
        args = tuple(args)
        if not args and not kwargs:
            with suppress(UnknownSchedule):
                return await self._schedules.run(name)
        return await self._find(name).enqueue(*args, **(kwargs or {}))

    async def get(self, qname: str) -> Row:
        """Say how one schedule stands, or raise `UnknownSchedule`."""
        name = await self._kept(qname, Code.BAD_NAME)
        store = await self._connection.store()
        look, _ = await look_at(store, name)
        return await _row(store, look)

    async def list(self, *, limit: int = 1000, after: str | None = None) -> tuple[Row, ...]:
        """Say how schedules stand, by name; the next page begins `after` the last name of this one."""
        store = await self._connection.store()
        looks: list[Look] = []
        while len(looks) < limit:
            page = await store.list_schedules(limit=min(PAGE, limit - len(looks)), after=after)
            looks += page.looks
            after = page.after
            if after is None:
                break
        return tuple([await _row(store, look) for look in looks])

    # Statements.

    async def submit(self, statement: str, params: Any = None) -> Any:  # noqa: ANN401 - the program's own
        """Have the host carry out a statement that writes; returns what it returns, once it is done."""
        return await self._must_host("submit").execute_write(statement, {} if params is None else params)

    async def iterate(
        self,
        driving_query: str,
        mutation: str,
        *,
        batch_size: int = BATCH,
        params: Mapping[str, object] | None = None,
        rows_as: str = "rows",
        retries: int = 0,
        progress: Progress | None = None,
        dry_run: bool = False,
    ) -> Iterated:
        """Read rows by one statement, and write them by another, a batch at a time; in a dry run, only count them.

        The mutation gets `params`, and each batch as a list under the name `rows_as`. A batch that fails is tried again
        so many times, then counted, and the next one goes on; rows that cannot be read end it with `ReadFailed`. Whoever cancels this has it end between two batches, or
        within one, which the host then keeps or not as a whole.
        """
        host = self._must_host("iterate")
        work = Work(host, mutation, dict(params or {}), rows_as, batch_size, retries, dry_run)
        return await work.over(await host.execute_read(driving_query, work.params), progress)

    # The checkpoint.

    async def flush(self) -> None:
        """Bring what is committed to where it stays, where the store has such a place; raises `FlushFailed`."""
        store = await self._connection.store()
        if not isinstance(store, Flushes):
            return
        try:
            await store.flush()
        except StoreError as error:
            raise FlushFailed(error.store, error.problem) from error

    # For code without an event loop.

    def add_sync(
        self,
        qname: str,
        kind: str | Rule,
        arg: object = None,
        *,
        task: str | None = None,
        args: Iterable[object] = (),
        kwargs: Mapping[str, object] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        return self._connection.wait_for(
            lambda: self.add(qname, kind, arg, task=task, args=args, kwargs=kwargs, **options)
        )

    def cancel_sync(self, qname: str) -> bool:
        return self._connection.wait_for(lambda: self.cancel(qname))

    def run_sync(
        self, qname: str, *, args: Iterable[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> JobHandle[Any]:
        return self._connection.wait_for(lambda: self.run(qname, args=args, kwargs=kwargs))

    def get_sync(self, qname: str) -> Row:
        return self._connection.wait_for(lambda: self.get(qname))

    def list_sync(self, *, limit: int = 1000, after: str | None = None) -> tuple[Row, ...]:
        return self._connection.wait_for(lambda: self.list(limit=limit, after=after))

    def submit_sync(self, statement: str, params: Any = None) -> Any:  # noqa: ANN401 - the program's own
        return self._connection.wait_for(lambda: self.submit(statement, params))

    def iterate_sync(
        self,
        driving_query: str,
        mutation: str,
        *,
        batch_size: int = BATCH,
        params: Mapping[str, object] | None = None,
        rows_as: str = "rows",
        retries: int = 0,
        progress: Progress | None = None,
        dry_run: bool = False,
    ) -> Iterated:
        return self._connection.wait_for(
            lambda: self.iterate(
                driving_query,
                mutation,
                batch_size=batch_size,
                params=params,
                rows_as=rows_as,
                retries=retries,
                progress=progress,
                dry_run=dry_run,
            )
        )

    def flush_sync(self) -> None:
        self._connection.wait_for(self.flush)

    # How all of this is done.

    def _name(self, qname: str, code: Code) -> Name:
        """Read a name. One that is printed with a dot, as others do, is looked up among the pairs that there are."""
        try:
            name = Name.parse(qname)
        except (BadName, TypeError, AttributeError) as error:
            problem = error.problem if isinstance(error, BadName) else "a name is text"
            raise ControlError(f"name {qname!r}", problem, code) from None
        if name.namespace or name in self._tasks:
            return name
        pairs = [one for one in tuple(self._tasks) if one.namespace and one.dotted == qname]
        return self._only(qname, pairs, code) or name

    async def _kept(self, qname: str, code: Code) -> Name:
        """Read the name of a schedule that is there. Whoever has no tasks to look it up among asks the store."""
        name = self._name(qname, code)
        parts = name.local.split(".")
        if name.namespace or name in self._tasks or len(parts) == 1:
            return name
        splits = [(".".join(parts[:at]), ".".join(parts[at:])) for at in range(1, len(parts))]
        pairs = [Name(*split) for split in splits if all(split)]
        store = await self._connection.store()
        found = [look.schedule.name for look in (await store.look([name, *pairs])).looks]
        return name if name in found else self._only(qname, found, code) or name

    @staticmethod
    def _only(qname: str, pairs: Sequence[Name], code: Code) -> Name | None:
        if len(pairs) > 1:
            both = " and ".join(map(str, pairs))
            raise ControlError(f"name {qname!r}", f"it may be {both}; write it with the colon", code)
        return pairs[0] if pairs else None

    def _must_host(self, what: str) -> StatementHost:
        host = self._host()
        if host is None:
            raise ControlError(what, "there is no host that carries out statements", Code.NO_HOST)
        return host


async def _row(store: Store, look: Look) -> Row:
    schedule = look.schedule
    which = RunFilter(schedule=schedule.name, with_job=True)
    runs = (await store.runs(which, limit=RUNS)).runs
    ended = next((run for run in runs if run.state), None)
    return Row(
        qname=str(schedule.name),
        status=status_of(look, ended),
        consecutive_failures=failures_of(runs),
        next=None if schedule.paused else schedule.next_slot,
        last_started=runs[0].decided_at if runs else None,
        last_finished=ended.finished_at if ended else None,
        last_state=str(ended.state) if ended else None,
        last_error=ended.error if ended else None,
        rule=schedule.plan.rule,
        task=str(schedule.plan.template.task),
    )


async def _open_jobs(store: Store, look: Look) -> Sequence[JobId]:
    """List the jobs of a schedule that had not ended when it was looked at."""
    if len(look.open) < OPEN_SHOWN:
        return look.open
    which = RunFilter(schedule=look.schedule.name, with_job=True)
    found: list[JobId] = []
    after: UUID | None = None
    while True:  # to the very first: one that hangs is behind all that have ended since
        page = await store.runs(which, limit=PAGE, after=after)
        found += [run.job for run in page.runs if run.is_open and run.job]
        after = page.after
        if after is None:
            return found
