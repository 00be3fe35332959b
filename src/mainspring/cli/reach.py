"""The way from a command to a store: `--url`, `--app`, $MAINSPRING_APP, $MAINSPRING_URL, or the file that apps use without.

Commands look at stores that are there. None makes a file or changes its tables by looking: that is what workers and
`mainspring migrate` do.
"""

import asyncio
import functools
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, NamedTuple, ParamSpec

import click

from mainspring.app import Mainspring
from mainspring.cli.codes import Code
from mainspring.cli.root import Refusal
from mainspring.cli.sidecar import advice as advice_on
from mainspring.cli.sidecar import says, sidecar_of
from mainspring.cli.target import load_app
from mainspring.client.audit import PATIENCE
from mainspring.client.letters import outboxes_of
from mainspring.client.urls import Source
from mainspring.errors import StoreClosed
from mainspring.stores.outbox import Outboxes
from mainspring.stores.overview import Overview
from mainspring.stores.port import Store

if TYPE_CHECKING:
    from mainspring.stores.postgres.settings import Settings

P = ParamSpec("P")

VARIABLE: Final = "MAINSPRING_APP"

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
url_option = click.option(
    "--url",
    metavar="URL",
    help="The store: sqlite:///jobs.db, postgresql://user@host/database. [$MAINSPRING_URL, else sqlite:///mainspring.db]",
)
app_option = click.option("--app", "target", metavar="MODULE:APP", help="The store of this app. [$MAINSPRING_APP]")


def _needed(_ctx: click.Context, _parameter: click.Parameter, target: str | None) -> str:
    if not target:
        raise click.UsageError(f"it needs the app: say MODULE:APP, or set ${VARIABLE}")
    return target


app_argument = click.argument("target", metavar="MODULE:APP", envvar=VARIABLE, required=False, callback=_needed)


def reaches_store(
    command: Callable[Concatenate[Mainspring, P], Awaitable[int | None]],
) -> Callable[..., None]:
    """Make a command of an async function that takes an app with an open store, and returns the exit code or None."""

    @url_option
    @app_option
    @functools.wraps(command)
    def run(*args: Any, url: str | None, target: str | None, **options: Any) -> None:  # noqa: ANN401 - the command knows
        app = app_of(url, target)

        async def work() -> int | None:
            async with reached(app):
                return await command(app, *args, **options)

        click.get_current_context().exit(asyncio.run(work()) or Code.DONE)

    return run


def app_of(url: str | None, target: str | None) -> Mainspring:
    """Make an app without tasks for a URL, or load the one that is named."""
    if url is not None and target is not None:
        raise click.UsageError("--url and --app both name a store; give one of them")
    if url is None and target is None:
        target = os.environ.get(VARIABLE) or None
    if target is None:
        return Mainspring(url)
    return load_app(target, debug=wants_debug())


def named_app(target: str | None) -> Mainspring:
    """Load the app that a command cannot do without."""
    target = target or os.environ.get(VARIABLE)
    if not target:
        raise click.UsageError(f"it needs the app: say --app MODULE:APP, or set ${VARIABLE}")
    return load_app(target, debug=wants_debug())


def wants_debug() -> bool:
    return bool(click.get_current_context().find_root().params.get("debug"))


@asynccontextmanager
async def reached(app: Mainspring) -> AsyncIterator[Store]:
    """Open an app's store for a while, if there is one."""
    await _check(app)
    async with app:
        yield app.store


async def store_that_is_there(app: Mainspring) -> Store | None:
    """Return the store that keeps a line: the open one, or else one that plays the role, and need not be made first.

    A command that has not needed the store makes none for its line, does not wait for a document of another program, and
    not for long for a server.
    """
    with suppress(StoreClosed):
        return app.store
    source = source_of_app(app)
    if not source.again or not isinstance(source.make(app.clock), Overview):
        return None
    async with asyncio.timeout(PATIENCE):
        try:
            await _check(app)
        except Refusal:
            return None
        return await app._connection.store()  # noqa: SLF001 - the app is closed by whoever has loaded it


def reached_outboxes(app: Mainspring) -> Outboxes:
    """Return the store of an app as one that keeps outboxes, or raise `DeclarationError`."""
    return outboxes_of(app.store, "of this store")


async def _check(app: Mainspring) -> None:
    """Look before opening, which would make what is not there."""
    source = source_of_app(app)
    if not source.again:
        raise Refusal(f"{source.name}: it lives within one program, and cannot be seen from outside", Code.USAGE)
    store = source.make(app.clock)
    if sidecar := sidecar_of(store):
        standing = await sidecar.standing()
        if problem := says(standing):
            raise Refusal(f"{source.name}: {problem}; {advice_on(sidecar, standing)}", Code.STORE)
        return
    advice = "run a worker, or `mainspring migrate`"
    if (file := file_of(store)) and not _exists(file.path):
        other = "if the jobs are elsewhere, say --app MODULE:APP or --url; else"
        raise Refusal(f"{source.name}: there is no such file; {other} {advice} to make it", Code.STORE)
    version = await store.schema()
    if version.found == 0:
        raise Refusal(f"{source.name}: there are no tables of ours in it; {advice} to make them", Code.STORE)
    if version.found < version.wanted:
        problem = f"its tables are of version {version.found}, and this is version {version.wanted}"
        raise Refusal(f"{source.name}: {problem}; {advice} to bring them up", Code.STORE)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # in a folder that is closed to us
        raise Refusal(f"{path}: {error.strerror}", Code.STORE) from error


class SqliteFile(NamedTuple):
    """Where a SQLite store is, and how safely it is written."""

    path: Path
    durable: bool


def file_of(store: Store) -> SqliteFile | None:
    """Name the file of a store that is in one."""
    from mainspring.stores.sqlite import SqliteStore  # noqa: PLC0415 - only those who have it load it

    if not isinstance(store, SqliteStore):
        return None
    return SqliteFile(store.path, store._settings.durable)  # noqa: SLF001 - the store has no public name for it


def server_of(store: Store) -> "Settings | None":
    """Say how a store in PostgreSQL reaches its server."""
    postgres = sys.modules.get("mainspring.stores.postgres")  # whoever made such a store has loaded it
    if postgres is None or not isinstance(store, postgres.PostgresStore):
        return None
    settings: Settings = store._settings  # noqa: SLF001 - the store has no public name for it
    return settings


def source_of_app(app: Mainspring) -> Source:
    """Where an app's store comes from."""
    return app._connection._source  # noqa: SLF001 - the store must be looked at before it is opened, and an app only offers an open one
