"""Closed by default off this machine, and deaf to pages of other sites."""

import pytest
from starlette.types import Receive, Scope, Send

from mainspring import Mainspring
from mainspring.errors import DeclarationError
from mainspring.web import Identity, Password, api, dashboard, must_have_auth
from mainspring.web.groups import ALL
from tests.web.conftest import BASE, Ask, client, error_of

EVERYWHERE = "0.0.0.0"  # noqa: S104 - to be refused
CHANGES = [route for route in ALL if route.changes]
ADMIN = Identity.of("anna", "admin")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
async def test_without_auth_this_machine_is_answered(ask: Ask, host: str) -> None:
    assert (await ask("control/list", host=host)).status_code == 200


@pytest.mark.parametrize("action", ["control/list", "control/flush", "openapi.json"])
@pytest.mark.parametrize(
    "host", ["203.0.113.7", "10.0.0.1", "2001:db8::1", "::ffff:10.0.0.1", EVERYWHERE, "", "x", "/run/x"]
)
async def test_without_auth_nobody_else_is(ask: Ask, host: str, action: str) -> None:
    response = await ask(action, {} if action == "control/flush" else None, host=host)
    assert error_of(response, 403)["code"] == "closed"


@pytest.mark.parametrize("asked", ["localhost", "LOCALHOST:8000", "127.0.0.1:8000", "[::1]:8000"])
async def test_a_host_that_is_this_machine_is_fine(ask: Ask, asked: str) -> None:
    assert (await ask("control/list", headers={"host": asked})).status_code == 200


@pytest.mark.parametrize(
    "asked", ["evil.example:8000", "localhost.evil.example", "", "a@localhost", "[::1", "localhost/x"]
)
async def test_a_name_that_only_leads_here_is_not(ask: Ask, asked: str) -> None:
    assert error_of(await ask("control/list", headers={"host": asked}), 403)["code"] == "closed"


@pytest.mark.parametrize(
    "header",
    [
        *("x-forwarded-for", "forwarded", "x-real-ip", "via", "x-forwarded-host", "x-forwarded-proto"),
        *("x-client-ip", "x-original-host", "x-envoy-external-address", "true-client-ip", "cf-connecting-ip"),
    ],
)
async def test_who_comes_through_a_proxy_may_be_anyone(ask: Ask, header: str) -> None:
    assert error_of(await ask("control/list", headers={header: "127.0.0.1"}), 403)["code"] == "closed"
    assert (await ask("control/list", headers={header: "x"}, auth=lambda _: ADMIN)).status_code == 200


@pytest.mark.parametrize(("version", "status"), [("1.0", 403), ("1.1", 200), ("2", 200)])
async def test_who_speaks_as_proxies_do_may_be_anyone(app: Mainspring, version: str, status: int) -> None:
    """As nginx has it that was told nothing: HTTP 1.0, the Host of what is behind it, and not a header more."""
    asgi = api(app)

    async def handed_on(scope: Scope, receive: Receive, send: Send) -> None:
        await asgi({**scope, "http_version": version}, receive, send)

    async with client(handed_on) as found:
        assert (await found.get(f"{BASE}/control/list")).status_code == status


async def test_a_socket_without_addresses_tells_nothing(app: Mainspring) -> None:
    asgi = api(app)

    async def without_client(scope: Scope, receive: Receive, send: Send) -> None:
        await asgi({**scope, "client": None}, receive, send)

    async with client(without_client) as found:
        assert error_of(await found.get(f"{BASE}/control/list"), 403)["code"] == "closed"


