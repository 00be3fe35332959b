"""`mainspring plugins`: what an app lets others add to it, and what could be added."""

from collections.abc import Iterator
from typing import Final

import click

from mainspring.app import Mainspring
from mainspring.cli.plain import print_json
from mainspring.cli.plugins_check import install_check
from mainspring.cli.reach import as_json, named_app
from mainspring.cli.table import Column, print_table
from mainspring.client.discovery import Found, find, told
from mainspring.client.plugins import Installed
from mainspring.client.upkeep import ID as UPKEEP
from mainspring.client.upkeep import upkeep
from mainspring.plugins.capability import Grants

COLUMNS: Final = (
    Column("NAME"),
    Column("STATE"),
    Column("VERSION"),
    Column("GRANTED", shrinks=True),
    Column("TASKS", right=True, optional=True),
    Column("SCHEDULES", right=True, optional=True),
    Column("SERVICES", right=True, optional=True),
    Column("NOTE", shrinks=True),
)

Fields = dict[str, object]


@click.group()
def plugins() -> None:
    """List plugins, and check one before it is installed."""


@plugins.command("list")
@click.argument("named", metavar="[MODULE:APP]", required=False)
@click.option("--app", "target", metavar="MODULE:APP", help="The app. [$MAINSPRING_APP]")
@as_json
def list_plugins(*, named: str | None, target: str | None, as_json: bool) -> None:
    """List the plugins of an app, and those that it could have.

    Those that are installed with pip are looked at and not loaded.
    """
    if named and target:
        raise click.UsageError("the app is named twice; leave out --app")
    app = named_app(named or target)
    found = list(_all(app, find()))
    if as_json:
        print_json(*found)
    elif found:
        print_table(COLUMNS, [_row(fields) for fields in found])
    else:
        click.echo("There are no plugins: none is installed in the app, and no package offers any.")


plugins.add_command(install_check)


def _all(app: Mainspring, found: Found) -> Iterator[Fields]:
    report = app.plugins.discovered
    names = {plugin.id: name for name, plugin in report.installed.items()}
    for installed in app.plugins:
        name = names.get(installed.plugin.id)
        point = found.points.get(name) if name else None
        yield {**_installed(installed), "entry_point": point.value if point else None}
    if app.upkeep is not False and UPKEEP not in app.plugins:
        brought = upkeep()
        whole = Installed(plugin=brought, grants=Grants(brought.requires))
        yield {**_installed(whole), "state": "built-in", "entry_point": None}
    here = {plugin.id for plugin in report.installed.values() if plugin.id in app.plugins}
    for name, point in found.points.items():
        if name in report.installed and report.installed[name].id in here:
            continue
        state = "broken" if name in report.broken else "refused" if name in report.refused else "found"
        yield _other(name, state, point.value, report.broken.get(name))
    for name, error in (found.broken | report.broken).items():
        if name not in found.points:
            yield _other(name, "broken", None, error)


def _installed(installed: Installed) -> Fields:
    plugin = installed.plugin
    return {
        "name": plugin.id,
        "state": "installed",
        "version": plugin.version,
        "docs": plugin.docs,
        "granted": [repr(one) for one in installed.grants],
        "requires": [repr(one) for one in plugin.requires],
        "tasks": [str(task.definition.name) for task in plugin.tasks],
        "schedules": [str(name) for name in plugin.plans],
        "services": [str(name) for name in plugin.services],
        "problem": None,
    }


def _other(name: str, state: str, value: str | None, error: Exception | None) -> Fields:
    problem = None if error is None else told(error).partition(": ")[2]
    return {"name": name, "state": state, "entry_point": value, "problem": problem}


_SAYS: Final = {"found": "the app did not look for it", "refused": "the app does not allow it"}


def _row(fields: Fields) -> list[str]:
    match fields:
        case {"granted": list(granted), "tasks": list(tasks), "schedules": list(plans), "services": list(services)}:
            words = ", ".join(str(one).removesuffix("()") for one in granted)
            counts = [str(len(some)) for some in (tasks, plans, services)]
            return [
                str(fields["name"]),
                str(fields["state"]),
                str(fields["version"]),
                words,
                *counts,
                str(fields["docs"]),
            ]
        case _:
            note = fields["problem"] or f"{_SAYS[str(fields['state'])]}: {fields['entry_point']}"
            return [str(fields["name"]), str(fields["state"]), "", "", "", "", "", str(note)]
