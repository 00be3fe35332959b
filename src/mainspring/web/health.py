"""Two addresses for whoever keeps a program running: `healthz`, does it answer, and `readyz`, can it work.

They are open to everyone, off this machine too, and tell nobody there more than that: no names, and no words of an error.
"""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mainspring.app import Mainspring
from mainspring.client.readiness import ALIVE, Report
from mainspring.web.answers import json_answer
from mainspring.web.gate import check_closed
from mainspring.web.problems import Problem


def health_routes(app: Mainspring) -> list[Route]:
    """Make the routes, to be put beside others."""

    async def healthz(_: Request) -> Response:
        return answer(ALIVE)

    async def readyz(request: Request) -> Response:
        report = await app.health.look()
        return answer(report if _is_near(request) else report.without_problems())

    return [Route("/healthz", healthz, methods=["GET"]), Route("/readyz", readyz, methods=["GET"])]


def answer(report: Report) -> Response:
    return json_answer(200 if report.ok else 503, report)


def _is_near(request: Request) -> bool:
    try:
        check_closed(request)
    except Problem:
        return False
    return True
