"""Group commit: every change waits for the disk, and those that come while it is busy share one document and one sync.

A verb is done in memory at once, and what it changed is written by a thread of its own; until that is on the disk nobody
else gets to see the memory, so that nothing is ever seen that a power cut could take back. What comes meanwhile waits,
and goes into the next document together. If a document cannot be written, the memory is put back as it was.
"""

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from mainspring.clock import outside
from mainspring.errors import StoreClosed, StoreError, StoreUnavailable
from mainspring.stores.sidecar.document import Document
from mainspring.stores.sidecar.file import DocumentFile
from mainspring.stores.sidecar.journal import Journal
from mainspring.stores.sidecar.lock import FileLock
from mainspring.stores.sidecar.trouble import on_writing

T = TypeVar("T")


class Kind(StrEnum):
    """What a verb does."""

    READ = "read"  # it changes nothing
    PASSING = "passing"  # it changes what ends with the process: nodes, locks
    LASTING = "lasting"  # it may change what is in the document, or what has to be undone with that


class Unwritable(Exception):
    """Something cannot be put into a document; nothing of its group has happened."""


@dataclass(slots=True, eq=False)
class Request:
    """A verb that somebody waits for, on their own event loop."""

    verb: Callable[[], Any]
    kind: Kind
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"
    done: bool = False
    """Whether it has been done in memory."""
    value: Any = None
    error: BaseException | None = None

    def do(self) -> None:
        try:
            self.value, self.error = self.verb(), None
        except Exception as error:  # noqa: BLE001 -- the caller gets it
            self.error = error
        self.done = True

    def deliver(self) -> None:
        """Let the caller go on; on its own loop."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.value)


def finished(verb: Coroutine[Any, Any, T]) -> T:
    """Do a verb of the memory store, which never waits."""
    try:
        verb.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    verb.close()
    raise AssertionError("a verb of the memory store waits")


@dataclass(slots=True, eq=False)
class Commit:
    """The way of every verb, from `start` to `stop`."""

    tables: Journal
    document: Document
    file: DocumentFile
    lock: FileLock
    ring: Callable[[], None]
    """Tells all who watch that something has changed; called after the commit."""
    rang: bool = False
    """Whether a verb has asked for that."""
    _guard: threading.Condition = field(default_factory=threading.Condition)
    _waiting: "deque[Request]" = field(default_factory=deque)
    _busy: bool = False
    """Whether the memory is ahead of the file."""
    _closing: bool = False
    _broken: BaseException | None = None
    _thread: threading.Thread | None = None
    _group: list[Request] = field(default_factory=list)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._serve, name="mainspring-sidecar", daemon=True)
        self._thread.start()

    async def do(self, verb: Callable[[], T], kind: Kind) -> T:
        """Do a verb, and wait until what it changed is on the disk. Safe in any thread with a running loop."""
        loop = asyncio.get_running_loop()
        request = Request(verb, kind, loop, loop.create_future())
        ring = False
        with self._guard:
            self._check()
            if at_once := not self._busy and self._do_at_once(request):
                ring, self.rang = self.rang, False
            else:
                self._waiting.append(request)
                self._guard.notify()
        if at_once:
            if ring:
                self.ring()
            request.deliver()
        with outside("the sidecar store's file"):
            value: T = await request.future
        return value

    def stop(self) -> None:
        """Finish what waits, and end the thread. Blocks."""
        with self._guard:
            self._closing = True
            self._guard.notify()
        if self._thread:
            self._thread.join()

    def _check(self) -> None:
        if self._broken is not None:
            raise StoreUnavailable(self.file.store, f"its writer has ended: {self._broken!r}; open it again")
        if self._closing:
            raise StoreClosed(self.file.store, "it has been closed")

    def _do_at_once(self, request: Request) -> bool:
        """Do a verb in memory; False: it changed something that has to be written first."""
        request.do()
        if request.error is not None:
            try:
                self._undo()
            except Exception as error:  # noqa: BLE001 -- the memory is neither here nor there, and nobody sees it again
                self._broken = error
                return True
        self._busy = self.tables.is_touched or self.document.is_changed
        return not self._busy

    # In the thread.

    def _serve(self) -> None:
        try:
            while self._wait_for_work():
                group = self._take()
                try:
                    self._serve_group(group)
                except Unwritable as error:
                    self._serve_one_by_one(group, error)
                self._bring(group)
        except BaseException as error:  # noqa: BLE001 -- whatever it is, those who wait are told
            self._break(error)

    def _wait_for_work(self) -> bool:
        with self._guard:
            while not self._waiting and not self._closing:
                self._guard.wait()
            return bool(self._waiting)

    def _take(self) -> list[Request]:
        """Take all that wait. What is not done yet, and whose caller has given up, is not done at all."""
        with self._guard:
            self._group = [one for one in self._waiting if one.done or not one.future.cancelled()]
            self._waiting.clear()
            return self._group

    def _serve_group(self, group: list[Request], *, is_last: bool = True) -> None:
        """Do what has not been done yet, and write what all of it has changed; others come near only after the last."""
        # Without the guard: while it is busy nobody else comes near the memory, and event loops wait for the guard.
        self._do_all(group)
        text = self._followed()
        error = None if text is None else self._written(text)
        with self._guard:
            if error is None:
                self.tables.keep()
                self.document.keep()
            else:
                self._undo()
                for request in group:
                    _fail(request, error)
            ring, self.rang = self.rang, False
            self._busy = not is_last or bool(self._waiting)
        if ring:
            self.ring()

    def _do_all(self, group: list[Request]) -> None:
        """Do what has not been done yet. Of a verb that raises nothing is left: the others are done again without it."""
        while self._one_raises(group):
            self._undo()
            for request in group:
                # What happened in this process alone has happened; and who raised is not asked again.
                is_over = request.kind is Kind.PASSING or (request.kind is Kind.LASTING and request.error is not None)
                request.done = request.done and is_over

    def _one_raises(self, group: list[Request]) -> bool:
        """Do one after the other, up to the first that raises and may have left something."""
        for request in group:
            if not request.done:
                request.do()
                if request.error is not None and request.kind is Kind.LASTING:
                    return True
        return False

    def _followed(self) -> bytes | None:
        """Put a new document together; None if it would be the same."""
        try:
            self.document.follow()
            return self.document.text() if self.document.is_changed else None
        except Exception as error:
            self._undo()
            raise Unwritable(str(error)) from error

    def _written(self, text: bytes) -> Exception | None:
        try:
            self.lock.check()
            self.file.replace(text)
        except OSError as error:
            return on_writing(self.file.path, error)
        except StoreUnavailable as error:
            return error
        return None

    def _serve_one_by_one(self, group: list[Request], error: "Unwritable") -> None:
        """Have nobody hurt by a neighbour whose change cannot be written down."""
        for request in group:
            if len(group) == 1:
                self._refuse(request, error)
            elif request.kind is not Kind.PASSING:  # those have been done, and stay
                request.done = False
                try:
                    self._serve_group([request], is_last=False)
                except Unwritable as its_own:
                    self._refuse(request, its_own)
        with self._guard:
            self._busy = bool(self._waiting)

    def _refuse(self, request: Request, error: "Unwritable") -> None:
        _fail(request, StoreError(self.file.store, f"it cannot be written down: {error}"))

    def _undo(self) -> None:
        self.tables.undo()
        self.document.undo()

    def _bring(self, group: list[Request]) -> None:
        """Hand over answers, with one call for each loop however many there are."""
        by_loop: defaultdict[asyncio.AbstractEventLoop, list[Request]] = defaultdict(list)
        for request in group:
            by_loop[request.loop].append(request)
        for loop, requests in by_loop.items():
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(_deliver_all, requests)

    def _break(self, error: BaseException) -> None:
        """Give up for good, as when the process is being ended: what the file says by now is not known here."""
        with self._guard:
            self._broken = error
            left = [*self._group, *self._waiting]
            self._waiting.clear()
        for request in left:
            request.error = StoreUnavailable(self.file.store, f"its writer has ended: {error!r}; open it again")
        self._bring(left)


def _fail(request: Request, error: Exception) -> None:
    """Answer a request whose group came to nothing. What happened in this process alone has happened."""
    if request.kind is Kind.LASTING:
        request.error = request.error or error
    elif request.kind is Kind.READ:
        request.do()


def _deliver_all(requests: list[Request]) -> None:
    for request in requests:
        request.deliver()


async def aside(step: Callable[[], T]) -> T:
    """Do something that blocks in a thread of its own, and wait for it."""
    loop = asyncio.get_running_loop()
    request = Request(step, Kind.PASSING, loop, loop.create_future())

    def run() -> None:
        request.do()
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(request.deliver)

    threading.Thread(target=run, name="mainspring-sidecar-aside", daemon=True).start()
    with outside("the sidecar store's file"):
        value: T = await request.future
    return value
