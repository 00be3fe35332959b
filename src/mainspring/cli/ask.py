"""Asking the person at the keyboard, where there is one."""

import sys

import click


def confirmed(question: str) -> bool:
    """Ask for a yes. Where nobody can answer, that is wrong usage: a script says --yes."""
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError("it asks first, and nobody answers; say --yes") from None
