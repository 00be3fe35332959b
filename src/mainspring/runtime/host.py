"""What the embedding program offers to jobs, as the program says it: `app.host`.

Services come and go while jobs run: they are looked up at every call, and set again they are others from then on.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Never, Protocol, TypeAlias, TypeVar, cast

from mainspring.clock import outside
from mainspring.core.outcome import Signal
from mainspring.errors import (
    CompactionFailed,
    DeclarationError,
    HostError,
    HostMissing,
    ReadFailed,
    WriteFailed,
)
from mainspring.runtime.call import program_acts
from mainspring.runtime.events import log

T = TypeVar("T")

Params: TypeAlias = Mapping[str, object] | Sequence[object]
"""What goes with a statement, by name or by place; handed to the program as it is."""
NO_PARAMS: Final[Params] = {}

NOTHING_WIRED: Final = 0xD21
"""The program offers nothing: it has not got to it yet, or has withdrawn everything."""
NOT_OFFERED: Final = 0xD10
"""The program offers something, and not this."""

COMPACT: Final = "compact_storage"
WRITE: Final = "execute_write"
READ: Final = "execute_read"
_FAILURES: Final[Mapping[str, type[HostError]]] = {COMPACT: CompactionFailed, WRITE: WriteFailed, READ: ReadFailed}


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """All that is offered at one moment."""

    calls: Mapping[str, Callable[..., object]] = field(default_factory=dict)
    own: Mapping[type, object] = field(default_factory=dict)

    def missing(self, service: str) -> HostMissing:
        if not self.calls and not self.own:
            problem = "the program offers none; it does so with app.host.offer(…) or app.host.provide(…)"
            return HostMissing(service, problem, NOTHING_WIRED)
        known = ", ".join([*self.calls, *(kind.__name__ for kind in self.own)])
        return HostMissing(service, f"the program does not offer it, only {known}", NOT_OFFERED)


class Permission(Protocol):
    """Who is asked whether a plugin may do something; raises `CapabilityError` if not."""

    def steer(self, what: str) -> None:
        """Say what is offered: the program itself does."""

    def use_host(self, service: str, namespace: str | None = None) -> None:
        """Use what is offered, for the plugin of that namespace, or without one for whoever acts."""


class Anyone:
    """Where there are no plugins, nobody has to ask."""

    def steer(self, what: str) -> None: ...

    def use_host(self, service: str, namespace: str | None = None) -> None: ...


class Host:
    """What a program offers, and the way to use it from the program itself. May be called from any thread.

    The functions of a program may be `async def`, which are awaited on the event loop of the node (or of the caller, if
    the program itself asks), or plain, which are called in a thread.
    """

    def __init__(self, permission: Permission | None = None) -> None:
        self.permission: Final = permission or Anyone()
        self._changing = threading.Lock()
        self._offered = Offered()
        self._told: set[str] = set()  # services of which the log says that jobs wait for them

    # What the program says.

    def offer(
        self,
        *,
        compact_storage: Callable[[], object] | None = None,
        execute_write: Callable[[str, Any], object] | None = None,
        execute_read: Callable[[str, Any], object] | None = None,
        **others: Never,
    ) -> None:
        """Offer services, now or later, and again: what is given takes the place of what was, the rest stays."""
        self.permission.steer("app.host.offer")
        if others:
            problem = f"there is {', '.join(_FAILURES)}, and no {next(iter(others))!r} to offer"
            advice = "what is your own goes by its type: app.host.provide(Mailer, mailer)"
            raise DeclarationError("host", f"{problem}; {advice}")
        given = {COMPACT: compact_storage, WRITE: execute_write, READ: execute_read}
        wanted = {name: function for name, function in given.items() if function is not None}
        for name, function in wanted.items():
            if not callable(function):
                raise DeclarationError("host", f"{name} is a function of the program, not {function!r}")
        with self._changing:
            self._offered = replace(self._offered, calls={**self._offered.calls, **wanted})
            self._told.difference_update(wanted)

    def provide(self, kind: type[T], instance: T) -> None:
        """Offer something of the program's own, by its type: `ctx.host.get(kind)` returns it."""
        self.permission.steer("app.host.provide")
        if not isinstance(kind, type):
            raise DeclarationError("host", f"a service of your own is provided by its class, not {kind!r}")
        if not getattr(kind, "_is_protocol", False) and not isinstance(instance, kind):
            raise DeclarationError("host", f"{instance!r} is no {kind.__name__}")
        with self._changing:
            self._offered = replace(self._offered, own={**self._offered.own, kind: instance})
            self._told.discard(kind.__name__)

    def withdraw(self, *what: str | type) -> None:
        """Offer it no longer: names of services, or types; everything, if nothing is named. What was called goes on."""
        self.permission.steer("app.host.withdraw")
        with self._changing:
            now = self._offered
            unknown = [one for one in what if one not in _FAILURES and not isinstance(one, type)]
            if unknown:
                raise DeclarationError("host", f"there is {', '.join(_FAILURES)}, or a type, and no {unknown[0]!r}")
            self._offered = Offered(
                calls={name: call for name, call in now.calls.items() if what and name not in what},
                own={kind: one for kind, one in now.own.items() if what and kind not in what},
            )

    def tell_missing(self, missing: HostMissing) -> None:
        """Have the log say that jobs wait for a service: once, until it has been there."""
        with self._changing:
            is_new = missing.service not in self._told
            self._told.add(missing.service)
        if is_new:
            log.warning("jobs wait for it, and ask again every minute at least: %s", missing)

    @property
    def offers(self) -> tuple[str, ...]:
        """Name what is offered at present."""
        offered = self._offered
        return (*offered.calls, *(kind.__qualname__ for kind in offered.own))

    # What the program itself, and a job by way of `ctx.host`, can ask for.

    async def compact_storage(self) -> None:
        """Compact the program's storage. Raises `HostMissing`, or `CompactionFailed`."""
        await self.call(COMPACT)

    async def execute_write(self, statement: str, params: Params = NO_PARAMS) -> Any:  # noqa: ANN401 - the program's own
        """Have a statement written; returns what the program returns. Raises `HostMissing`, or `WriteFailed`."""
        return await self.call(WRITE, statement, params)

    async def execute_read(self, statement: str, params: Params = NO_PARAMS) -> Any:  # noqa: ANN401 - the program's own
        """Have a statement read; returns what the program returns. Raises `HostMissing`, or `ReadFailed`."""
        return await self.call(READ, statement, params)

    def get(self, kind: type[T]) -> T:
        """Return what was provided under a type, or raise `HostMissing`."""
        return self.look_up(kind)

    def look_up(self, kind: type[T], namespace: str | None = None) -> T:
        """Return what is provided now, if whoever acts may use it; else raise `HostMissing` or `CapabilityError`."""
        if not isinstance(kind, type):
            raise DeclarationError("host", f"get takes the class that it was provided by, as get(Mailer), not {kind!r}")
        self.permission.use_host(kind.__name__, namespace)
        offered = self._offered
        if kind not in offered.own:
            raise offered.missing(kind.__name__)
        return cast("T", offered.own[kind])

    def find(self, service: str, namespace: str | None = None) -> Callable[..., object]:
        """Look up what is offered now, and whether whoever acts may use it; else raise `HostMissing` or `CapabilityError`."""
        self.permission.use_host(service, namespace)
        offered = self._offered
        if service not in offered.calls:
            raise offered.missing(service)
        return offered.calls[service]

    async def call(self, service: str, *args: object) -> Any:  # noqa: ANN401 - the program's own
        """Call what is offered, and have its errors carry their code."""
        function = self.find(service)
        asked = program_acts.set(True)
        try:
            return await _called(function, args, f"host service {service}")
        except Signal:
            raise  # the program's word to the job: not now, or never
        except Exception as error:
            raise _FAILURES[service](service, f"{type(error).__name__}: {error}") from error
        finally:
            program_acts.reset(asked)


async def _called(function: Callable[..., object], args: tuple[object, ...], what: str) -> object:
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return await cast("Coroutine[Any, Any, object]", function(*args))
    value = await _in_a_thread(partial(function, *args), what)
    return await value if inspect.isawaitable(value) else value


async def _in_a_thread(work: Callable[[], object], what: str) -> object:
    """Call what may block in a thread of its own: a daemon, so that one that hangs does not keep the program."""
    answer: Future[object] = Future()
    answer.set_running_or_notify_cancel()  # whoever waits may be cancelled; the call goes on
    context = copy_context()

    def run() -> None:
        try:
            answer.set_result(context.run(work))
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            answer.set_exception(error)

    threading.Thread(target=run, name=f"mainspring {what}", daemon=True).start()
    with outside(what):
        return await asyncio.wrap_future(answer)
