"""Tables for people: with rich where it is installed and someone watches, as plain columns everywhere else.

What goes to a file or a pipe is never cut. On a terminal a row is one line: columns that may shrink give way first, then
those that can be missed are left out.
"""

import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from mainspring.cli.echo import echo, visible_cell

if TYPE_CHECKING:
    from rich.table import Table

GAP: Final = 2
SMALLEST: Final = 8  # characters below which a cut cell says nothing any more

STYLES: Final = {
    "ok": "green",
    "succeeded": "green",
    "alive": "green",
    "running": "cyan",
    "retrying": "yellow",
    "scheduled": "blue",
    "warn": "yellow",
    "paused": "yellow",
    "fail": "red",
    "failed": "red",
    "dead": "bright_black",
    "cancelled": "magenta",
}
"""The colours of words that say how something stands; a cell is coloured by its first word."""


@dataclass(frozen=True, slots=True)
class Column:
    """How one column behaves."""

    title: str
    right: bool = False
    shrinks: bool = False
    """May be cut short."""
    optional: bool = False
    """May be left out; of several, the first goes first."""


Row = Sequence[str]


def print_table(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Print rows of text under their titles."""
    width = terminal_width()
    rows = [[visible_cell(cell) for cell in row] for row in rows]
    chosen, fitted = fit(columns, rows, width) if width else (list(columns), rows)
    if width and has_rich():
        _print_rich(chosen, fitted)
    else:
        for line in lines(chosen, fitted):
            echo(line)


def fit(columns: Sequence[Column], rows: Sequence[Row], width: int) -> tuple[list[Column], list[Row]]:
    """Choose columns and cut cells so that each row is one line of that width, as far as that can be."""
    chosen = list(range(len(columns)))
    while excess := _excess(columns, rows, chosen, width):
        slack = sum(max(0, _width(columns, rows, one) - SMALLEST) for one in chosen if columns[one].shrinks)
        missed = [one for one in chosen if columns[one].optional]
        if excess <= slack or not missed:
            break
        chosen.remove(missed[0])
    limits = {one: _width(columns, rows, one) for one in chosen}
    for one in sorted((one for one in chosen if columns[one].shrinks), key=lambda one: -limits[one]):
        limits[one] -= min(excess, max(0, limits[one] - SMALLEST))
        excess = _excess_of(limits, width)
    cut: list[Row] = [[_cut(row[one], limits[one]) for one in chosen] for row in rows]
    return [columns[one] for one in chosen], cut


def _excess(columns: Sequence[Column], rows: Sequence[Row], chosen: Sequence[int], width: int) -> int:
    return _excess_of({one: _width(columns, rows, one) for one in chosen}, width)


def _excess_of(limits: dict[int, int], width: int) -> int:
    return max(0, sum(limits.values()) + GAP * (len(limits) - 1) - width)


def _width(columns: Sequence[Column], rows: Sequence[Row], one: int) -> int:
    return max([len(columns[one].title), *(len(row[one]) for row in rows)])


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def lines(columns: Sequence[Column], rows: Sequence[Row]) -> list[str]:
    """Lay rows out in columns of plain text."""
    widths = [_width(columns, rows, one) for one in range(len(columns))]
    return [_line(columns, row, widths) for row in ([column.title for column in columns], *rows)]


def _line(columns: Sequence[Column], row: Row, widths: Sequence[int]) -> str:
    cells = [
        cell.rjust(width) if column.right else cell.ljust(width)
        for column, cell, width in zip(columns, row, widths, strict=True)
    ]
    return (" " * GAP).join(cells).rstrip()


def style_of(cell: str) -> str | None:
    """Name the colour of a cell, if its first word has one."""
    return STYLES.get(cell.split(" ", 1)[0].rstrip(":,"))


def styled(text: str, word: str) -> str:
    """Colour text by a word that says how something stands, unless the user wants no colours."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=STYLES.get(word))


def _print_rich(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    from rich.console import Console  # noqa: PLC0415 - an extra, and slow to load

    Console(highlight=False).print(rich_table(columns, rows))


def rich_table(columns: Sequence[Column], rows: Sequence[Row]) -> "Table":
    """Make a rich table of cells that fit already."""
    from rich.table import Table  # noqa: PLC0415 - an extra, and slow to load
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold", collapse_padding=True)
    for column in columns:
        table.add_column(column.title, justify="right" if column.right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell, style=style_of(cell) or "") for cell in row))
    return table


def terminal_width() -> int | None:
    """Say how wide the terminal is that someone watches; None if nobody does."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def has_rich() -> bool:
    """Say whether rich can be used here."""
    return os.environ.get("TERM") != "dumb" and importlib.util.find_spec("rich") is not None
