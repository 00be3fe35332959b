"""Plugins over HTTP: what the app lets others add to it, and what could be added."""

import asyncio
from typing import Final

from msgspec import Struct

from mainspring.client.discovery import find
from mainspring.client.plugin_views import InstalledPlugin, OtherPlugin, plugin_views
from mainspring.web.auth import Permission
from mainspring.web.routes import AnyRoute, Asked, Nothing, Route


class Plugins(Struct, frozen=True, kw_only=True):
    """All that there are."""

    plugins: tuple[InstalledPlugin | OtherPlugin, ...]


async def list_(asked: Asked[Nothing]) -> Plugins:
    """List the plugins of the app, and those that packages offer."""
    found = await asyncio.to_thread(find)  # which reads the files of all packages
    return Plugins(plugins=tuple(plugin_views(asked.app, found)))


ROUTES: Final[tuple[AnyRoute, ...]] = (Route("GET", "/plugins/list", Permission.PLUGINS_LOOK, Nothing, Plugins, list_),)
