"""Asking the person at the keyboard, where there is one."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click


def confirmed(question: str) -> bool:
    """Ask for a yes. Where nobody can answer, that is wrong usage: a script says --yes."""
    try:
        with _interruptible():
            return click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError("it asks first, and nobody answers; say --yes") from None


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end the question: an event loop would keep it for later, and nothing is later than an answer."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
