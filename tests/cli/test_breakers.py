"""`mainspring breakers`: what a person sees of them, and does to them."""

import asyncio
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.core.breaker import Breaker
from mainspring.core.names import Name
from mainspring.errors import JobFailed
from tests.cli.conftest import Shop, cli


@pytest.fixture
def guarded(shop: Shop) -> Shop:
    """A shop whose task `mail` has a breaker."""
    app = shop.app()
    rules = {Name("", "mail"): Breaker(threshold=3, cooldown="1m")}

    async def declare() -> None:
        async with app:
            await app.store.declare_breakers(rules)

    asyncio.run(declare())
    return shop


def test_without_breakers_there_is_a_word_on_how_to_have_one(shop: Shop) -> None:
    cli("migrate", "--url", shop.url)
    assert "breaker=True" in cli("breakers", "list", "--url", shop.url).output
    assert shop.lines("breakers", "list") == []


def test_a_breaker_is_opened_closed_and_reset_by_hand(guarded: Shop) -> None:
    (closed,) = guarded.lines("breakers", "list")
    assert (closed["task"], closed["circuit"]["phase"]) == ("mail", "closed")
    done = cli("breakers", "open", "mail", "--reason", "they are down", "--url", guarded.url)
    assert done.output == "the breaker of mail is open until it is reset\n"
    listed = cli("breakers", "list", "--url", guarded.url).output
    assert "mail  open, forced" in listed
    assert listed.rstrip().endswith(": they are down")
    (change,) = guarded.lines("breakers", "close", "mail")
    assert (change["source"], change["target"]) == ("open", "closed")
    assert "@" in change["by"]
    assert "closed, forced" in cli("breakers", "list", "--url", guarded.url).output
    assert cli("breakers", "reset", "mail", "--url", guarded.url).output.startswith("the breaker of mail is closed")
    (story,) = guarded.lines("breakers", "show", "mail")
    assert [(one["source"], one["target"]) for one in story["changes"]] == [
        ("closed", "closed"),
        ("open", "closed"),
        ("closed", "open"),
    ]
    shown = cli("breakers", "show", "mail", "--url", guarded.url).output
    assert "opens after 3 failures in a row" in shown
    assert "they are down" in shown


def test_who_opens_what_is_open_already_is_told_by_whom_and_why(guarded: Shop) -> None:
    cli("breakers", "open", "mail", "--reason", "they are down", "--url", guarded.url)
    again = cli("breakers", "open", "mail", "--url", guarded.url)
    assert again.exit_code == 0
    assert again.output.startswith("the breaker of mail is open already, by ")
    assert ": they are down, " in again.output
    assert guarded.lines("breakers", "open", "mail") == []
    assert "they are down" in cli("breakers", "list", "--url", guarded.url).output
    cli("breakers", "open", "mail", "--reason", "they move", "--url", guarded.url)
    assert "they move" in cli("breakers", "list", "--url", guarded.url).output
    (story,) = guarded.lines("breakers", "show", "mail")
    assert [one["reason"] for one in story["changes"]] == ["they move", "they are down"]


def test_what_opened_a_breaker_is_shown_with_its_failures(shop: Shop) -> None:
    async def fail() -> None:
        async with shop.app() as app:

            @app.task(name="mail", breaker=Breaker(threshold=3, cooldown="1h"), max_attempts=1)
            async def mail() -> None:
                raise ConnectionError("nobody answers")

            async with app.node():
                for job in [await mail.enqueue() for _ in range(3)]:
                    with pytest.raises(JobFailed):
                        await job.result(timeout="10s")

    asyncio.run(fail())
    line = cli("breakers", "list", "--url", shop.url).output.splitlines()[1]
    assert line.split()[:2] == ["mail", "open"]
    assert " 3/3 " in line
    assert line.endswith("; ConnectionError: nobody answers")
    shown = cli("breakers", "show", "mail", "--url", shop.url).output.splitlines()
    assert shown[0] == "mail opens after 3 failures in a row, and probes after 1 h."
    assert shown[-1].endswith("ConnectionError: nobody answers")
    cli("breakers", "open", "mail", "--url", shop.url)
    assert "/3" not in cli("breakers", "list", "--url", shop.url).output


@pytest.mark.parametrize("command", ["show", "open", "close", "reset"])
def test_a_breaker_that_is_not_there_is_told_with_the_nearest(guarded: Shop, command: str) -> None:
    done = cli("breakers", command, "mial", "--url", guarded.url)
    assert done.exit_code == 1
    assert "mail" in done.output


def test_the_doctor_tells_of_breakers_that_hold_jobs_back(guarded: Shop) -> None:
    assert "breakers" not in cli("doctor", "--url", guarded.url).output
    cli("breakers", "open", "mail", "--url", guarded.url)
    assert "open breakers of mail (forced)" in cli("doctor", "--url", guarded.url).output


def test_the_doctor_does_not_stand_in_its_own_way(tmp_path: Path) -> None:
    url = f"sidecar:///{tmp_path}"
    asyncio.run(_opened(url))
    done = cli("doctor", "--url", url)
    assert "there is nobody to hear" in done.output
    assert "fail  doorbell" not in done.output


async def _opened(url: str) -> None:
    async with Mainspring(url) as app:
        await app.store.pause("mail")
