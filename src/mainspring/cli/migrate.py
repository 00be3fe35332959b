"""`mainspring migrate`: a store's tables, as this version needs them, and who may use them."""

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

import click

from mainspring.app import Mainspring
from mainspring.cli.codes import Code
from mainspring.cli.echo import echo
from mainspring.cli.plain import print_json
from mainspring.cli.reach import app_of, app_option, as_json, server_of, source_of_app, url_option
from mainspring.cli.root import Refusal
from mainspring.cli.sidecar import sidecar_of
from mainspring.client.words import count
from mainspring.stores.port import Store
from mainspring.stores.records import SchemaVersion


class Migrated(NamedTuple):
    """How it stood, how it stands, and what came of that."""

    found: SchemaVersion
    after: SchemaVersion
    dropped: int = 0
    """Days of history that were past their time."""
    kept: Sequence[tuple[str, str]] = ()
    """Rows of another program's that do nothing here, and why."""


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if there is something to do.")
@click.option("--sql", "as_sql", is_flag=True, help="Change nothing; print what would be run. PostgreSQL only.")
@click.option("--grant", "roles", metavar="ROLE", multiple=True, help="Let a role work with it; PostgreSQL only.")
@as_json
@url_option
@app_option
def migrate(
    *, check: bool, as_sql: bool, roles: tuple[str, ...], as_json: bool, url: str | None, target: str | None
) -> None:
    """Bring a store's tables up to this version.

    Workers do it too when they start; this is for those who want it done before. Safe to run at any time. On PostgreSQL
    it also makes and drops the days of history; --grant gives a role what workers need and no more, and is repeatable.
    """
    if (check and (as_sql or roles)) or (as_sql and as_json):
        raise click.UsageError("--check stands alone, and --sql prints no JSON")
    logging.getLogger("mainspring").addHandler(logging.NullHandler())  # what a store would log is told here, too
    app = app_of(url, target)
    store = _checked(app, only_postgres="--sql" if as_sql else "--grant" if roles else "")
    name = source_of_app(app).name
    if as_sql:
        echo(asyncio.run(_script(store, roles)))
        return
    found, after, dropped, kept = asyncio.run(_migrated(app, store, roles, check=check))
    if as_json:
        versions = {"found": found.found, "now": after.found, "wanted": after.wanted}
        print_json({"store": name, **versions, "granted": roles, "dropped": dropped, "kept": len(kept)})
    else:
        echo(f"{name}: {_told(found, after, 'document' if sidecar_of(store) else 'tables')}")
        for role in roles:
            echo(f"{name}: the role {role} may work with it")
        for row, problem in kept:
            echo(f"{name}: a row is kept and does nothing: {problem}: {row[:200]}")
        if dropped:
            echo(f"{name}: {count(dropped, 'day')} of history dropped")
    click.get_current_context().exit(Code.DONE if after.found >= after.wanted else Code.FAILED)


def _checked(app: Mainspring, *, only_postgres: str) -> Store:
    """Make the app's store, if it has tables, and roles where that is needed."""
    source = source_of_app(app)
    if not source.again:
        raise Refusal(f"{source.name}: it has no tables to bring up", Code.USAGE)
    store = source.make(app.clock)
    if only_postgres and server_of(store) is None:
        raise Refusal(f"{source.name}: {only_postgres} is for stores in PostgreSQL", Code.USAGE)
    return store


async def _migrated(app: Mainspring, store: Store, roles: tuple[str, ...], *, check: bool) -> Migrated:
    found = await store.schema()
    if sidecar := sidecar_of(store):
        await sidecar.standing()  # all of it has to be readable, and not its version alone
    if check:
        return Migrated(found, found)
    if sidecar:
        return await _taken_over(app, found)
    async with app:
        after = await app.store.schema()
    dropped = 0
    if settings := server_of(store):
        from mainspring.cli.maintenance import maintain  # noqa: PLC0415 - needs asyncpg

        dropped = await maintain(settings, roles)
    return Migrated(found, after, dropped)


async def _taken_over(app: Mainspring, found: SchemaVersion) -> Migrated:
    """Have a document written where there is none of ours. One that is there may be a running program's: it is left."""
    if found.found >= found.wanted:
        return Migrated(found, found)
    async with app:
        store = sidecar_of(app.store)
        assert store is not None  # noqa: S101 -- it was asked before
        await store.take_over()
        return Migrated(found, await store.schema(), kept=await store.unread())


async def _script(store: Store, roles: tuple[str, ...]) -> str:
    from mainspring.cli.script import script  # noqa: PLC0415 - needs asyncpg

    settings = server_of(store)
    assert settings is not None  # noqa: S101 -- it was asked before
    return await script(settings, roles)


def _told(found: SchemaVersion, after: SchemaVersion, what: str) -> str:
    if after.found < after.wanted:
        have = f"its {what} are of version {after.found}" if after.found else f"it has no {what} yet"
        return f"{have}, version {after.wanted} is wanted; run `mainspring migrate`"
    if found.found == after.found:
        return f"up to date, version {after.found}"
    return f"from version {found.found} to {after.found}" if found.found else f"made, version {after.found}"
