"""Who guesses passwords has to wait, and nobody else does."""

import logging
from collections import defaultdict
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection

from mainspring import Mainspring
from mainspring.web import Password, TokenFile, api, dashboard
from mainspring.web.guesses import MOST, PLACES, WITHIN, Guesses, place_of
from mainspring.web.problems import Problem
from tests.web.conftest import BASE, Ask, client, error_of
from tests.web.test_auth import basic

RIGHT = "geheim, geheim"


class Watch:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def connection(host: str | None) -> HTTPConnection:
    return HTTPConnection({"type": "http", "headers": [], "client": None if host is None else (host, 1)})


def wait(guesses: Guesses, host: str, given: bytes) -> int:
    """Say for how long somebody has to wait."""
    try:
        guesses.check(connection(host), given)
    except Problem as problem:
        return int(problem.headers["retry-after"])
    return 0


hosts = st.sampled_from(["192.0.2.1", "192.0.2.2", "2001:db8::1"])
tries = st.lists(st.tuples(hosts, st.integers(0, 30).map(lambda one: b"%d" % one), st.floats(0, 20)), max_size=80)


@given(tries)
def test_so_many_guesses_are_looked_at_in_a_minute_and_no_more(tried: list[tuple[str, bytes, float]]) -> None:
    watch = Watch()
    guesses = Guesses(watch)
    seen: dict[str, dict[bytes, float]] = defaultdict(dict)
    for host, one, passed in tried:
        watch.at += passed
        recent = {given for given, at in seen[host].items() if at > watch.at - WITHIN}
        waits = wait(guesses, host, one)
        assert (waits == 0) is (one in recent or len(recent) < MOST)
        assert 0 <= waits <= WITHIN
        if not waits:
            guesses.was_wrong(connection(host), one)
            if one not in recent:
                seen[host][one] = watch.at


def test_places_without_end_are_not_kept_in_mind() -> None:
    guesses = Guesses(Watch())
    for number in range(PLACES + 5):
        guesses.was_wrong(connection(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"), b"x")
    assert len(guesses) == PLACES


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8::1:2:3:4", "2001:db8::/64"),
        ("::1", "::/64"),
        ("testclient", "'testclient'"),
        (None, "''"),
    ],
)
def test_a_place_is_an_address_or_a_network(host: str | None, place: str) -> None:
    assert place_of(connection(host)) == place


async def test_the_right_password_too_has_to_wait_where_it_was_guessed_and_nowhere_else(
    ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "mainspring.web")
    password, watch = Password(RIGHT), Watch()
    password.guesses = Guesses(watch)

    async def status(said: str | None, host: str = "192.0.2.1") -> int:
        headers = {} if said is None else basic(f"admin:{said}")
        return (await ask("control/list", auth=password, host=host, headers=headers)).status_code

    for number in range(MOST):
        assert await status(None) == 401  # who says nothing guesses nothing
        assert await status(f"wrong {number}") == 401
        assert await status("wrong 0") == 401  # it counts once
    assert await status("another") == 429
    assert await status(RIGHT) == 429
    assert await status("wrong 0") == 401
    assert await status(RIGHT, "192.0.2.2") == 200
    watch.at += WITHIN
    assert await status(RIGHT) == 200
    assert [text for one in caplog.records if "wrong passwords" in (text := one.getMessage())] == [
        "10 wrong passwords or tokens from 192.0.2.1; requests from that address are refused for a minute"
    ]


async def test_wrong_tokens_are_counted_like_wrong_passwords(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("anna admin sha256:" + sha256(b"a").hexdigest())  # a weak token, which guessing would find
    path.chmod(0o600)
    tokens = TokenFile(path)

    async def status(said: str, host: str = "192.0.2.1") -> int:
        headers = {"authorization": f"Bearer {said}"}
        return (await ask("control/list", auth=tokens, host=host, headers=headers)).status_code

    for number in range(MOST):
        assert await status(f"wrong {number}") == 401
    assert await status("a") == 429
    assert await status("a", "192.0.2.2") == 200


async def test_who_has_to_wait_is_told_for_how_long(app: Mainspring) -> None:
    password = Password(RIGHT)
    async with app, client(dashboard(app, auth=password)) as found:
        for number in range(MOST):
            await found.get("/jobs", headers=basic(f"admin:{number}"))
        page = await found.get("/jobs", headers=basic(f"admin:{RIGHT}"))
        assert (page.status_code, page.headers["retry-after"]) == (429, "60")
        assert "too many wrong passwords" in page.text
        metrics = await found.get("/metrics", headers=basic(f"admin:{RIGHT}"))
        assert error_of(metrics, 429)["code"] == "too_many"
    async with client(api(app, auth=password)) as found:
        flushed = await found.post(f"{BASE}/control/flush", json={}, headers=basic(f"admin:{RIGHT}"))
        assert error_of(flushed, 429)["hint"] == "it goes on in 60 s"
