"""The plugins of an app: installed whole or not at all, taken out again, and found among what is installed with pip."""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from mainspring.client.connection import Connection
from mainspring.client.discovery import GROUP, find, load, told
from mainspring.client.plugin import Plugin, read_capabilities
from mainspring.client.upkeep import ID, upkeep
from mainspring.core.job import NodeId
from mainspring.core.limits import Limit
from mainspring.core.names import Name
from mainspring.errors import CapabilityError, DeclarationError, NameTaken, PluginError
from mainspring.plugins.capability import BackgroundJobs, Capability, Grants
from mainspring.runtime.definition import DEFAULT_QUEUE, QueueSettings, Registry
from mainspring.runtime.events import log
from mainspring.runtime.planned import Planned, pause_gone
from mainspring.runtime.service import ServiceDefinition
from mainspring.task import Task

UNINSTALLED: Final = "mainspring"
"""Who pauses the schedules of a plugin that is uninstalled, and resumes them."""

Grant = Iterable[Capability] | Literal["all"]
"""What a plugin may do; "all": whatever it requires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A plugin of an app, and what it was granted."""

    plugin: Plugin
    grants: Grants


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovered:
    """What became of the plugins that were found, each by the name of its entry point."""

    installed: dict[str, Plugin] = field(default_factory=dict)
    broken: dict[str, Exception] = field(default_factory=dict)
    """Those that could not be loaded or installed, and why."""
    refused: tuple[str, ...] = ()
    """Those that nobody allowed."""


