"""The ASGI app: a request is let in, read, allowed, done and answered, in this order, the same for every route."""

import inspect
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from mainspring.app import Mainspring
from mainspring.client.plain import plain
from mainspring.errors import DeclarationError
from mainspring.web.auth import Auth, Identity, Permission
from mainspring.web.control import ROUTES
from mainspring.web.gate import check_closed, check_origin
from mainspring.web.openapi import document
from mainspring.web.problems import Answer, Error, Problem, short, told
from mainspring.web.routes import AnyRoute, Asked, Nothing, Route

audit = logging.getLogger("mainspring.audit")

BASE: Final = "/api/v1"
MOST: Final = 1_000_000
"""Bytes of a body."""
LOCAL: Final = Identity("local", frozenset(Permission))
"""Whoever asks from this machine, where there is no auth."""
LISTED: Final = f"…{BASE}/openapi.json says what can be asked for, and what each field takes"
HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def api(app: Mainspring, *, auth: Auth | None = None, origins: Collection[str] = ()) -> ASGIApp:
    """Make the JSON API of an app, to be served alone or mounted in another ASGI app.

    Without `auth` it answers to this machine only. `origins` are other addresses whose pages may ask for changes, as
    `https://admin.example.com`; where it is itself need not be said, unless a proxy changes the header Host.
    """
    DeclarationError.unless(
        "api",
        (
            (isinstance(app, Mainspring), f"it is made of a Mainspring, and not of a {type(app).__name__}"),
            (
                auth is None or (callable(auth) and not isinstance(auth, type)),
                "auth is a Password(…), a TokenFile(…) or a function that returns an Identity",  # it may be a secret
            ),
        ),
    )
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme not in {"http", "https"} or not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}":
            raise DeclarationError(f"origin {origin!r}", "write it as https://admin.example.com")
    desk = Desk(app, auth, frozenset(origins))
    inside = Starlette(
        routes=[desk.route(route) for route in described(ROUTES)],
        exception_handlers={HTTPException: _not_found},
        lifespan=partial(_open, app),
    )
    inside.router.redirect_slashes = False  # it would lead to whatever the header Host says
    return Prefixed(inside)


def described(routes: Sequence[AnyRoute]) -> tuple[AnyRoute, ...]:
    """Add the route that describes them all, itself too."""

    async def describe(_: Asked[Nothing]) -> dict[str, Any]:
        """Describe this API, in OpenAPI 3.1."""
        return description

    whole = (*routes, Route("GET", "/openapi.json", None, Nothing, dict[str, Any], describe))
    description = document(whole)
    return whole


class Desk:
    """Where requests are taken in."""

    def __init__(self, app: Mainspring, auth: Auth | None, origins: Collection[str]) -> None:
        self._app = app
        self._auth = auth
        self._origins = origins

    def route(self, route: AnyRoute) -> StarletteRoute:
        async def respond(request: Request) -> Response:
            return await self._respond(route, request)

        return StarletteRoute(BASE + route.path, respond, methods=[route.method], name=route.name)

    async def _respond(self, route: AnyRoute, request: Request) -> Response:
        who: Identity | None = None
        said: object = None
        try:
            if route.changes:
                check_origin(request, self._origins)
            who = await self._known(request)
            _allow(who, route)
            said = await _read(route, request)
            given = await route.handler(Asked(self._app, who, said))
            response = _json(200, plain(given))
        except Problem as problem:
            response = _json(problem.status, Answer(problem.error), problem.headers)
        except HTTPException as error:  # of the program's own auth
            response = _refused(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is answered in one shape
            status, what = told(error)
            response = _json(status, Answer(what))
        if route.changes:
            _write_down(route, who, said, response.status_code)
        return response

    async def _known(self, request: Request) -> Identity:
        if self._auth is None:
            check_closed(request)
            return LOCAL
        found = self._auth(request)
        who = await found if inspect.isawaitable(found) else found
        if who is None:
            raise _unknown(request, getattr(self._auth, "challenge", ""))
        if not isinstance(who, Identity):
            raise TypeError(f"auth returns an Identity or None, not {who!r}")
        return who


def _unknown(request: Request, challenge: str) -> Problem:
    message = "nobody is known by that" if "authorization" in request.headers else "say who you are"
    hint = ""
    if challenge:  # how the program's own function knows people, only the program can say
        basic = "by HTTP Basic: curl -u NAME:PASSWORD"
        hint = basic if challenge.startswith("Basic") else "by a token: Authorization: Bearer TOKEN"
    return Problem(401, "unknown", message, hint, headers={"www-authenticate": challenge or "Bearer"})


def _allow(who: Identity, route: AnyRoute) -> None:
    if route.permission is not None and route.permission not in who.permissions:
        raise Problem(403, "not_allowed", f"{who.name} may not do {route.permission}")


async def _read(route: AnyRoute, request: Request) -> msgspec.Struct:
    """Read what is asked for as the type that the route takes; nothing of it has been looked at before."""
    try:
        if not route.changes:
            return _converted(route, request)
        return _decoded(route, await _body(request) or b"{}")
    except msgspec.ValidationError as error:
        raise Problem(422, "invalid", str(error), LISTED) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "bad_json", str(error)) from None


