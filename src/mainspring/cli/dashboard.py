"""`mainspring dashboard`: the pages of an app, served until told to stop."""

import errno
import html
import logging
import os
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from mainspring.cli.codes import Code
from mainspring.cli.echo import echo
from mainspring.cli.logs import set_up_logging
from mainspring.cli.reach import app_argument, wants_debug
from mainspring.cli.root import Refusal
from mainspring.cli.target import load_app
from mainspring.errors import DeclarationError

if TYPE_CHECKING:
    from mainspring.web import Auth, Dashboard

log: Final = logging.getLogger("mainspring.dashboard")

PORT: Final = 8321
TRIES: Final = 20
"""Ports that are looked at, one after the other, where nobody has asked for a certain one."""
GRACE: Final = 3
"""Seconds for requests to end."""
MAX_REQUESTS: Final = 500
"""At a time, streams included; more are answered with 503."""
MAX_HALF_REQUESTS: Final = 200
"""Connections without a whole request; the oldest above this are closed, before the process is out of file descriptors."""
HALF_REQUEST_S: Final = 15.0
"""Seconds for a request to come in; uvicorn itself waits without end."""


@click.command()
@app_argument
@click.option("--host", default="127.0.0.1", show_default=True, help="Serve on this address.")
@click.option("--port", type=click.IntRange(0, 65535), help=f"0: any that is free. [default: {PORT}, or the next]")
@click.option("--password-env", metavar="NAME", help="The variable that has the password of `admin`.")
@click.option("--token-file", metavar="FILE", type=click.Path(path_type=Path), help="A file of NAME ROLE TOKEN lines.")
@click.option(
    "--origin",
    "origins",
    metavar="URL",
    multiple=True,
    help="Where people see it, as https://admin.example.com, if a proxy changes the header Host.",
)
@click.option(
    "--show-unknown", is_flag=True, help="Show values of tasks and outbox handlers that the app does not have."
)
@click.option("--title", default="Mainspring", show_default=True, help="What the pages are called.")
@click.option("--open", "opens", is_flag=True, help="Show it in a browser.")
def dashboard(
    *,
    target: str,
    host: str,
    port: int | None,
    password_env: str | None,
    token_file: Path | None,
    origins: tuple[str, ...],
    show_unknown: bool,
    title: str,
    opens: bool,
) -> None:
    """Show an app's jobs in a browser, until Ctrl-C.

    Without MODULE:APP, the app is that of $MAINSPRING_APP.

    Without a password or a token file it listens on this machine only, and prints an address with a token that
    signs in. It runs no jobs: `mainspring worker` does.
    """
    try:
        import uvicorn  # noqa: F401, PLC0415 - looked for here, so that what is missing is told by its name

        from mainspring.web import StartupToken, must_have_auth  # noqa: PLC0415 - only this command needs it
        from mainspring.web import dashboard as make  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise Refusal(f"{error.name} is missing: install Mainspring with the extra 'dashboard'") from error
    set_up_logging("info", as_json=False)
    auth = _auth(password_env, token_file)
    try:
        must_have_auth(host, auth)
    except DeclarationError as error:
        problem = f"others can reach {host}, and there is no auth"
        advice = "give --password-env NAME or --token-file FILE, or serve on 127.0.0.1"
        raise click.UsageError(f"{problem}: {advice}") from error
    drawn = StartupToken() if auth is None else None
    app = load_app(target, debug=wants_debug())
    board = make(app, auth=auth or drawn, origins=origins, show_unknown=show_unknown, title=title)
    listening = listen(host, port)
    address = url(host, listening.getsockname()[1]) + (f"login?token={drawn.token}" if drawn else "")
    echo(f"{title} is at {address} (Ctrl-C ends it)")
    for sentence in welcome(host, password_env, token_file):
        echo(sentence)
    sys.stdout.flush()
    with _redirecting_page(address) if opens and drawn else nullcontext(address) as shown:
        if opens:
            threading.Timer(0.5, webbrowser.open, [shown]).start()
        serve(board, listening)


@contextmanager
def _redirecting_page(address: str) -> Iterator[str]:
    """Return the URL of a file that redirects to an address with a token, and that only this account can read.

    Other accounts can read the command line with which the browser is started.
    """
    with TemporaryDirectory(prefix="mainspring-") as folder:
        page = Path(folder, "open.html")
        page.touch(0o600)
        page.write_text(f'<meta http-equiv="refresh" content="0; url={html.escape(address)}">\n', encoding="utf-8")
        yield page.as_uri()


