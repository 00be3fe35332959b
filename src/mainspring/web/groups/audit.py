"""The audit log over HTTP: who did what."""

from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from mainspring.client.searching import overview_of
from mainspring.stores.overview import EntryFilter, EntryPage
from mainspring.web.auth import Permission
from mainspring.web.groups.common import Page, Text
from mainspring.web.routes import AnyRoute, Asked, Route


class ListEntries(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which lines."""

    who: Text | UnsetType = UNSET
    action: Text | UnsetType = UNSET
    about: Text | UnsetType = UNSET
    limit: Page = 50
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] | UnsetType = UNSET


async def list_(asked: Asked[ListEntries]) -> EntryPage:
    """List what people did, the newest first."""
    role, said = overview_of(await asked.store(), "audit log"), asked.said
    which = EntryFilter(who=said.who or None, action=said.action or None, about=said.about or None)
    return await role.audit(which, limit=said.limit, after=None if said.after is UNSET else said.after)


ROUTES: Final[tuple[AnyRoute, ...]] = (
    Route("GET", "/audit/list", Permission.AUDIT_LOOK, ListEntries, EntryPage, list_),
)
