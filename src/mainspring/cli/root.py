"""The outermost group: where every error becomes one line on stderr and an exit code.

A traceback is for those who ask for it, and for errors that nobody has thought of.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from mainspring.cli.codes import Code, code_of
from mainspring.cli.echo import echo
from mainspring.cli.lazy import LazyGroup
from mainspring.errors import MainspringError


class Refusal(click.ClickException):
    """Ends a command with one line on stderr."""

    def __init__(self, message: str, code: Code = Code.FAILED) -> None:
        super().__init__(message)
        self.code = code


class Root(LazyGroup):
    """Runs a command and tells how it ended."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,  # noqa: ANN401 - click's own
    ) -> Any:  # noqa: ANN401 - as above
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.UsageError as error:
            code = _told(_line(error), Code.USAGE)
        except Refusal as error:
            code = _told(f"mainspring: {error.format_message()}", error.code)
        except click.ClickException as error:
            code = _told(f"mainspring: {error.format_message()}", error.exit_code)
        except click.Abort:  # click's name for Ctrl-C
            code = Code.INTERRUPTED
        sys.exit(code or Code.DONE)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as above
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # whoever was reading has seen enough; that is no failure
            _write_to_nobody()
            ctx.exit(Code.DONE)
        except MainspringError as error:
            if ctx.params.get("debug"):
                raise
            raise Refusal(" ".join(str(error).split("\n")), code_of(error)) from error


def _line(error: click.UsageError) -> str:
    message = error.format_message()
    if message.startswith("Usage:"):  # a group that was called without a command answers with its help
        return message
    path = error.ctx.command_path if error.ctx else "mainspring"
    return f"{path}: {message} ({path} --help tells more)"


def _write_to_nobody() -> None:
    """Let what is still in the buffer of stdout go nowhere: Python writes it at its end, and would complain once more."""
    with suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:  # in tests stdout may be no file
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _told(line: str, code: int) -> int:
    echo(line, err=True)
    return code
