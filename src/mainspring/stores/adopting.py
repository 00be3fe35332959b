"""What a store needs to know of an app in order to take over schedules that another program has left behind."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from msgspec import Struct

from mainspring.core.names import Name
from mainspring.core.schedule import Template


class Adoptable(Struct, frozen=True, kw_only=True):
    """A task of an app, for which a schedule of the same name may be taken over."""

    task: Name
    template: Template | None
    """The job that its slots would make; None if there can be none."""
    owner: str | None = None
    """Who declares a schedule of that name, if somebody does."""
    problem: str = ""
    """Why there is no template."""


class Tasks(Protocol):
    """The tasks of an app. Asked again and again, because an app may learn of more."""

    def names(self) -> frozenset[Name]:
        """Name them, aliases included."""
        ...

    def adoptable(self) -> Mapping[Name, Adoptable]:
        """Return what is to be known of each, by all of its names."""
        ...


@runtime_checkable
class Adopts(Protocol):
    """A store that may find such schedules, known by nothing but the printed names of their tasks."""

    def adopt_for(self, tasks: Tasks) -> None:
        """Take over, from now on, what these tasks can stand for."""
        ...
