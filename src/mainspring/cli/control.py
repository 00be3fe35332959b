"""`mainspring control`: the control object from a shell. Statements have a file of their own."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import click

from mainspring.app import Mainspring
from mainspring.cli.acting import acting
from mainspring.cli.codes import Code
from mainspring.cli.control_statements import iterate, submit
from mainspring.cli.echo import echo
from mainspring.cli.enqueue import json_object
from mainspring.cli.plain import print_json
from mainspring.cli.reach import as_json, named_app, reaches_store, source_of_app
from mainspring.cli.root import Refusal
from mainspring.cli.table import Column, print_table
from mainspring.client.control import Row
from mainspring.client.planned_words import rule_text
from mainspring.client.words import ago
from mainspring.errors import MainspringError, ScheduleError, StoreError, UnknownSchedule

COLUMNS: Final = (
    Column("NAME"),
    Column("STATUS"),
    Column("RULE", shrinks=True),
    Column("TASK", shrinks=True, optional=True),
    Column("NEXT", right=True),
    Column("LAST"),
    Column("FAILURES", right=True),
    Column("ERROR", shrinks=True, optional=True),
)

named_option = click.option("--args", "named", metavar="JSON", help="Arguments by name: '{\"photo\": 7}'.")


@click.group()
def control() -> None:
    """Steer schedules and statements by plain words, and flush the store."""


@control.command("list")
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(min=1), help="At most so many.")
@click.option("--after", metavar="NAME", help="Go on after the last schedule of the page before.")
@as_json
@reaches_store
async def list_rows(app: Mainspring, *, limit: int, after: str | None, as_json: bool) -> None:
    """List schedules with how they have been going."""
    rows = await app.control.list(limit=limit, after=after)
    if as_json:
        print_json(*rows)
    elif rows:
        now = app.store.now()
        print_table(COLUMNS, [_cells(row, now) for row in rows])
        if len(rows) == limit:
            echo(f"There may be more: --after {rows[-1].qname}")
    else:
        echo("No such schedules.")


@control.command()
@click.argument("name")
@click.argument("kind", type=click.Choice(["periodic", "cron", "once", "manual"]))
@click.argument("arg", required=False)
@click.option("--app", "target", metavar="MODULE:APP", help="The app that has the task. [$MAINSPRING_APP]")
@click.option("--task", help="Whose jobs it makes. [default: the one that has the name]")
@named_option
@as_json
def add(
    *, name: str, kind: str, arg: str | None, target: str | None, task: str | None, named: str | None, as_json: bool
) -> None:
    """Have a schedule be there, in place of one of that name.

    ARG goes with the KIND: whole seconds for periodic, an expression for cron,
    ISO 8601 for once. It needs the app for the task and the types of its
    arguments. One that was cancelled goes on.
    """
    app = named_app(target)
    if not source_of_app(app).again:
        raise Refusal("its store lives within one program, so no worker would ever see the schedule", Code.USAGE)
    args, kwargs = _arguments(app, name if task is None else task, named)

    async def work() -> Row:
        async with app:
            async with acting(app, "control.add", name):
                added = await app.control.add(name, kind, arg, task=task, args=args, kwargs=kwargs)
            return await app.control.get(str(added.name))

    row = asyncio.run(work())
    if as_json:
        print_json(row)
    else:
        echo(f"{row.qname} is there: {row.rule.explain()}")


@control.command()
@click.argument("name")
@named_option
@as_json
@reaches_store
async def run(app: Mainspring, *, name: str, named: str | None, as_json: bool) -> None:
    """Make one job now.

    Of the schedule of that name, or of the task if there is none, which needs
    --app. With --args it is a job of the task.
    """
    async with acting(app, "control.run", name) as deed:
        args, kwargs = _arguments(app, name, named)
        try:
            job = await app.control.run(name, args=args, kwargs=kwargs)
        except ScheduleError as error:  # what was asked for is in order; the schedule cannot do it
            raise Refusal(str(error)) from error
        deed.job = job.id
    if as_json:
        print_json({"id": job.id, "task": job.task, "fresh": job.fresh})
    else:
        echo(job.id)


@control.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@as_json
@reaches_store
async def cancel(app: Mainspring, *, names: Sequence[str], as_json: bool) -> int:
    """Take schedules away for good, and cancel their jobs.

    Jobs that run are asked to stop. One that is declared in code is paused for good instead: it would come back.
    """
    code = Code.DONE
    async with acting(app, "control.cancel", *names) as deed:
        for name in names:
            problem = None
            try:
                if not await app.control.cancel(name):
                    raise UnknownSchedule(name)
                deed.did()
            except StoreError:
                raise
            except MainspringError as error:
                deed.refused(error)
                problem, code = str(error), Code.FAILED
            if as_json:
                print_json({"name": name, "changed": problem is None, "problem": problem})
            elif problem:
                echo(f"mainspring: {problem}", err=True)
            else:
                echo(f"{name} is cancelled")
    return code


@control.command()
@as_json
@reaches_store
async def flush(app: Mainspring, *, as_json: bool) -> None:
    """Bring what is committed to where it stays.

    On SQLite the log is brought into the file, as before a copy of it. Elsewhere there is nothing to do.
    """
    async with acting(app, "control.flush"):
        await app.control.flush()
    if as_json:
        print_json({"flushed": True})
    else:
        echo("flushed")


for command in (submit, iterate):
    control.add_command(command)


def _arguments(app: Mainspring, task: str, named: str | None) -> tuple[tuple[object, ...], dict[str, object]]:
    """Read what was given as JSON as the task reads it."""
    return ((), {}) if named is None else app.control.arguments(task, json_object(named, "--args"))


def _cells(row: Row, now: datetime) -> tuple[str, ...]:
    ended = row.last_finished or row.last_started
    return (
        row.qname,
        row.status,
        rule_text(row.rule),
        row.task,
        "" if row.next is None else ago(row.next, now, shortly=True),
        f"{row.last_state or 'open'} {ago(ended, now, shortly=True)}" if ended else "",
        str(row.consecutive_failures or ""),
        (row.last_error or "").partition("\n")[0],
    )
