"""Schedules and their times in the words that all commands about them share."""

from datetime import UTC, datetime
from typing import Final

import click

from mainspring.client.clocks import time_of, wall, zone_info
from mainspring.client.plain import unfolded
from mainspring.client.planned_words import at
from mainspring.client.views import run_view, schedule_view
from mainspring.core.schedule import Run
from mainspring.stores.records import Look

FORMS: Final = "2027-01-31, 2027-01-31T09:00 or 2027-01-31T09:00+01:00"


class InstantType(click.ParamType):  # type: ignore[type-arg]  # generic in the newest click only
    """Reads ISO 8601: an instant, or a time on the clocks of a zone that only the command knows."""

    name = "instant"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{str(value)!r} is no instant; write it as {FORMS}", param, ctx)


INSTANT: Final = InstantType()


def placed(given: datetime, tz: str) -> datetime:
    """Make an instant of a time that was given without an offset: it is meant on the clocks of a zone."""
    return (given if given.tzinfo else given.replace(tzinfo=zone_info(tz))).astimezone(UTC)


def placed_text(given: datetime, tz: str) -> str:
    """Say what was made of a time on the clocks of a zone, and where that is not what it seems; nothing in UTC."""
    if given.tzinfo is not None or tz == "UTC":
        return ""
    meant = placed(given, tz)
    told = f"{wall(given)} in {tz} is {at(meant, tz)}, {at(meant, 'UTC')}"
    if meant.astimezone(zone_info(tz)).replace(tzinfo=None) != given:
        return f"{told}: clocks go forward that day, and do not show {time_of(given)}"
    first, second = (given.replace(tzinfo=zone_info(tz), fold=fold).utcoffset() for fold in (0, 1))
    if first != second:
        return (
            f"{told}: clocks go back that day and show it twice, and this is the first; for the other give its offset"
        )
    return told


def schedule_fields(look: Look) -> dict[str, object]:
    """Unfold a schedule for JSON, with what its record only implies."""
    return unfolded(schedule_view(look))


def run_fields(run: Run) -> dict[str, object]:
    return unfolded(run_view(run))
