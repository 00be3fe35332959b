"""The demo's dashboard: served by the demo itself on a free port of this machine, for as long as a block runs."""

import asyncio
import importlib.util
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final

from mainspring.cli.dashboard import listen, url

if TYPE_CHECKING:
    from mainspring.app import Mainspring

log = logging.getLogger("mainspring.dashboard")

HOST: Final = "127.0.0.1"
NEEDED: Final = ("starlette", "jinja2", "uvicorn")
GRACE: Final = 1
"""Seconds for requests to end."""


def is_there() -> bool:
    """Say whether what the dashboard needs is installed."""
    return all(importlib.util.find_spec(name) for name in NEEDED)


@asynccontextmanager
async def served(app: "Mainspring") -> AsyncIterator[str]:
    """Serve the dashboard of an app that is open, on this loop; gives its address."""
    import uvicorn  # noqa: PLC0415 - an extra

    from mainspring.web import dashboard  # noqa: PLC0415 - as above

    class Server(uvicorn.Server):
        """Leaves signals to the demo."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    board = dashboard(app, title="Mainspring")
    config = uvicorn.Config(
        board,
        lifespan="off",
        ws="none",
        log_config=None,
        log_level="critical",
        access_log=False,
        timeout_graceful_shutdown=GRACE,
    )
    listening = listen(HOST, None, quietly=True)
    server = Server(config)
    with listening:
        serving = asyncio.create_task(server.serve([listening]))
        try:
            yield url(HOST, listening.getsockname()[1])
        finally:
            board.end()
            server.should_exit = True
            await serving


@asynccontextmanager
async def busy(address: str) -> AsyncIterator[None]:
    """Keep the shop around the story busy."""
    from mainspring.cli.demo.traffic import customers, operator  # noqa: PLC0415 - it makes tasks, for the demo's app

    at_work = [asyncio.create_task(customers()), asyncio.create_task(operator(address))]
    try:
        yield
    finally:
        for one in at_work:
            one.cancel()
        await asyncio.wait(at_work)
        for one in at_work:
            if not one.cancelled() and (error := one.exception()):
                log.error("the shop of the demo has closed early: %r", error)
