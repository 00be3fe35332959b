"""The ASGI app: a request is let in, read, allowed, done and answered, in this order, the same for every route."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp

from mainspring.app import Mainspring
from mainspring.client.plain import plain, text
from mainspring.client.redact import Redactor
from mainspring.errors import DeclarationError
from mainspring.stores.port import Store
from mainspring.web.answers import json_answer
from mainspring.web.audit import CUT_OFF, Came, write_down
from mainspring.web.auth import Auth, Identity, Permission
from mainspring.web.gate import allow, check_closed, check_look, check_origin, check_search, is_local
from mainspring.web.groups import ALL
from mainspring.web.health import health_routes
from mainspring.web.metrics import metrics_route
from mainspring.web.openapi import document
from mainspring.web.prefix import Prefixed
from mainspring.web.problems import Answer, Error, Problem, short, told
from mainspring.web.routes import AnyRoute, Asked, Nothing, Route
from mainspring.web.shares import Refusals, Searches, Strangers

T = TypeVar("T")

BASE: Final = "/api/v1"
BESIDE: Final = ("metrics", "healthz", "readyz")
"""Paths that are not below that."""
MOST: Final = 1_000_000
"""Bytes of a body."""
LOCAL: Final = Identity("local", frozenset(Permission))
"""Whoever asks from this machine, where there is no auth."""
THREADS: Final = 2
"""Threads for redaction, encoding and rendering. Only two, because they share the GIL with the event loop."""
LISTED: Final = f"…{BASE}/openapi.json says what can be asked for, and what each field takes"


def api(
    app: Mainspring,
    *,
    auth: Auth | None = None,
    origins: Collection[str] = (),
    redact: Iterable[str] = (),
    show_unknown: bool = False,
) -> ASGIApp:
    """Make the JSON API of an app, to be served alone or mounted in another ASGI app.

    Without `auth` it answers to this machine only. `origins` are other addresses whose pages may look and ask for
    changes, as `https://admin.example.com`; where it is itself need not be said, unless a proxy changes the header Host.
    `redact` are names whose values are not shown, beside those that never are. Arguments and results of tasks that `app`
    does not have are hidden, unless a rule was stored with the job, and messages of outboxes whose handler it does not
    have; `show_unknown` shows them.
    """
    desk = Desk.of("api", app, auth, origins, Hiding(redact, show_unknown))
    inside = Starlette(
        routes=[*map(desk.route, described(ALL)), *beside(desk)],
        exception_handlers={HTTPException: not_found},
        lifespan=partial(opened, app),
    )
    inside.router.redirect_slashes = False  # it would lead to whatever the header Host says
    return Prefixed(inside, {BASE.split("/")[1], *BESIDE})


def beside(desk: "Desk") -> list[StarletteRoute]:
    """Make the routes of `BESIDE`: what is measured, and whether it works."""
    return [metrics_route(desk.app, desk.looking), *health_routes(desk.app)]


def described(routes: Sequence[AnyRoute]) -> tuple[AnyRoute, ...]:
    """Add the route that describes them all, itself too."""

    async def describe(_: Asked[Nothing]) -> dict[str, Any]:
        """Describe this API, in OpenAPI 3.1."""
        return description

    whole = (*routes, Route("GET", "/openapi.json", None, Nothing, dict[str, Any], describe))
    description = document(whole)
    return whole


Read: TypeAlias = Callable[[AnyRoute, Request], Awaitable[msgspec.Struct]]


class Hiding(NamedTuple):
    """Redaction options of a program."""

    redact: Iterable[str] = ()
    show_unknown: bool = False


class Desk:
    """Where requests are taken in."""

    def __init__(self, app: Mainspring, auth: Auth | None, origins: Collection[str], redactor: Redactor) -> None:
        self.app: Final = app
        self.auth: Final = auth
        self.origins: Final = origins
        self._redactor: Final = redactor
        self._searches: Final = Searches()
        self._refusals: Final = Refusals()
        self._strangers: Final = Strangers()
        self._threads: Final = ThreadPoolExecutor(THREADS, thread_name_prefix="mainspring-web")

    @classmethod
    def of(cls, subject: str, app: Mainspring, auth: Auth | None, origins: Collection[str], hiding: "Hiding") -> "Desk":
        """Make one of what a program has given, or say what is wrong with that."""
        DeclarationError.unless(
            subject,
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
            port = {"http": ":80", "https": ":443"}.get(parts.scheme)
            as_sent = f"{parts.scheme}://{parts.netloc.lower().removesuffix(port or '')}"
            if port is None or not parts.netloc or origin != as_sent:
                raise DeclarationError(f"origin {origin!r}", "write it as https://admin.example.com")
        redactor = Redactor(app.registry, hiding.redact, handled=app.outbox.handled, show_unknown=hiding.show_unknown)
        return cls(app, auth, frozenset(origins), redactor)

    def route(self, route: AnyRoute) -> StarletteRoute:
        async def respond(request: Request) -> Response:
            return await self.respond(route, request)

        return StarletteRoute(BASE + route.path, respond, methods=[route.method], name=route.name)

    async def respond(self, route: AnyRoute, request: Request, read: Read | None = None) -> Response:
        """Do what is asked for, and answer in JSON. `read` reads what is said where that is not JSON either."""
        who: Identity | None = None
        said: object = None
        given: object = None
        problem: Error | None = None
        is_tried = False
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            who = await self.known(request)
            (check_origin if route.changes else check_look)(request, self.origins)
            if not route.changes:
                check_search(request, self.origins)
            read = read or _read
            if route.changes and route.permission not in {None, *who.permissions}:
                said = await _heard(read, route, request)
            allow(who, route.permission)
            said = await read(route, request)
            began = loop.time()
            is_tried = True
            given = await self.done(route, who, said, request)
            response = await self.offload(lambda: json_answer(200, plain(self.shown(given))))
        except HTTPException as error:  # of the program's own auth
            problem = refused(error)
            response = json_answer(error.status_code, Answer(problem), dict(error.headers or {}))
        except asyncio.CancelledError:  # the server ends, amid a change that may have been made
            if route.changes:
                came = Came(who, said, given, CUT_OFF, 499, began, is_tried)
                await write_down(self.app, route, came, self._refusals)
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is answered in one shape
            status, problem = told(error)
            response = json_answer(status, Answer(problem), error.headers if isinstance(error, Problem) else None)
        if route.changes:
            came = Came(who, said, given, problem, response.status_code, began, is_tried)
            await write_down(self.app, route, came, self._refusals)
        return response

    async def done(self, route: AnyRoute, who: Identity, said: Any, request: Request) -> Any:  # noqa: ANN401 - of the route's own types
        """Call the handler of a route for an authorized identity. The record that this returns is not redacted yet."""
        if route.also is not None:
            allow(who, route.also(said))
        asked = Asked(self.app, who, said, self._redactor)
        if not route.searches:
            return await route.handler(asked)
        async with self._searches.turn(who.name, request.is_disconnected):
            return await route.handler(asked)

    def shown(self, record: T) -> T:
        """Redact a record and shorten values that exceed the budget of an answer. Not for the event loop."""
        return self._redactor.whole(record)

    async def offload(self, work: Callable[[], T]) -> T:
        """Run work that depends on the size of payloads outside the event loop, which may serve a whole site."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def store(self) -> Store:
        """Return the store, and open it if nobody has: mounted in another app, nobody may have."""
        return await self.app._connection.store()  # noqa: SLF001 - `app.store` is for those who have opened it

    async def looking(self, request: Request) -> Identity:
        """Say who looks, or raise `Problem`."""
        who = await self.known(request)
        check_look(request, self.origins)
        return who

    async def known(self, request: Request) -> Identity:
        """Say who asks, or raise `Problem`."""
        if self.auth is None:
            check_closed(request)
            return LOCAL
        found = self.auth(request)
        who = await found if inspect.isawaitable(found) else found
        if who is None:
            self._strangers.came(request.client.host if request.client else "")
            raise _unknown(request, self.auth)
        if not isinstance(who, Identity):
            raise TypeError(f"auth returns an Identity or None, not {who!r}")
        return Identity(text(who.name), who.permissions)


