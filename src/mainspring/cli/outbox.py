"""`mainspring outbox`: messages on their way, how far behind they are, and what was given up."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import click

from mainspring.app import Mainspring
from mainspring.cli.echo import echo
from mainspring.cli.outbox_letters import deadletters, discard, replay
from mainspring.cli.plain import print_json
from mainspring.cli.reach import as_json, reached_outboxes, reaches_store
from mainspring.cli.table import Column, print_table
from mainspring.client.lags import Lag, lags, views_of
from mainspring.client.words import ago, length, size
from mainspring.stores.outbox import OutboxView

NONE: Final = 'There are no outboxes; write orders = app.outbox("orders"), and publish a message.'
COLUMNS: Final = (
    Column("OUTBOX"),
    Column("PARTITIONS", right=True),
    Column("KEPT", right=True),
    Column("SIZE", right=True),
    Column("ASIDE", right=True),
    Column("DEAD LETTERS", right=True),
    Column("CREATED", optional=True),
)
LAGS: Final = (
    Column("OUTBOX"),
    Column("PARTITION", right=True),
    Column("DONE", right=True, optional=True),
    Column("WAITING", right=True),
    Column("OLDEST", right=True),
    Column("HOLDER", shrinks=True, optional=True),
    Column("NOTE", shrinks=True),
)

names_argument = click.argument("names", metavar="[OUTBOX]...", nargs=-1)


@click.group()
def outbox() -> None:
    """List outboxes, and replay or discard dead letters."""


@outbox.command("list")
@as_json
@reaches_store
async def list_outboxes(app: Mainspring, *, as_json: bool) -> None:
    """List outboxes, by name: how many messages are kept, and how many were given up."""
    found = await views_of(reached_outboxes(app), ())
    if as_json:
        print_json(*found)
    elif not found:
        echo(NONE)
    else:
        print_table(COLUMNS, [_row(view, app.store.now()) for view in found])


@outbox.command()
@names_argument
@click.option("--all", "all_", is_flag=True, help="Also partitions in which nothing waits.")
@as_json
@reaches_store
async def lag(app: Mainspring, *, names: Sequence[str], all_: bool, as_json: bool) -> None:
    """Show, for each partition, how many messages wait, since when, and who is at it.

    Without names: of all outboxes. Partitions in which nothing waits are left out, unless --all is given.
    """
    store = reached_outboxes(app)
    views = await views_of(store, names)
    looked = await lags(store, [one.name for one in views])
    found = [one for one in looked.lags if all_ or one.backlog or one.aside_at or one.error]
    if as_json:
        print_json(*found)
    elif not views:
        echo(NONE)
    elif not found:
        echo("Nothing waits.")
    else:
        print_table(LAGS, [_lag_row(one, looked.now) for one in found])


for command in (deadletters, replay, discard):
    outbox.add_command(command)


def _row(view: OutboxView, now: datetime) -> tuple[str, ...]:
    return (
        view.name,
        str(view.partitions),
        f"{view.kept:,}",
        "" if view.bytes is None else size(view.bytes),
        f"{view.aside:,}",
        f"{view.letters:,}",
        ago(view.created_at, now, shortly=True),
    )


def _lag_row(lag: Lag, now: datetime) -> tuple[str, ...]:
    return (
        lag.outbox,
        str(lag.partition),
        f"{lag.cursor:,}",
        f"{lag.backlog:,}",
        "" if lag.age is None else length(lag.age, shortly=True),
        lag.holder or "",
        _note(lag, now),
    )


def _note(lag: Lag, now: datetime) -> str:
    """Say why nothing moves, if something is the matter."""
    notes = []
    if lag.error:
        tries = f"attempt {lag.attempts} failed" if lag.attempts else "failed"
        again = "" if lag.retry_at is None else f", again {_when(lag.retry_at, now)}"
        notes.append(f"{tries}{again}: {lag.error.splitlines()[0]}")
    elif lag.retry_at is not None and lag.retry_at > now:
        notes.append(f"put off, again {_when(lag.retry_at, now)}")
    if lag.aside_at is not None:
        notes.append(f"messages set aside, the next {_when(lag.aside_at, now)}")
    return "; ".join(notes)


def _when(at: datetime, now: datetime) -> str:
    return "now" if at <= now else ago(at, now, shortly=True)
