"""`mainspring plugins`: what an app lets others add to it, and what could be added."""

from typing import Final

import click

from mainspring.cli.echo import echo
from mainspring.cli.plain import print_json
from mainspring.cli.plugins_check import install_check
from mainspring.cli.reach import as_json, named_app
from mainspring.cli.table import Column, print_table
from mainspring.client.discovery import find
from mainspring.client.plugin_views import InstalledPlugin, OtherPlugin, plugin_views

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
    found = list(plugin_views(app, find()))
    if as_json:
        print_json(*found)
    elif found:
        print_table(COLUMNS, [_row(one) for one in found])
    else:
        echo("There are no plugins: none is installed in the app, and no package offers any.")


plugins.add_command(install_check)


_SAYS: Final = {"found": "the app did not look for it", "refused": "the app does not allow it"}


def _row(plugin: InstalledPlugin | OtherPlugin) -> list[str]:
    match plugin:
        case InstalledPlugin():
            words = ", ".join(one.removesuffix("()") for one in plugin.granted)
            counts = [str(len(some)) for some in (plugin.tasks, plugin.schedules, plugin.services)]
            return [plugin.name, plugin.state, plugin.version, words, *counts, plugin.docs]
        case OtherPlugin():
            note = plugin.problem or f"{_SAYS[plugin.state]}: {plugin.entry_point}"
            return [plugin.name, plugin.state, "", "", "", "", "", note]