# Changes that pages ask for.


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"origin": "http://localhost"}, True),
        ({"origin": "http://localhost:80"}, True),
        ({"origin": "http://LOCALHOST"}, True),
        ({"origin": "https://localhost"}, True),  # a proxy took the TLS off
        ({"origin": "http://localhost:8000"}, False),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "http://localhost.evil.example"}, False),
        ({"origin": "http://localhost@evil.example"}, False),
        ({"origin": "http://evil.example/localhost"}, False),
        ({"origin": "chrome-extension://localhost"}, False),
        ({"origin": "null"}, False),
        ({"origin": ""}, False),
        ({"origin": "http://[::1"}, False),
        ({"origin": "http://localhost:99999"}, False),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "SAME-ORIGIN, cross-site"}, False),
        ({"sec-fetch-site": "same-origin", "origin": "http://localhost"}, True),
        ({"sec-fetch-site": "same-origin", "origin": "http://evil.example"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "http://localhost"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "https://admin.example"}, True),
        ({"origin": "https://admin.example"}, True),
        ({"origin": "http://admin.example"}, False),
    ],
)
async def test_a_change_is_asked_for_from_here_or_from_who_is_trusted(
    app: Mainspring, headers: dict[str, str], allowed: bool
) -> None:
    asgi = api(app, origins=("https://admin.example",), auth=lambda _: ADMIN)
    async with client(asgi) as found:
        for route in CHANGES:
            response = await found.post(f"{BASE}{route.path}", json=[], headers=headers)
            if allowed:
                assert error_of(response, 422)["code"] == "invalid"  # a list is no request, and was looked at
            else:
                assert error_of(response, 403)["code"] == "foreign_origin"
            assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"origin": "http://evil.example"}, True),  # no browser that tells of no site has it answer to another
        ({"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}, True),
        ({"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, True),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, True),  # a link
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, True),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, False),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}, False),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "document"}, False),
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "https://admin.example"}, True),
    ],
)
async def test_who_looks_may_follow_a_link_from_anywhere_and_no_other_page_looks_by_itself(
    app: Mainspring, headers: dict[str, str], allowed: bool
) -> None:
    """It could not read the answer, but how long a search takes tells something, too."""
    board = dashboard(app, origins=("https://admin.example",), auth=lambda _: ADMIN)
    async with app, client(board) as found:
        for path in (f"{BASE}/control/list", "/jobs", "/metrics"):
            response = await found.get(path, headers=headers)
            assert response.status_code == (200 if allowed else 403), path
        assert (await found.head("/events", headers=headers)).status_code == (200 if allowed else 403)
        for path in ("/healthz", "/static/app.css"):
            assert (await found.get(path, headers=headers)).status_code == 200


LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


async def test_a_link_from_another_site_does_not_run_its_search(app: Mainspring) -> None:
    """The duration of a search reveals whether it found anything, and a popup can be timed."""
    async with app, client(dashboard(app, auth=lambda _: ADMIN)) as found:
        for site in ("cross-site", "same-site"):
            response = await found.get("/jobs?argument=user=%22x%22&limit=1", headers={**LINK, "sec-fetch-site": site})
            assert response.status_code == 200
            assert 'href="?argument=user=%22x%22&amp;limit=1"' in response.text
            assert "<table" not in response.text
            refused = await found.get(f"{BASE}/jobs/list?argument=user", headers={**LINK, "sec-fetch-site": site})
            assert error_of(refused, 403)["code"] == "foreign_origin"
        for headers in (LINK | {"sec-fetch-site": "same-origin"}, LINK | {"sec-fetch-site": "none"}, {}):
            assert "another site" not in (await found.get("/jobs?limit=1", headers=headers)).text
        id_ = str((await app.enqueue("photos:sweep")).id)
        assert id_ in (await found.get(f"/job?id={id_}", headers=LINK)).text


async def test_every_answer_is_kept_apart_from_pages_of_other_sites(app: Mainspring) -> None:
    async with app, client(dashboard(app, auth=lambda _: ADMIN)) as found:
        for path in ("/", "/nowhere", f"{BASE}/control/list", f"{BASE}/nowhere", "/metrics", "/healthz", "/static/no"):
            headers = (await found.get(path)).headers
            assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
            assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff")
            assert path.startswith("/static") or "frame-ancestors 'none'" in headers["content-security-policy"]
        assert (await found.get("/static/app.css")).headers["cross-origin-resource-policy"] == "same-origin"


async def test_no_page_of_another_site_may_read_an_answer(ask: Ask) -> None:
    response = await ask("control/list", headers={"origin": "http://evil.example"})
    assert response.status_code == 200
    assert not [name for name in response.headers if name.startswith("access-control")]
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "origin",
    [
        "admin.example",
        "https://admin.example/",
        "https://admin.example/x",
        "ftp://x",
        "*",
        "https://Admin.example",
        "https://admin.example:443",
        "http://admin.example:80",
    ],
)
def test_an_origin_is_scheme_and_host_as_browsers_write_it(origin: str) -> None:
    with pytest.raises(DeclarationError, match=r"https://admin\.example\.com"):
        api(Mainspring("memory://"), origins=[origin])


# Serving it.


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_on_this_machine_it_may_be_served_without_auth(host: str) -> None:
    must_have_auth(host, None)


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "", "10.0.0.1", "example.com"])
def test_elsewhere_it_may_not(host: str) -> None:
    with pytest.raises(DeclarationError, match="there is no auth"):
        must_have_auth(host, None)
    must_have_auth(host, Password("geheim, geheim"))
