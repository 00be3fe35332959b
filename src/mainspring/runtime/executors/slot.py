"""The program of a slot's child process: calls what the node asks for, one call at a time, until the node is gone.

Functions are called in the main thread. Another thread listens: it hears a cancel while a function runs, and when the
node is gone it ends this process at once, whatever runs. Signals that reach a whole group of processes, as Ctrl-C in a
terminal and SIGTERM from a service manager do, are the node's to understand: here SIGINT does nothing, and SIGTERM
ends a function only after the node has told it to stop.

Both hold for this process alone. A process that a function forks gets the signal handlers of an ordinary Python program,
or `multiprocessing` could not terminate its workers. It never sends anything to the node: instead of sending, for
example because the function has returned in it, it exits with `FORKED`.
"""

import faulthandler
import itertools
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from types import FrameType
from typing import Final, NoReturn, TypeAlias

from mainspring.runtime.call import IN_SLOT, current_call, current_trace
from mainspring.runtime.context import Context
from mainspring.runtime.definition import Definition
from mainspring.runtime.executors.django_connections import call_with_fresh_connections
from mainspring.runtime.executors.executor import encode_result
from mainspring.runtime.executors.invoke import Invocation
from mainspring.runtime.executors.reference import find
from mainspring.runtime.executors.slot_link import SlotLink
from mainspring.runtime.executors.thrown import rebuilt, thrown
from mainspring.runtime.executors.wire import (
    CHUNK,
    Began,
    Call,
    Cancel,
    FromSlot,
    Hello,
    Kept,
    Raised,
    Returned,
    Save,
    ToSlot,
    pack,
    to_slot,
)

_Handler: TypeAlias = Callable[[int, FrameType | None], None]

LOOK_UP: Final = 1000
"""Milliseconds between two looks at who our parent is. Its end of the connection may outlive it in a process it has forked."""

FORKED: Final = 70
"""Exit code of a forked process that would have sent a message in the name of the slot; EX_SOFTWARE in sysexits.h."""

LAST_WORDS: Final = 2.0
"""Seconds in which a child at rest may run its exit handlers once the node is gone."""


