"""`mainspring demo`: supervised services at work on real files and sockets, then sixteen hours of them in no time.

A post office. The post drops letters into a folder; the sorter enters each in a ledger, and only when that is on the
disk removes the letter; the courier carries the ledger, line by line, to an office that opens its door late.
"""

import asyncio
import os
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from mainspring.supervise import (
    Backoff,
    Directive,
    Failed,
    Idle,
    Notifier,
    Proceed,
    Service,
    ServiceEvent,
    Sleep,
    Stop,
    TaskEnd,
    TaskSet,
    every,
)
from mainspring.testing import VirtualTime

OPENS_AFTER: Final = 2.0
COLOURS: Final = {"post": "blue", "sorter": "green", "courier": "yellow", "office": "magenta"}


@click.command()
@click.option("--seconds", default=6.0, show_default=True, type=click.FloatRange(3, 60), help="How long to show it.")
def demo(seconds: float) -> None:
    """Show supervised services at work, on real files and real sockets."""
    click.echo(f"A post office for {seconds:g} seconds, with real files and sockets. Ctrl-C closes it early.\n")
    with tempfile.TemporaryDirectory(prefix="mainspring-demo-") as folder:
        office = PostOffice(Path(folder))
        ends = asyncio.run(office.open_for(seconds))
        nothing_lost = office.count(ends)
    sixteen_hours()
    raise SystemExit(0 if nothing_lost else 1)


@dataclass
class PostOffice:
    """What the services share: the folder of letters, the ledger, and the door that the courier knocks at."""

    folder: Path
    posted: int = 0
    carried: int = 0
    delivered: int = 0
    tasks: TaskSet = field(default_factory=TaskSet)
    letters: Notifier = field(default_factory=Notifier)
    entries: Notifier = field(default_factory=Notifier)
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.inbox = self.folder / "inbox"
        self.inbox.mkdir()
        self.ledger = self.folder / "ledger"
        self.ledger.touch()
        # Bound but not listening: whoever knocks before the office opens is refused, for real.
        self.door = socket.socket()
        self.door.bind(("127.0.0.1", 0))

    async def open_for(self, seconds: float) -> tuple[TaskEnd, ...]:
        """Run the services for a time, or until Ctrl-C."""
        patience = Backoff.exponential("250ms", cap="2s", jitter=0.2)
        tasks = self.tasks
        tasks.start(Service("post", self.post, wake=[every("400ms")], listeners=[self.show]))
        tasks.start(Service("sorter", self.sort, wake=[self.letters, every("2s")], listeners=[self.show]))
        tasks.start(Service("courier", self.carry, wake=[self.entries], backoff=patience, listeners=[self.show]))
        tasks.spawn("office", self.receive(tasks.stop))
        with suppress(NotImplementedError):  # no signal handlers on Windows' loops
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, tasks.stop.set)
        with suppress(TimeoutError):
            await asyncio.wait_for(tasks.stop.wait(), seconds)
        self.say("everyone", "is told to stop; who is at work may finish")
        ends = await tasks.shutdown(grace="2s", deadline="3s")
        self.door.close()
        return ends

    async def post(self) -> Directive:
        """Drop a letter: written aside, then moved, so that nobody ever reads half of one."""
        self.posted += 1
        letter = self.folder / "draft"
        letter.write_text(f"letter {self.posted:02}", encoding="utf-8")
        letter.rename(self.inbox / f"{self.posted:04}")
        self.letters.notify_one()
        return Idle()

    async def sort(self) -> Directive:
        """Enter the oldest letter in the ledger, make sure of the disk, then remove it."""
        waiting = sorted(self.inbox.iterdir())
        if not waiting:
            return Idle()
        text = waiting[0].read_text(encoding="utf-8")
        with self.ledger.open("a", encoding="utf-8") as ledger:
            ledger.write(text + "\n")
            ledger.flush()
            os.fsync(ledger.fileno())
        waiting[0].unlink()
        self.say("sorter", f"{text} is in the ledger")
        self.entries.notify_one()
        return Proceed()

    async def carry(self) -> Directive:
        """Take the next entry of the ledger to the office. If nobody opens, the error says so."""
        entries = self.entered()
        if self.carried == len(entries):
            return Idle()
        host, port = self.door.getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(entries[self.carried].encode() + b"\n")
            await reader.readexactly(3)  # "ok" and a line feed: only a receipt counts as delivered
        finally:
            writer.close()
        self.carried += 1
        self.say("courier", f"{entries[self.carried - 1]} is delivered")
        return Proceed()

    async def receive(self, stop: Stop) -> None:
        """Open the office, late, and hand out receipts."""
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), OPENS_AFTER)
            return
        server = await asyncio.start_server(self.receipt, sock=self.door)
        self.say("office", "opens its door")
        async with server:
            await stop.wait()

    async def receipt(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        self.delivered += 1
        writer.write(b"ok\n")
        writer.close()

    def entered(self) -> list[str]:
        return self.ledger.read_text(encoding="utf-8").splitlines()

    def show(self, event: ServiceEvent) -> None:
        """Listen to the services: their failures are worth a line."""
        if isinstance(event, Failed):
            number = event.error.errno if isinstance(event.error, OSError) else None
            problem = os.strerror(number) if number else str(event.error)
            again = f", again in {event.backoff:.2f} s" if event.backoff else ""
            self.say(event.service, f"failed ({event.failures} in a row){again}: {problem}")

    def say(self, who: str, what: str) -> None:
        name = f"{who:8}"
        if who in COLOURS and _colours_wanted():
            name = click.style(name, fg=COLOURS[who])
        try:
            click.echo(f"{time.monotonic() - self.began:6.2f} s  {name}  {what}")
        except BrokenPipeError:  # whoever was reading has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self.tasks.stop.set()

    def count(self, ends: tuple[TaskEnd, ...]) -> bool:
        """Say how everyone ended, and whether every letter is accounted for."""
        click.echo("\n" + ", ".join(f"{end.name} {end.ending}" for end in ends))
        inbox, entered = len(list(self.inbox.iterdir())), len(self.entered())
        accounted = self.posted == inbox + entered and self.carried <= self.delivered
        click.echo(
            f"{self.posted} letters posted: {self.carried} delivered, {entered - self.carried} in the ledger waiting for "
            f"the courier, {inbox} in the inbox. " + ("None is lost." if accounted else "The books do not balance!")
        )
        return accounted


def _colours_wanted() -> bool:
    return "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def sixteen_hours() -> None:
    """Run a service through sixteen hours of virtual time, which is how the tests do it."""
    began = time.monotonic()
    sweeps = 0

    async def sweep() -> Directive:
        nonlocal sweeps
        sweeps += 1
        return Sleep("10m")

    async def day() -> None:
        async with TaskSet() as tasks:
            tasks.start(Service("sweeper", sweep))
            await asyncio.sleep(16 * 3600)

    with VirtualTime() as virtual:
        virtual.run(day())
    took = time.monotonic() - began
    click.echo(f"On virtual time, a service that sleeps ten minutes ran {sweeps} times in 16 hours, in {took:.2f} s.")
