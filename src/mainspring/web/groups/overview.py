"""The store at a glance, over HTTP: the record of `app.overview`."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from mainspring.client.look import Look
from mainspring.web.auth import Permission
from mainspring.web.routes import AnyRoute, Asked, Route

A_MOMENT: Final = "1s"
"""All who have the page open ask at the same tick, and for several parts of it; ticks are a second apart, too."""


class Window(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far back."""

    minutes: Annotated[int, Meta(ge=1, le=20_160)] = 60


async def look(asked: Asked[Window]) -> Look:
    """Say how the store has been doing."""
    return await asked.app.overview.look(minutes=asked.said.minutes, no_older_than=A_MOMENT)


ROUTES: Final[tuple[AnyRoute, ...]] = (Route("GET", "/overview", Permission.OVERVIEW_LOOK, Window, Look, look),)
