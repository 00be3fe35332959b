"""Signing in with a token, for browsers: they cannot send `Authorization: Bearer` by themselves, but keep a cookie.

The token in the cookie is held against the same file as one in the header. A page of another site has the cookie sent
along only where somebody follows a link (`SameSite=Lax`), which changes nothing; no script can read it, and it has no
path: a browser sends it to what stands beside the login page, whatever the prefix.
"""

import re
from typing import Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from mainspring.web.problems import Problem

COOKIE: Final = "mainspring_token"
MOST_FIELDS: Final = 100
_BESIDE: Final = re.compile(r"[a-z]*(\?[^\s\\]*)?")
"""A page next to the login page, and nothing that could lead elsewhere."""


class Cookied:
    """Hands a token from the cookie on as if it stood in the header. A token that does stand there counts alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app: Final = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            kind = headers.get("authorization", "").partition(" ")[0].lower()
            token = "" if kind == "bearer" else token_of(headers.get("cookie", ""))
            if token:
                scope = bearing(scope, token)
        await self._app(scope, receive, send)


def token_of(cookies: str) -> str:
    """Find our cookie; nothing, if it is not there."""
    return cookie_parser(cookies).get(COOKIE, "")  # not `SimpleCookie`: another program's odd cookie would hide ours


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
    response.set_cookie(COOKIE, token, httponly=True, samesite="lax", secure=secure, path=None)
    return response


def signed_out() -> Response:
    """Have the browser forget the token."""
    response = RedirectResponse("login", 303)
    response.set_cookie(COOKIE, "", max_age=0, httponly=True, samesite="lax", path=None)
    return response


def fields_of(body: bytes) -> dict[str, str]:
    """Read a form: the last of each name counts."""
    try:
        found = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise Problem(422, "invalid", str(error)) from None
    return {name: values[-1] for name, values in found.items()}
