"""`metrics`: what is measured, for Prometheus. A scraper is known by a token, and needs the permission to look."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mainspring.app import Mainspring
from mainspring.client.metrics import CONTENT_TYPE, text
from mainspring.web.answers import HEADERS, json_answer
from mainspring.web.auth import Identity, Permission
from mainspring.web.gate import allow
from mainspring.web.problems import Answer, Problem, told

PATIENCE: Final = 5.0
"""Seconds: a scraper gives up after ten, and comes again."""


async def metrics(app: Mainspring) -> str:
    """Give what is measured as Prometheus reads it, in its text format 0.0.4."""
    try:
        async with asyncio.timeout(PATIENCE):
            return text(await app.measure())
    except TimeoutError:
        raise Problem(503, "store_unavailable", f"the store has not answered for {PATIENCE:g} s") from None


def metrics_route(app: Mainspring, known: Callable[[Request], Awaitable[Identity]]) -> Route:
    """Make the route, to be put beside others; `known` says who asks, or raises."""

    async def respond(request: Request) -> Response:
        try:
            allow(await known(request), Permission.OVERVIEW_LOOK)
            return Response(await metrics(app), 200, {**HEADERS, "content-type": CONTENT_TYPE})
        except HTTPException:  # of the program's own auth; told by whoever tells of all others
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is answered in the one shape
            status, what = told(error)
            return json_answer(status, Answer(what), error.headers if isinstance(error, Problem) else None)

    return Route("/metrics", respond, methods=["GET"], name="metrics")