def _auth(password_env: str | None, token_file: Path | None) -> "Auth | None":
    from mainspring.web import Password, TokenFile  # noqa: PLC0415 - as above

    if password_env is not None and token_file is not None:
        raise click.UsageError("--password-env and --token-file: give one of them")
    if token_file is not None:
        return TokenFile(token_file)
    if password_env == "":  # an unset shell variable must not disable authentication
        raise click.UsageError(
            "--password-env: the name of the variable is empty; pass the name of a variable that is set"
        )
    if password_env is not None:
        if password_env not in os.environ:
            raise Refusal(f"there is no variable {password_env} in the environment", Code.USAGE)
        return Password(os.environ[password_env])
    return None


def welcome(host: str, password_env: str | None, token_file: Path | None) -> Iterator[str]:
    """Say how people sign in, and what a network needs besides."""
    from mainspring.web.gate import is_loopback  # noqa: PLC0415 - as above

    if password_env:
        yield f"Sign in as admin, with the password in ${password_env}."
    if token_file:
        yield f"Sign in with a token of {token_file}."
    if not is_loopback(host):
        yield "It speaks plain HTTP, which others can read on the way: put a proxy with TLS in front of it."


def listen(host: str, port: int | None, *, quietly: bool = False) -> socket.socket:
    """Take the port, or where none was asked for the first from `PORT` on that is free; any, if many are taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for tried in [port] if port is not None else [*range(PORT, PORT + TRIES), 0]:
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, tried))
            listening.listen(128)
        except OSError as error:
            listening.close()
            if port is None and tried and error.errno == errno.EADDRINUSE:
                following = tried + 1 if tried + 1 < PORT + TRIES else "any other"
                if not quietly:
                    echo(f"Port {tried} is taken, trying {following}.", err=True)
                continue
            option = "--host" if error.errno == errno.EADDRNOTAVAIL else "--port"
            raise Refusal(f"{host}:{tried}: {error.strerror}; choose another with {option}") from error
        return listening
    raise AssertionError(port)


def url(host: str, port: int) -> str:
    """Say where a browser finds it: a server on all addresses is on this machine's own, too."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - it is read, and not bound
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"


class HalfRequests:
    """Connections of uvicorn that have sent no whole request since the last one, by when they were first seen so."""

    def __init__(self) -> None:
        self._since: dict[Any, tuple[object, float]] = {}

    def close(self, connections: Iterable[Any], now: float) -> None:
        """Close those that take too long, and the oldest where there are too many."""
        idle = {one: one.cycle for one in connections if _is_idle(one)}
        seen = {one: self._since.get(one, (None, now)) for one in idle}
        self._since = {one: (idle[one], at if cycle is idle[one] else now) for one, (cycle, at) in seen.items()}
        oldest = sorted(self._since, key=lambda one: self._since[one][1])
        for position, one in enumerate(oldest, 1):
            if position <= len(oldest) - MAX_HALF_REQUESTS or now - self._since[one][1] >= HALF_REQUEST_S:
                one.transport.abort()


def _is_idle(connection: Any) -> bool:  # noqa: ANN401 - a protocol of uvicorn, which has several
    return hasattr(connection, "cycle") and (connection.cycle is None or connection.cycle.response_complete)


def serve(board: "Dashboard", listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM. Streams end at once then; else the server would wait for browsers to go."""
    import uvicorn  # noqa: PLC0415 - as above

    half_requests = HalfRequests()

    class Server(uvicorn.Server):
        """Tells the dashboard when it is to end, and closes connections that send no request."""

        async def on_tick(self, counter: int) -> bool:
            half_requests.close(self.server_state.connections, time.monotonic())
            return await super().on_tick(counter)

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's own signature
            board.end()
            self.force_exit = self.should_exit  # who asks twice does not want to wait
            self.should_exit = True

    config = uvicorn.Config(
        board,
        log_config=None,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=GRACE,
        lifespan="on",
        limit_concurrency=MAX_REQUESTS,
        # Otherwise any local client could choose the address under which its wrong passwords are counted.
        proxy_headers="FORWARDED_ALLOW_IPS" in os.environ,
    )
    with listening:
        Server(config).run(sockets=[listening])