def _converted(route: AnyRoute, request: Request) -> msgspec.Struct:
    found: msgspec.Struct = msgspec.convert(dict(request.query_params), route.takes, strict=False)
    return found


def _decoded(route: AnyRoute, body: bytes) -> msgspec.Struct:
    found: msgspec.Struct = msgspec.json.decode(body, type=route.takes)
    return found


async def _body(request: Request) -> bytes:
    """Take in a body, as much as may be; its announced length is not trusted."""
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST:
                raise Problem(413, "too_large", f"a body has {MOST:,} bytes at most")
    except ClientDisconnect:
        raise Problem(400, "cut_off", "the body has no end") from None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and kind != "application/json":
        raise Problem(415, "not_json", "a body is of the type application/json")
    return body


def _write_down(route: AnyRoute, who: Identity | None, said: object, status: int) -> None:
    """Have the log say who changed what, and how that went. What was sent along stays out of it: it may be secret."""
    name, about = who.name if who else "unknown", getattr(said, "qname", "")
    audit.info("%s %s %s: %d", _on_one_line(name), route.name, _on_one_line(about), status)


def _on_one_line(text: str) -> str:
    return text if text.isprintable() else repr(text)


def _json(status: int, value: object, headers: dict[str, str] | None = None) -> Response:
    body = msgspec.json.encode(value)
    return Response(body, status, {**HEADERS, **(headers or {})}, "application/json")


async def _not_found(_: HTTPConnection, error: Exception) -> Response:  # async: Starlette has a thread call any other
    """Say what Starlette has refused in the shape of all others."""
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for nothing else
    headers = dict(error.headers or {})
    if error.status_code == 405 and "Allow" in headers:
        what = Error(code="wrong_method", message=f"this is asked for with {headers['Allow']}", hint=LISTED)
        return _json(405, Answer(what), headers)
    if error.status_code == 404:
        return _json(404, Answer(Error(code="not_found", message="there is no such path", hint=LISTED)), headers)
    return _refused(error)


def _refused(error: HTTPException) -> Response:
    code = {401: "unknown", 403: "not_allowed", 404: "not_found", 405: "wrong_method"}.get(error.status_code, "refused")
    return _json(error.status_code, Answer(Error(code=code, message=short(error.detail))), dict(error.headers or {}))


@asynccontextmanager
async def _open(app: Mainspring, _: Starlette) -> AsyncIterator[None]:
    """Hold the store open while it is served. Mounted, it is opened when it is first needed."""
    async with app:
        yield


class Prefixed:
    """Finds the routes under whatever prefix: mounted, behind a proxy that takes one away, or both.

    Mounted in an app with a `root_path`, behind a proxy that takes that away, a path begins with the end of its
    `root_path` only; Starlette looks for the whole, and finds nothing.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            root = scope.get("root_path", "").rstrip("/")
            scope = {**scope, "root_path": root, "path": root + inner(scope["path"], root)}
        await self._app(scope, receive, send)


def inner(path: str, root: str) -> str:
    """Return the part of a path that is ours, below all of a prefix, an end of it, or nothing."""
    ends = [root[at:] for at, letter in enumerate(root) if letter == "/"]
    found = [path[len(end) :] for end in ends if path.startswith(f"{end}/")]
    return next((one for one in (*found, path) if one.startswith(f"{BASE}/")), path)
