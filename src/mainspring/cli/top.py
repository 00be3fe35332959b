"""`mainspring top`: what goes on in a store, live in a terminal."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from mainspring.app import Mainspring
from mainspring.cli.codes import Code
from mainspring.cli.durations import DURATION
from mainspring.cli.echo import echo
from mainspring.cli.plain import print_json
from mainspring.cli.reach import app_of, as_json, reached, url_option
from mainspring.cli.root import Refusal
from mainspring.cli.table import fit, has_rich, print_table, rich_table, terminal_width
from mainspring.cli.top_frame import headline, printable, sections, shares, told
from mainspring.cli.top_gather import Frame, gather
from mainspring.errors import StoreError

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

SHORTEST: Final = timedelta(milliseconds=100)


@click.command()
@click.argument("target", metavar="[MODULE:APP]", required=False)
@url_option
@click.option("--every", default="1s", show_default=True, type=DURATION, help="How often to look.")
@click.option("--once", is_flag=True, help="Print one look, and end.")
@as_json
def top(*, target: str | None, url: str | None, every: timedelta, once: bool, as_json: bool) -> None:
    """Watch nodes, queues, tasks, running jobs and errors, live.

    The store is that of MODULE:APP, or --url. Keys: q quits, p pauses and goes on. Needs the extra rich, but for --once
    and --json.
    """
    if url is not None and target is not None:
        raise click.UsageError("--url and MODULE:APP both name a store; give one of them")
    if not once and not as_json:
        _must_be_watched()
    app = app_of(url, target)

    async def work() -> None:
        async with reached(app):
            if as_json:
                print_json(await gather(app))
            elif once:
                print_frame(await gather(app))
            else:
                await Screen(app, max(every, SHORTEST)).run()

    asyncio.run(work())


def _must_be_watched() -> None:
    if not terminal_width():
        raise Refusal("stdout is not a terminal; use --once or --json", Code.USAGE)
    if not has_rich():
        raise Refusal("a live view needs rich: install Mainspring with the extra 'rich', or use --once", Code.USAGE)


def print_frame(frame: Frame) -> None:
    """Print one look as text."""
    echo(headline(frame))
    for warning in frame.warnings:
        echo(told(warning))
    for section in sections(frame):
        if section.rows:
            echo()
            print_table(section.columns, section.rows)


class Screen:
    """The live view: looks, draws, and does what keys say, until somebody has seen enough."""

    def __init__(self, app: Mainspring, every: timedelta) -> None:
        from rich.console import Console  # noqa: PLC0415 - an extra, and slow to load
        from rich.live import Live  # noqa: PLC0415 - as above

        self._app = app
        self._every = every.total_seconds()
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, screen=True)
        self._wake = asyncio.Event()
        self._is_over = False
        self._is_paused = False
        self._frame: Frame | None = None
        self._trouble = ""

    async def run(self) -> None:
        """Go on until `q`, or a signal."""
        with self._signals(), keys(self._key), self._live:
            while not self._is_over:
                if not self._is_paused:
                    await self._look()
                self._draw()
                await self._pause()

    async def _look(self) -> None:
        try:
            self._frame = await gather(self._app)
            self._trouble = ""
        except StoreError as error:  # it may come back, and somebody waits for exactly that
            self._trouble = f"the store does not answer: {error}"

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._every):
                await self._wake.wait()
        self._wake.clear()

    def _key(self, key: str) -> None:
        if key in "qQ":
            self._is_over = True
        elif key in "pP ":
            self._is_paused = not self._is_paused
        self._wake.set()

    def _end(self) -> None:
        self._is_over = True
        self._wake.set()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """End in good order when told to, or the terminal would stay as it is; draw anew when its size changes."""
        loop = asyncio.get_running_loop()
        told = {signal.SIGTERM: self._end, signal.SIGHUP: self._end, signal.SIGWINCH: self._wake.set}
        for number, do in told.items():
            loop.add_signal_handler(number, do)
        try:
            yield
        finally:
            for number in told:
                loop.remove_signal_handler(number)

    def _draw(self) -> None:
        self._live.update(self._drawn(), refresh=True)

    def _drawn(self) -> "Group":
        from rich.console import Group  # noqa: PLC0415 - as above
        from rich.text import Text  # noqa: PLC0415 - as above

        width, height = self._console.size
        state = "paused, p goes on" if self._is_paused else "q quits, p pauses"
        headed = headline(self._frame) if self._frame else "looking…"
        trouble = [f"! {printable(self._trouble)}"] if self._trouble else []
        warnings = [*trouble, *map(told, self._frame.warnings if self._frame else ())]
        line = partial(Text, no_wrap=True, overflow="ellipsis")
        drawn: list[RenderableType] = [line(f"{state}   {headed}", style="bold")]
        drawn += [line(warning, style="yellow") for warning in warnings[: max(0, height - 2)]]
        shown = [section for section in (sections(self._frame) if self._frame else ()) if section.rows]
        room = height - len(drawn) - 1
        for section, rows in zip(shown, shares([len(one.rows) for one in shown], room), strict=True):
            if rows:
                columns, cells = fit(section.columns, section.rows[:rows], width)
                drawn += [Text(""), rich_table(columns, cells)]
        return Group(*drawn)


@contextmanager
def keys(pressed: Callable[[str], None]) -> Iterator[None]:
    """Have keys told one by one, unseen, while the block runs; the terminal is as it was after that."""
    if not sys.stdin.isatty():
        yield
        return
    loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(stdin)

    def read() -> None:
        typed = os.read(stdin, 64)
        if not typed:
            loop.remove_reader(stdin)
        for key in typed.decode("utf-8", "replace"):
            pressed(key)

    tty.setcbreak(stdin)
    loop.add_reader(stdin, read)
    try:
        yield
    finally:
        loop.remove_reader(stdin)
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
