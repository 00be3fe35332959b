"""What an app declares as a service, and what its step may ask to be given."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from mainspring.core.backoff import Backoff
from mainspring.core.job import NodeId
from mainspring.core.names import Name
from mainspring.errors import DeclarationError, Escaped
from mainspring.runtime.call import current_service
from mainspring.supervise import Bulkhead, Directive, Idle, Listener, Pacing, Service, Wake
from mainspring.supervise.service import Step


class ServiceContext:
    """Where a service runs, and whether it may go on. May be asked from any thread, while its step is at work and later."""

    def __init__(
        self,
        service: str,
        *,
        node: Callable[[], NodeId],
        stopping: Callable[[], bool],
        held: Callable[[], bool] = lambda: True,
        term: int | None = None,
    ) -> None:
        self._service = service
        self._node = node
        self._stopping = stopping
        self._held = held
        self._term = term

    @property
    def node(self) -> str:
        """The id of the node that it runs on."""
        return self._node()

    @property
    def stopping(self) -> bool:
        """Whether the step should come to an end: its node shuts down, or its lease is gone."""
        return self._stopping()

    @property
    def held(self) -> bool:
        """Whether a singleton's lease is surely still ours, as far as can be known without asking; else always true."""
        return self._held()

    @property
    def term(self) -> int:
        """The fencing number of a singleton: whoever runs it later has a greater one."""
        if self._term is None:
            raise DeclarationError(f"service {self._service}", "only a singleton has a term; say singleton=True")
        return self._term


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceDefinition:
    """A service of an app: each node makes its own `Service` of it."""

    name: Name
    function: Callable[..., Awaitable[Directive | None]]
    takes_context: bool = False
    wake: tuple[Wake, ...] = ()
    start_idle: bool = False
    pacing: Pacing
    bulkhead: Bulkhead
    backoff: Backoff
    listeners: tuple[Listener, ...]
    on_panic: Literal["retry", "propagate"] = "retry"
    is_singleton: bool = False
    ttl: timedelta | None = None
    """How long the lease of a singleton lasts; None: as long as the node's own."""

    async def step(self, context: ServiceContext) -> Directive:
        """Run the function once. One that returns nothing has nothing more to do."""
        current_service.set(self.name)
        try:
            directive = await (self.function(context) if self.takes_context else self.function())
        except (SystemExit, KeyboardInterrupt) as error:
            if not self.name.namespace:
                raise
            # An event loop hands these on to whoever runs it: a plugin would end the program of its host.
            raise Escaped(type(error).__name__, str(error)) from error
        return Idle() if directive is None else directive

    def service(self, step: Step, listeners: tuple[Listener, ...] = ()) -> Service:
        """Make the loop around a step; the node's own `listeners` come after the declared ones."""
        return Service(
            str(self.name),
            step,
            wake=self.wake,
            start_idle=self.start_idle,
            pacing=self.pacing,
            bulkhead=self.bulkhead,
            backoff=self.backoff,
            listeners=(*self.listeners, *listeners),
            on_panic=self.on_panic,
        )
