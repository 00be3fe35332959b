"""What an app tells a store that may have found schedules of another program's: its tasks, and the jobs they would make."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mainspring.client.plans import template_of
from mainspring.core.names import Name
from mainspring.errors import MainspringError
from mainspring.runtime.definition import Registry
from mainspring.runtime.planned import Planned
from mainspring.stores.adopting import Adoptable, Adopts
from mainspring.stores.port import Store
from mainspring.task import Task


@dataclass(frozen=True, slots=True)
class AppTasks:
    """The tasks of an app, as they are at the moment."""

    registry: Registry
    tasks: Mapping[Name, Task[..., Any]]
    planned: Planned

    def introduce(self, store: Store) -> None:
        """Let a store take over what these tasks can stand for, if it does such things."""
        if isinstance(store, Adopts):
            store.adopt_for(self)

    def names(self) -> frozenset[Name]:
        return self.registry.names

    def adoptable(self) -> Mapping[Name, Adoptable]:
        found = {}
        for task in tuple(self.tasks.values()):
            one = self._adoptable(task)
            found.update(dict.fromkeys((task.definition.name, *task.definition.aliases), one))
        return found

    def _adoptable(self, task: Task[..., Any]) -> Adoptable:
        name = task.definition.name
        owner = self.planned.owner if name in self.planned.plans else None
        try:
            return Adoptable(task=name, template=template_of(task.call()), owner=owner)
        except MainspringError as error:  # as for one that needs arguments: nobody knows which
            return Adoptable(task=name, template=None, owner=owner, problem=str(error))
