"""`mainspring nodes`: who is at work, and what they are asked to do."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import click

from mainspring.app import Mainspring
from mainspring.cli.acting import acting
from mainspring.cli.durations import DURATION
from mainspring.cli.echo import echo
from mainspring.cli.plain import print_json
from mainspring.cli.reach import as_json, reaches_store
from mainspring.cli.root import Refusal
from mainspring.cli.table import Column, print_table
from mainspring.client.orders import answered, give
from mainspring.client.words import ago
from mainspring.errors import NoAnswer, NodeGone
from mainspring.stores.records import DumpStacks, NodeOrder, Quiet, Resume, SetConcurrency, StopNode

COLUMNS: Final = (
    Column("NODE"),
    Column("STATE"),
    Column("BUSY", right=True),
    Column("TASKS", right=True),
    Column("QUEUES", shrinks=True),
    Column("RENEWED", right=True),
    Column("JOINED", right=True, optional=True),
    Column("VERSION", optional=True),
)

nodes_argument = click.argument("ids", metavar="NODE...", nargs=-1, required=True)


@click.group()
def nodes() -> None:
    """List nodes and give them orders."""


@nodes.command("list")
@click.option("--all", "dead_too", is_flag=True, help="Those that have ended, too.")
@as_json
@reaches_store
async def list_nodes(app: Mainspring, *, dead_too: bool, as_json: bool) -> None:
    """List the nodes that have not ended.

    A node that is `silent` has not renewed its lease for 15 s; the process
    of one that is `gone` has ended. Others take over what they held.
    """
    looks = await app.overview.nodes(dead_too=dead_too)
    if as_json:
        print_json(*(one.view for one in looks))
        return
    if not looks:
        echo("No node is alive." if not dead_too else "There were no nodes.")
        return
    now = app.store.now()
    rows = [
        (
            one.view.node.id,
            one.standing,
            f"{one.busy}/{one.view.node.concurrency}",
            str(len(one.view.node.tasks)),
            ", ".join(one.view.node.queues) if one.view.node.queues is not None else "all",
            ago(one.view.renewed_at, now, shortly=True),
            ago(one.view.joined_at, now, shortly=True),
            one.view.node.version,
        )
        for one in looks
    ]
    print_table(COLUMNS, rows)


@nodes.command()
@nodes_argument
@as_json
@reaches_store
async def quiet(app: Mainspring, *, ids: Sequence[str], as_json: bool) -> None:
    """Have nodes finish what runs and take nothing new."""
    await _give(app, "nodes.quiet", ids, Quiet(), as_json=as_json)


@nodes.command()
@nodes_argument
@as_json
@reaches_store
async def resume(app: Mainspring, *, ids: Sequence[str], as_json: bool) -> None:
    """Have quiet nodes take jobs again."""
    await _give(app, "nodes.resume", ids, Resume(), as_json=as_json)


@nodes.command()
@nodes_argument
@as_json
@reaches_store
async def stop(app: Mainspring, *, ids: Sequence[str], as_json: bool) -> None:
    """Have nodes shut down, as on SIGTERM."""
    await _give(app, "nodes.stop", ids, StopNode(), as_json=as_json)


@nodes.command()
@click.argument("node")
@click.argument("places", type=click.IntRange(min=1))
@as_json
@reaches_store
async def concurrency(app: Mainspring, *, node: str, places: int, as_json: bool) -> None:
    """Have a node run so many jobs at a time, until it ends."""
    await _give(app, "nodes.concurrency", [node], SetConcurrency(places), as_json=as_json)


@nodes.command()
@click.argument("node")
@click.option("--timeout", type=DURATION, default="30s", show_default=True, help="How long to wait for the answer.")
@as_json
@reaches_store
async def stacks(app: Mainspring, *, node: str, timeout: timedelta, as_json: bool) -> None:  # noqa: ASYNC109 - an option
    """Show where every thread and task of a node stands."""
    async with acting(app, "nodes.stacks", node):
        order = await give(app.store, node, DumpStacks())
        try:
            done = await answered(app.store, order, timeout)
        except (NoAnswer, NodeGone) as error:
            raise Refusal(str(error)) from error
    if as_json:
        print_json(done)
    else:
        echo(done.answer)


async def _give(app: Mainspring, action: str, ids: Sequence[str], order: NodeOrder, *, as_json: bool) -> None:
    async with acting(app, action, *ids) as deed:
        for node in ids:
            given = await give(app.store, node, order)
            deed.did()
            if as_json:
                print_json(given)
            else:
                echo(f"{node} is asked; it learns of it with its next renewal")
