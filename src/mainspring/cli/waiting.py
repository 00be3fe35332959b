"""`--wait`: until a job has ended. Why it does not begin is told on stderr, since whoever waits cannot see that."""

import asyncio
from datetime import timedelta
from typing import Final

from mainspring.app import Mainspring
from mainspring.cli.codes import Code
from mainspring.cli.echo import echo
from mainspring.cli.plain import plain, print_json
from mainspring.cli.reach import source_of_app
from mainspring.cli.root import Refusal
from mainspring.cli.sidecar import sidecar_of
from mainspring.client.standing import standing
from mainspring.core.breaker import refusal
from mainspring.core.job import State
from mainspring.errors import StoreError
from mainspring.handle import JobHandle
from mainspring.stores.port import Store
from mainspring.stores.records import JobView

LOOK_EVERY: Final = 2.0  # seconds


def must_be_shared(app: Mainspring) -> None:
    """Raise if no worker could run a job while this command waits for it."""
    source = source_of_app(app)
    if not source.again:
        raise Refusal("its store lives within one program, so no worker would ever see the job", Code.USAGE)
    if sidecar_of(source.make(app.clock)):
        raise Refusal(
            "one process at a time has that file, so no worker could run the job while this one waits; leave out --wait",
            Code.USAGE,
        )


async def tell_result(app: Mainspring, job: "JobHandle[object]", timeout: timedelta | None, *, as_json: bool) -> None:  # noqa: ASYNC109 - an option
    """Wait for a job, and print its result, or with `as_json` all of it."""
    watch = asyncio.create_task(_watch(app.store, job))
    try:
        await job.result(timeout)
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
    view = await job.refresh()
    if as_json:
        print_json(view)
        return
    envelope = plain(view.result) if view.result is not None else None
    print_json(envelope["value"] if isinstance(envelope, dict) and "value" in envelope else envelope)


async def _watch(store: Store, job: "JobHandle[object]") -> None:
    told = ""
    while True:
        await asyncio.sleep(LOOK_EVERY)
        try:
            (view,) = await store.get([job.id])
            why = await _held_up(store, view) if view else ""
        except StoreError:  # whoever waits for the result is told
            continue
        if why and why != told:
            echo(f"mainspring: the job waits: {why}", err=True)
        told = why


async def _held_up(store: Store, view: JobView) -> str:
    """Say why a job that is due is not run; nothing, if it may be any moment."""
    job = view.job
    if job.state not in {State.READY, State.SCHEDULED, State.RETRYING} or job.run_at > store.now():
        return ""
    well = [one for one in await store.nodes() if standing(one, store.now()) == "alive"]
    if not well:
        return "no node is at work; start one, as with: mainspring worker MODULE:APP"
    knowing = [one.node for one in well if job.task in one.node.tasks]
    if not knowing:
        return f"no node that is at work knows the task {job.task}; start one that has its code"
    if not any(one.queues is None or job.queue in one.queues for one in knowing):
        return f"no node that is at work takes jobs from the queue {job.queue}; start one that does"
    if any(one.paused for one in await store.queues() if one.name == job.queue):
        return f"its queue is paused; mainspring queues resume {job.queue}"
    if any(refusal(one.rule, one.circuit, store.now()) for one in await store.breakers([job.task])):
        return f"the breaker of its task is open; mainspring breakers show {job.task}"
    return ""
