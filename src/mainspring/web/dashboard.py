"""The dashboard: pages, the JSON API, ticks and static files, one ASGI app, to be served alone or mounted in another.

A request for a page is let in, allowed, gathered and rendered, in this order, the same for every page. What a page changes
it changes through the desk of the JSON API, under the same permissions, checks and audit.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from mainspring.app import Mainspring
from mainspring.client.plain import plain
from mainspring.errors import DeclarationError, NoOverview
from mainspring.web import login
from mainspring.web.answers import ISOLATED
from mainspring.web.application import BASE, BESIDE, Desk, Hiding, beside, body_of, described, not_found, opened
from mainspring.web.assets import static
from mainspring.web.audit import signed_in
from mainspring.web.auth import TOKENS, Auth, Identity, StartupToken
from mainspring.web.forms import FORM, SHOWN, read_form, said_of
from mainspring.web.gate import allow, check_origin, leads_in
from mainspring.web.groups import ALL as ROUTES
from mainspring.web.pages import ALL
from mainspring.web.pages.page import Page, answered, read_query
from mainspring.web.pages.render import templates
from mainspring.web.prefix import Prefixed
from mainspring.web.problems import Error, Problem, told
from mainspring.web.ticks import Ticks

log = logging.getLogger("mainspring.web")

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    **ISOLATED,
    "content-security-policy": POLICY,
    "cache-control": "no-store",
    "referrer-policy": "same-origin",
}
TITLES: Final = {
    401: "Who are you?",
    403: "Not allowed",
    404: "Nothing here",
    405: "Not like that",
    422: "Not understood",
    429: "Not so fast",
    500: "Something went wrong",
    503: "The store does not answer",
}
RETRY: Final = 5
"""Seconds until a page is asked for again whose store did not answer."""


def dashboard(
    app: Mainspring,
    *,
    auth: Auth | None = None,
    origins: Collection[str] = (),
    redact: Collection[str] = (),
    show_unknown: bool = False,
    title: str = "Mainspring",
) -> "Dashboard":
    """Make the dashboard of an app, with its JSON API.

    Without `auth` it answers to this machine only. `origins` are other addresses whose pages may look and ask for
    changes, as `https://admin.example.com`; behind a proxy that changes the header Host, the address that people see is
    one of them. `redact` names arguments that are not shown, beside those that sound like secrets. Arguments and results of
    tasks that `app` does not have are hidden, unless a rule was stored with the job, and messages of outboxes whose handler
    it does not have; `show_unknown` shows them.
    """
    return Dashboard(Desk.of("dashboard", app, auth, origins, Hiding(redact, show_unknown)), title=title)


class Dashboard:
    """The ASGI app. `end` lets open streams end, for a server that is about to stop."""

    def __init__(self, desk: Desk, *, title: str) -> None:
        self._desk: Final = desk
        self._title: Final = title
        self._templates: Final = templates()
        self._routes: Final = {route.name: route for route in ROUTES}
        self.ticks: Final = Ticks(desk.app)
        self._asgi: Final = self._built()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._asgi(scope, receive, send)

    def end(self) -> None:
        """Let open streams end; may be called in any thread, and by the handler of a signal."""
        self.ticks.end()

    def _built(self) -> ASGIApp:
        fixed = [
            StarletteRoute("/static/{name:path}", static, methods=["GET"]),
            StarletteRoute("/events", self._answering(self._events), methods=["GET"]),
            StarletteRoute("/do/{name}", self._answering(self._do), methods=["POST"]),
            StarletteRoute("/login", self._answering(self._login), methods=["GET", "POST"]),
            StarletteRoute("/logout", self._answering(self._logout), methods=["POST"]),
        ]
        pages = [
            StarletteRoute(f"/{page.path}", self._answering(partial(self._page, page)), methods=["GET"]) for page in ALL
        ]
        inside = Starlette(
            routes=[*beside(self._desk), *(self._desk.route(route) for route in described(ROUTES)), *fixed, *pages],
            exception_handlers={HTTPException: self._no_such_path},
            lifespan=partial(opened, self._desk.app),
        )
        inside.router.redirect_slashes = False  # it would lead to whatever the header Host says
        known = {page.path for page in ALL} | {"api", *BESIDE, "static", "events", "do", "login", "logout"}
        outside: ASGIApp = Prefixed(inside, known)
        return login.Cookied(outside) if isinstance(self._desk.auth, TOKENS) else outside

    # Pages.

    async def _page(self, page: Page, request: Request) -> Response:
        who = request.state.who = await self._desk.looking(request)
        route = self._routes[page.gathers]
        allow(who, route.permission)
        if leads_in(
            request, self._desk.origins
        ):  # the other site could time a search, and infer whether it found anything
            return self._onward(request, who)
        part = request.query_params.get("part", "")
        if part and part not in page.parts:
            raise Problem(404, "not_found", "the page has no such part")
        store = await self._desk.store()
        values = {**self._values(request, who, page), "now": store.now(), "record": None, "problem": None}
        values["is_part"] = bool(part)
        try:
            said = read_query(route.takes, request.query_params, page.says)
            found = await self._desk.done(route, who, said, request)
            values |= {"said": said, "record": await self._desk.offload(lambda: plain(self._desk.shown(found)))}
        except (Problem, DeclarationError, NoOverview) as error:
            status, values["problem"] = told(error)
            if part or not page.has_search or not (status == 422 or isinstance(error, NoOverview)):
                raise
        render = (
            partial(self._templates.part, page.template, part) if part else partial(self._templates.page, page.template)
        )
        return HTMLResponse(await self._desk.offload(lambda: render(values)), headers=HEADERS)

    def _onward(self, request: Request, who: Identity) -> Response:
        """Answer a link from another site to a search with a page whose timing does not depend on the results."""
        values = self._values(request, who, None) | {
            "status": 200,
            "heading": "Link from another site",
            "message": "The link opens a search, which has not been run yet.",
            "hint": "",
            "retry": None,
            "onward": f"?{request.scope['query_string'].decode('latin-1')}",
        }
        return HTMLResponse(self._templates.page("error.html", values), headers=HEADERS)

    def _values(self, request: Request, who: Identity | None, page: Page | None) -> dict[str, Any]:
        """Say what every template is given."""
        query = {name: ",".join(filter(None, request.query_params.getlist(name))) for name in request.query_params}
        root = request.scope.get("root_path", "")
        depth = request.scope["path"].removeprefix(root).count("/") - 1
        return {
            "title": self._title,
            "page": page,
            "pages": [one for one in ALL if one.icon and who and self._shows(one, who)],
            "who": who,
            "may": lambda permission: who is not None and permission in who.permissions,
            "can_leave": isinstance(self._desk.auth, TOKENS) and who is not None,
            "routes": self._routes,
            "known": {one.path for one in ALL},
            "query": answered(query),
            "with_query": lambda changes: answered(query, changes),
            "now": self._desk.app.clock.now(),
            "up": "../" * depth,
        }

    def _shows(self, page: Page, who: Identity) -> bool:
        permission = self._routes[page.gathers].permission
        return permission is None or permission in who.permissions

    # What pages ask for.

    async def _do(self, request: Request) -> Response:
        route = self._routes.get(request.path_params["name"])
        if route is None or not route.changes:
            raise Problem(404, "not_found", "there is no such action")
        answer = await self._desk.respond(route, request, read_form)
        how, message, hint = said_of(route, answer.status_code, bytes(answer.body))
        headers = {**HEADERS, "hx-trigger": json.dumps({"changed": {"by": route.name}})}
        if "www-authenticate" in answer.headers:
            headers["www-authenticate"] = answer.headers["www-authenticate"]
        if how == "done" and route.name in SHOWN:
            return self._shown(request, SHOWN[route.name], bytes(answer.body), headers)
        if request.headers.get("hx-request") != "true":  # a browser without scripts
            values = self._values(request, None, None)
            values |= {
                "status": answer.status_code,
                "heading": message,
                "message": hint,
                "hint": "",
                "retry": None,
                "onward": "",
            }
            return HTMLResponse(self._templates.page("error.html", values), answer.status_code, headers)
        headers |= {"hx-retarget": "#toasts", "hx-reswap": "beforeend"}
        body = self._templates.page("toast.html", {"how": how, "message": message, "hint": hint})
        return HTMLResponse(body, answer.status_code, headers)

    def _shown(self, request: Request, template: str, answer: bytes, headers: dict[str, str]) -> Response:
        """Show what an action has answered: where its form says, or as a page."""
        values = {**self._values(request, None, None), "answer": json.loads(answer)}
        if request.headers.get("hx-request") == "true":  # its links are those of the page that it becomes a part of
            return HTMLResponse(self._templates.part(template, "answer", {**values, "up": ""}), headers=headers)
        return HTMLResponse(self._templates.page(template, values), headers=headers)

    async def _events(self, request: Request) -> Response:
        who = await self._desk.looking(request)
        if self.ticks.is_full(who.name):
            return PlainTextResponse("too many pages are open at a time", 503, {**HEADERS, "retry-after": "60"})
        headers = {**HEADERS, "x-accel-buffering": "no"}
        if request.method == "HEAD":  # a server sends no body then, and would yet hold the stream
            return Response(media_type="text/event-stream", headers=headers)
        return StreamingResponse(self.ticks.stream(who.name), media_type="text/event-stream", headers=headers)

    # Signing in by a token.

    async def _login(self, request: Request) -> Response:
        if not isinstance(self._desk.auth, TOKENS):
            raise Problem(404, "not_found", "nobody signs in here")
        if request.method == "GET" and isinstance(self._desk.auth, StartupToken) and request.query_params.get("token"):
            return self._signed_in(request, request.query_params["token"], "")
        if request.method == "GET":
            return self._login_page(request, login.beside(request.query_params.get("next", "")))
        check_origin(request, self._desk.origins)
        said = login.fields_of(await body_of(request, FORM))
        return self._signed_in(request, said.get("token", "").strip(), said.get("next", ""))

    def _signed_in(self, request: Request, token: str, there: str) -> Response:
        assert isinstance(self._desk.auth, TOKENS)  # noqa: S101 - there is no login page otherwise
        who = self._desk.auth(Request(login.bearing(request.scope, token))) if token else None
        signed_in(who, request.client.host if request.client else "")
        if who is None:
            return self._login_page(request, login.beside(there), refused=True)
        return login.signed_in(request, token, there)

    async def _logout(self, request: Request) -> Response:
        check_origin(request, self._desk.origins)
        return login.signed_out(request)

    def _login_page(self, request: Request, there: str, *, refused: bool = False) -> Response:
        printed = isinstance(self._desk.auth, StartupToken)
        values = {**self._values(request, None, None), "next": there, "refused": refused, "is_printed": printed}
        headers = {**HEADERS, "hx-refresh": "true"}  # a part of a page is not where one signs in
        return HTMLResponse(self._templates.page("login.html", values), 401 if refused else 200, headers)

    # What goes wrong.

    def _answering(self, handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Have whatever a handler raises become a page."""

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except Problem as problem:
                return self._told(request, problem.status, problem.error, problem.headers)
            except HTTPException as error:  # of the program's own auth
                what = Error(code="refused", message=str(error.detail))
                return self._told(request, error.status_code, what, dict(error.headers or {}))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is answered in one shape
                return self._told(request, *told(error), {})

        return answer

    def _told(self, request: Request, status: int, error: Error, headers: dict[str, str]) -> Response:
        here = request.scope["path"].rpartition("/")[2]  # not `request.url`, which the header Host has a part in
        if status == 401 and isinstance(self._desk.auth, TOKENS) and here != "events":
            said = request.scope["query_string"].decode("latin-1")
            query = f"?{said}" if said else ""
            response = self._login_page(request, login.beside(f"{here}{query}"))
            response.status_code = 401
            return response
        values = self._values(request, getattr(request.state, "who", None), None) | {
            "status": status,
            "heading": TITLES.get(status, "Not possible"),
            "message": error.message,
            "hint": error.hint or "",
            "retry": RETRY if status == 503 else None,
            "onward": "",
        }
        more = {"retry-after": str(RETRY)} if status == 503 else {}
        return HTMLResponse(self._templates.page("error.html", values), status, {**HEADERS, **more, **headers})

    async def _no_such_path(self, connection: HTTPConnection, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for nothing else
        request = Request(connection.scope)
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        if path.startswith(f"{BASE}/"):
            return await not_found(connection, error)
        is_page = path.strip("/") and path.strip("/") in {page.path for page in ALL}
        if is_page and path.endswith("/") and request.method in {"GET", "HEAD"}:
            return RedirectResponse(f"../{path.strip('/')}", 307)
        message = "There is no such page." if error.status_code == 404 else str(error.detail)
        what = Error(code="not_found", message=message)
        return self._told(request, error.status_code, what, dict(error.headers or {}))
