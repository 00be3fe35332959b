"""`mainspring control`: what the control object can do that no other command does.

Schedules are listed and added by `mainspring schedules`; statements are the business of the program that has a host.
"""

from collections.abc import Sequence

import click

from mainspring.app import Mainspring
from mainspring.cli.codes import Code
from mainspring.cli.plain import print_json
from mainspring.cli.reach import as_json, reaches_store
from mainspring.errors import MainspringError, StoreError


@click.group()
def control() -> None:
    """Cancel schedules with their jobs, and flush the store."""


@control.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@as_json
@reaches_store
async def cancel(app: Mainspring, *, names: Sequence[str], as_json: bool) -> int:
    """Take schedules away for good, and cancel their jobs.

    Jobs that run are asked to stop. One that is declared in code is paused for good instead: it would come back.
    """
    code = Code.DONE
    for name in names:
        problem = None
        try:
            if not await app.control.cancel(name):
                problem = f"no schedule is named {name!r}"
        except StoreError:
            raise
        except MainspringError as error:
            problem = str(error)
        code = Code.FAILED if problem else code
        if as_json:
            print_json({"name": name, "changed": problem is None, "problem": problem})
        elif problem:
            click.echo(f"mainspring: {problem}", err=True)
        else:
            click.echo(f"{name} is cancelled")
    return code


@control.command()
@as_json
@reaches_store
async def flush(app: Mainspring, *, as_json: bool) -> None:
    """Bring what is committed to where it stays.

    On SQLite the log is brought into the file, as before a copy of it. Elsewhere there is nothing to do.
    """
    await app.control.flush()
    if as_json:
        print_json({"flushed": True})
    else:
        click.echo("flushed")