def _unknown(request: Request, auth: Auth) -> Problem:
    message = "nobody is known by that" if "authorization" in request.headers else "say who you are"
    challenge = getattr(auth, "challenge", "")
    hint = ""
    if challenge:
        basic = "by HTTP Basic: curl -u NAME:PASSWORD"
        hint = basic if challenge.startswith("Basic") else "by a token: Authorization: Bearer TOKEN"
    elif is_local(request):  # how the program's own function knows people, only the program can say
        name = getattr(auth, "__qualname__", type(auth).__qualname__)
        hint = f"the auth function {name!r} of the program returned None; sign in to the program first, or check that function"
    return Problem(401, "unknown", message, hint, headers={"www-authenticate": challenge or "Bearer"})


async def _read(route: AnyRoute, request: Request) -> msgspec.Struct:
    """Read what is asked for as the type that the route takes; nothing of it has been looked at before."""
    try:
        if not route.changes:
            return _converted(route, request)
        return _decoded(route, await body_of(request, "application/json") or b"{}")
    except msgspec.ValidationError as error:
        raise Problem(422, "invalid", str(error), LISTED) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "bad_json", str(error)) from None


async def _heard(read: Read, route: AnyRoute, request: Request) -> msgspec.Struct | None:
    """Read what somebody says who may not have it done: the audit log tells what it was about."""
    try:
        return await read(route, request)
    except Problem:
        return None


def _converted(route: AnyRoute, request: Request) -> msgspec.Struct:
    found: msgspec.Struct = msgspec.convert(dict(request.query_params), route.takes, strict=False)
    return found


def _decoded(route: AnyRoute, body: bytes) -> msgspec.Struct:
    found: msgspec.Struct = msgspec.json.decode(body, type=route.takes)
    return found


async def body_of(request: Request, wanted: str) -> bytes:
    """Take in a body of a type, as much as may be; its announced length is not trusted."""
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST:
                raise Problem(413, "too_large", f"a body has {MOST:,} bytes at most")
    except ClientDisconnect:
        raise Problem(400, "cut_off", "the body has no end") from None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and kind != wanted:
        raise Problem(415, "not_json", f"a body is of the type {wanted}")
    return body


async def not_found(_: HTTPConnection, error: Exception) -> Response:  # async: Starlette has a thread call any other
    """Say what Starlette has refused in the shape of all others."""
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for nothing else
    headers = dict(error.headers or {})
    if error.status_code == 405 and "Allow" in headers:
        what = Error(code="wrong_method", message=f"this is asked for with {headers['Allow']}", hint=LISTED)
        return json_answer(405, Answer(what), headers)
    if error.status_code == 404:
        return json_answer(404, Answer(Error(code="not_found", message="there is no such path", hint=LISTED)), headers)
    return json_answer(error.status_code, Answer(refused(error)), headers)


def refused(error: HTTPException) -> Error:
    """Say what somebody else has refused in the shape of all others."""
    code = {401: "unknown", 403: "not_allowed", 404: "not_found", 405: "wrong_method"}.get(error.status_code, "refused")
    return Error(code=code, message=short(error.detail))


@asynccontextmanager
async def opened(app: Mainspring, _: Starlette) -> AsyncIterator[None]:
    """Hold the store open while it is served. Mounted, it is opened when it is first needed."""
    async with app:
        yield
