"""An event loop on virtual time.

When nothing is ready and a timer comes next, time jumps to that timer; nobody waits. Time stands still, and the loop
waits for real, while something outside of it is at work: a thread that `run_in_executor` started, a child process, the
other end of a connection, or what `outside` announced. When nothing is ready, no timer is set and nothing outside is
at work, nothing will ever happen: `Standstill` says so, with the place where each task waits. It also ends a run in
which timers follow timers for longer than a limit of real time.

Always true: time never goes back; it moves only while nothing is ready and nothing outside is at work; it moves to the
exact time of a timer. What was named in a `Standstill` is not waited for again, so that the loop can still be cleaned
up as `asyncio.Runner` does it.

What the loop cannot see: threads that were started by other means (announce them with `outside`), signals that others
will send, clients that have not connected yet. What holds time holds it for everyone: a thread that waits for virtual
time to pass waits in vain, and a timeout around a thread does not expire while the thread is at work.
"""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import Context
from functools import partial
from typing import Any, Final, TypeVar, TypeVarTuple

from mainspring.duration import Duration, seconds
from mainspring.errors import Standstill
from mainspring.testing.waiting import waiting
from mainspring.testing.watch import HasFileno, Ready, Watch

PATIENCE: Final = "30s"
"""How long, in real time, the outside may be silent before that counts as a standstill."""

