"""Ticks, on virtual time: when they come, how many browsers there can be, and how they end."""

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from mainspring import Mainspring
from mainspring.stores.memory import MemoryStore
from mainspring.testing import VirtualTime
from mainspring.web import dashboard
from mainspring.web.ticks import APART, AT_LEAST, FIRST, LIFE, MOST, TICK, Ticks
from tests.web.conftest import client


@pytest.fixture
def app(virtual_time: VirtualTime) -> Mainspring:
    app = Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)

    @app.task(name="quick")
    async def quick() -> None: ...

    return app


async def times(ticks: Ticks) -> list[float]:
    """Watch a stream to its end, and say when its ticks came."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    got = [(loop.time() - begun, chunk) async for chunk in ticks.stream()]
    assert got[0][1] == FIRST
    assert {chunk for _, chunk in got[1:]} <= {TICK}
    return [at for at, _ in got[1:]]


async def test_a_quiet_store_ticks_every_few_seconds(app: Mainspring) -> None:
    async with app:
        seen = await times(Ticks(app))
        assert seen[0] == pytest.approx(AT_LEAST.total_seconds())
        assert all(later - sooner == pytest.approx(AT_LEAST.total_seconds()) for sooner, later in pairwise(seen))
        assert seen[-1] == pytest.approx(LIFE.total_seconds(), abs=AT_LEAST.total_seconds())


async def test_a_change_is_told_within_a_second(app: Mainspring) -> None:
    async with app:
        ticks = Ticks(app)
        watching = asyncio.create_task(times(ticks))
        await asyncio.sleep(2)
        await app.enqueue("quick")
        seen = await watching
        assert 2 <= seen[0] <= 2 + APART.total_seconds()


async def test_a_busy_store_ticks_once_a_second_at_most(app: Mainspring) -> None:
    async with app:
        ticks = Ticks(app)
        watching = asyncio.create_task(times(ticks))
        for _ in range(100):
            await app.enqueue("quick")
            await asyncio.sleep(0.1)
        seen = await watching
        assert all(later - sooner >= APART.total_seconds() - 1e-6 for sooner, later in pairwise(seen))
        assert len([at for at in seen if at <= 10]) >= 9


async def test_all_streams_end_at_once_when_they_are_told_to(app: Mainspring) -> None:
    async with app:
        ticks = Ticks(app)
        loop = asyncio.get_running_loop()
        for busy in (False, True):
            ticks = Ticks(app)
            watching = [asyncio.create_task(times(ticks)) for _ in range(3)]
            await asyncio.sleep(2)
            if busy:
                await app.enqueue("quick")
                await asyncio.sleep(0.01)
            assert len(ticks) == 3
            begun = loop.time()
            ticks.end()
            await asyncio.gather(*watching)
            assert loop.time() - begun < 0.1
            assert len(ticks) == 0
        assert await times(ticks) == []  # and no other begins


async def test_whoever_goes_leaves_nothing_behind(app: Mainspring) -> None:
    async with app:
        ticks = Ticks(app)
        stream = ticks.stream()
        assert await anext(stream) == FIRST
        assert len(ticks) == 1
        assert isinstance(stream, AsyncIterator)
        await stream.aclose()  # type: ignore[attr-defined]  # it is a generator
        assert len(ticks) == 0
        assert ticks._unwatch is None


async def test_there_are_so_many_streams_and_no_more(app: Mainspring) -> None:
    async with app:
        board = dashboard(app)
        streams = [board.ticks.stream() for _ in range(MOST + 1)]
        assert [await anext(one, None) for one in streams] == [FIRST] * MOST + [None]
        async with client(board) as found:
            response = await found.get("/events")
        assert response.status_code == 503
        assert response.headers["retry-after"]
        for one in streams:
            await one.aclose()  # type: ignore[attr-defined]  # they are generators


async def test_a_stream_is_not_kept_by_anyone_on_its_way(app: Mainspring) -> None:
    async with app:
        board = dashboard(app)
        async with client(board) as found:
            response = await found.get("/events")
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-accel-buffering"] == "no"
        assert response.content.count(TICK) >= 10


async def test_who_asks_for_the_headers_alone_holds_no_stream(app: Mainspring) -> None:
    async with app:
        board = dashboard(app)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with client(board) as found:
            response = await found.head("/events")
        assert loop.time() == begun
        assert (response.status_code, response.content) == (200, b"")
        assert response.headers["content-type"].startswith("text/event-stream")


async def test_while_the_store_is_closed_there_are_ticks_all_the_same(virtual_time: VirtualTime) -> None:
    app = Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)
    assert len(await times(Ticks(app))) >= 10


MOUNTED = """
from fastapi import FastAPI
from mainspring import Mainspring
from mainspring.web import dashboard

site = FastAPI()
site.mount("/mainspring", dashboard(Mainspring("memory://")))
"""


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_mounted_it_does_not_keep_uvicorn_from_ending(tmp_path: Path, sign: signal.Signals) -> None:
    (tmp_path / "shop.py").write_text(MOUNTED, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "shop:site", "--port", str(port), "--log-level", "warning"]
    with subprocess.Popen(command, cwd=tmp_path) as program:
        try:
            there(f"http://127.0.0.1:{port}/mainspring/healthz")
            with httpx.stream("GET", f"http://127.0.0.1:{port}/mainspring/events", timeout=60) as stream:
                chunks = stream.iter_bytes()
                assert next(chunks) == FIRST
                program.send_signal(sign)
                deadline = time.monotonic() + 30
                assert all(time.monotonic() < deadline for _ in chunks)
                program.wait(60)
        finally:
            program.kill()


def there(address: str) -> None:
    """Wait until a server answers."""
    for _ in range(1000):
        with suppress(httpx.TransportError):
            httpx.get(address, timeout=60)
            return
        time.sleep(0.05)
    raise AssertionError(address)
