"""Whatever the door, the JSON API or the forms of pages, nobody changes anything who may not, or from elsewhere."""

from functools import partial
from typing import Any

import httpx
import pytest

from mainspring import Mainspring
from mainspring.stores.overview import EntryFilter, Overview
from mainspring.web import Identity, dashboard
from mainspring.web.auth import Permission
from mainspring.web.groups import ALL
from mainspring.web.routes import AnyRoute
from tests.web.conftest import BASE, client

LOOKS = Identity("otto", frozenset({Permission.JOBS_LOOK}))
ADMIN = Identity.of("anna", "admin")
CHANGES = [route for route in ALL if route.changes]
SAID: dict[str, Any] = {
    "id": "01a1e2c4-e3e1-762d-bc6d-d8e60860967d",
    "ids": ["01a1e2c4-e3e1-762d-bc6d-d8e60860967d"],
    "action": "delete",
    "name": "default",
}

pytestmark = pytest.mark.parametrize("door", ["api", "do"])


def known(who: Identity, _: object) -> Identity:
    return who


async def sent(found: httpx.AsyncClient, door: str, route: AnyRoute, **options: Any) -> httpx.Response:  # noqa: ANN401 - httpx's own
    """Ask for a change with something that most routes understand."""
    said = {name: value for name, value in SAID.items() if name in route.takes.__struct_fields__}
    if door == "api":
        return await found.post(f"{BASE}{route.path}", json=said, **options)
    return await found.post(f"/do/{route.name}", data=said, **options)


async def outcomes(app: Mainspring) -> list[str]:
    assert isinstance(app.store, Overview)
    return [one.entry.outcome for one in (await app.store.audit(EntryFilter(), limit=1000)).entries]


@pytest.mark.parametrize("route", CHANGES, ids=lambda route: route.name)
async def test_who_only_looks_changes_nothing(app: Mainspring, door: str, route: AnyRoute) -> None:
    async with app, client(dashboard(app, auth=partial(known, LOOKS))) as found:
        answer = await sent(found, door, route)
        assert answer.status_code == 403
        assert await outcomes(app) == ["not_allowed"]


@pytest.mark.parametrize("route", CHANGES, ids=lambda route: route.name)
async def test_pages_of_other_sites_change_nothing(app: Mainspring, door: str, route: AnyRoute) -> None:
    asks = (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://localhost"},
        {"origin": "http://localhost:81"},
    )
    async with app, client(dashboard(app, auth=partial(known, ADMIN))) as found:
        for headers in asks:
            assert (await sent(found, door, route, headers=headers)).status_code == 403, headers
        assert await outcomes(app) == ["foreign_origin"] * len(asks)


@pytest.mark.parametrize("route", CHANGES, ids=lambda route: route.name)
async def test_without_auth_a_name_that_only_leads_here_changes_nothing(
    app: Mainspring, door: str, route: AnyRoute
) -> None:
    asks = ({"host": "evil.example"}, {"host": "127.0.0.1.evil.example"}, {"x-forwarded-for": "203.0.113.7"})
    async with app, client(dashboard(app)) as found:
        for headers in asks:
            assert (await sent(found, door, route, headers=headers)).status_code == 403, headers
        assert await outcomes(app) == []


@pytest.mark.parametrize("route", CHANGES, ids=lambda route: route.name)
async def test_to_look_at_an_address_changes_nothing(app: Mainspring, door: str, route: AnyRoute) -> None:
    path = f"{BASE}{route.path}" if door == "api" else f"/do/{route.name}"
    async with app, client(dashboard(app)) as found:
        for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
            assert (await found.request(method, path, params=SAID)).status_code == 405, method
        assert await outcomes(app) == []