class Slot:
    """A child process from the inside."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pid = os.getpid()
        self._node = os.getppid()
        self._sending = threading.Lock()
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._tasks: dict[str, Definition] = {}
        self._saves: dict[int, Future[None]] = {}
        self._numbers = itertools.count(1)
        self._busy = False
        self._link: SlotLink | None = None
        self._invocation: Invocation | None = None

    def serve(self) -> None:
        """Answer calls until the node is gone."""
        # Not SIG_IGN, which programs started by a function would inherit.
        _OwnHandlers({signal.SIGINT: _nothing, signal.SIGTERM: self._terminate})
        threading.Thread(target=self._listen, name="mainspring slot", daemon=True).start()
        while (call := self._calls.get()) is not None:
            self._send(self._answer(call))
            self._busy = False

    # What the main thread does.

    def _answer(self, call: Call) -> FromSlot:
        link = SlotLink(call.facts, call=call.number, saved=call.saved, say=self._send, save=self._save)
        self._link = link
        try:
            definition = self._find(call.reference, call.context)
            link.begin(call.remaining)
            self._send(Began(call.number))
            value = copy_context().run(self._invoke, definition, call, Context(call.facts, link))
            answer: FromSlot = Returned(call.number, encode_result(definition, value))
        except BaseException as error:  # noqa: BLE001 - told to the node, SystemExit too
            answer = Raised(call.number, thrown(error))
        finally:
            self._link = self._invocation = None
        self._check_process()  # before `end`, whose lock may be held forever by a thread of the parent
        link.end()
        for stream in (sys.stdout, sys.stderr):  # a child that is killed later must not take this call's words with it
            with suppress(Exception):
                stream.flush()
        return answer

    def _find(self, reference: str, context: str | None) -> Definition:
        if reference not in self._tasks:
            self._tasks[reference] = find(reference, context)
        return self._tasks[reference]

    def _invoke(self, definition: Definition, call: Call, context: Context) -> object:
        current_call.set(call.facts)
        current_trace.set(call.trace)
        invocation = self._invocation = Invocation(definition, call.facts, context)
        if context.cancelled:  # while its module was imported
            invocation.stop()
        return call_with_fresh_connections(invocation.run)

    def _terminate(self, _number: int, _frame: object) -> None:
        if self._link is not None and self._link.stopping:
            sys.exit(128 + signal.SIGTERM)

    def _save(self, call: int, saved: bytes) -> "Future[None]":
        number = next(self._numbers)
        kept = self._saves[number] = Future()
        self._send(Save(call, number, saved))
        return kept

    def _check_process(self) -> None:
        """Exit if this process was forked by a function: the node cannot distinguish its messages from the slot's."""
        if os.getpid() != self._pid:
            os.write(2, f"mainspring: process {os.getpid()}: {_FORKED}\n".encode())
            os._exit(FORKED)

    def _send(self, message: FromSlot) -> None:
        self._check_process()
        data = pack(message)
        with self._sending, suppress(OSError):  # the node is gone; the listening thread will see to it
            self._connection.sendall(data)

    # What the listening thread does.

    def _listen(self) -> NoReturn:
        """Listen while there is someone to listen to. A slot that cannot hear must not live on, whatever the reason."""
        try:
            self._listen_on()
        except BaseException:  # noqa: BLE001 - a node of another version: the package was replaced under its feet
            traceback.print_exc()
            os._exit(1)
        self._end()

    def _listen_on(self) -> None:
        unpacker = to_slot()
        watch = select.poll()
        watch.register(self._connection, select.POLLIN)
        while os.getppid() == self._node:
            if not watch.poll(LOOK_UP):
                continue
            data = self._receive()
            if not data:
                break
            for message in unpacker.feed(data):
                self._hear(message)

    def _receive(self) -> bytes:
        try:
            return self._connection.recv(CHUNK)
        except OSError:
            return b""

    def _hear(self, message: ToSlot) -> None:
        match message:
            case Hello(path=path, python_path=python_path):
                sys.path[:] = path
                os.environ.pop("PYTHONPATH", None)
                if python_path is not None:
                    os.environ["PYTHONPATH"] = python_path
            case Call():
                self._busy = True
                self._calls.put(message)
            case Cancel():
                self._cancel()
            case Kept(number=number, error=error):
                kept = self._saves.pop(number)
                if error is None:
                    kept.set_result(None)
                else:
                    kept.set_exception(rebuilt(error))

    def _cancel(self) -> None:
        link, invocation = self._link, self._invocation
        if link is not None:
            link.stop()
        if invocation is not None:
            invocation.stop()

    def _end(self) -> NoReturn:
        """End this process, and what its function has started. At rest it may first end in good order."""
        if not self._busy:
            self._calls.put(None)
            time.sleep(LAST_WORDS)
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)


_FORKED: Final = (
    "forked by a task's function, cannot use the slot's connection to the node, exiting; "
    "end a forked process with os._exit(), and use the context in the slot's own process only"
)


class _OwnHandlers:
    """Signal handlers of this process, which a process that is forked from it does not inherit.

    The fork restores the former handlers, unless a function has set its own meanwhile. The signals are blocked during
    the fork: a signal before the former handler is restored would be lost, as when `Process.terminate()` follows
    `Process.start()`.
    """

    def __init__(self, handlers: Mapping[signal.Signals, _Handler]) -> None:
        self._handlers = handlers
        self._former = {which: signal.signal(which, handler) for which, handler in handlers.items()}
        self._mask = threading.local()
        os.register_at_fork(before=self._block, after_in_parent=self._unblock, after_in_child=self._put_back)

    def _block(self) -> None:
        self._mask.former = signal.pthread_sigmask(signal.SIG_BLOCK, self._handlers)

    def _unblock(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask.former)

    def _put_back(self) -> None:
        for which, handler in self._handlers.items():
            if signal.getsignal(which) == handler:
                signal.signal(which, self._former[which])
        self._unblock()


def _nothing(_number: int, _frame: object) -> None:
    """Let the node decide."""


def main() -> None:
    """Serve the node at the other end of the descriptor that it has named."""
    IN_SLOT.set()
    faulthandler.enable()  # a function that crashes the interpreter says where, on stderr
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    Slot(connection).serve()
