"""`mainspring schedules`: what is planned, and what an operator may do about it."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

import click

from mainspring.app import Mainspring
from mainspring.cli.acting import Deed, acting
from mainspring.cli.codes import Code
from mainspring.cli.echo import echo
from mainspring.cli.plain import print_json
from mainspring.cli.reach import as_json, reaches_store
from mainspring.cli.schedules_add import add, change
from mainspring.cli.schedules_next import explain, next_slots
from mainspring.cli.schedules_run import backfill, run
from mainspring.cli.schedules_show import runs, show
from mainspring.cli.schedules_words import schedule_fields
from mainspring.cli.table import Column, print_table
from mainspring.cli.words import me
from mainspring.client.clocks import have_seconds
from mainspring.client.planned_words import at, is_known, paused_text, rule_text, run_text, standing
from mainspring.client.words import ago
from mainspring.core.names import Name
from mainspring.core.schedule import Run
from mainspring.core.steps import is_ahead
from mainspring.errors import MainspringError, StoreError
from mainspring.runtime.planned import look_at
from mainspring.stores.records import Look, RunFilter

PAGE: Final = 500

COLUMNS: Final = (
    Column("NAME"),
    Column("STATE"),
    Column("RULE", shrinks=True),
    Column("TASK", shrinks=True, optional=True),
    Column("NEXT"),
    Column("WHEN", right=True),
    Column("LAST", shrinks=True),
    Column("NOTE", shrinks=True, optional=True),
)

names_argument = click.argument("names", metavar="NAME...", nargs=-1, required=True)


@click.group()
def schedules() -> None:
    """List, add, change, pause, reset, run, backfill and remove schedules."""


@schedules.command("list")
@click.option("--owner", help="Declared by this deployment.")
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(min=1), help="At most so many.")
@click.option("--after", metavar="NAME", help="Go on after the last schedule of the page before.")
@as_json
@reaches_store
async def list_schedules(app: Mainspring, *, owner: str | None, limit: int, after: str | None, as_json: bool) -> None:
    """List schedules, by name."""
    looks: list[Look] = []
    unreadable: dict[str, str] = {}
    more = after
    while len(looks) + len(unreadable) < limit:
        left = limit - len(looks) - len(unreadable)
        page = await app.schedules.list(owner=owner, limit=min(PAGE, left), after=more)
        looks += page.looks
        unreadable |= page.unreadable
        more = page.after
        if more is None:
            break
    if as_json:
        print_json(*map(schedule_fields, looks))
    elif looks:
        now = app.store.now()
        seconds = have_seconds(map(_next, looks))
        print_table(COLUMNS, [_row(look, await _last(app, look), now, seconds=seconds) for look in looks])
    elif not unreadable:
        echo("No such schedules.")
    for name, problem in unreadable.items():
        _tell_unreadable(name, problem, as_json=as_json)
    if more is not None and not as_json:
        echo(f"There are more: --after {more}")


@schedules.command()
@names_argument
@click.option("--reason", default="", help="Why, for whoever wonders later.")
@as_json
@reaches_store
async def pause(app: Mainspring, *, names: Sequence[str], reason: str, as_json: bool) -> int:
    """Have schedules make no jobs until they are resumed."""

    async def act(_: Deed, name: str) -> bool:
        if (await app.schedules.get(name)).paused:
            return False
        await app.schedules.pause(name, by=me(), reason=reason)
        return True

    return await _each(
        app, "schedules.pause", names, act, done="is paused", otherwise="was paused already", as_json=as_json
    )


@schedules.command()
@names_argument
@as_json
@reaches_store
async def resume(app: Mainspring, *, names: Sequence[str], as_json: bool) -> int:
    """Let schedules go on; slots of the meantime make no job."""

    async def act(_: Deed, name: str) -> bool:
        if not (await app.schedules.get(name)).paused:
            return False
        await app.schedules.resume(name)
        return True

    return await _each(app, "schedules.resume", names, act, done="goes on", otherwise="was not paused", as_json=as_json)


@schedules.command()
@names_argument
@as_json
@reaches_store
async def reset(app: Mainspring, *, names: Sequence[str], as_json: bool) -> int:
    """Let schedules go on from now that were decided while the clock was ahead."""

    async def act(_: Deed, name: str) -> bool:
        look, now = await look_at(app.store, Name.parse(name))
        if not is_ahead(look.schedule, now):
            return False
        await app.schedules.reset(name)
        return True

    return await _each(
        app,
        "schedules.reset",
        names,
        act,
        done="goes on from now",
        otherwise="is not ahead of the clock",
        as_json=as_json,
    )


@schedules.command()
@names_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
@reaches_store
async def remove(app: Mainspring, *, names: Sequence[str], yes: bool, as_json: bool) -> int:
    """Take schedules away; jobs that they made go on."""

    async def act(deed: Deed, name: str) -> bool:
        found = await app.schedules.get(name)
        if found.owner is not None:
            back = f"{name} is declared by {found.owner}, and comes back with its next start"
            echo(f"{back}; take it out of the code, or pause it", err=True)
        if not yes and not deed.confirmed(f"Remove {name} ({rule_text(found.plan.rule)}, {found.plan.template.task})?"):
            return False
        await app.schedules.remove(name)
        return True

    return await _each(
        app, "schedules.remove", names, act, done="is gone", otherwise="stays", undone=Code.FAILED, as_json=as_json
    )


for command in (add, backfill, change, explain, next_slots, run, runs, show):
    schedules.add_command(command)


async def _each(
    app: Mainspring,
    action: str,
    names: Sequence[str],
    act: Callable[[Deed, str], Awaitable[bool]],
    *,
    done: str,
    otherwise: str,
    undone: Code = Code.DONE,
    as_json: bool,
) -> int:
    """Do the same to several schedules. One that cannot be changed does not hinder the others."""
    code = Code.DONE
    async with acting(app, action, *names) as deed:
        for name in names:
            problem, changed = "", False
            try:
                changed = await act(deed, name)
                deed.did(changed)
                code = code if changed else max(code, undone)
            except StoreError:
                raise
            except MainspringError as error:
                deed.refused(error)
                problem, code = str(error), Code.FAILED
            if as_json:
                print_json({"name": name, "changed": changed, "problem": problem or None})
            elif problem:
                echo(f"mainspring: {problem}", err=True)
            else:
                echo(f"{name} {done if changed else otherwise}")
    return code


async def _last(app: Mainspring, look: Look) -> Run | None:
    page = await app.store.runs(RunFilter(schedule=look.schedule.name), limit=1)
    return page.runs[0] if page.runs else None


def _next(look: Look) -> datetime | None:
    return look.schedule.next_slot if is_known(look.schedule) else None


def _row(look: Look, last: Run | None, now: datetime, *, seconds: bool) -> list[str]:
    schedule = look.schedule
    slot = _next(look)
    told = "" if last is None else f"{run_text(last)} {ago(last.finished_at or last.decided_at, now, shortly=True)}"
    return [
        str(schedule.name),
        standing(look, now),
        rule_text(schedule.plan.rule),
        str(schedule.plan.template.task),
        "" if slot is None else at(slot, schedule.plan.zone, seconds=seconds),
        "" if slot is None else ago(slot, now, shortly=True),
        told,
        paused_text(schedule.paused, now) if schedule.paused else "",
    ]


def _tell_unreadable(name: str, problem: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "unreadable": problem})
    else:
        echo(f"{name} cannot be understood here: {problem}", err=True)
