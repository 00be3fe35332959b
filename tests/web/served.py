"""A filled shop, and its API, in a process of their own."""

import asyncio
import multiprocessing
import sys
import threading
from collections.abc import MutableMapping
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from starlette.types import ASGIApp, Receive, Scope, Send

from mainspring import Mainspring
from mainspring.web import Identity, api
from tests.web.conftest import Photos, photo_app
from tests.web.world import World, declare, filled

ROOT = str(Path(__file__).parents[2])


class Kept:
    """A filled shop and its API in a process of their own: what a node draws by chance would confuse hypothesis."""

    def __init__(self, url: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._lock = threading.Lock()
        self._process = context.Process(target=serve, args=(url, theirs), daemon=True)

    def __enter__(self) -> Self:
        sys.path.insert(0, ROOT)  # the other process looks for this file where we do
        try:
            self._process.start()
        finally:
            sys.path.remove(ROOT)
        assert self._ours.poll(90), "it does not start"
        assert self._ours.recv() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        self._ask(None)
        self._process.join(30)
        assert self._process.exitcode == 0

    def refill(self) -> dict[str, list[Any]]:
        """Have something of everything again, whatever earlier questions did to it; returns what there is, by field."""
        there: dict[str, list[Any]] = self._ask("refill")
        return there

    def _ask(self, question: object) -> Any:  # noqa: ANN401 - what it answers
        with self._lock:
            self._ours.send(question)
            assert self._ours.poll(60), "it does not answer"
            return self._ours.recv()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        kept = {name: scope[name] for name in ("type", "method", "path", "query_string", "headers", "client", "scheme")}
        for part in await asyncio.to_thread(self._ask, (kept, body)):
            await send(part)


def serve(url: str, asked: Connection) -> None:
    """Keep a shop, and answer until there is nothing more to answer."""
    asyncio.run(_serve(url, asked))


async def _serve(url: str, asked: Connection) -> None:
    app = photo_app(Mainspring(url), Photos())
    asgi = api(app, auth=lambda _: Identity.of("anna", "admin"))
    async with filled(declare(app), grace="100ms", stop_grace="100ms") as world:
        asked.send("ready")
        while (question := await asyncio.to_thread(asked.recv)) is not None:
            match question:
                case "refill":
                    asked.send(await _refill(world))
                case scope, body:
                    asked.send(await _answer(asgi, scope, body))
                case _:
                    raise AssertionError(question)
    asked.send("over")


async def _refill(world: World) -> dict[str, list[Any]]:
    app = world.app
    for name in ("nightly", "often", "by-hand"):
        if (await app.schedules.get(name)).paused:
            await app.schedules.resume(name)
    waiting = [await app.find("add").using(delay="1h").enqueue(1) for _ in range(5)]
    over = [await app.find("add").using(delay="1h").enqueue(1) for _ in range(5)]
    for job in over:
        await job.cancel()
    now = app.store.now()
    return {
        "waiting": [str(job.id) for job in waiting],
        "over": [str(job.id) for job in over],
        "letters": [letter.id for letter in (await world.shop.orders.letters()).letters] or [1],
        "node": [world.node.id],
        "since": [(now - timedelta(days=days)).isoformat() for days in (2, 3)],
        "until": [(now - timedelta(hours=hours)).isoformat() for hours in (1, 20)],
    }


async def _answer(asgi: ASGIApp, scope: Scope, body: bytes) -> list[MutableMapping[str, Any]]:
    parts: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(part: MutableMapping[str, Any]) -> None:
        parts.append(part)

    await asgi(scope, receive, send)
    return parts
