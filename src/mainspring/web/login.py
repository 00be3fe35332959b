"""Signing in with a token, for browsers: they cannot send `Authorization: Bearer` by themselves, but keep a cookie.

The token in the cookie is held against the same file as one in the header. A page of another site has the cookie sent
along only where somebody follows a link (`SameSite=Lax`), which changes nothing; no script can read it, and it has no
path: a browser sends it to what stands beside the login page, whatever the prefix.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from mainspring.web.problems import Problem

COOKIE: Final = "mainspring_token"
"""Name of the cookie, followed by the port if the address has one."""
MOST_FIELDS: Final = 100
_BESIDE: Final = re.compile(r"[a-z]*(\?[^\s\\]*)?")
"""A page next to the login page, and nothing that could lead elsewhere."""
_PORT: Final = re.compile(r":([0-9]{1,5})\Z")


class Cookied:
    """Hands a token from the cookie on as if it stood in the header. A token that does stand there counts alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app: Final = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            kind = headers.get("authorization", "").partition(" ")[0].lower()
            token = "" if kind == "bearer" else token_of(headers)
            if token:
                scope = bearing(scope, token)
        await self._app(scope, receive, send)


def cookie_name(headers: Mapping[str, str]) -> str:
    """Return the name of the cookie at the address that the browser asked for.

    Browsers send cookies to all ports of a host: with one name, two dashboards on a machine would sign each other out.
    """
    port = _PORT.search(headers.get("host", ""))
    return f"{COOKIE}_{port[1]}" if port else COOKIE


def token_of(headers: Mapping[str, str]) -> str:
    """Return the token in our cookie; empty, if it is not there."""
    cookies = cookie_parser(
        headers.get("cookie", "")
    )  # not `SimpleCookie`: another program's odd cookie would hide ours
    return cookies.get(cookie_name(headers), "")


def beside(there: str) -> str:
    """Return where to go after signing in: a page beside this one, or the first page."""
    return there if there and _BESIDE.fullmatch(there) else "."


def bearing(scope: Scope, token: str) -> Scope:
    """Make a request of another, with a token in its header."""
    headers = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
    bearer = (b"authorization", f"Bearer {token}".encode("latin-1", "replace"))
    return {**scope, "headers": [*headers, bearer]}


def signed_in(request: Request, token: str, there: str) -> Response:
    """Have the browser keep the token, and lead it on."""
    response = RedirectResponse(beside(there), 303, {"cache-control": "no-store"})
    # Only the browser's own word says how it came here: a proxy may have taken the encryption off.
    secure = request.scope["scheme"] == "https" or request.headers.get("origin", "").startswith("https://")
    name = cookie_name(request.headers)
    response.set_cookie(name, token, httponly=True, samesite="lax", secure=secure, path=None)
    return response


def signed_out(request: Request) -> Response:
    """Have the browser forget the token."""
    response = RedirectResponse("login", 303)
    response.set_cookie(cookie_name(request.headers), "", max_age=0, httponly=True, samesite="lax", path=None)
    return response


def fields_of(body: bytes) -> dict[str, str]:
    """Read a form: the last of each name counts."""
    try:
        found = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise Problem(422, "invalid", str(error)) from None
    return {name: values[-1] for name, values in found.items()}
