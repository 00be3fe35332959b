"""A command group whose commands are loaded when they are called.

`mainspring --help` needs none of them: it prints the summaries of the table that the group is made from. A test holds
the summaries against the commands.
"""

import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import click


class Later(NamedTuple):
    """A command that is not loaded yet."""

    where: str
    """"module:attribute"."""
    summary: str


class LazyGroup(click.Group):
    """A group made from a table of names; the order of the table is the order of the help."""

    def __init__(self, *arguments: Any, later: Mapping[str, Later], **options: Any) -> None:  # noqa: ANN401 - click's own
        super().__init__(*arguments, **options)
        self.later = later

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        return list(self.later)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        if cmd_name not in self.later:
            return None
        module, _, attribute = self.later[cmd_name].where.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            near = get_close_matches(args[0], list(self.later), n=1)
            if not near:
                raise
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {near[0]!r}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.summary) for name, one in self.later.items()])