LIMIT: Final = "60s"
"""How long, in real time, one run may take: a service that polls for ever keeps virtual time going for ever."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
P = TypeVar("P", bound=asyncio.BaseProtocol)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps from timer to timer; it starts at 0.0."""

    patience: float
    """Real seconds that the outside may be silent; may be changed at any time."""

    limit: float
    """Real seconds that one run may take; may be changed at any time."""

    # Private to asyncio, and the same in 3.11.7, 3.12.1 and 3.13.0: a heap of timers with the next one first, and what
    # `_run_once` adds to the time before it asks which timers are due.
    _scheduled: list[asyncio.TimerHandle]
    _clock_resolution: float

    def __init__(self, *, patience: Duration = PATIENCE, limit: Duration = LIMIT) -> None:
        self.patience = seconds(patience)
        self.limit = seconds(limit)
        self._run_began = 0.0
        self._now = 0.0
        self._holds: dict[object, str] = {}
        self._children: set[asyncio.SubprocessTransport] = set()
        self._gave_up = False
        self._watch = Watch(self._idle)
        super().__init__(self._watch)
        for own in self._watch.get_map().values():  # the pipe through which other threads wake the loop
            self._watch.ignore(own.fd)
        self.set_default_executor(ThreadPoolExecutor(thread_name_prefix="virtual-time"))
        self._move_to(0.0)

    def time(self) -> float:
        return self._now

    @contextmanager
    def outside(self, what: str) -> Iterator[None]:
        """Hold time while the block waits for something that the loop cannot see: a thread or process of its own."""
        hold = self._hold(what)
        try:
            yield
        finally:
            self._holds.pop(hold, None)

    def ignore(self, connection: int | HasFileno) -> None:
        """Let time pass although this connection is open: it rests, as one in a pool does between two queries.

        It is ignored until it is closed. Hold time with `outside` when an answer is awaited on it after all.
        """
        self._watch.ignore(connection if isinstance(connection, int) else connection.fileno())

    def run_forever(self) -> None:
        self._run_began = time.monotonic()
        super().run_forever()

    # What happens when nothing is ready.

    def _idle(self) -> Ready:
        __tracebackhide__ = True  # for pytest: a standstill is told by its message, not by where it was noticed
        if outside := self._at_work():
            return self._wait_outside() or self._give_up(outside)
        next_timer = self._scheduled[0].when() if self._scheduled else math.inf
        if next_timer == math.inf:  # also `sleep(math.inf)`
            raise Standstill(
                "virtual time cannot go on: nothing is ready, no timer is set and nothing outside is at work (if a "
                'thread of yours should have answered: wait for it inside mainspring.clock.outside("what it is"))',
                waiting(self),
            )
        if time.monotonic() - self._run_began > self.limit:
            raise Standstill(
                f"virtual time has gone on for {self._now:,.0f} s and does not end: after {self.limit:g} s of real time "
                "something still sets timers (what needs longer needs a higher limit)",
                waiting(self),
            )
        self._move_to(next_timer)
        return []

    def _wait_outside(self) -> Ready:
        began = time.monotonic()
        ready = self._watch.wait(self.patience)
        self._run_began += time.monotonic() - began  # time that stands still is no part of the limit
        return ready

    def _move_to(self, when: float) -> None:
        # The timer's own time, and not now + timeout: sums of floats drift. With the resolution of the system's clock
        # (1e-9) a timer would never be due after 2**23 seconds, 97 days: `when + 1e-9 == when`. With one step of the
        # floats exactly the timers up to `when` are due.
        self._now = when
        self._clock_resolution = math.ulp(when)

    def _at_work(self) -> list[str]:
        self._children = {child for child in self._children if child.get_returncode() is None}
        return [
            *self._holds.values(),
            *(f"child process {child.get_pid()}" for child in self._children),
            *(str(descriptor) for descriptor in self._watch.at_work()),
        ]

    def _give_up(self, outside: list[str]) -> Ready:
        __tracebackhide__ = True
        self._gave_up = True
        self._holds.clear()
        self._children.clear()
        for descriptor in self._watch.at_work():
            self._watch.ignore(descriptor.number)
        raise Standstill(
            f"virtual time stood still for {self.patience:g} s of real time, held by {'; '.join(outside)} "
            "(loop.ignore() takes out a connection that merely rests; what needs longer needs more patience)",
            waiting(self),
        )

    def _hold(self, what: str) -> object:
        hold = object()
        self._holds[hold] = what
        return hold

    # Threads.

    def set_default_executor(self, executor: ThreadPoolExecutor) -> None:  # type: ignore[override] # as asyncio does
        super().set_default_executor(executor)
        self._default = executor

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        work = (self._default if executor is None else executor).submit(func, *args)
        hold = self._hold(f"a thread in {_name(func)}")
        answer = asyncio.wrap_future(work, loop=self)

        def release(_: object) -> None:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                self.call_soon_threadsafe(self._holds.pop, hold, None)

        # On the thread's future and not on `answer`: cancelling the one who waits does not end the thread. And after
        # wrap_future: callbacks run in order, so the answer is in the loop before time may pass again.
        work.add_done_callback(release)
        return answer

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109 -- asyncio's signature since 3.12
        """Wait for the threads in real time, `patience` at most. A timeout in virtual seconds would never expire."""
        if self._gave_up:
            self._default.shutdown(wait=False)
            return
        joiner = ThreadPoolExecutor(1, thread_name_prefix="virtual-time-end")
        try:
            await self.run_in_executor(joiner, self._default.shutdown)
        finally:
            joiner.shutdown(wait=not self._gave_up)

    # Child processes. Their pipes and, since 3.12, their pidfd are seen as descriptors; without pipes, 3.11 waits for
    # the end of a child in a thread that nobody else can see.

    async def subprocess_exec(
        self,
        protocol_factory: Callable[[], P],
        *args: Any,  # noqa: ANN401 -- asyncio's own signature says so
        **kwargs: Any,  # noqa: ANN401 -- the same
    ) -> tuple[asyncio.SubprocessTransport, P]:
        return await self._attend(super().subprocess_exec(protocol_factory, *args, **kwargs))

    async def subprocess_shell(
        self,
        protocol_factory: Callable[[], P],
        *args: Any,  # noqa: ANN401 -- the same
        **kwargs: Any,  # noqa: ANN401 -- the same
    ) -> tuple[asyncio.SubprocessTransport, P]:
        return await self._attend(super().subprocess_shell(protocol_factory, *args, **kwargs))

    async def _attend(
        self, start: Coroutine[Any, Any, tuple[asyncio.SubprocessTransport, P]]
    ) -> tuple[asyncio.SubprocessTransport, P]:
        with self.outside("a child process that is being started"):
            transport, protocol = await start
        self._children.add(transport)
        return transport, protocol


def _name(func: Callable[..., object]) -> str:
    match func:
        case partial(func=run, args=(asked, *_)) if isinstance(getattr(run, "__self__", None), Context):
            return _name(asked)  # from asyncio.to_thread
        case partial(func=inner):
            return _name(inner)
        case _:
            return getattr(func, "__qualname__", repr(func))
