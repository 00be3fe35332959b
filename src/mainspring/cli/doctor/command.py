"""The command: calls the checks one after the other, as far as each needs the ones before."""

import asyncio
import logging
import textwrap
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from typing import Final

import click

from mainspring.app import Mainspring
from mainspring.cli.codes import Code
from mainspring.cli.doctor.content import content, tables
from mainspring.cli.doctor.finding import Finding, Level, fail, ok
from mainspring.cli.doctor.here import clock, sqlite_version, versions
from mainspring.cli.doctor.life import FILE, ONE_PROCESS, SERVER, Bell, life
from mainspring.cli.doctor.place import place
from mainspring.cli.echo import echo
from mainspring.cli.plain import print_json
from mainspring.cli.reach import SqliteFile, app_of, app_option, as_json, file_of, server_of, source_of_app, url_option
from mainspring.cli.sidecar import sidecar_of
from mainspring.cli.table import styled
from mainspring.errors import DeclarationError, SchemaError, StoreError
from mainspring.stores.port import Store

TOLD: Final = ("level", "subject", "says", "do")
NEEDED: Final = frozenset({"server", "schema", "role", "document"})
"""Subjects without which a store cannot be opened."""


@click.command()
@as_json
@url_option
@app_option
def doctor(*, as_json: bool, url: str | None, target: str | None) -> None:
    """Look for what is wrong here, and say what to do.

    Exits with 1 if something fails; what is only worth knowing is a warning. It changes no job.
    """
    logging.getLogger("mainspring").addHandler(logging.NullHandler())  # what a store would log is found here, too
    click.get_current_context().exit(asyncio.run(_examine(url, target, as_json=as_json)))


async def _examine(url: str | None, target: str | None, *, as_json: bool) -> Code:
    worst = Code.DONE
    async with aclosing(findings(url, target)) as found:
        async for finding in found:
            if finding.level is Level.FAIL:
                worst = Code.FAILED
            if as_json:
                print_json({name: getattr(finding, name) for name in TOLD})
            else:
                _print(finding)
    return worst


async def findings(url: str | None, target: str | None) -> AsyncGenerator[Finding, None]:
    """Check everything, from the ground up; stops where nothing further can be seen."""
    for finding in (*versions(), clock()):
        yield finding
    try:
        app = app_of(url, target)
    except DeclarationError as error:
        yield fail("url", error.problem, "correct --url or $MAINSPRING_URL")
        return
    source = source_of_app(app)
    yield ok("url", source.name)
    if not source.again:
        return
    try:
        store = source.make(app.clock)
    except DeclarationError as error:  # its driver is not installed
        says, _, do = error.problem.partition(": ")
        yield fail("driver", says, do)
        return
    async with aclosing(_of_store(app, store)) as found:
        async for finding in found:
            yield finding


async def _of_store(app: Mainspring, store: Store) -> AsyncGenerator[Finding, None]:
    can_open = True
    async for finding in _before_opening(store):
        yield finding
        can_open = can_open and not (finding.level is Level.FAIL and finding.subject in NEEDED)
    if not can_open:
        return
    source = source_of_app(app)
    try:
        async with app, aclosing(life(app.store, lambda: source.make(app.clock), _bell_of(store))) as found:
            async for finding in found:
                yield finding
            if sidecar := sidecar_of(app.store):
                from mainspring.cli.doctor.sidecar import kept  # noqa: PLC0415 - as below

                for finding in await kept(sidecar):
                    yield finding
    except SchemaError as error:
        yield fail("schema", error.problem, "use the Mainspring that made these tables, or a newer one")
    except StoreError as error:
        yield _closed(store, error)


def _closed(store: Store, error: StoreError) -> Finding:
    if sidecar_of(store):
        from mainspring.stores.sidecar.lock import IN_USE  # noqa: PLC0415 - as below

        if error.problem.startswith(IN_USE):  # as it should be, while the program runs
            return ok("store", f"{error.problem.partition(',')[0]}; what goes on in it can be seen when that has ended")
    return fail("store", error.problem, "see what holds it; every worker needs it")


async def _before_opening(store: Store) -> AsyncIterator[Finding]:
    if file := file_of(store):
        for finding in _of_file(file):
            yield finding
        yield await tables(store)
    if sidecar := sidecar_of(store):
        from mainspring.cli.doctor.sidecar import examined as of_document  # noqa: PLC0415 - only those who have it

        async for finding in of_document(sidecar):
            yield finding
    if settings := server_of(store):
        from mainspring.cli.doctor.postgres import examined  # noqa: PLC0415 - needs asyncpg

        async for finding in examined(settings):
            yield finding


def _of_file(file: SqliteFile) -> Iterator[Finding]:
    yield sqlite_version()
    yield from place(file.path)
    yield from content(file.path, durable=file.durable)


def _bell_of(store: Store) -> Bell:
    if sidecar_of(store):
        return ONE_PROCESS
    settings = server_of(store)
    return FILE if settings is None else SERVER._replace(rings=settings.listen)


def _print(finding: Finding) -> None:
    level = styled(f"{finding.level:<4}", finding.level)
    echo(f"  {finding.subject:<11}  {finding.says}", prefix=level)
    if finding.do:
        echo(textwrap.indent(f"→ {finding.do}", " " * 19))
