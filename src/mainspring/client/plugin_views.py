"""The plugins of an app, and those that it could have, as the command line and the JSON API tell of them."""

from collections.abc import Iterator

from msgspec import Struct

from mainspring.app import Mainspring
from mainspring.client.discovery import Found, told
from mainspring.client.plugins import Installed
from mainspring.client.upkeep import ID as UPKEEP
from mainspring.client.upkeep import upkeep
from mainspring.plugins.capability import Grants


class InstalledPlugin(Struct, frozen=True, kw_only=True):
    """A plugin that the app has."""

    name: str
    state: str
    """installed, or built-in: nodes bring it along."""
    version: str
    docs: str
    granted: tuple[str, ...]
    requires: tuple[str, ...]
    tasks: tuple[str, ...]
    schedules: tuple[str, ...]
    services: tuple[str, ...]
    problem: str | None
    entry_point: str | None


class OtherPlugin(Struct, frozen=True, kw_only=True):
    """A plugin that a package offers."""

    name: str
    state: str
    """found, refused or broken."""
    entry_point: str | None
    problem: str | None


def plugin_views(app: Mainspring, found: Found) -> Iterator[InstalledPlugin | OtherPlugin]:
    """List what an app has, and what of that which was found it has not."""
    report = app.plugins.discovered
    names = {plugin.id: name for name, plugin in report.installed.items()}
    for installed in app.plugins:
        name = names.get(installed.plugin.id)
        point = found.points.get(name) if name else None
        yield _installed(installed, "installed", point.value if point else None)
    if app.upkeep is not False and UPKEEP not in app.plugins:
        brought = upkeep()
        yield _installed(Installed(plugin=brought, grants=Grants(brought.requires)), "built-in")
    here = {plugin.id for plugin in report.installed.values() if plugin.id in app.plugins}
    for name, point in found.points.items():
        if name in report.installed and report.installed[name].id in here:
            continue
        state = "broken" if name in report.broken else "refused" if name in report.refused else "found"
        yield _other(name, state, point.value, report.broken.get(name))
    for name, error in (found.broken | report.broken).items():
        if name not in found.points:
            yield _other(name, "broken", None, error)


def _installed(installed: Installed, state: str, entry_point: str | None = None) -> InstalledPlugin:
    plugin = installed.plugin
    return InstalledPlugin(
        name=plugin.id,
        state=state,
        version=plugin.version,
        docs=plugin.docs,
        granted=tuple(repr(one) for one in installed.grants),
        requires=tuple(repr(one) for one in plugin.requires),
        tasks=tuple(str(task.definition.name) for task in plugin.tasks),
        schedules=tuple(str(name) for name in plugin.plans),
        services=tuple(str(name) for name in plugin.services),
        problem=None,
        entry_point=entry_point,
    )


def _other(name: str, state: str, entry_point: str | None, error: Exception | None) -> OtherPlugin:
    problem = None if error is None else told(error).partition(": ")[2]
    return OtherPlugin(name=name, state=state, entry_point=entry_point, problem=problem)
