"""`mainspring control submit` and `iterate`: statements that the program behind an app carries out.

They need an app whose module offers a host when it is imported, by `app.host.offer(…)`. The store is not touched, but
for the line in its audit log.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from mainspring.app import Mainspring
from mainspring.cli.acting import acting
from mainspring.cli.codes import Code
from mainspring.cli.echo import echo
from mainspring.cli.enqueue import json_object
from mainspring.cli.plain import print_json
from mainspring.cli.reach import as_json, named_app
from mainspring.client.audit import DONE, DRY_RUN
from mainspring.client.plain import shown
from mainspring.client.statements import BATCH, Iterated
from mainspring.client.words import count

T = TypeVar("T")

app_option = click.option(
    "--app", "target", metavar="MODULE:APP", help="The app that offers the host. [$MAINSPRING_APP]"
)
params_option = click.option("--params", "given", metavar="JSON", help="Parameters by name: '{\"width\": 800}'.")


@click.command()
@click.argument("statement")
@app_option
@params_option
@as_json
def submit(*, statement: str, target: str | None, given: str | None, as_json: bool) -> None:
    """Have the program carry out a statement that writes.

    Prints what it returns, as JSON.
    """
    app = named_app(target)
    params = json_object(given, "--params") if given is not None else {}

    async def work() -> object:
        async with acting(app, "control.submit"):
            return await app.control.submit(statement, params)

    result = shown(_closed(app, work))
    print_json({"result": result} if as_json else result)


@click.command()
@click.argument("query")
@click.argument("mutation")
@click.option("--batch-size", default=BATCH, show_default=True, type=click.IntRange(1, 1_000_000), help="Rows in one.")
@click.option("--retries", default=0, show_default=True, type=click.IntRange(0, 100), help="Of a batch that fails.")
@click.option("--rows-as", default="rows", show_default=True, help="The parameter that a batch is given as.")
@click.option("--dry-run", is_flag=True, help="Only count the rows.")
@click.option("--yes", is_flag=True, help="Do not count them first and ask.")
@app_option
@params_option
@as_json
def iterate(
    *,
    query: str,
    mutation: str,
    batch_size: int,
    retries: int,
    rows_as: str,
    dry_run: bool,
    yes: bool,
    target: str | None,
    given: str | None,
    as_json: bool,
) -> None:
    """Read rows by QUERY, and write them by MUTATION, in batches.

    A batch that fails is counted, and the next one goes on; the code is 1
    then. Ctrl-C ends it between two batches, or within one, which the program
    keeps or not as a whole.
    """
    app = named_app(target)
    params = json_object(given, "--params") if given is not None else {}

    async def once(progress: Progress, *, dry: bool) -> Iterated:
        return await app.control.iterate(
            query,
            mutation,
            batch_size=batch_size,
            params=params,
            rows_as=rows_as,
            retries=retries,
            progress=progress,
            dry_run=dry,
        )

    async def work() -> tuple[Iterated, Code]:
        async with acting(app, "control.iterate") as deed:
            counted: Iterated | None = None
            if dry_run or not yes:
                counted = await once(Progress("counted"), dry=True)
                deed.outcome = DRY_RUN  # the program receives the query, which is audited whatever the outcome
            if dry_run and counted is not None:
                return counted, Code.DONE
            if counted is not None and counted.rows:
                many = f"{count(counted.rows, 'row')} in {count(counted.batches, 'batch', 'batches')}"
                if not deed.confirmed(f"Write {many}?"):
                    return Iterated(stopped=True), Code.FAILED
            deed.outcome = DONE
            done = await once(Progress("written", counted.rows if counted else None), dry=False)
            deed.did(done.rows)
            return done, Code.FAILED if done.failed else Code.DONE

    done, code = _closed(app, work)
    _tell(done, dry=dry_run, as_json=as_json)
    click.get_current_context().exit(code)


class Progress:
    """Tells on stderr how far it is, now and then: more often where somebody watches."""

    def __init__(self, verb: str, total: int | None = None) -> None:
        self._verb = verb
        self._of = "" if total is None else f" of {total:,}"
        self._every = 1.0 if sys.stderr.isatty() else 5.0
        self._told = time.monotonic()
        self._failed = 0

    def __call__(self, done: Iterated) -> None:
        now = time.monotonic()
        if done.failed > self._failed:
            self._failed = done.failed
            if len(done.errors) == done.failed:  # of many, only the first are kept
                echo(f"batch {done.batches:,} failed: {done.errors[-1]}", err=True)
        if now - self._told >= self._every:
            self._told = now
            batches = count(done.batches, "batch", "batches")
            echo(f"{done.rows:,}{self._of} rows {self._verb}, {batches}", err=True)


def _closed(app: Mainspring, work: Callable[[], Awaitable[T]]) -> T:
    async def within() -> T:
        try:
            return await work()
        finally:
            await app.close()  # what the program opened by itself, if it did

    return asyncio.run(within())


def _tell(done: Iterated, *, dry: bool, as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    if done.stopped:
        echo("nothing is written")
        return
    said = "there are" if dry else "written:"
    line = f"{said} {count(done.rows, 'row')} in {count(done.batches, 'batch', 'batches')}"
    if done.retried:
        line += f", {count(done.retried, 'retry', 'retries')}"
    if done.failed:
        line += f", {count(done.failed, 'batch', 'batches')} failed"
    echo(line)
