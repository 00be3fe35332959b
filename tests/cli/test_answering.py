"""The address of a worker: health and metrics of its node, for those who keep it running."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NoReturn
from urllib.error import HTTPError
from urllib.request import urlopen

import click
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from mainspring import Mainspring
from mainspring.cli.answering import ADDRESS, AT_ONCE, PATIENCE, Address, answering
from mainspring.cli.root import Refusal
from mainspring.client.readiness import Check, Report, report_of
from mainspring.integrations.prometheus import instrument
from mainspring.runtime.events import StateChange
from tests.cli.conftest import Shop, cli, until


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8081", Address("127.0.0.1", 8081)),
        (":8081", Address("127.0.0.1", 8081)),
        ("0.0.0.0:8081", Address("0.0.0.0", 8081)),  # noqa: S104 - it is only read
        ("[::1]:80", Address("::1", 80)),
        ("example.com:0", Address("example.com", 0)),
    ],
)
def test_an_address_is_a_port_and_a_host_if_need_be(text: str, address: Address) -> None:
    assert ADDRESS.convert(text, None, None) == address
    assert ADDRESS.convert(str(address), None, None) == address


@pytest.mark.parametrize("text", ["", "x", "127.0.0.1", "1:65536", "1:-1", "1:²", "a:b"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="8081"):
        ADDRESS.convert(text, None, None)


def test_several_processes_have_no_one_address(shop: Shop) -> None:
    del shop
    done = cli("worker", "shop:app", "--processes", "2", "--health", "8081")
    assert (done.exit_code, "--health is the address of one node" in done.output) == (2, True)


@asynccontextmanager
async def answered(app: Mainspring) -> AsyncIterator[int]:
    async with app, app.node() as node, answering(Address("127.0.0.1", 0), app, node) as port:
        yield port


async def sent(port: int, *parts: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send a request in pieces; returns status, headers and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert int(headers["content-length"]) == len(body) or parts[0].startswith(b"HEAD")
    return int(first.split(" ")[1]), headers, body


def story(app: Mainspring, *requests: tuple[bytes, ...]) -> list[tuple[int, dict[str, str], bytes]]:
    async def tell() -> list[tuple[int, dict[str, str], bytes]]:
        async with answered(app) as port:
            return [await sent(port, *request) for request in requests]

    return asyncio.run(tell())


def get(path: str) -> tuple[bytes, ...]:
    return (f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode(),)


def test_it_answers_what_kubelets_ask(tmp_path: Path) -> None:
    app = Mainspring(f"sqlite:///{tmp_path / 'jobs.db'}")
    health, ready, cut, missing, post, head = story(
        app,
        get("/healthz"),
        get("/readyz?verbose"),
        (b"GET /heal", b"thz HTTP/1.0\r\n", b"\r\n"),
        get("/"),
        (b"POST /healthz HTTP/1.1\r\n\r\n",),
        (b"HEAD /healthz HTTP/1.1\r\n\r\n",),
    )
    assert (health[0], json.loads(health[2])) == (200, {"status": "ok", "checks": []})
    assert (ready[0], [check["name"] for check in json.loads(ready[2])["checks"]]) == (200, ["store", "node"])
    assert cut[0] == 200
    assert (missing[0], post[0]) == (404, 405)
    assert (head[0], head[2]) == (200, b"")


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("", True),
        ("host: localhost:8081\r\n", True),
        ("Host: 127.0.0.1\r\n", True),
        ("host: [::1]:8081\r\n", True),
        ("host: evil.example:8081\r\n", False),
        ("host: localhost.evil.example\r\n", False),
        ("host: localhost\r\nX-Forwarded-For: 127.0.0.1\r\n", False),
        ("host: localhost\r\nvia: 1.1 proxy\r\n", False),
    ],
)
def test_words_of_an_error_are_for_this_machine_and_not_for_who_only_comes_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, told: bool
) -> None:
    """As a page does whose name was turned to 127.0.0.1, or whoever is behind a proxy."""
    app = Mainspring(f"sqlite:///{tmp_path / 'jobs.db'}")

    async def look() -> Report:
        return report_of([Check(name="store", ok=False, problem="a secret of the inside")])

    monkeypatch.setattr(app.health, "look", look)
    ((status, headers, body),) = story(app, (f"GET /readyz HTTP/1.1\r\n{lines}\r\n".encode(),))
    assert (status, headers["x-content-type-options"]) == (503, "nosniff")
    assert (b"secret" in body) is told


@pytest.mark.parametrize(
    ("request_line", "host", "status"),
    [
        ("GET /metrics HTTP/1.1", "localhost:8081", 200),
        ("GET /metrics HTTP/1.1", "evil.example", 403),
        ("GET /metrics HTTP/1.0", "localhost:8081", 403),
        ("GET /healthz HTTP/1.1", "evil.example", 200),
    ],
)
def test_metrics_of_a_worker_on_loopback_are_for_this_machine(
    tmp_path: Path, request_line: str, host: str, status: int
) -> None:
    """DNS rebinding: a page whose host name resolves to 127.0.0.1 could read the names of queues and tasks."""
    app = Mainspring(f"sqlite:///{tmp_path / 'jobs.db'}")
    ((found, _, _),) = story(app, (f"{request_line}\r\nhost: {host}\r\n\r\n".encode(),))
    assert found == status


def test_it_tells_what_the_node_and_its_listeners_have_counted(tmp_path: Path) -> None:
    app = Mainspring(f"sqlite:///{tmp_path / 'jobs.db'}")
    instrument(app, CollectorRegistry())

    @app.task(name="add")
    async def add(a: int) -> int:
        return a

    async def tell() -> str:
        async with answered(app) as port:
            jobs = [await add.enqueue(number) for number in range(3)]
            for job in jobs:
                await job.result(timeout="10s")
            async with asyncio.timeout(10):
                return await counted(port)

    async def counted(port: int) -> str:
        while True:
            await asyncio.sleep(0.05)
            _, headers, body = await sent(port, *get("/metrics"))
            assert headers["content-type"].startswith("text/plain; version=0.0.4")
            if b'mainspring_attempts_total{event="succeeded",queue="default",task="add"} 3.0' in body:
                return body.decode()

    families = {one.name: one for one in text_string_to_metric_families(asyncio.run(tell()))}
    assert families["mainspring_node_places"].samples[0].value == 20
    (ended,) = [one for one in families["mainspring_node_events"].samples if one.labels == {"event": "succeeded"}]
    assert ended.value == 3
    assert families["mainspring_attempts"].samples[0].labels == {
        "queue": "default",
        "task": "add",
        "event": "succeeded",
    }
    assert families["mainspring_wait_seconds"].type == "histogram"


def test_a_listener_that_raises_is_an_answer_too(tmp_path: Path) -> None:
    app = Mainspring(f"sqlite:///{tmp_path / 'jobs.db'}")

    class Broken:
        def __call__(self, change: StateChange) -> None: ...

        def exposition(self) -> str:
            raise ZeroDivisionError

    app.listener(Broken())
    ((status, _, body),) = story(app, get("/metrics"))
    assert (status, body) == (500, b"{}")


def test_who_sends_too_much_or_nothing_is_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Mainspring(f"sqlite:///{tmp_path / 'jobs.db'}")
    assert PATIENCE == 5
    monkeypatch.setattr("mainspring.cli.answering.PATIENCE", 0.05)

    async def tell() -> None:
        async with answered(app) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.read() == b""  # it has said nothing
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\n" + b"x: y\r\n" * 10_000)
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            assert (await sent(port, *get("/healthz")))[0] == 200

    asyncio.run(tell())


def test_idle_connections_keep_no_probe_out_and_do_not_grow_in_number(tmp_path: Path) -> None:
    app = Mainspring(f"sqlite:///{tmp_path / 'jobs.db'}")

    async def tell() -> None:
        async with answered(app) as port:
            crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(AT_ONCE)]
            for _, writer in crowd:
                writer.write(b"GET /")
            await crowd[-1][1].drain()

            for _ in range(3):
                assert (await sent(port, *get("/healthz")))[0] == 200

            with suppress(ConnectionError):
                assert await crowd[0][0].read() == b"", "the oldest had to go"
            crowd[-1][1].write(b"healthz HTTP/1.1\r\n\r\n")
            assert (await crowd[-1][0].read()).startswith(b"HTTP/1.1 200"), "the newest was kept"
            for _, writer in crowd:
                writer.close()

    asyncio.run(tell())


def test_requests_that_wait_for_the_store_keep_no_probe_out_and_do_not_grow_in_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = Mainspring(f"sqlite:///{tmp_path / 'jobs.db'}")
    waiting = 0

    async def hang(_: object) -> NoReturn:
        nonlocal waiting
        waiting += 1
        try:
            await asyncio.Event().wait()
        finally:
            waiting -= 1
        raise AssertionError

    async def tell() -> None:
        async with answered(app) as port:
            monkeypatch.setattr(type(app.health), "look", hang)
            crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(AT_ONCE)]
            for _, writer in crowd:
                writer.write(get("/readyz")[0])
            async with asyncio.timeout(4):
                while waiting < AT_ONCE:
                    await asyncio.sleep(0)
                for _ in range(3):
                    assert (await sent(port, *get("/healthz")))[0] == 200
                while waiting >= AT_ONCE:
                    await asyncio.sleep(0)
            assert [one for one in caplog.records if one.levelname == "ERROR"] == []
            for _, writer in crowd:
                writer.close()

    asyncio.run(tell())


def test_an_address_that_is_taken_is_an_error_in_a_line(tmp_path: Path) -> None:
    app = Mainspring(f"sqlite:///{tmp_path / 'jobs.db'}")

    async def tell() -> None:
        async with (
            app,
            app.node() as node,
            answering(Address("127.0.0.1", 0), app, node) as port,
            answering(Address("127.0.0.1", port), app, node),
        ):
            raise AssertionError("two have the same address")

    with pytest.raises(Refusal, match="--health 127"):
        asyncio.run(tell())


def test_a_worker_is_ready_until_it_is_told_to_stop(shop: Shop) -> None:
    job = shop.enqueue("nap", 2)
    with shop.worker("--health", "0") as worker:
        said = worker.says("are at http")
        (address,) = re.findall(r"are at (http://\S+)", said)
        until(lambda: shop.job(job)["state"] == "running")
        with urlopen(f"{address}/readyz") as answer:  # noqa: S310 - our own
            assert answer.status == 200
        worker.signal(signal.SIGTERM)
        worker.says("SIGTERM")
        until(lambda: not_ready(address))
        assert worker.ends() == 0
    assert shop.job(job)["state"] == "succeeded"


def not_ready(address: str) -> bool:
    try:
        with urlopen(f"{address}/readyz"):  # noqa: S310 - our own
            return False
    except HTTPError as error:
        problems = json.load(error)
        return error.code == 503 and "stopping" in str(problems)
