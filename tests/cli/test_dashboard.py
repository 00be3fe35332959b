"""`mainspring dashboard`: where it listens, whom it lets in, how it ends."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from mainspring.cli.dashboard import HALF_REQUEST_S, PORT, TRIES, HalfRequests, listen, url, welcome
from mainspring.cli.root import Refusal
from mainspring.web.guesses import MOST as GUESSES
from tests.cli.conftest import cli

APP = """
from mainspring import Mainspring

app = Mainspring("memory://")

@app.task(name="quick")
async def quick() -> None: ...
"""
PATIENT = """
import importlib
from datetime import timedelta
from mainspring.cli import main
importlib.import_module("mainspring.cli.dashboard").GRACE = 60
importlib.import_module("mainspring.web.ticks").GLANCE = timedelta(hours=1)
main(prog_name="mainspring")
"""
"""The program, with a server that waits so long for open requests that it shows, however busy the machine is; and with
streams that do not look by themselves whether it ends."""
PASSWORD = "correct horse"  # noqa: S105 - of nobody


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shown.py").write_text(APP)
    return tmp_path


@contextmanager
def running(folder: Path, *options: str) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    command = [sys.executable, "-c", PATIENT, "dashboard", "shown:app", *options]
    environment = {**os.environ, "ADMIN_PASSWORD": PASSWORD}
    program = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout
        line = program.stdout.readline()
        (address,) = re.findall(r"http://\S+", line)
        for _ in range(1000):
            with suppress(httpx.TransportError):
                ask("GET", address)
                break
            time.sleep(0.05)
        yield program, address
    finally:
        program.kill()
        program.communicate()


def ask(method: str, address: str, **more: Any) -> httpx.Response:  # noqa: ANN401 - of httpx
    return httpx.request(method, address, timeout=60, **more)


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_the_printed_address_signs_in_and_the_server_ends_at_once_with_streams_open(
    folder: Path, sign: signal.Signals
) -> None:
    with running(folder, "--port", "0") as (program, printed), httpx.Client(timeout=60) as browser:
        address, token = printed.split("login?token=")
        assert ask("GET", address).status_code == 401, "an address of this machine is not enough"
        assert ask("GET", f"{address}login?token=guessed").status_code == 401
        assert ask("GET", f"{address}jobs", headers={"authorization": f"Bearer {token}"}).status_code == 200
        assert browser.get(printed, follow_redirects=True).status_code == 200
        assert browser.get(f"{address}jobs").status_code == 200
        assert "token=" not in str(browser.get(printed, follow_redirects=True).url)
        with browser.stream("GET", f"{address}events") as stream:
            chunks = stream.iter_bytes()
            assert next(chunks).startswith(b"retry:")
            begun = time.monotonic()
            program.send_signal(sign)
            with suppress(httpx.TransportError):
                list(chunks)
            assert program.wait(60) == 0
            assert time.monotonic() - begun < 30  # less than the server would wait for open requests


@pytest.mark.slow
def test_the_token_is_not_in_the_command_line_of_the_browser(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser, opened = folder / "browser", folder / "opened"
    browser.write_text(f'#!/bin/sh\necho "$@" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o700)
    monkeypatch.setenv("BROWSER", str(browser))
    with running(folder, "--port", "0", "--open") as (program, printed):
        deadline = time.monotonic() + 60
        while not opened.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        (argument,) = opened.read_text().split()
        assert printed.partition("token=")[2] not in argument
        page = Path(argument.removeprefix("file://"))
        assert [stat.S_IMODE(one.stat().st_mode) for one in (page, page.parent)] == [0o600, 0o700]
        assert re.findall(r"url=([^\"]+)", page.read_text()) == [printed]
        program.send_signal(signal.SIGTERM)
        assert program.wait(60) == 0
        assert not page.parent.exists()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A dashboard with a password, behind a proxy: where it is, and what it says of the password."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "shown.py").write_text(APP)
    options = ("--port", "0", "--password-env", "ADMIN_PASSWORD", "--origin", "https://admin.example.com")
    with running(folder, *options) as (program, address):
        assert program.stdout
        yield address, program.stdout.readline()


@pytest.mark.slow
def test_with_a_password_it_asks_for_it(guarded: tuple[str, str]) -> None:
    address, told = guarded
    assert told == "Sign in as admin, with the password in $ADMIN_PASSWORD.\n"
    assert ask("GET", address).status_code == 401
    assert ask("GET", address, auth=("admin", PASSWORD)).status_code == 200


@pytest.mark.slow
def test_a_client_does_not_choose_the_address_under_which_its_guesses_are_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)
    with running(folder, "--port", "0", "--password-env", "ADMIN_PASSWORD") as (_, address):
        statuses = [
            ask("GET", address, auth=("admin", f"wrong {number}"), headers={"x-forwarded-for": f"192.0.2.{number}"})
            for number in range(GUESSES + 1)
        ]
        assert [one.status_code for one in statuses] == [401] * GUESSES + [429]


@pytest.mark.slow
def test_half_requests_keep_no_other_out(folder: Path) -> None:
    with running(folder, "--port", "0") as (_, printed), ExitStack() as stack:
        address = printed.partition("login")[0]
        there = httpx.URL(address)
        crowd = [stack.enter_context(socket.create_connection((there.host, there.port or 0))) for _ in range(600)]
        for one in crowd:
            with suppress(ConnectionError):  # it had to go already
                one.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n")
        crowd[0].settimeout(60)
        with suppress(ConnectionError):
            assert crowd[0].recv(1) == b"", "the oldest had to go"
        assert ask("GET", f"{address}healthz").status_code == 200


def test_a_connection_without_a_request_is_closed_after_a_while() -> None:
    half, used, busy = Half(), Half(Cycle()), Half(Cycle(response_complete=False))
    connections = HalfRequests()
    connections.close({half, used, busy}, 0)
    assert not any(one.is_closed for one in (half, used, busy))
    used.cycle = Cycle()  # another request was answered meanwhile
    connections.close({half, used, busy}, HALF_REQUEST_S)
    assert [one.is_closed for one in (half, used, busy)] == [True, False, False]
    connections.close({used, busy}, 2 * HALF_REQUEST_S)
    assert [one.is_closed for one in (used, busy)] == [True, False]


@dataclass(eq=False)
class Cycle:
    """A request and its response, as uvicorn has them."""

    response_complete: bool = True


@dataclass(eq=False)
class Half:
    """A connection of uvicorn."""

    cycle: Cycle | None = None
    is_closed: bool = False

    @property
    def transport(self) -> "Half":
        return self

    def abort(self) -> None:
        self.is_closed = True


@pytest.mark.slow
def test_tokens_that_others_can_read_are_told_of_on_stderr(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tokens = folder / "tokens"
    tokens.write_text(f"anna admin {'t' * 30}\n")
    tokens.chmod(0o644)
    with running(folder, "--port", "0", "--token-file", "tokens") as (_, address):
        assert httpx.get(f"{address}jobs", headers={"authorization": f"Bearer {'t' * 30}"}).status_code == 200
    told = [line for line in capfd.readouterr().err.splitlines() if "can read the tokens" in line]
    assert len(told) == 1
    assert (
        "WARNING mainspring.web: everyone on this machine can read the tokens in tokens, mode 644: chmod 600" in told[0]
    )


@pytest.mark.slow
def test_behind_a_proxy_that_changes_the_host_it_is_told_where_people_see_it(
    guarded: tuple[str, str],
) -> None:
    address, _ = guarded
    for origin, status in {"https://admin.example.com": 200, "https://evil.example": 403}.items():
        asked = ask("POST", f"{address}do/control.flush", auth=("admin", PASSWORD), headers={"origin": origin})
        assert asked.status_code == status


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::"])  # noqa: S104 - to be refused
def test_off_this_machine_it_does_not_start_without_auth(
    folder: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.chdir(folder)
    done = cli("dashboard", "shown:app", "--host", host)
    assert done.exit_code == 2
    assert "there is no auth" in done.output
    assert "give --password-env NAME or --token-file FILE, or serve on 127.0.0.1" in done.output


@pytest.mark.parametrize(
    ("host", "options", "says"),
    [
        ("127.0.0.1", (None, None), []),
        ("localhost", ("ADMIN_PASSWORD", None), ["Sign in as admin, with the password in $ADMIN_PASSWORD."]),
        ("0.0.0.0", (None, Path("tokens")), ["Sign in with a token of tokens.", "plain HTTP"]),  # noqa: S104 - not bound
    ],
)
def test_it_is_said_how_to_sign_in_and_what_a_network_needs(
    host: str, options: tuple[str | None, Path | None], says: list[str]
) -> None:
    told = list(welcome(host, *options))
    assert len(told) == len(says)
    for sentence, part in zip(told, says, strict=True):
        assert part in sentence


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--password-env", "NO_SUCH_VARIABLE"], "no variable NO_SUCH_VARIABLE"),
        (["--password-env", ""], "the name of the variable is empty"),
        (["--token-file", ""], "Is a directory"),
        (["--token-file", "no-such-file"], "no-such-file"),
        (["--token-file", "x", "--password-env", "X"], "give one of them"),
        (["--origin", "admin.example.com"], "write it as https://admin.example.com"),
        (["--port", "70000"], "--port"),
    ],
)
def test_what_is_wrong_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], says: str) -> None:
    monkeypatch.chdir(folder)
    done = cli("dashboard", "shown:app", *options)
    assert done.exit_code == 2
    assert says in done.output


WITHOUT_SOME = """
import sys
from mainspring.cli import main

