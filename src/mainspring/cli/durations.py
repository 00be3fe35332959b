"""Lengths of time on the command line."""

from datetime import timedelta
from typing import Final

import click

from mainspring.duration import duration
from mainspring.errors import BadDuration


class DurationType(click.ParamType):  # type: ignore[type-arg]  # generic in the newest click only
    """Reads "90s", "15m", "1d12h", or a plain number of seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        text = str(value)
        try:
            return duration(float(text) if text.replace(".", "", 1).isdigit() else text)
        except BadDuration as error:
            self.fail(str(error), param, ctx)


DURATION: Final = DurationType()
