"""`mainspring jobs`: what is in the store, and what an operator may do about it."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import click

from mainspring.app import Mainspring
from mainspring.cli.acting import acting
from mainspring.cli.codes import Code
from mainspring.cli.echo import echo
from mainspring.cli.enqueue import enqueue
from mainspring.cli.plain import print_json
from mainspring.cli.reach import as_json, reaches_store
from mainspring.cli.show import show
from mainspring.cli.table import Column, print_table
from mainspring.client.words import ago, count, length, percent
from mainspring.core.job import FINISHED, Cause, JobId, State
from mainspring.core.names import Name
from mainspring.errors import MainspringError, StoreUnavailable
from mainspring.handle import JobHandle
from mainspring.runtime.events import log
from mainspring.stores.records import JobPage, JobView, RunFilter

PAGE: Final = 500

COLUMNS: Final = (
    Column("ID"),
    Column("STATE"),
    Column("TASK", shrinks=True),
    Column("QUEUE", optional=True),
    Column("TRIES", right=True),
    Column("WHEN", right=True),
    Column("NOTE", shrinks=True, optional=True),
)

ids_argument = click.argument("ids", metavar="ID...", nargs=-1, required=True, type=click.UUID)


@click.group()
def jobs() -> None:
    """List, show, retry, cancel, delete and enqueue jobs."""


@jobs.command("list")
@click.option("--state", "states", multiple=True, type=click.Choice([str(one) for one in State]), help="Repeatable.")
@click.option("--queue", help="Of this queue.")
@click.option("--task", help="Of this task.")
@click.option("--tag", help="With this tag.")
@click.option("--cause", type=click.Choice([str(one) for one in Cause]), help="Failed for this reason.")
@click.option("--schedule", metavar="NAME", help="Made by this schedule; goes with --state only.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(min=1), help="At most so many.")
@click.option("--after", metavar="ID", type=click.UUID, help="Go on after the last job of the page before.")
@as_json
@reaches_store
async def list_jobs(
    app: Mainspring,
    *,
    states: tuple[str, ...],
    queue: str | None,
    task: str | None,
    tag: str | None,
    cause: str | None,
    schedule: str | None,
    limit: int,
    after: UUID | None,
    as_json: bool,
) -> None:
    """List jobs, the newest first."""
    log.addHandler(logging.NullHandler())  # else Python prints the hint for an unknown task to stderr once more
    found: list[JobView] = []
    more: JobId | None = JobId(after) if after else None
    if schedule is not None and (queue or task or tag or cause):
        raise click.UsageError("--schedule goes with --state only: its jobs have one task and queue")
    while len(found) < limit:
        most = min(PAGE, limit - len(found))
        if schedule is not None:
            page = await _of_schedule(app, Name.parse(schedule), states, limit=most, after=more)
        else:
            page = await app.jobs(state=states, queue=queue, task=task, tag=tag, cause=cause, limit=most, after=more)
        found += page.jobs
        more = page.after
        if more is None:
            break
    hint = await _hint(app, task, queue) if not found and after is None else None
    if as_json:
        print_json(*found)
        if hint:
            echo(f"mainspring: {hint}", err=True)
        return
    if not found:
        echo(f"No such jobs: {hint}" if hint else "No such jobs.")
        return
    now = app.store.now()
    print_table(COLUMNS, [_row(view, now) for view in found])
    if more is not None:
        echo(f"There are more: --after {more}")


@jobs.command()
@ids_argument
@as_json
@reaches_store
async def retry(app: Mainspring, *, ids: Sequence[UUID], as_json: bool) -> int:
    """Run failed or cancelled jobs again, with one more attempt each."""
    return await _each(app, "jobs.retry", ids, JobHandle.retry, "will run again", as_json=as_json)


@jobs.command()
@ids_argument
@as_json
@reaches_store
async def cancel(app: Mainspring, *, ids: Sequence[UUID], as_json: bool) -> int:
    """Cancel jobs: at once if they wait, as a request if they run."""
    return await _each(app, "jobs.cancel", ids, JobHandle.cancel, "is cancelled", as_json=as_json)


@jobs.command()
@ids_argument
@as_json
@reaches_store
async def delete(app: Mainspring, *, ids: Sequence[UUID], as_json: bool) -> int:
    """Forget jobs that do not run, and all that is kept of them."""
    return await _each(app, "jobs.delete", ids, JobHandle.delete, "is gone", as_json=as_json)


jobs.add_command(show)
jobs.add_command(enqueue)


async def _hint(app: Mainspring, task: str | None, queue: str | None) -> str | None:
    """Say which name nobody knows, and which was meant perhaps."""
    if task is None and queue is None:
        return None
    from mainspring.client.unknown import unknown_in  # noqa: PLC0415 - only where nothing was found
    from mainspring.stores.overview import Search  # noqa: PLC0415 - as above

    return await unknown_in(Search(task=Name.parse(task) if task else None, queue=queue), app.store, app.registry)


async def _of_schedule(
    app: Mainspring, schedule: Name, states: Sequence[str], *, limit: int, after: JobId | None
) -> JobPage:
    """Find the jobs of a schedule by its runs, which have their ids; the last decided come first."""
    which = RunFilter(schedule=schedule, with_job=True)
    page = await app.store.runs(which, limit=limit, after=after)
    views = await app.store.get([JobId(run.id) for run in page.runs])
    found = [view for view in views if view and (not states or view.job.state in states)]
    return JobPage(jobs=tuple(found), after=None if page.after is None else JobId(page.after))


async def _each(
    app: Mainspring,
    action: str,
    ids: Sequence[UUID],
    act: "Callable[[JobHandle[object]], Awaitable[object]]",
    done: str,
    *,
    as_json: bool,
) -> int:
    """Do the same to several jobs. One that cannot be changed does not hinder the others."""
    code = Code.DONE
    async with acting(app, action, *ids) as deed:
        for job in ids:
            problem, state = "", None
            try:
                state = await act(app.job(job))
                deed.did()
            except StoreUnavailable:
                raise
            except MainspringError as error:
                deed.refused(error)
                problem, code = str(error), Code.FAILED
            if as_json:
                print_json({"id": job, "done": not problem, "state": state, "problem": problem or None})
            elif problem:
                echo(f"{job}: {problem}" if str(job) not in problem else problem, err=True)
            else:
                echo(f"{job} {'is asked to stop' if state is State.RUNNING else done}")
    return code


def _row(view: JobView, now: datetime) -> list[str]:
    job = view.job
    tries = f"{job.attempt}/{job.attempts_allowed}"
    return [str(job.id), job.state, str(job.task), job.queue, tries, when(view, now), note(view)]


def when(view: JobView, now: datetime) -> str:
    """Say when a job ended, for how long it has been running, when it is due, or for how long it has been."""
    if view.job.state in FINISHED and view.job.finished_at:
        return ago(view.job.finished_at, now, shortly=True)
    if view.job.state is State.RUNNING and view.started_at:
        return f"for {length(now - view.started_at, shortly=True)}"
    text = ago(view.job.run_at, now, shortly=True)
    return text if view.job.run_at > now else f"due for {text.removesuffix(' ago')}"


def note(view: JobView) -> str:
    """Say in one line what is most worth knowing: why it failed, how far it is."""
    job = view.job
    error = f"{view.error.type}: {view.error.message}".splitlines()[0] if view.error else ""
    match job.state:
        case State.FAILED:
            return f"{job.cause}: {error}" if error else str(job.cause)
        case State.RETRYING:
            return error
        case State.RUNNING if job.cancel_requested_at:
            return "asked to stop"
        case State.RUNNING if view.progress:
            return f"{percent(view.progress.percent)} {view.progress.message}".rstrip()
        case _ if job.losses:
            return f"lost {count(job.losses, 'time')}"
        case _:
            return ""
