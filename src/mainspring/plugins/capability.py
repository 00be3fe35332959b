"""What a plugin may be allowed to do. Each is a value: a plugin names those that it requires, its host those it grants."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from mainspring.errors import CapabilityError, DeclarationError

C = TypeVar("C", bound="Capability")


@dataclass(frozen=True, slots=True)
class Capability:
    """One power. Two of a kind are the same power, however much of it they ask for."""

    def __str__(self) -> str:
        return type(self).__name__


@dataclass(frozen=True, slots=True)
class BackgroundJobs(Capability):
    """To have tasks, and jobs of them; at most `max_concurrent` run at a time, over all nodes together."""

    max_concurrent: int | None = None

    def __post_init__(self) -> None:
        if self.max_concurrent is not None and (type(self.max_concurrent) is not int or self.max_concurrent < 1):
            raise DeclarationError("BackgroundJobs", f"max_concurrent of at least 1, not {self.max_concurrent!r}")


@dataclass(frozen=True, slots=True)
class Schedules(Capability):
    """To have schedules of its tasks, and to change them while it runs."""


@dataclass(frozen=True, slots=True)
class Services(Capability):
    """To have loops that go on for as long as a node."""


@dataclass(frozen=True, slots=True)
class HostWrite(Capability):
    """To write through its host: `ctx.host.execute_write`."""


@dataclass(frozen=True, slots=True)
class EnqueueTasks(Capability):
    """To enqueue tasks of others: of the namespaces given, "" for the program's own; without any, of all."""

    namespaces: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        several = isinstance(self.namespaces, Iterable) and not isinstance(self.namespaces, str)
        if self.namespaces is not None and not (several and all(isinstance(one, str) for one in self.namespaces)):
            raise DeclarationError(
                "EnqueueTasks", f"several namespaces are named, as in ['mail'], not {self.namespaces!r}"
            )
        if self.namespaces is not None:
            object.__setattr__(self, "namespaces", tuple(self.namespaces))

    def allows(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces


class Grants:
    """What a plugin was granted."""

    def __init__(self, granted: Iterable[Capability] = ()) -> None:
        self._granted = tuple(granted)
        strange = [one for one in self._granted if not isinstance(one, Capability)]
        if strange:
            raise DeclarationError("grant", f"capabilities are granted, like BackgroundJobs(), and not {strange[0]!r}")

    def find(self, kind: type[C]) -> C | None:
        return next((one for one in self._granted if isinstance(one, kind)), None)

    def must(self, plugin: str, kind: type[C]) -> C:
        """Return what was granted of a kind, or raise `CapabilityError`."""
        found = self.find(kind)
        if found is None:
            raise CapabilityError(plugin, kind.__name__)
        return found

    def __iter__(self) -> Iterator[Capability]:
        return iter(self._granted)
