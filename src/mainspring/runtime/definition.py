"""What a node has to know of a task in order to run it, and the registry where it looks that up."""

import difflib
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, TypeAlias

from mainspring.core.breaker import Breaker
from mainspring.core.codec import Arguments, Value
from mainspring.core.job import Retention
from mainspring.core.limits import Gate, Limit, Scope
from mainspring.core.names import Name
from mainspring.core.retry import Retry
from mainspring.core.unique import Unique
from mainspring.errors import NameTaken, PayloadError, UnknownTask
from mainspring.runtime.call import CallFacts
from mainspring.stores.port import Store

DEFAULT_QUEUE: Final = "default"
DEFAULT_RETRY: Final = Retry.exponential()
DEFAULT_RETENTION: Final = Retention()

Finish: TypeAlias = Callable[[Store, CallFacts, object], Awaitable[object]]
"""What a node does about what a function returned, before that counts; it returns the result, or raises."""


class ExecutorKind(StrEnum):
    """Where a task's function is called."""

    COROUTINE = "coroutine"  # on the node's event loop; for `async def`
    THREAD = "thread"  # in a thread of the node; cannot be killed, only asked to stop
    PROCESS = "process"  # in a process slot; is killed when it does not stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A task, as it was declared."""

    name: Name
    function: Callable[..., object]
    arguments: Arguments
    result: Value[Any]
    executor: ExecutorKind
    context: str | None = None
    """The parameter that takes the `Context`, if there is one."""
    reference: str | None = None
    """"module:qualified.name", where another process finds it; None if none could."""
    aliases: tuple[Name, ...] = ()
    queue: str = DEFAULT_QUEUE
    priority: int = 50
    retry: Retry = DEFAULT_RETRY
    timeout: timedelta | None = None
    expires: timedelta | None = None
    loss_limit: int = 3
    retention: Retention = DEFAULT_RETENTION
    unique: Unique | None = None
    limits: tuple[Limit, ...] = ()
    """At most one with a key and one without."""
    breaker: Breaker | None = None
    redact: tuple[str, ...] | bool = ()
    """Names whose values are not shown to people, wherever they are in its arguments, result and what it saves; True: all."""
    finish: Finish | None = None
    may_return_none: bool = field(init=False)

    def __post_init__(self) -> None:
        """Find out once what every attempt would have to: whether a handler that returns nothing did well."""
        try:
            self.result.encode(None)
        except PayloadError:
            object.__setattr__(self, "may_return_none", False)
        else:
            object.__setattr__(self, "may_return_none", True)

    @property
    def gates(self) -> tuple[Gate, ...]:
        """Both gates of the task, so that a limit that was taken out of the code is taken out of the store."""
        whole = next((limit for limit in self.limits if not limit.keys), None)
        keyed = next((limit for limit in self.limits if limit.keys), None)
        return (gate_of(Scope.TASK, str(self.name), whole), gate_of(Scope.KEY, str(self.name), keyed))

    @property
    def breakers(self) -> dict[Name, Breaker | None]:
        """The rule of its breaker, or that there is none, under each name that its jobs may have."""
        return dict.fromkeys((self.name, *self.aliases), self.breaker)


def gate_of(scope: Scope, name: str, limit: Limit | None) -> Gate:
    """Make a gate of a limit, or one that lets everything pass."""
    if limit is None:
        return Gate(scope=scope, name=name)
    return Gate(scope=scope, name=name, concurrency=limit.concurrency, rate=limit.pace)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """What an app declares about a queue."""

    concurrency: int | None = None
    """Jobs of it that one node runs at a time; None: as many as the node runs at all."""
    timeout: timedelta | None = None
    """For its jobs whose own and whose task say nothing."""
    limit: Limit | None = None
    """Over all nodes together."""


@dataclass(slots=True)
class Registry:
    """The tasks of an app, by name and alias. Names are looked up here and never imported."""

    _tasks: dict[Name, Definition] = field(default_factory=dict)
    _aliases: dict[Name, Definition] = field(default_factory=dict)
    _changed: object = None
    """Another one after each change."""
    _names: tuple[object, frozenset[Name]] = (None, frozenset())
    """And after which change that was. Each claim asks for them: made anew, 3,000 names take 4 ms."""

    def add(self, *definitions: Definition) -> None:
        """Register all of them or, if a name is taken, none. Whoever looks meanwhile sees all or none, too."""
        alone = len(definitions) == 1  # as most come: thousands, one by one
        tasks, aliases = (self._tasks, self._aliases) if alone else (dict(self._tasks), dict(self._aliases))
        for definition in definitions:
            for name in (definition.name, *definition.aliases):
                if name in tasks or name in aliases:
                    raise NameTaken(str(name))
            tasks[definition.name] = definition
            aliases.update((alias, definition) for alias in definition.aliases)
        self._tasks, self._aliases = tasks, aliases
        self._changed = object()

    def remove(self, *definitions: Definition) -> None:
        """Forget them, all at once."""
        gone = {id(definition) for definition in definitions}
        self._tasks = {name: one for name, one in self._tasks.items() if id(one) not in gone}
        self._aliases = {name: one for name, one in self._aliases.items() if id(one) not in gone}
        self._changed = object()

    def find(self, name: Name) -> Definition:
        found = self._tasks.get(name) or self._aliases.get(name)
        if found is None:
            raise UnknownTask(str(name), nearest(str(name), {str(one) for one in self.names}))
        return found

    @property
    def names(self) -> frozenset[Name]:
        """Every name and alias under which a job may ask for a task of this app."""
        changed, (as_of, names) = self._changed, self._names
        if as_of is not changed:
            names = frozenset((*self._tasks, *self._aliases))
            self._names = (changed, names)  # what changed meanwhile has them made again
        return names

    def __iter__(self) -> Iterator[Definition]:
        return iter(self._tasks.values())


def nearest(name: str, known: Collection[str]) -> str:
    """Name what was meant, perhaps: one that ends in it, as names do that Mainspring makes, or one that looks like it."""
    whole = [one for one in sorted(known) if one.endswith((f".{name}", f":{name}"))]
    near = whole or difflib.get_close_matches(name, known, n=1)
    return near[0] if near else ""
