"""The dashboard as people see it: a real server, a node at work, and the system's Chromium. In real time."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from mainspring import Context, Mainspring, Retry
from mainspring.handle import JobHandle
from mainspring.runtime import census
from mainspring.stores.memory import MemoryStore
from mainspring.web import Auth, dashboard

T = TypeVar("T")
PATIENCE = 60
"""Seconds that anything may take that is only waited for; a machine may be busy with other things."""
expect.set_options(timeout=PATIENCE * 1000)

TICK = """() => new Promise(done => {
    const source = new EventSource(document.body.getAttribute("sse-connect"));
    source.addEventListener("tick", () => { source.close(); done(); });
})"""
"""Ends when another stream of the page has brought a tick."""
IS_RENEWED = """() => [...document.querySelectorAll("[data-live][hx-trigger*='sse:tick']")].some(
    part => !part.querySelector("[data-ended]")
)"""


def work(app: Mainspring) -> None:
    """Declare tasks of every fate."""

    @app.task(name="mail.send", queue="mail", retry=Retry.none())
    async def send(ctx: Context, to: str) -> str:
        ctx.log(f"to {to}")
        if to == "nobody":
            raise ValueError("no such user")
        return to

    @app.task(name="film.encode", queue="media")
    async def encode(ctx: Context) -> None:
        for frame in range(10_000):
            ctx.progress(frame / 100, f"frame {frame}")
            await asyncio.sleep(0.2)


class Program:
    """A program with a dashboard, on a loop and in a thread of its own."""

    def __init__(self, *, prefix: str = "", auth: Auth | None = None) -> None:
        self.app = Mainspring(MemoryStore())
        work(self.app)
        self.board = dashboard(self.app, auth=auth)
        asgi: ASGIApp = Starlette(routes=[Mount(prefix, self.board)]) if prefix else self.board
        config = uvicorn.Config(asgi, port=0, log_level="error", timeout_graceful_shutdown=1, lifespan="off")
        self._server = uvicorn.Server(config)
        self._loop = asyncio.new_event_loop()
        self._ready: Future[str] = Future()
        self._prefix = prefix
        self._thread = threading.Thread(target=self._run)

    def start(self) -> str:
        self._thread.start()
        return self._ready.result(PATIENCE)

    def stop(self) -> None:
        self.board.end()
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def do(self, awaited: Callable[[], Awaitable[T]]) -> T:
        """Have something done on the loop of the program."""

        async def call() -> T:
            return await awaited()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(PATIENCE)

    def enqueue(self, task: str, *arguments: object) -> JobHandle[Any]:
        return self.do(lambda: self.app.enqueue(task, *arguments))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
            if not self._ready.done():
                self._ready.set_exception(error)
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        async with self.app, self.app.node(concurrency=4, grace="0.1s", stop_grace="0.5s"):
            serving = asyncio.create_task(self._server.serve())
            while not self._server.started and not serving.done():
                await asyncio.sleep(0.01)
            if not serving.done():
                port = self._server.servers[0].sockets[0].getsockname()[1]
                self._ready.set_result(f"http://127.0.0.1:{port}{self._prefix}/")
            await serving


@dataclass
class Seen:
    """A page, and what its browser has complained about."""

    page: Page
    base: str
    program: Program
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def go(self, path: str = "") -> None:
        self.page.goto(f"{self.base}{path}")
        self.page.wait_for_function("document.readyState === 'complete'")

    def lives_on(self, path: str) -> None:
        """Look at a page until a tick has come, and until it has been renewed by one if it ever is."""
        renewed: list[Request] = []

        def note(request: Request) -> None:
            if "hx-request" in request.headers:
                renewed.append(request)

        self.page.on("requestfinished", note)
        self.go(path)
        self.page.evaluate(TICK)
        if self.page.evaluate(IS_RENEWED):
            self.until(lambda: renewed)
        self.page.remove_listener("requestfinished", note)

    def box(self, selector: str) -> dict[str, float]:
        """Say where the first of these is; in one go, as its page may be renewed between any two."""
        found: dict[str, float] = self.page.locator(selector).first.evaluate(
            "(_, selector) => document.querySelector(selector).getBoundingClientRect().toJSON()", selector
        )
        return found

    def until(self, fact: Callable[[], object], otherwise: Callable[[], object] = lambda: "") -> None:
        """Wait for something to be so that the browser cannot tell by itself; its page goes on meanwhile."""
        deadline = time.monotonic() + PATIENCE
        while not fact():
            assert time.monotonic() < deadline, otherwise()
            self.page.wait_for_timeout(20)


@contextmanager
def seen(
    browser: Browser, program: Program, base: str, *, width: int = 1280, height: int = 800, zone: str = "UTC"
) -> Iterator[Seen]:
    context = browser.new_context(viewport={"width": width, "height": height}, timezone_id=zone)
    context.set_default_timeout(PATIENCE * 1000)
    found = Seen(context.new_page(), base, program)

    def note(request: Request) -> None:
        found.hosts.add(request.url.split("/")[2])

    page = found.page
    page.on("request", note)
    page.on("console", lambda said: found.complaints.append(said.text) if said.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    page.on("dialog", lambda dialog: found.complaints.append(f"dialog: {dialog.message}"))
    try:
        yield found
    finally:
        context.close()


@pytest.fixture(autouse=True)
def counted_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what waits and runs counted soon after it changed."""
    monkeypatch.setattr(census, "FIRST", 0.1)
    monkeypatch.setattr(census, "EVERY", 0.5)


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """A Chromium, for no longer than the tests of a file: while playwright runs, no other loop can in its thread."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def program() -> Iterator[tuple[Program, str]]:
    found = Program()
    base = found.start()
    try:
        yield found, base
    finally:
        found.stop()


@pytest.fixture
def see(browser: Browser, program: tuple[Program, str]) -> Iterator[Seen]:
    with seen(browser, *program) as found:
        yield found
    assert found.complaints == []
    assert found.hosts == {program[1].split("/")[2]}
