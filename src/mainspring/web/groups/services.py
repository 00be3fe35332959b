"""Services of nodes, over HTTP: what nodes report of themselves."""

from typing import Final

from msgspec import Struct

from mainspring.client.overview import ServiceLook
from mainspring.stores.overview import Overview
from mainspring.web.auth import Permission
from mainspring.web.routes import AnyRoute, Asked, Nothing, Route


class Listed(Struct, frozen=True, kw_only=True):
    """All of them."""

    services: tuple[ServiceLook, ...]
    reports: bool
    """Whether the store keeps what nodes report; if not, nothing is known of their services."""


async def list_(asked: Asked[Nothing]) -> Listed:
    """List what each node says of its services."""
    if not isinstance(await asked.store(), Overview):
        return Listed(services=(), reports=False)
    return Listed(services=await asked.app.overview.services(), reports=True)


ROUTES: Final[tuple[AnyRoute, ...]] = (
    Route("GET", "/services/list", Permission.SERVICES_LOOK, Nothing, Listed, list_),
)
