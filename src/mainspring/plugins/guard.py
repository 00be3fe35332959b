"""Who acts, and whether they may: capabilities are asked for where they are used, and not only where they are declared.

What runs as a job or a service of a plugin acts for that plugin, and so does all that it calls, on the node's loop, in
tasks and in threads that take the context along, as `asyncio.to_thread` does. Everything else is the program itself,
which may do anything; so are the functions that it offers as its host, and its middleware, whoever has them called.

Threads and pools that a plugin makes itself know nothing of the context: there, only what is asked of `ctx` is known to
be the plugin's. Nor does anybody act for a plugin while it is imported. This is a fence against mistakes and no wall: in
one process no code can be kept from climbing over it.
"""

from collections.abc import Iterable
from typing import Final

from mainspring.core.names import Name
from mainspring.errors import CapabilityError
from mainspring.plugins.capability import BackgroundJobs, C, EnqueueTasks, Grants, HostWrite, Schedules
from mainspring.runtime.call import acting_namespace
from mainspring.runtime.host import WRITE

GONE: Final = "it was uninstalled, and what still runs of it may do nothing more"
PROGRAM_ONLY: Final = "only the program itself may do that"


class Guard:
    """Looks up who acts among the plugins that are installed, or were, and asks what they were granted.

    Each method says what is to be done, and raises `CapabilityError` if whoever acts may not.
    """

    def __init__(self) -> None:
        self._granted: dict[str, Grants | None] = {}  # None: it was uninstalled

    def admit(self, plugin: str, grants: Grants) -> None:
        self._granted[plugin] = grants

    def dismiss(self, plugin: str) -> None:
        """What still runs of it may ask for nothing more."""
        self._granted[plugin] = None

    def steer(self, what: str) -> None:
        """Do what no plugin can be granted: install, wire the host, force breakers, declare something of the program's."""
        if acting := self._acting():
            raise CapabilityError(acting, what, PROGRAM_ONLY)

    def enqueue(self, jobs: Iterable[tuple[Name, str]]) -> None:
        """Enqueue jobs of these tasks, each into its queue."""
        acting = self._acting()
        if not acting:
            return
        for namespace, queue in {(task.namespace, queue) for task, queue in jobs}:
            if namespace == acting:
                self._must(acting, BackgroundJobs)
            elif not self._must(acting, EnqueueTasks).allows(namespace):
                raise CapabilityError(acting, f"EnqueueTasks of {namespace or 'the program itself'}")
            self._must_be_in(acting, namespace, queue)

    def publish(self) -> None:
        """Publish messages: outboxes are the program's own, and what it does about messages is as good as a task of it."""
        acting = self._acting()
        if acting and not self._must(acting, EnqueueTasks).allows(""):
            raise CapabilityError(acting, "EnqueueTasks of the program itself")

    def change_job(self, task: Name, queue: str | None = None) -> None:
        """Cancel, retry, delete or move a job; `queue` is where it is moved to. A plugin's own ones only."""
        acting = self._acting()
        if not acting:
            return
        self._must(acting, BackgroundJobs)
        if task.namespace != acting:
            whose = task.namespace or "the program itself"
            raise CapabilityError(acting, f"jobs of {whose}", "it may change its own only")
        if queue is not None:
            self._must_be_in(acting, task.namespace, queue)

    def change_schedule(self, name: Name, job: tuple[Name, str] | None = None) -> None:
        """Add or change a schedule: a plugin's own ones only, of tasks that it may enqueue."""
        acting = self._acting()
        if not acting:
            return
        self._must(acting, Schedules)
        if name.namespace != acting:
            raise CapabilityError(acting, f"Schedules of {name.namespace or 'the program itself'}")
        if job is not None:
            self.enqueue([job])

    def use_host(self, service: str, namespace: str | None = None) -> None:
        """Use what the program offers.

        Where it is known for whom, as in a job's own context, that `namespace` counts, in whatever thread it is.
        """
        acting = self._acting() if namespace is None else namespace
        if acting not in self._granted:
            return
        if service == WRITE:
            self._must(acting, HostWrite)
        elif self._granted[acting] is None:
            raise CapabilityError(acting, service, GONE)

    def _must_be_in(self, acting: str, namespace: str, queue: str) -> None:
        """Jobs of a plugin stay in the queue that it is limited by, and nobody else's come into it."""
        if queue != namespace and (queue in self._granted or namespace in self._granted):
            raise CapabilityError(acting, f"BackgroundJobs in the queue {queue}")

    def _must(self, plugin: str, kind: type[C]) -> C:
        grants = self._granted[plugin]
        if grants is None:
            raise CapabilityError(plugin, kind.__name__, GONE)
        return grants.must(plugin, kind)

    def _acting(self) -> str:
        """Name the plugin that acts; a program may have names with a namespace of its own, and is no plugin for that."""
        acting = acting_namespace()
        return acting if acting in self._granted else ""