for missing in sys.argv[1:]:
    sys.modules[missing] = None
    try:
        main(["dashboard", "shown:app"])
    except SystemExit as ended:
        print(ended.code)
    del sys.modules[missing]
"""
"""A program that lacks one package after another."""


def test_without_the_extra_it_is_said_what_to_install(folder: Path) -> None:
    packages = ["starlette", "jinja2", "uvicorn"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SOME, *packages], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1"] * 3
    for missing, told in zip(packages, done.stderr.splitlines(), strict=True):
        assert f"{missing} is missing: install Mainspring with the extra 'dashboard'" in told


def test_a_port_that_is_taken_is_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    with listen("127.0.0.1", None) as first, listen("127.0.0.1", None) as second:
        one, other = first.getsockname()[1], second.getsockname()[1]
    assert PORT <= one < other
    assert f"Port {one} is taken" in capsys.readouterr().err


def test_where_many_ports_are_taken_any_will_do() -> None:
    with ExitStack() as stack:
        taken = [stack.enter_context(listen("127.0.0.1", None)).getsockname()[1] for _ in range(TRIES + 1)]
    assert len(set(taken)) == TRIES + 1


def test_an_address_that_is_not_of_this_machine_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Refusal, match=r"192\.0\.2\.1.* --host"):
        listen("192.0.2.1", None)
    assert capsys.readouterr().err == ""


def test_a_port_that_was_asked_for_is_not_changed() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Refusal, match="choose another"):
            listen("127.0.0.1", taken.getsockname()[1])


def test_a_browser_is_sent_to_an_address_that_it_can_open() -> None:
    assert url("0.0.0.0", 80) == "http://127.0.0.1:80/"  # noqa: S104 - it is read, and not bound
    assert url("::1", 80) == "http://[::1]:80/"
    assert url("box.local", 8321) == "http://box.local:8321/"
