"""`mainspring migrate`: a store's tables, as this version needs them."""

import asyncio

import click

from mainspring.app import Mainspring
from mainspring.cli.codes import Code
from mainspring.cli.plain import print_json
from mainspring.cli.reach import app_of, app_option, as_json, source_of_app, url_option
from mainspring.cli.root import Refusal
from mainspring.stores.records import SchemaVersion


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if there is something to do.")
@as_json
@url_option
@app_option
def migrate(*, check: bool, as_json: bool, url: str | None, target: str | None) -> None:
    """Bring a store's tables up to this version.

    Workers do it too when they start; this is for those who want it done before. Safe to run at any time.
    """
    app = app_of(url, target)
    name = source_of_app(app).name
    found, after = asyncio.run(_migrated(app, check=check))
    if as_json:
        print_json({"store": name, "found": found.found, "now": after.found, "wanted": after.wanted})
    else:
        click.echo(f"{name}: {_told(found, after)}")
    click.get_current_context().exit(Code.DONE if after.found >= after.wanted else Code.FAILED)


async def _migrated(app: Mainspring, *, check: bool) -> tuple[SchemaVersion, SchemaVersion]:
    source = source_of_app(app)
    if not source.again:
        raise Refusal(f"{source.name}: it has no tables to bring up", Code.USAGE)
    store = source.make(app.clock)
    found = await store.schema()
    if check:
        return found, found
    async with app:
        return found, await app.store.schema()


def _told(found: SchemaVersion, after: SchemaVersion) -> str:
    if after.found < after.wanted:
        have = f"its tables are of version {after.found}" if after.found else "it has no tables yet"
        return f"{have}, version {after.wanted} is wanted; run `mainspring migrate`"
    if found.found == after.found:
        return f"up to date, version {after.found}"
    return f"from version {found.found} to {after.found}" if found.found else f"made, version {after.found}"
