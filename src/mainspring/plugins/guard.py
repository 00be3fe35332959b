"""Who acts, and whether they may: capabilities are asked for where they are used, and not only where they are declared.

What runs as a job or a service of a plugin acts for that plugin, and so does all that it calls, on the node's loop, in a
thread or in a process slot. Threads and pools that a plugin makes itself are the exception: there only what is asked of
the job's own context is known to be the plugin's. Everything else is the program itself, which may do anything. A guard
keeps honest code honest: in one process no code can be kept from reaching behind it.
"""

from collections.abc import Iterable, Mapping

from mainspring.core.names import Name
from mainspring.errors import CapabilityError
from mainspring.plugins.capability import BackgroundJobs, C, EnqueueTasks, Grants, Schedules
from mainspring.runtime.call import acting_namespace


class Guard:
    """Looks up who acts among the plugins that are installed, and asks what they were granted."""

    def __init__(self, grants: Mapping[str, Grants]) -> None:
        self._grants = grants
        """Of all that are installed, or were."""

    def enqueue(self, jobs: Iterable[tuple[Name, str]]) -> None:
        """Let jobs of these tasks be enqueued, each into its queue, or raise `CapabilityError`.

        Jobs of a plugin stay in the queue that it is limited by, and nobody else's come into it.
        """
        acting = self._acting()
        if not acting:
            return
        for namespace, queue in {(task.namespace, queue) for task, queue in jobs}:
            if namespace == acting:
                self.must(acting, BackgroundJobs)
            elif not self.must(acting, EnqueueTasks).allows(namespace):
                raise CapabilityError(acting, f"EnqueueTasks of {namespace or 'the program itself'}")
            if queue != namespace and (queue in self._grants or namespace in self._grants):
                raise CapabilityError(acting, f"BackgroundJobs in the queue {queue}")

    def change_schedule(self, name: Name, job: tuple[Name, str] | None = None) -> None:
        """Let a schedule be added or changed, or raise `CapabilityError`: a plugin's own ones only, of its own tasks."""
        acting = self._acting()
        if not acting:
            return
        self.must(acting, Schedules)
        if name.namespace != acting:
            raise CapabilityError(acting, f"Schedules of {name.namespace or 'the program itself'}")
        if job is not None:
            self.enqueue([job])

    def ask(self, kind: type[C], namespace: str | None = None) -> C | None:
        """Return what whoever acts was granted of a kind, or raise `CapabilityError`; None for the program itself.

        Where it is known for whom something is done, as in a job's own context, that counts, in whatever thread it is.
        """
        acting = self._acting() if namespace is None else namespace
        return self.must(acting, kind) if acting in self._grants else None

    def must(self, plugin: str, kind: type[C]) -> C:
        return self._grants[plugin].must(plugin, kind)

    def _acting(self) -> str:
        """Name the plugin that acts; a program may have names with a namespace of its own, and is no plugin for that."""
        acting = acting_namespace()
        return acting if acting in self._grants else ""
