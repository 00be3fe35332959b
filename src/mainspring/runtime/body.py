"""The body of an attempt: middleware around an executor around the task's function."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from mainspring.clock import Clock
from mainspring.core.job import JobId
from mainspring.core.names import Name
from mainspring.core.schedule import Run
from mainspring.duration import seconds
from mainspring.runtime.attempt import Attempt
from mainspring.runtime.call import CallFacts, program_acts
from mainspring.runtime.context import Context
from mainspring.runtime.definition import ExecutorKind, Finish
from mainspring.runtime.events import Events, log
from mainspring.runtime.executors.coroutine import CoroutineExecutor
from mainspring.runtime.executors.executor import Executor
from mainspring.runtime.executors.link import LoopLink
from mainspring.runtime.executors.process import ProcessExecutor
from mainspring.runtime.executors.thread import ThreadExecutor
from mainspring.runtime.host import Host
from mainspring.runtime.job_host import JobHost
from mainspring.runtime.middleware import Middleware, Next, onion
from mainspring.runtime.own_end import OwnEnd
from mainspring.settings import NodeSettings
from mainspring.stores.port import Store
from mainspring.stores.records import Note, RunFilter

LAST_WORDS: Final = 10.0  # seconds that the last log lines of an attempt may take


class Body:
    """Knows how every kind of task is called."""

    def __init__(
        self,
        store: Store,
        events: Events,
        settings: NodeSettings,
        middleware: Sequence[Middleware],
        *,
        clock: Clock,
        host: Host,
    ) -> None:
        self._store = store
        self._events = events
        self._middleware = middleware
        self._clock = clock
        self._host = host
        self._executors: Mapping[ExecutorKind, Executor] = {
            ExecutorKind.COROUTINE: CoroutineExecutor(),
            ExecutorKind.THREAD: ThreadExecutor(),
            ExecutorKind.PROCESS: ProcessExecutor(
                settings.processes, stop_grace=min(1.0, seconds(settings.stop_grace) / 2)
            ),
        }

    async def run(self, attempt: Attempt) -> object:
        """Call the function; return what it returned, or raise what it raised."""
        definition = attempt.definition
        facts = CallFacts(delivery=attempt.delivery, started_at=self._store.now(), timeout=attempt.timeout)
        executor = self._executors[definition.executor]
        is_plain = definition.executor is ExecutorKind.COROUTINE and definition.context is None
        if is_plain and definition.finish is None and not self._middleware:
            return await executor.call(definition, facts)
        link = LoopLink(facts, self._write, clock=self._clock)
        attempt.link = link
        own_end = OwnEnd(attempt, self._store, self._events, self._clock)
        context = Context(facts, link, own_end, JobHost(self._host, attempt, link, self._store), past=self._run_before)
        heart: Next = partial(executor.call, definition, facts, context)
        if definition.finish:
            heart = partial(self._finished, attempt, definition.finish, facts, heart)
        if self._middleware:
            heart = partial(_inside, heart)
        try:
            value = await onion(self._middleware, context, heart)()
            await own_end.confirm()
            attempt.returned = (value,)
        except BaseException:
            if attempt.ends_itself and not attempt.settled:
                await self._look_for_its_end(own_end)
            raise
        finally:
            await self._last_words(link)
        return value

    async def _finished(self, attempt: Attempt, finish: Finish, facts: CallFacts, heart: Next) -> object:
        value = await heart()
        return value if attempt.is_lost else await finish(self._store, facts, value)

    async def _look_for_its_end(self, own_end: OwnEnd) -> None:
        """Find out whether a transaction had ended the job before something went wrong: then it stays ended."""
        try:
            await own_end.confirm()
        except Exception as error:  # noqa: BLE001 - not committed, or not to be known now: the settle will find out
            log.debug("no transaction is known to have ended the job: %r", error)

    async def _last_words(self, link: LoopLink) -> None:
        try:
            async with asyncio.timeout(LAST_WORDS):
                await link.flush()
        except Exception as error:  # noqa: BLE001 - progress and log lines; the end of the attempt is another matter
            self._events.count("notes_lost")
            log.warning("the last log lines of job %s could not be written: %r", link.facts.job, error)
        finally:
            link.close()

    async def _run_before(self, schedule: Name, job: JobId) -> Run | None:
        page = await self._store.runs(RunFilter(schedule=schedule, with_job=True), limit=1, after=job)
        return page.runs[0] if page.runs else None

    async def _write(self, note: Note) -> bool:
        (accepted,) = await self._store.note([note])
        return accepted

    async def close(self) -> None:
        """Let go of threads and process slots; who has not ended by now is given up."""
        for executor in self._executors.values():
            await executor.close()


async def _inside(heart: Next) -> object:
    """Let the function act for itself, and the middleware around it for the program, which it is a part of."""
    program_acts.set(False)
    try:
        return await heart()
    finally:
        program_acts.set(True)
