"""The command: calls the checks one after the other, as far as each needs the ones before."""

import asyncio
import textwrap
from collections.abc import AsyncIterator

import click

from mainspring.app import Mainspring
from mainspring.cli.codes import Code
from mainspring.cli.doctor.content import content, tables
from mainspring.cli.doctor.finding import Finding, Level, fail, ok
from mainspring.cli.doctor.here import clock, sqlite_version, versions
from mainspring.cli.doctor.life import life
from mainspring.cli.doctor.place import place
from mainspring.cli.plain import print_json
from mainspring.cli.reach import app_of, app_option, as_json, file_of, source_of_app, url_option
from mainspring.cli.table import styled
from mainspring.errors import DeclarationError, SchemaError, StoreError


@click.command()
@as_json
@url_option
@app_option
def doctor(*, as_json: bool, url: str | None, target: str | None) -> None:
    """Look for what is wrong here, and say what to do.

    Exits with 1 if something fails; what is only worth knowing is a warning. It changes no job.
    """
    click.get_current_context().exit(asyncio.run(_examine(url, target, as_json=as_json)))


async def _examine(url: str | None, target: str | None, *, as_json: bool) -> Code:
    worst = Code.DONE
    async for finding in findings(url, target):
        if finding.level is Level.FAIL:
            worst = Code.FAILED
        if as_json:
            print_json(finding)
        else:
            _print(finding)
    return worst


async def findings(url: str | None, target: str | None) -> AsyncIterator[Finding]:
    """Check everything, from the ground up; stops where nothing further can be seen."""
    for finding in (*versions(), sqlite_version(), clock()):
        yield finding
    try:
        app = app_of(url, target)
    except DeclarationError as error:
        yield fail("url", str(error), "correct --url or $MAINSPRING_URL")
        return
    source = source_of_app(app)
    yield ok("url", source.name)
    if not source.again:
        return
    async for finding in _of_store(app):
        yield finding


async def _of_store(app: Mainspring) -> AsyncIterator[Finding]:
    source = source_of_app(app)
    store = source.make(app.clock)
    if file := file_of(store):
        for finding in (*place(file.path), *content(file.path, durable=file.durable)):
            yield finding
    schema = await tables(store)
    yield schema
    if schema.level is not Level.OK:
        return
    try:
        async with app:
            async for finding in life(app.store, lambda: source.make(app.clock)):
                yield finding
    except SchemaError as error:
        yield fail("schema", error.problem, "use the Mainspring that made these tables, or a newer one")
    except StoreError as error:
        yield fail("store", error.problem, "see what holds it; every worker needs it")


def _print(finding: Finding) -> None:
    level = styled(f"{finding.level:<4}", finding.level)
    click.echo(f"{level}  {finding.subject:<11}  {finding.says}")
    if finding.do:
        click.echo(textwrap.indent(f"→ {finding.do}", " " * 19))
