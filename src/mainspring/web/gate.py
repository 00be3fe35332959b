"""What is refused before it is looked at: strangers where there is no auth, what somebody may not do, and what another
site's page asks for.

Without auth, only this machine is answered. Neither its address nor its name is proof alone: behind a proxy everyone has
a local address, and a page whose name was turned to 127.0.0.1 has a browser of this machine ask. So the client, the
host that it asked for, and the absence of a proxy's headers all have to agree.
"""

from collections.abc import Collection
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.requests import HTTPConnection

from mainspring.errors import DeclarationError
from mainspring.web.auth import Auth, Identity, Permission
from mainspring.web.problems import Problem

_PROXIES: Final = (
    "forwarded",
    "x-forwarded",
    "x-real-ip",
    "x-client-ip",
    "x-original",
    "x-envoy",
    "true-client-ip",
    "cf-",
    "via",
)
"""How the names of headers begin that proxies add."""
ONE_THING: Final = frozenset({"id", "name", "task"})
"""Query parameters that name one object, which takes the same time to read whatever it contains."""
_PORTS: Final = {"http": 80, "https": 443}


def must_have_auth(host: str, auth: Auth | None) -> None:
    """Refuse to serve on an address that others can reach while there is no auth; for whoever starts a server."""
    if auth is None and not is_loopback(host):
        problem = "others can reach it, and there is no auth: give auth, or serve on 127.0.0.1"
        raise DeclarationError(f"address {host!r}", problem)


def is_loopback(host: str) -> bool:
    """Say whether an address, or the name of one, is this machine's own and nobody else's."""
    if host.lower() in {"localhost", "localhost."}:
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)  # ::ffff:127.0.0.1, as sockets for both families have it
    return (mapped or address).is_loopback


def check_closed(connection: HTTPConnection) -> None:
    """Let only this machine in."""
    if not is_local(connection):
        hint = "give dashboard(…) or api(…) an auth; without one it answers to this machine only"
        raise Problem(403, "closed", "this is open to its own machine only", hint)


def is_local(connection: HTTPConnection) -> bool:
    """Say whether somebody on this machine asks, and nobody through a proxy."""
    client = connection.client.host if connection.client else ""
    asked = _netloc(f"//{connection.headers.get('host', '')}")
    # nginx adds no header unless it is configured to. Before 1.29.7 it used HTTP 1.0, which browsers and curl do not;
    # since then it cannot be detected, so that a mounted dashboard behind a proxy needs auth.
    proxied = connection.scope.get("http_version") == "1.0" or any(
        name.startswith(_PROXIES) for name in connection.headers
    )
    return is_loopback(client) and asked is not None and is_loopback(asked[0]) and not proxied


def check_origin(connection: HTTPConnection, trusted: Collection[str]) -> None:
    """Refuse a change that a page of another site asks for. Programs that are no browsers send neither header."""
    origin = connection.headers.get("origin")
    if origin is not None and origin in trusted:
        return
    site = connection.headers.get("sec-fetch-site")
    if site is not None and site not in {"same-origin", "none"}:
        raise _foreign(site)
    if origin is not None and not _same(origin, connection.headers.get("host", "")):
        raise _foreign(origin)


def check_look(connection: HTTPConnection, trusted: Collection[str]) -> None:
    """Refuse what a page of another site fetches by itself: how long it takes would tell what is found. Links are fine."""
    headers = connection.headers
    site = headers.get("sec-fetch-site", "none")
    goes_there = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    if site not in {"same-origin", "none"} and not goes_there and headers.get("origin") not in trusted:
        raise _foreign(site)


def leads_in(connection: HTTPConnection, trusted: Collection[str]) -> bool:
    """Return whether a browser followed a link of another site whose query does more than name one object."""
    site = connection.headers.get("sec-fetch-site", "none")
    if site in {"same-origin", "none"} or connection.headers.get("origin") in trusted:
        return False
    words = parse_qs(connection.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    return not words.keys() <= ONE_THING


def check_search(connection: HTTPConnection, trusted: Collection[str]) -> None:
    """Refuse a link from another site to a search, whose duration would reveal its results."""
    if leads_in(connection, trusted):
        raise _foreign(connection.headers["sec-fetch-site"])


def allow(who: Identity, permission: Permission | None) -> None:
    """Raise where somebody may not."""
    if permission is not None and permission not in who.permissions:
        raise Problem(403, "not_allowed", f"{who.name} may not do {permission}")


def _foreign(what: str) -> Problem:
    hint = "behind a proxy that changes Host, name the address that people see: origins=['https://…'], or --origin"
    return Problem(403, "foreign_origin", f"a page of another site asks for this: {what[:200]!r}", hint)


def _same(origin: str, host: str) -> bool:
    """Compare where a page is from with the host that it asks. Which scheme was used, a proxy in between may hide."""
    scheme = origin.partition(":")[0].lower()
    theirs, ours = _netloc(origin), _netloc(f"{scheme}://{host}")
    return scheme in _PORTS and theirs is not None and theirs == ours


def _netloc(url: str) -> tuple[str, int | None] | None:
    """Take host and port out of an address; None if there is none, or more than that."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        return None
    return host, port or _PORTS.get(parts.scheme)
