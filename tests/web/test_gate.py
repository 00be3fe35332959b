"""Closed by default off this machine, and deaf to pages of other sites."""

import pytest
from starlette.types import Receive, Scope, Send

from mainspring import Mainspring
from mainspring.errors import DeclarationError
from mainspring.web import Identity, Password, api, must_have_auth
from tests.web.conftest import BASE, Ask, client, error_of

EVERYWHERE = "0.0.0.0"  # noqa: S104 - to be refused
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


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip", "via", "x-forwarded-host"])
async def test_who_comes_through_a_proxy_may_be_anyone(ask: Ask, header: str) -> None:
    assert error_of(await ask("control/list", headers={header: "127.0.0.1"}), 403)["code"] == "closed"
    assert (await ask("control/list", headers={header: "x"}, auth=lambda _: ADMIN)).status_code == 200


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
@pytest.mark.parametrize("action", ["add", "cancel", "run", "submit", "iterate", "flush"])
async def test_a_change_is_asked_for_from_here_or_from_who_is_trusted(
    ask: Ask, action: str, headers: dict[str, str], allowed: bool
) -> None:
    response = await ask(
        f"control/{action}", [], headers=headers, origins=("https://admin.example",), auth=lambda _: ADMIN
    )
    if allowed:
        assert error_of(response, 422)["code"] == "invalid"  # a list is no request, and was looked at
    else:
        assert error_of(response, 403)["code"] == "foreign_origin"
        assert "access-control-allow-origin" not in response.headers


async def test_who_only_looks_may_come_from_anywhere_and_no_other_page_may_read_it(ask: Ask) -> None:
    response = await ask("control/list", headers={"origin": "http://evil.example", "sec-fetch-site": "cross-site"})
    assert response.status_code == 200
    assert not [name for name in response.headers if name.startswith("access-control")]
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "origin", ["admin.example", "https://admin.example/", "https://admin.example/x", "ftp://x", "*"]
)
def test_an_origin_is_scheme_and_host(origin: str) -> None:
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
