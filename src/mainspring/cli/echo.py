"""Output of the command line, with control characters made visible.

Errors, log lines, reasons and arguments come from handlers and callers. Printed as they are, they could set the title of
a terminal, clear it, write its clipboard or forge lines, so every command prints through `echo`.
"""

import re
from typing import Final

import click

# Control characters but for line feed and tab, marks that change the direction of text, line separators, surrogates.
_UNSAFE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def echo(text: object = "", *, err: bool = False, prefix: str = "") -> None:
    """Print a line to stdout, or to stderr; `prefix` is printed as it is, for text that the command has styled."""
    click.echo(prefix + visible(str(text)), err=err)


def visible(text: str) -> str:
    """Replace control characters by their escape sequences, as Python writes them."""
    return _UNSAFE.sub(_escaped, text)


def visible_cell(text: str) -> str:
    """Do the same for a cell of a table, which has one line."""
    return visible(text.replace("\n", " ").replace("\t", " "))


def visible_json(text: str) -> str:
    """Escape in JSON what its encoder leaves as it is, so that the text still means the same."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escaped(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
