"""The address of a worker, for kubelets, load balancers and Prometheus: `healthz`, `readyz` and `metrics` of its node.

As much of HTTP as these need and no more, so that a worker needs nothing installed for it: a request is read up to its
empty line and answered, and the connection closed.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final, NamedTuple, Protocol, runtime_checkable

import click
import msgspec

from mainspring.app import Mainspring
from mainspring.cli.codes import Code
from mainspring.cli.root import Refusal
from mainspring.client.metrics import CONTENT_TYPE, Family, written
from mainspring.client.readiness import ALIVE, Report
from mainspring.runtime.node import Node

log: Final = logging.getLogger("mainspring.worker")

PATIENCE: Final = 5.0
"""Seconds that a request may take to come, and an answer to go."""
LONGEST: Final = 16_384
"""Bytes of a request with its headers."""
AT_ONCE: Final = 50
"""Connections at a time. Another one closes the oldest without a request, or else the oldest, so that neither idle
connections nor requests that wait for the store keep probes out."""


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AddressType(click.ParamType):  # type: ignore[type-arg]  # generic in the newest click only
    """Reads "8081", "0.0.0.0:8081" and "[::]:8081"."""

    name = "address"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        if isinstance(value, Address):
            return value
        host, _, port = str(value).rpartition(":")
        if not (port.isascii() and port.isdigit() and int(port) < 65536):
            self.fail(f"{value!r} is no address; write 8081, or HOST:8081", param, ctx)
        return Address(host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port))


ADDRESS: Final = AddressType()


@runtime_checkable
class Exposes(Protocol):
    """A listener that has counted something, and can say it as Prometheus reads it."""

    def exposition(self) -> str: ...


class Said(NamedTuple):
    """An answer."""

    status: HTTPStatus
    body: bytes
    kind: str = "application/json"


@asynccontextmanager
async def answering(address: Address, app: Mainspring, node: Node) -> AsyncIterator[int]:
    """Answer for a node while the block runs; yields the port, which is another than the one given if that is 0."""
    clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}  # the oldest first
    reading: dict[asyncio.Task[None], None] = {}  # those without a request yet, in the same order

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        me = asyncio.current_task()
        assert me is not None  # noqa: S101 - asyncio runs it as a task
        if len(clients) >= AT_ONCE:
            oldest = next(iter(reading or clients))
            reading.pop(oldest, None)
            clients.pop(oldest).transport.abort()
            oldest.cancel()
        clients[me] = writer
        reading[me] = None
        try:
            async with asyncio.timeout(PATIENCE):
                request = await reader.readuntil(b"\r\n\r\n")
                reading.pop(me, None)
                await _answer(request, writer, app, node)
        except asyncio.CancelledError:
            log.debug("a request for the health of the node gave way")  # Python 3.11 logs a cancelled task as an error
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            log.debug("a request for the health of the node was not read to its end")
        finally:
            reading.pop(me, None)
            clients.pop(me, None)
            writer.close()

    try:
        server = await asyncio.start_server(take, address.host, address.port, limit=LONGEST)
    except OSError as error:
        raise Refusal(f"--health {address}: {error.strerror or error}", Code.FAILED) from error
    port: int = server.sockets[0].getsockname()[1]
    log.info("healthz, readyz and metrics are at http://%s", Address(address.host, port))
    try:
        yield port
    finally:
        server.close()
        for client in tuple(clients):
            client.cancel()
        if clients:
            await asyncio.wait(tuple(clients))


async def _answer(request: bytes, writer: asyncio.StreamWriter, app: Mainspring, node: Node) -> None:
    first, *headers = request.decode("latin-1").split("\r\n")
    words = first.split(" ")
    peer = writer.get_extra_info("peername")
    near = bool(peer) and _is_local(str(peer[0])) and not _is_led(headers) and words[-1] != "HTTP/1.0"
    here = writer.get_extra_info("sockname")
    try:
        said = await _said(words, app, node, near=near, open_to_others=bool(here) and not _is_local(str(here[0])))
    except Exception:
        log.exception("a request for the health of the node failed")
        said = Said(HTTPStatus.INTERNAL_SERVER_ERROR, b"{}")
    lines = (
        f"HTTP/1.1 {said.status.value} {said.status.phrase}",
        f"content-type: {said.kind}",
        f"content-length: {len(said.body)}",
        "cache-control: no-store",
        "x-content-type-options: nosniff",
        "connection: close",
    )
    body = b"" if words[0] == "HEAD" else said.body
    writer.write("\r\n".join((*lines, "", "")).encode() + body)
    await writer.drain()
    with suppress(OSError):
        writer.write_eof()


async def _said(words: list[str], app: Mainspring, node: Node, *, near: bool, open_to_others: bool) -> Said:
    if len(words) != 3 or words[0] not in {"GET", "HEAD"}:
        return Said(HTTPStatus.METHOD_NOT_ALLOWED, b"{}")
    match words[1].partition("?")[0]:
        case "/healthz":
            return _health(ALIVE)
        case "/readyz":
            report = await app.health.look()
            return _health(report if near else report.without_problems())
        case "/metrics" if not (
            near or open_to_others
        ):  # DNS rebinding: a page of another site whose host name resolves to this machine
            return Said(HTTPStatus.FORBIDDEN, b"{}")
        case "/metrics":
            return Said(HTTPStatus.OK, node_text(node).encode(), CONTENT_TYPE)
        case _:
            return Said(HTTPStatus.NOT_FOUND, b"{}")


def _health(report: Report) -> Said:
    return Said(HTTPStatus.OK if report.ok else HTTPStatus.SERVICE_UNAVAILABLE, msgspec.json.encode(report))


def _is_local(host: str) -> bool:
    try:
        return host.lower() == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _is_led(lines: list[str]) -> bool:
    """Say whether a request only comes through this machine: by a proxy, or by a page whose name was turned to it."""
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if any(name.startswith(("x-forwarded", "forwarded", "x-real-ip", "via")) for name in headers):
        return True
    host = headers.get("host", "localhost")
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return not _is_local(name)


# What is measured of one node. What is measured of the store, the dashboard and the JSON API tell, once for all nodes.

RUNNING: Final = Family("mainspring_node_running", "Jobs that this node runs.", (), lambda _: ())
PLACES: Final = Family("mainspring_node_places", "How many it runs at a time.", (), lambda _: ())
EVENTS: Final = Family(
    "mainspring_node_events_total", "What it has counted since it began.", ("event",), lambda _: (), kind="counter"
)
NODE_FAMILIES: Final = (RUNNING, PLACES, EVENTS)


def node_text(node: Node) -> str:
    """Write what a node has counted, and its listeners."""
    listeners: tuple[object, ...] = node.events.listeners
    told = (one.exposition() for one in listeners if isinstance(one, Exposes))
    return "".join((*(f"{line}\n" for line in _node_lines(node)), *told))


def _node_lines(node: Node) -> Iterator[str]:
    yield from written(RUNNING, [((), float(node.running))])
    yield from written(PLACES, [((), float(node.places))])
    yield from written(EVENTS, [((name,), float(number)) for name, number in sorted(node.events.counts.items())])
