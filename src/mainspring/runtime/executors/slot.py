"""The program of a slot's child process: calls what the node asks for, one call at a time, until the node is gone.

Functions are called in the main thread. Another thread listens: it hears a cancel while a function runs, and when the
node is gone it ends this process at once, whatever runs. Signals that reach a whole group of processes, as Ctrl-C in a
terminal and SIGTERM from a service manager do, are the node's to understand: here SIGINT does nothing, and SIGTERM
ends a function only after the node has told it to stop.
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
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import Final, NoReturn

from mainspring.runtime.call import IN_SLOT, current_call, current_trace
from mainspring.runtime.context import Context
from mainspring.runtime.definition import Definition
from mainspring.runtime.executors.invoke import Invocation
from mainspring.runtime.executors.reference import find
from mainspring.runtime.executors.slot_link import SlotLink
from mainspring.runtime.executors.thrown import rebuilt, thrown
from mainspring.runtime.executors.wire import (
    CHUNK,
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

LOOK_UP: Final = 1000
"""Milliseconds between two looks at who our parent is. Its end of the connection may outlive it in a process it has forked."""

LAST_WORDS: Final = 2.0
"""Seconds in which a child at rest may run its exit handlers once the node is gone."""


class Slot:
    """A child process from the inside."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
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
        signal.signal(signal.SIGINT, _nothing)  # not SIG_IGN, which programs started by a function would inherit
        signal.signal(signal.SIGTERM, self._terminate)
        threading.Thread(target=self._listen, name="mainspring slot", daemon=True).start()
        while (call := self._calls.get()) is not None:
            self._send(self._answer(call))
            self._busy = False

    # What the main thread does.

    def _answer(self, call: Call) -> FromSlot:
        link = SlotLink(call.facts, saved=call.saved, remaining=call.remaining, say=self._send, save=self._save)
        self._link = link
        try:
            definition = self._find(call.reference, call.context)
            value = copy_context().run(self._invoke, definition, call, Context(call.facts, link))
            answer: FromSlot = Returned(definition.result.encode(value))
        except BaseException as error:  # noqa: BLE001 - told to the node, SystemExit too
            answer = Raised(thrown(error))
        finally:
            self._link = self._invocation = None
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
        return invocation.run()

    def _terminate(self, _number: int, _frame: object) -> None:
        if self._link is not None and self._link.stopping:
            sys.exit(128 + signal.SIGTERM)

    def _save(self, saved: bytes) -> "Future[None]":
        number = next(self._numbers)
        kept = self._saves[number] = Future()
        self._send(Save(number, saved))
        return kept

    def _send(self, message: FromSlot) -> None:
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


def _nothing(_number: int, _frame: object) -> None:
    """Let the node decide."""


def main() -> None:
    """Serve the node at the other end of the descriptor that it has named."""
    IN_SLOT.set()
    faulthandler.enable()  # a function that crashes the interpreter says where, on stderr
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    Slot(connection).serve()
