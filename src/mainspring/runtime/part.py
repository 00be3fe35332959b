"""What can be added to a node: a part that brings services of its own, and is told what its node is told."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from mainspring.clock import Clock
from mainspring.runtime.events import Events
from mainspring.runtime.keeper import Membership
from mainspring.settings import NodeSettings
from mainspring.stores.port import Store
from mainspring.supervise import Listener, Stop, log_failures


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What a node lends to a part of it."""

    store: Store
    events: Events
    settings: NodeSettings
    clock: Clock
    me: Callable[[], Membership]
    """Under which id and term to write."""
    listeners: tuple[Listener, ...] = (log_failures,)
    """Of the services that it brings."""


class Part(Protocol):
    """Something that works for as long as a node. All but `hint` is called on the node's event loop."""

    async def declare(self) -> None:
        """Tell the store what is declared here, before the node joins; what is wrong with it stops the start."""
        ...

    def start(self) -> None:
        """Begin to work: the node has joined."""
        ...

    def refresh(self) -> None:
        """Look whether more was declared since."""
        ...

    def hint(self) -> None:
        """Something has changed in the store; may be called from any thread."""
        ...

    def pause(self, *, quiet: bool, silent: bool) -> None:
        """Begin nothing new while the node is `quiet`; while it is `silent` also stop what runs, before others take it."""
        ...

    def gone(self) -> None:
        """The node was declared dead: nothing that runs counts any more."""
        ...

    async def end(self, *, grace: float, hurry: Stop) -> tuple[str, ...]:
        """Let what runs finish for a while, cancel it, and give up what is held; returns who would not stop."""
        ...


PartMaker: TypeAlias = Callable[[Seat], Part]
