"""An app with tasks, schedules and a host, asked over ASGI, as a server would ask it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.types import ASGIApp

from mainspring import Mainspring, Plugin
from mainspring.plugins import BackgroundJobs
from mainspring.stores.memory import MemoryStore
from mainspring.stores.port import Store
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime
from mainspring.web import Auth, api

if TYPE_CHECKING:
    from tests.web.world import Shop

LOCAL = "127.0.0.1"
BASE = "/api/v1"


class Photos:
    """A program that keeps numbers, and fails when it is given a thirteen."""

    def __init__(self, rows: int = 25) -> None:
        self.rows = rows
        self.written: list[int] = []
        self.said: list[tuple[str, Any]] = []

    async def read(self, statement: str, params: Any) -> list[int]:  # noqa: ANN401 - a program's own
        self.said.append((statement, params))
        return list(range(self.rows))

    async def write(self, statement: str, params: Any) -> Any:  # noqa: ANN401 - as above
        self.said.append((statement, params))
        if statement == "FAIL":
            raise OSError("disk is full")
        rows = params.get("rows", [])
        if isinstance(rows, list):
            if 13 in rows:
                raise ValueError("thirteen")
            self.written += rows
        return {"changed": len(rows) if isinstance(rows, list) else 0, "by": object if statement == "ODD" else None}


def photo_app(app: Mainspring, photos: Photos) -> Mainspring:
    plugin = Plugin("photos", "1", requires=[BackgroundJobs()])

    @plugin.task
    async def sweep(width: int = 800, name: str = "") -> None: ...

    app.install(plugin, grant="all")
    app.host.offer(execute_read=photos.read, execute_write=photos.write)
    return app


@pytest.fixture
def photos() -> Photos:
    return Photos()


@pytest.fixture
def app(virtual_time: VirtualTime, photos: Photos) -> Mainspring:
    return photo_app(Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock), photos)


@pytest.fixture(params=["memory", "sqlite"])
def shop(request: pytest.FixtureRequest, virtual_time: VirtualTime, tmp_path: Path) -> "Shop":
    """A shop on virtual time, in each store that is always there."""
    from tests.web.world import declare  # noqa: PLC0415 - which needs what is here

    clock = virtual_time.clock
    store: Store = MemoryStore(clock=clock)
    if request.param == "sqlite":
        store = SqliteStore(tmp_path / "jobs.db", clock=clock)
    return declare(Mainspring(store, clock=clock))


@asynccontextmanager
async def client(
    asgi: ASGIApp, *, host: str = LOCAL, base_url: str = "http://localhost", root_path: str = ""
) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(asgi, client=(host, 123), root_path=root_path)
    async with httpx.AsyncClient(transport=transport, base_url=base_url) as found:
        yield found


Ask = Callable[..., Awaitable[httpx.Response]]


@pytest.fixture
def ask(app: Mainspring) -> Ask:
    """Ask for an action: with a body, also an empty `content`, it is a change, without one a look."""

    async def asked(
        action: str,
        body: object = None,
        *,
        auth: Auth | None = None,
        host: str = LOCAL,
        headers: Mapping[str, str] | None = None,
        origins: tuple[str, ...] = (),
        **options: Any,  # noqa: ANN401 - httpx's own
    ) -> httpx.Response:
        async with client(api(app, auth=auth, origins=origins), host=host) as found:
            if body is not None:
                options["json"] = body
            return await found.request("POST" if options else "GET", f"{BASE}/{action}", headers=headers, **options)

    return asked


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """Return the error in an answer, whose shape is always the same."""
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"error"}
    assert {"code", "message"} <= set(body["error"]) <= {"code", "message", "hint", "number"}
    assert "Traceback" not in response.text
    error: dict[str, Any] = body["error"]
    return error
