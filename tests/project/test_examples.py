"""The programs in examples/ run, and do what they say."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from tests.servers.postgres import Server

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_library_of_photos_has_two_plugins(tmp_path: Path) -> None:
    assert run("photo_library.py", str(tmp_path)) == [
        "refused: HostWrite",
        "digest: 7 of 7 photos have a thumbnail",
        "stopped: plugin digest was not granted HostWrite",
        "uninstalled: plugin thumbnails is not installed",
        "photos left: 7",
    ]


@contextmanager
def serving(folder: Path, url: str) -> Iterator[httpx.Client]:
    """Have the order service run on a free port until the end of the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-W", "error", str(EXAMPLES / "order_service.py"), url, str(port)]
    with (
        (folder / "out").open("wb") as out,
        subprocess.Popen(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as client,
    ):
        try:
            until(lambda: process.poll() is not None or answers(client), folder)
            yield client
        finally:
            process.terminate()
            process.wait(60)


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/stock").is_success
    except httpx.TransportError:
        return False


def until(true: Callable[[], object], folder: Path) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, (folder / "out").read_text()
        time.sleep(0.02)


def order_some(folder: Path, url: str) -> None:
    """Place forty orders from eight threads, every fourth of them too large; all is as it should be at the end."""
    with serving(folder, url) as client:

        def order(number: int) -> int:
            quantity = 101 if number % 4 == 0 else 2
            body = {"customer": f"c{number % 5}", "article": "lamp", "quantity": quantity}
            return client.post("/orders", json=body).status_code

        with ThreadPoolExecutor(8) as threads:
            codes = list(threads.map(order, range(40)))
        assert sorted(codes) == [201] * 30 + [422] * 10, (folder / "out").read_text()
        placed = client.get("/orders").json()
        assert len(placed) == 30
        until(lambda: client.get("/stock").json() == {"lamp": 1000 - 30 * 2}, folder)
        until(lambda: len((folder / "out").read_text().splitlines()) >= 30, folder)
    lines = (folder / "out").read_text().splitlines()
    assert sorted(int(line.rpartition(" ")[2]) for line in lines) == placed


@pytest.mark.slow
def test_an_order_service_counts_its_stock_exactly_once(tmp_path: Path) -> None:
    order_some(tmp_path, "sqlite:///shop.db")


@pytest.mark.slow
def test_an_order_service_does_the_same_on_postgresql(tmp_path: Path, postgres: Server) -> None:
    name = f"orders_{uuid4().hex[:8]}"
    postgres.sql(f"CREATE DATABASE {name}")
    try:
        order_some(tmp_path, postgres.dsn(name))
    finally:
        postgres.sql(f"DROP DATABASE {name} WITH (FORCE)")
