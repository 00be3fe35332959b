"""`mainspring breakers`: what stops the jobs of a task that only fails."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import click

from mainspring.app import Mainspring
from mainspring.cli.acting import acting
from mainspring.cli.echo import echo
from mainspring.cli.plain import print_json
from mainspring.cli.reach import as_json, reaches_store
from mainspring.cli.table import Column, print_table
from mainspring.cli.words import me
from mainspring.client.words import ago, length
from mainspring.core.breaker import Phase, PhaseChange, refusal
from mainspring.duration import duration
from mainspring.stores.records import BreakerView

PAGE: Final = 500
COLUMNS: Final = (
    Column("TASK"),
    Column("STATE"),
    Column("SINCE"),
    Column("FAILURES", right=True),
    Column("NOTE", shrinks=True),
)
CHANGES: Final = (Column("WHEN"), Column("FROM"), Column("TO"), Column("JOB"), Column("NOTE", shrinks=True))

task_argument = click.argument("task", metavar="TASK")
reason_option = click.option("--reason", default="", help="Why, for whoever wonders later.")


@click.group()
def breakers() -> None:
    """List, open, close and reset the breakers of tasks."""


@breakers.command("list")
@as_json
@reaches_store
async def list_breakers(app: Mainspring, *, as_json: bool) -> None:
    """List the breakers of all tasks that have one."""
    page = await app.breakers.list(limit=PAGE)
    found = list(page.breakers)
    while page.after:
        page = await app.breakers.list(limit=PAGE, after=page.after)
        found += page.breakers
    if as_json:
        print_json(*found)
    elif not found:
        echo("No task has a breaker; write @app.task(breaker=True).")
    else:
        print_table(COLUMNS, [_row(view, page.now) for view in found])


@breakers.command()
@task_argument
@click.option("-n", "--limit", default=20, show_default=True, type=click.IntRange(1, 100), help="How many changes.")
@as_json
@reaches_store
async def show(app: Mainspring, *, task: str, limit: int, as_json: bool) -> None:
    """Show a breaker, and the last changes of its state."""
    story = await app.breakers.show(task, limit=limit)
    if as_json:
        print_json(story)
        return
    now = app.store.now()
    rule = story.breaker.rule
    cooldown = length(duration(rule.cooldown))
    echo(f"{task} opens after {rule.threshold} failures in a row, and probes after {cooldown}.")
    print_table(COLUMNS, [_row(story.breaker, now)])
    if story.changes:
        echo()
        print_table(CHANGES, [_change(change, now) for change in story.changes])


@breakers.command("open")
@task_argument
@reason_option
@as_json
@reaches_store
async def open_(app: Mainspring, *, task: str, reason: str, as_json: bool) -> None:
    """Let no job of a task start until its breaker is reset; what runs goes on."""
    await _force(
        app, "breakers.open", app.breakers.open, task, reason, done="is open until it is reset", as_json=as_json
    )


@breakers.command()
@task_argument
@reason_option
@as_json
@reaches_store
async def close(app: Mainspring, *, task: str, reason: str, as_json: bool) -> None:
    """Let the jobs of a task start, whatever fails, until its breaker is reset."""
    await _force(
        app, "breakers.close", app.breakers.close, task, reason, done="is closed until it is reset", as_json=as_json
    )


@breakers.command()
@task_argument
@reason_option
@as_json
@reaches_store
async def reset(app: Mainspring, *, task: str, reason: str, as_json: bool) -> None:
    """Close a breaker, forget its failures, and let it move by itself again."""
    await _force(
        app, "breakers.reset", app.breakers.reset, task, reason, done="is closed, and moves by itself", as_json=as_json
    )


async def _force(
    app: Mainspring,
    action: str,
    change: Callable[..., Awaitable[PhaseChange | None]],
    task: str,
    reason: str,
    *,
    done: str,
    as_json: bool,
) -> None:
    async with acting(app, action, task) as deed:
        changed = await change(task, by=me(), reason=reason)
        deed.did(changed is not None)
    if as_json:
        print_json(*([changed] if changed else []))
    elif changed is None:
        there = (await app.breakers.show(task, limit=1)).breaker
        word = f"{_by(there.by, there.reason)}, {ago(there.since, app.store.now(), shortly=True)}"
        echo(f"the breaker of {task} is {there.circuit.phase} already, {word}")
    else:
        echo(f"the breaker of {task} {done}")


def _row(view: BreakerView, now: datetime) -> tuple[str, ...]:
    state = str(view.circuit.phase).replace("_", " ")
    return (
        str(view.task),
        f"{state}, forced" if view.circuit.forced else state,
        ago(view.since, now, shortly=True),
        "" if view.circuit.forced else f"{view.circuit.failures}/{view.rule.threshold}",
        _note(view, now),
    )


def _note(view: BreakerView, now: datetime) -> str:
    circuit = view.circuit
    if circuit.forced:
        return _by(view.by, view.reason)
    if circuit.phase is Phase.CLOSED:
        return ""
    return f"{_next(view, now)}; {view.reason}" if view.reason else _next(view, now)


def _next(view: BreakerView, now: datetime) -> str:
    if view.circuit.probe:
        return f"job {view.circuit.probe.job} is the probe"
    refused = refusal(view.rule, view.circuit, now)
    if refused is None or refused.until is None:
        return "the next job is the probe"
    return f"probes {ago(refused.until, now, shortly=True)}"


def _change(change: PhaseChange, now: datetime) -> tuple[str, ...]:
    return (
        ago(change.at, now, shortly=True),
        str(change.source).replace("_", " "),
        str(change.target).replace("_", " "),
        str(change.job or ""),
        _by(change.by, change.reason) if change.by else change.reason,
    )


def _by(who: str, why: str) -> str:
    return f"by {who or 'someone'}" + (f": {why}" if why else "")
