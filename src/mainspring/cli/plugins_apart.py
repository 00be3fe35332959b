"""The process that `mainspring plugins install-check` loads a plugin in: `python -m mainspring.cli.plugins_apart`.

It writes what it found to a file, because what the plugin prints goes wherever it likes.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mainspring.app import Mainspring
from mainspring.cli.plugins_check import GrantType
from mainspring.cli.target import NoApp, load_named, place_of, told
from mainspring.client.discovery import find, load, made
from mainspring.client.plugin import Plugin
from mainspring.errors import MainspringError, PluginError
from mainspring.plugins.capability import Capability, Grants


def main(target: str, report: str, *words: str) -> None:
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = look(target, [GrantType().convert(word, None, None) for word in words])
    except NoApp as error:
        found = {"usage": error.message}
    except MainspringError as error:
        where = place_of(error.__cause__) if error.__cause__ else ""
        found = {"plugin": None, "target": target, "problems": [f"{error}{where}"]}
    Path(report).write_bytes(msgspec.json.encode(found))


def look(target: str, granted: Sequence[Capability]) -> dict[str, Any]:
    """Say what a plugin asks for and brings, and what is in the way of installing it."""
    plugin = plugin_of(target)
    grants = Grants(granted or plugin.requires)
    return {
        "plugin": plugin.id,
        "target": target,
        "version": plugin.version,
        "about": plugin.docs,
        "requires": [repr(one) for one in plugin.requires],
        "declares": [kind.__name__ for kind in plugin.needs()],
        "granted": [repr(one) for one in grants],
        "tasks": [str(task.definition.name) for task in plugin.tasks],
        "schedules": [str(name) for name in plugin.plans],
        "services": [str(name) for name in plugin.services],
        "missing": [kind.__name__ for kind in plugin.lacks(grants)],
        "problems": list(problems(plugin, grants)),
    }


def plugin_of(target: str) -> Plugin:
    """Load a plugin by the name of its entry point, or by "module:plugin"."""
    if ":" in target:
        found_there = load_named(target)
        try:
            plugin = made(found_there)
        except BaseException as error:  # noqa: BLE001 - whatever a stranger may raise, SystemExit too
            raise PluginError(target, f"calling it to make the plugin raised {told(error)}") from None
        if not isinstance(plugin, Plugin):
            raise PluginError(target, f"it is no Plugin and makes none, but {type(plugin).__name__}")
        return plugin
    found = find()
    if target in found.points:
        return load(found.points[target])
    if target in found.broken:
        raise found.broken[target]
    there = ", ".join(found.points) or "none"
    where = "one in a module is named as MODULE:PLUGIN"
    raise PluginError(target, f"no package offers a plugin of that name; there are: {there}; {where}")


def problems(plugin: Plugin, grants: Grants) -> Iterator[str]:
    yield from (f"plugin {plugin.id} needs {kind.__name__}, which is not granted" for kind in plugin.lacks(grants))
    try:
        enough = [kind() for kind in {type(one) for one in plugin.requires} | set(plugin.needs())]
        Mainspring("memory://").install(plugin, grant=enough)
    except Exception as error:  # noqa: BLE001 - a plugin may be anything
        yield str(error) if isinstance(error, MainspringError) else told(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
