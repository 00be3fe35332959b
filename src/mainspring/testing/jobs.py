"""For tests of programs that enqueue jobs: what was enqueued, and what becomes of it when it really runs.

Jobs run here through the same node, executors and store verbs as in production. On virtual time (fixture
`virtual_time`) retries and delays take no time.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from mainspring.app import Mainspring
from mainspring.client.calls import Call
from mainspring.client.nodes import NodeOptions
from mainspring.clock import Clock
from mainspring.core.job import FINISHED, WAITING, Cause, State
from mainspring.core.outcome import AttemptError
from mainspring.stores.memory import MemoryStore
from mainspring.stores.records import AttemptView, JobFilter, JobView, LogLine
from mainspring.supervise import Notifier
from mainspring.supervise.lines import first_of
from mainspring.task import Task

R = TypeVar("R")

FLOOR: Final = 10.0  # seconds between two looks at what is left, if no hint comes
PAGE: Final = 500


@contextmanager
def in_memory(app: Mainspring, *, clock: Clock | None = None) -> Iterator[MemoryStore]:
    """Give an app a store of its own, in memory, while the block runs: whatever its URL says, no file is touched."""
    store = MemoryStore(clock=clock or app.clock)
    with app.instead(store, clock=clock):
        yield store


async def drain(app: Mainspring, *, scheduled: bool = False, **settings: Any) -> Counter[State]:  # noqa: ANN401 - `NodeOptions`, as app.node takes them
    """Run everything that is due, and all that it brings about, to its end; returns how many jobs ended how.

    Retries are waited for. Jobs that are scheduled for later stay where they are, unless `scheduled` asks to wait for
    them too.
    """
    options: NodeOptions = settings  # type: ignore[assignment]  # app.node reads and checks them
    async with app.node(**options) as node, _hints(app) as hint:
        while await _left(app, scheduled=scheduled):
            await hint()
    return +Counter({state: node.events.counts[state] for state in FINISHED})  # without those of which there were none


@dataclass(frozen=True, slots=True, kw_only=True)
class Performed(Generic[R]):
    """What became of one job."""

    state: State
    result: R | None
    error: AttemptError | None
    cause: Cause | None
    attempts: tuple[AttemptView, ...]
    """Those that did not succeed."""
    lines: tuple[LogLine, ...]
    view: JobView


async def perform(app: Mainspring, call: Call[R], **settings: Any) -> Performed[R]:  # noqa: ANN401 - as for `drain`
    """Enqueue one call, run it on a node of its own to its very end, retries included, and tell all about it."""
    options: NodeOptions = settings  # type: ignore[assignment]  # app.node reads and checks them
    async with app.node(**options):
        (handle,) = await app.enqueue_many([call])
        async with _hints(app) as hint:
            while (view := await handle.refresh()).job.state not in FINISHED:
                await hint()
        return Performed(
            state=view.job.state,
            result=None if view.result is None else call.definition.result.decode(view.result),
            error=view.error,
            cause=view.job.cause,
            attempts=await app.store.attempts(handle.id),
            lines=await app.store.log_lines(handle.id),
            view=view,
        )


async def enqueued(app: Mainspring, task: Task[..., Any], **arguments: object) -> list[JobView]:
    """List the jobs of a task that wait, the newest first: those whose arguments are as given, where they are."""
    views = await _all(app, WAITING)
    return [view for view in views if view.job.task == task.definition.name and _fits(task, view, arguments)]


async def assert_enqueued(
    app: Mainspring, task: Task[..., Any], *, times: int | None = None, **arguments: object
) -> JobView:
    """Fail unless a job of the task waits whose arguments are as given; `times` says how many there must be.

    Returns the newest of them, for a closer look.
    """
    found = await enqueued(app, task, **arguments)
    wanted = found if times is None else len(found) == times
    if not wanted:
        number = "a job" if times is None else f"{times} jobs"
        others = [_arguments(task, view) for view in await enqueued(app, task)]
        with_what = f" with {arguments}" if arguments else ""
        raise AssertionError(
            f"expected {number} of {task.name}{with_what}; found {len(found)}; all that wait: {others}"
        )
    return found[0]


async def assert_not_enqueued(app: Mainspring, task: Task[..., Any], **arguments: object) -> None:
    """Fail if a job of the task waits whose arguments are as given."""
    found = await enqueued(app, task, **arguments)
    if found:
        raise AssertionError(f"expected no job of {task.name}; found {[_arguments(task, view) for view in found]}")


def _fits(task: Task[..., Any], view: JobView, wanted: Mapping[str, object]) -> bool:
    there = _arguments(task, view)
    return all(name in there and there[name] == value for name, value in wanted.items())


def _arguments(task: Task[..., Any], view: JobView) -> dict[str, object]:
    codec = task.definition.arguments
    args, kwargs = codec.decode(view.payload)
    signature = codec.signature
    return {**signature.defaults, **signature.bind(args, kwargs)}


@asynccontextmanager
async def _hints(app: Mainspring) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Offer a way to wait until something may have changed in the store."""
    hint = Notifier()
    unwatch = app.store.watch(hint.notify_one)

    async def wait() -> None:
        await first_of([hint], until=asyncio.get_running_loop().time() + FLOOR)

    try:
        yield wait
    finally:
        unwatch()


async def _left(app: Mainspring, *, scheduled: bool) -> bool:
    """Say whether anything is left that a node would run; what waits in a paused queue waits for someone else."""
    now = app.store.now()
    paused = {queue.name for queue in await app.store.queues() if queue.paused}
    return any(
        view.job.state is State.RUNNING
        or (
            view.job.queue not in paused
            and (scheduled or view.job.state is not State.SCHEDULED or view.job.run_at <= now)
        )
        for view in await _all(app, (*WAITING, State.RUNNING))
    )


async def _all(app: Mainspring, states: tuple[State, ...]) -> list[JobView]:
    async with app:
        views: list[JobView] = []
        page = await app.store.list_jobs(JobFilter(states=states), limit=PAGE)
        views += page.jobs
        while page.after is not None:
            page = await app.store.list_jobs(JobFilter(states=states), limit=PAGE, after=page.after)
            views += page.jobs
        return views
