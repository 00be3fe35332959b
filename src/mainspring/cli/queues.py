"""`mainspring queues`: the lines that jobs wait in."""

from collections.abc import Sequence
from typing import Final

import click

from mainspring.app import Mainspring
from mainspring.cli.acting import acting
from mainspring.cli.echo import echo
from mainspring.cli.plain import print_json
from mainspring.cli.reach import as_json, reaches_store
from mainspring.cli.table import Column, print_table
from mainspring.cli.words import me
from mainspring.client.words import ago
from mainspring.stores.overview import Overview, QueueRule
from mainspring.stores.records import Pause, QueueView

COLUMNS: Final = (
    Column("QUEUE"),
    Column("STATE"),
    Column("WAITING", right=True),
    Column("RUNNING", right=True),
    Column("LIMIT"),
    Column("NOTE", shrinks=True),
)

names_argument = click.argument("names", metavar="QUEUE...", nargs=-1, required=True)


@click.group()
def queues() -> None:
    """List, pause and resume queues."""


@queues.command("list")
@as_json
@reaches_store
async def list_queues(app: Mainspring, *, as_json: bool) -> None:
    """List the queues that have jobs, or are paused or limited."""
    found = await app.store.queues()
    rules = {one.name: one for one in await app.store.queue_rules()} if isinstance(app.store, Overview) else {}
    if as_json:
        print_json(*found)
        return
    limited = [QueueView(name=name, waiting=0, running=0) for name, rule in rules.items() if _limits(rule)]
    by_name = {one.name: one for one in (*limited, *found)}
    if not by_name:
        echo("No jobs wait or run, and nothing is paused or limited.")
        return
    rows = [
        (
            one.name,
            "paused" if one.paused else "open",
            str(one.waiting),
            str(one.running),
            _limits(rules.get(one.name)),
            _why(app, one.paused),
        )
        for one in sorted(by_name.values(), key=lambda one: one.name)
    ]
    print_table(COLUMNS, rows)


@queues.command()
@names_argument
@click.option("--reason", default="", help="Why, for whoever wonders later.")
@as_json
@reaches_store
async def pause(app: Mainspring, *, names: Sequence[str], reason: str, as_json: bool) -> None:
    """Let nothing more be claimed from queues; what runs goes on."""
    async with acting(app, "queues.pause", *names) as deed:
        for name in names:
            changed = await app.store.pause(name, by=me(), reason=reason)
            deed.did(changed)
            _tell(name, changed=changed, paused=True, as_json=as_json)


@queues.command()
@names_argument
@as_json
@reaches_store
async def resume(app: Mainspring, *, names: Sequence[str], as_json: bool) -> None:
    """Let queues go on."""
    async with acting(app, "queues.resume", *names) as deed:
        for name in names:
            changed = await app.store.resume(name)
            deed.did(changed)
            _tell(name, changed=changed, paused=False, as_json=as_json)


def _tell(name: str, *, changed: bool, paused: bool, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "paused": paused, "changed": changed})
    elif paused:
        echo(f"{name} is paused" if changed else f"{name} was paused already")
    else:
        echo(f"{name} goes on" if changed else f"{name} was not paused")


def _limits(rule: QueueRule | None) -> str:
    """Write what holds over all nodes: how many run at a time, and how many start in a period."""
    if rule is None:
        return ""
    places = rule.declared if rule.limit is None else rule.limit
    return ", ".join(str(word) for word in (places, rule.rate) if word is not None)


def _why(app: Mainspring, pause: Pause | None) -> str:
    if pause is None:
        return ""
    since = f"since {ago(pause.at, app.store.now())}".removesuffix(" ago")
    return f"{since}, by {pause.by or 'someone'}" + (f": {pause.reason}" if pause.reason else "")