class Plugins:
    """Installs plugins into the parts of an app."""

    def __init__(
        self,
        connection: Connection,
        *,
        registry: Registry,
        tasks: MutableMapping[Name, Task[..., Any]],
        services: MutableMapping[Name, ServiceDefinition],
        queues: MutableMapping[str, QueueSettings],
        planned: Planned,
        tell_nodes: Callable[[], Collection[NodeId]],
    ) -> None:
        self._connection = connection
        self._registry = registry
        self._tasks = tasks
        self._services = services
        self._queues = queues
        self._planned = planned
        self._tell_nodes = tell_nodes
        self._installed: dict[str, Installed] = {}
        self._changing = threading.Lock()
        self.discovered = Discovered()
        """What the last `discover` found."""

    def __iter__(self) -> Iterator[Installed]:
        return iter(tuple(self._installed.values()))

    def __contains__(self, id_: str) -> bool:
        return id_ in self._installed

    def install(self, plugin: Plugin, *, grant: Grant = ()) -> None:
        """Register all that a plugin declares, or nothing. A node that runs takes it up at once.

        Raises `CapabilityError` if it requires, or declares, what it is not granted.
        """
        self._connection.guard.steer("app.install")
        if not isinstance(plugin, Plugin):
            raise DeclarationError("install", f"a Plugin is installed, and not {plugin!r}")
        if plugin.id == ID:
            raise PluginError(plugin.id, "that name is for what Mainspring brings itself; give it another")
        self._install(plugin, grant)

    def install_upkeep(self) -> None:
        """Install the jobs that Mainspring brings itself, unless they are."""
        if ID not in self._installed:
            self._install(upkeep(), "all")

    def _install(self, plugin: Plugin, grant: Grant) -> None:
        grants = Grants(
            plugin.requires if grant == "all" else read_capabilities("grant", grant, "'all' that it requires")
        )
        self.check(plugin, grants, asked_for=grant == "all")
        with self._changing:
            self._add(plugin, grants)
        self._tell_nodes()

    def check(self, plugin: Plugin, grants: Grants, *, asked_for: bool = False) -> None:
        """Raise `PluginError` for names that are not its own, `CapabilityError` for what it needs and is not granted.

        With `asked_for`, it was granted what it had asked for, and it is for its author to ask for more.
        """
        for name in _names(plugin):
            if name.namespace != plugin.id:
                raise PluginError(plugin.id, f"it declares {name}, which is not in its namespace")
        if any(queue != plugin.id for queue in _queues(plugin)):
            raise PluginError(plugin.id, "it has jobs in another queue than the one that has its name")
        if missing := plugin.lacks(grants):
            names, calls = (", ".join(f"{kind.__name__}{end}" for kind in missing) for end in ("", "()"))
            advice = f"its host adds {calls} to app.install(…, grant=[…])"
            if asked_for:
                advice = f"grant='all' is all that it requires: its author adds {calls} to Plugin(…, requires=[…])"
            raise CapabilityError(plugin.id, names, advice=advice)

    def _add(self, plugin: Plugin, grants: Grants) -> None:
        if plugin.id in self._installed:
            raise PluginError(plugin.id, "it is installed already; uninstall it first")
        if plugin.connection.lender is not None:
            raise PluginError(plugin.id, "it is installed in another app; make a second Plugin for this one")
        self._must_be_free(plugin.id)
        for name in plugin.plans:
            if name in self._planned.everything():
                raise NameTaken(str(name), "schedule")
        with ExitStack() as undo:
            # A node may look in between: what a plugin is held to is there before its tasks are.
            self._queues[plugin.id] = QueueSettings(limit=_limit(plugin, grants))
            undo.callback(self._queues.pop, plugin.id)
            undo.callback(self._connection.guard.admit(plugin.id, grants))
            plugin.connection.lender = self._connection
            undo.callback(setattr, plugin.connection, "lender", None)
            self._registry.add(*(task.definition for task in plugin.tasks))
            undo.pop_all()  # that was the one step that may fail
        self._tasks.update((task.definition.name, task) for task in plugin.tasks)
        self._planned.plugins[plugin.id] = Planned(
            owner=owner_of(plugin.id),
            owner_is_given=True,
            release=plugin.version,
            plans=dict(plugin.plans),
            resumes=UNINSTALLED,
        )
        self._planned.gone.pop(plugin.id, None)
        self._planned.changes += 1
        self._services.update(plugin.services)
        self._installed[plugin.id] = Installed(plugin=plugin, grants=grants)

    def _must_be_free(self, id_: str) -> None:
        """Refuse an id under which the program has something itself.

        Whoever acts under a name acts for the plugin that has it: what is the program's would be held to the grants of a
        stranger's plugin, and be its to change; and its queue would be limited with the plugin's.
        """
        if id_ in {DEFAULT_QUEUE, *self._queues, *(definition.queue for definition in self._registry)}:
            raise NameTaken(id_, "queue")
        if id_ != ID and any(name.namespace == id_ for name in (*self._registry.names, *self._services)):
            raise NameTaken(id_, "namespace")

    def leave_to_plugins(self, name: Name, queue: str = "") -> None:
        """Refuse what the program is about to declare under the name of a plugin, for the same reasons."""
        for id_ in {name.namespace, queue} & self._installed.keys() - {ID}:
            raise PluginError(id_, f"{name} would be taken for its own; give that another namespace and queue")

    async def uninstall(self, id_: str | Plugin) -> None:
        """Take a plugin out: its jobs wait, its schedules pause, its services stop. Installed again, it goes on.

        What runs of it may finish. Where another program on the store has it still, its schedules go on. If the store does
        not answer, it is out all the same, and whoever runs a node pauses its schedules later; so does a second call.
        """
        self._connection.guard.steer("app.uninstall")
        if isinstance(id_, Plugin):
            id_ = id_.id
        with self._changing:
            if id_ not in self._planned.gone:
                self._take_out(id_)
        ours = self._tell_nodes()
        await pause_gone(await self._connection.store(), self._planned, ours)

    def uninstall_sync(self, id_: str | Plugin) -> None:
        self._connection.wait_for(lambda: self.uninstall(id_))

    def _take_out(self, id_: str) -> None:
        found = self._installed.pop(id_, None)
        if found is None:
            there = ", ".join(self._installed) or "none"
            raise PluginError(id_, f"it is not installed; there are: {there}")
        plugin = found.plugin
        self._planned.gone[id_] = self._planned.plugins.pop(id_)
        self._planned.changes += 1
        for name in plugin.services:
            self._services.pop(name, None)
        self._registry.remove(*(task.definition for task in plugin.tasks))
        for task in plugin.tasks:
            self._tasks.pop(task.definition.name, None)
        self._queues.pop(id_, None)
        self._connection.guard.dismiss(id_)
        plugin.connection.lender = None

    # Plugins that are installed with pip.

    def discover(
        self, *, allow: Iterable[str] | Literal["all"], grant: Grant | Mapping[str, Grant] = "all"
    ) -> Discovered:
        """Install plugins from the entry points of the group `mainspring.plugins`, those whose names are allowed.

        One that cannot be loaded or installed is reported by its name, and never stops the others. `grant` is the same
        for all, or says for each name what it may do; without one a plugin is granted what it requires.
        """
        self._connection.guard.steer("app.plugins.discover")
        if isinstance(allow, str) and allow != "all":
            raise DeclarationError("discover", f"several names are allowed, as in [{allow!r}], or 'all'")
        found = find()
        report = Discovered(broken=dict(found.broken))
        names = None if allow == "all" else set(allow)
        refused = [] if names is None else [name for name in found.points if name not in names]
        for name, point in found.points.items():
            if name in refused:
                continue
            granted = grant.get(name, ()) if isinstance(grant, Mapping) else grant
            try:
                plugin = load(point)
                self.install(plugin, grant=granted)
            except Exception as error:  # noqa: BLE001 - whatever a stranger's plugin may raise
                report.broken[name] = error
            else:
                report.installed[name] = plugin
        for missing in sorted((names or set()) - found.points.keys() - report.broken.keys()):
            report.broken[missing] = PluginError(missing, f"there is no entry point of that name in {GROUP}")
        for name, problem in report.broken.items():
            log.error("plugin %s is not installed: %s", name, told(problem))
        self.discovered = Discovered(installed=report.installed, broken=report.broken, refused=tuple(refused))
        return self.discovered


def owner_of(plugin: str) -> str:
    """Name the owner of a plugin's schedules."""
    return f"plugin:{plugin}"


def _names(plugin: Plugin) -> Iterator[Name]:
    """Name all that a plugin would register; its author may have gone around what `Plugin` lets declare."""
    for task in plugin.tasks:
        yield task.definition.name
        yield from task.definition.aliases
    for name, plan in plugin.plans.items():
        yield name
        yield plan.template.task
    for name, service in plugin.services.items():
        yield name
        yield service.name


def _queues(plugin: Plugin) -> Iterator[str]:
    yield from (task.definition.queue for task in plugin.tasks)
    yield from (plan.template.queue for plan in plugin.plans.values())


def _limit(plugin: Plugin, grants: Grants) -> Limit | None:
    """The lower of what the plugin wants and what it was granted."""
    asked = [one.max_concurrent for one in (plugin.requires.find(BackgroundJobs), grants.find(BackgroundJobs)) if one]
    limits = [one for one in asked if one is not None]
    return Limit(concurrency=min(limits)) if limits else None
