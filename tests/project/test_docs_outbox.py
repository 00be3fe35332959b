"""What the pages about outboxes show and list is what there is: programs, commands, options, fields."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from mainspring.cli.outbox import outbox
from mainspring.client.lags import Lag
from mainspring.client.letters import Which
from mainspring.client.outbox import Outbox
from mainspring.core.outbox import LARGEST_PAYLOAD, Verdict
from mainspring.duration import seconds
from mainspring.outbox import Batch, Counts, DeliveryEnded, Message, Tuning
from mainspring.outbox.definition import MAX_ATTEMPTS, TIMEOUT, TRANSACTION_TIMEOUT, HandlerOptions
from mainspring.outbox.tuning import PROFILES, Profile
from mainspring.stores.outbox import LetterState, OutboxView
from tests.project.test_docs_code import ROOT, blocks, blocks_under, run
from tests.project.test_docs_reference import listed, mentioned, public, rows, section

PUBLISH = "docs/how-to/publish-in-your-transaction.md"
HANDLE = "docs/how-to/handle-messages.md"
COMMAND_LINE = "docs/reference/command-line.md"


@pytest.mark.slow
def test_what_is_published_with_an_order_is_delivered(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("\n".join(blocks(PUBLISH)), encoding="utf-8")
    (tmp_path / "play.py").write_text(
        """
import asyncio, sqlite3
from contextlib import closing
from shop import OrderPlaced, app, engine, orders, pay, place_order, place_order_in_session, place_orders

with closing(sqlite3.connect("shop.db")) as connection, connection:
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL)")

def pay_once() -> bool:
    with closing(sqlite3.connect("shop.db")) as connection, connection:
        return pay(connection, 5, "eve")

async def play() -> None:
    async with app.node():
        place_order("ann")
        place_order_in_session("ben")
        engine.dispose()
        place_orders(["ann", "cid"])
        await orders.publish(None, OrderPlaced(7, "dot"), key="dot")
        assert [pay_once(), pay_once()] == [True, False]
        try:
            with closing(sqlite3.connect("shop.db")) as connection, connection:
                orders.publish_sync(connection, OrderPlaced(99, "nobody"))
                raise LookupError
        except LookupError:
            pass
        async with asyncio.timeout(30):
            while sum(one.counts.acknowledged for one in await orders.stats()) < 6:
                await asyncio.sleep(0.02)

asyncio.run(play())
""",
        encoding="utf-8",
    )
    told = run("-W", "error", "play.py", cwd=tmp_path).splitlines()
    assert sorted(told) == [
        "ann has order 1",
        "ann has order 3",
        "ben has order 2",
        "cid has order 4",
        "dot has order 7",
        "eve has order 5",
    ]
    assert told.index("ann has order 1") < told.index("ann has order 3")


@pytest.mark.slow
def test_messages_are_handled_as_the_page_shows(tmp_path: Path) -> None:
    around = """
import asyncio
posted, indexed, mailed, booked, closed = [], [], [], [], [True]
async def post(url, placed, *, idempotency_key): posted.append(idempotency_key)
async def add_to_index(placed): indexed.extend(one.order for one in placed)
async def mail(text): mailed.append(text)
async def book_in(placed):
    if placed.article == "ghost" and not booked:
        booked.append("failed")
        raise ValueError("no such thing")
    booked.append(placed.order)
def is_open(): return True
"""
    (tmp_path / "shop.py").write_text(around + "\n".join(blocks(HANDLE)), encoding="utf-8")
    (tmp_path / "play.py").write_text(
        """
import asyncio, sqlite3
from contextlib import closing
import shop
from shop import *
from mainspring.stores.outbox import LetterState

with closing(sqlite3.connect("shop.db")) as connection, connection:
    connection.execute("CREATE TABLE stock (article TEXT PRIMARY KEY, remaining INTEGER)")
    connection.execute("INSERT INTO stock VALUES ('lamp', 10)")

EVERY = (orders, partner, returns, accounts, search, mails)

async def until(true) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.02)

async def play() -> None:
    async with app.node(outbox_partitions=16):
        for number in (1, 2):
            for outbox in EVERY:
                await outbox.publish(None, OrderPlaced(number, "lamp", 3), key="ann")
        await returns.publish(None, OrderPlaced(3, "lamp", 0), key="ben")
        await accounts.publish(None, OrderPlaced(4, "lamp", 1), key="cid")
        await orders.publish(None, OrderPlaced(5, "lamp", 1), key="x", unique="a")
        await until(lambda: len(shop.mailed) == 2 and len(shop.indexed) == 2 and len(shop.posted) == 2)
        await until(lambda: len(shop.booked) == 5)
        async with asyncio.timeout(30):
            while await waiting() or not (await returns.letters()).letters:
                await asyncio.sleep(0.02)
    with closing(sqlite3.connect("shop.db")) as connection:
        print(connection.execute("SELECT remaining FROM stock").fetchone()[0], "lamps")
    print(sorted(shop.mailed), shop.indexed, sorted(shop.booked))
    print(len(set(shop.posted)), "told,", shop.posted[0].startswith("partner/"))
    async with app:
        (letter,) = (await returns.letters()).letters
        print(letter.error, letter.attempts)
        await look_after_dead_letters()
        done = await returns.reprocess(by_hand)
        print(done.resolved, len((await returns.letters(states=[LetterState.RESOLVED])).letters))

asyncio.run(play())
""",
        encoding="utf-8",
    )
    assert run("-W", "error", "play.py", cwd=tmp_path).splitlines() == [
        "3 lamps",
        "['thank you for order 1', 'thank you for order 2'] [1, 2] [1, 1, 2, 2, 4]",
        "2 told, True",
        "nothing came back 1",
        "told by phone: 3",
        "1 1",
    ]


def commands() -> Iterator[tuple[str, list[str]]]:
    for page in (HANDLE, COMMAND_LINE):
        for block in blocks_under(page, language=""):
            for line in block.splitlines():
                words = shlex.split(line.removeprefix("$ ")) if "mainspring outbox " in line else []
                if words[:2] == ["mainspring", "outbox"]:
                    yield page, words[2:]


@pytest.mark.parametrize(("page", "words"), list(commands()))
def test_every_command_on_the_pages_can_be_understood(page: str, words: list[str]) -> None:
    name, *arguments = words
    assert outbox.commands[name].make_context(name, arguments).params, page


def test_there_are_commands_on_both_pages() -> None:
    assert {page for page, _ in commands()} == {HANDLE, COMMAND_LINE}
    assert {words[0] for _, words in commands()} == set(outbox.commands)


def test_a_command_that_cannot_be_understood_is_noticed() -> None:
    with pytest.raises(click.UsageError):
        outbox.commands["replay"].make_context("replay", ["--outbx", "orders"])


def test_every_command_and_option_is_on_the_page() -> None:
    text = (ROOT / COMMAND_LINE).read_text(encoding="utf-8")
    assert [name for name in outbox.commands if f"`mainspring outbox {name}" not in text] == []
    options = {option for one in outbox.commands.values() for param in one.params for option in param.opts}
    of_outbox = section("command-line.md", "outbox")
    told = {option for option in options if option[:2] == "--"} - {"--json", "--url", "--app"}
    assert {option for option in told if option not in of_outbox} == set()
    assert {state for state in LetterState if f"`{state}`" not in of_outbox} == set()


@pytest.mark.parametrize(
    ("command", "fields"),
    [("list", OutboxView.__struct_fields__), ("lag", Lag.__struct_fields__)],
)
def test_the_fields_of_what_is_printed_as_json_are_listed(command: str, fields: tuple[str, ...]) -> None:
    text = section("command-line.md", "For programs")
    (told,) = [row[-1] for row in rows(text) if row[0] == f"`mainspring outbox {command}`"]
    assert mentioned(told) == set(fields)


def test_every_option_of_a_handler_is_listed_with_its_default() -> None:
    assert listed("outbox.md", "Options of a handler") == set(HandlerOptions.__annotations__)
    defaults = {row[0].strip("`"): row[1] for row in rows(section("outbox.md", "Options of a handler"))}
    tuning = Tuning()
    for name in Tuning.__slots__:
        told, real = defaults[name].strip('`"'), getattr(tuning, name)
        assert (int(told) if isinstance(real, int) else seconds(told)) == (
            real if isinstance(real, int) else seconds(real)
        ), name
    assert defaults["max_attempts"] == str(MAX_ATTEMPTS)
    assert defaults["timeout"] == f'`"{TIMEOUT.seconds}s"`, in a transaction `"{TRANSACTION_TIMEOUT.seconds}s"`'


def test_every_profile_is_on_the_page_with_its_figures() -> None:
    told = {
        row[0].strip("`"): row[1:]
        for row in rows((ROOT / HANDLE).read_text(encoding="utf-8"))
        if row[0].strip("`") in set(Profile)
    }
    there = {
        str(name): [
            str(one.size),
            f"{_words(one.active_interval)} down to {_words(one.min_interval)}",
            f"{_words(one.retry_base)} to {_words(one.retry_max)}",
            str(one.degrade_after),
        ]
        for name, one in PROFILES.items()
    }
    assert told == there


def _words(length: object) -> str:
    text = str(length)
    for unit, word in (("ms", " ms"), ("s", " s"), ("m", " min")):
        if text.endswith(unit):
            return text.removesuffix(unit) + word
    raise AssertionError(length)


def test_every_method_and_field_is_listed() -> None:
    assert public(Outbox) - mentioned(section("outbox.md", "An outbox")) == set()
    events = mentioned(section("outbox.md", "Events"))
    assert {*DeliveryEnded.__struct_fields__, *Counts.__slots__, *(str(one) for one in Verdict)} - events == set()
    assert set(Which.__annotations__) - mentioned(section("outbox.md", "An outbox")) == set()


def test_what_a_message_and_a_batch_have_is_on_the_page() -> None:
    told = mentioned(
        re.sub(r"^```.*?^```", "", (ROOT / HANDLE).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    )
    assert (public(Message) | public(Batch)) - told - {"stored"} == set()


def test_the_limit_of_a_payload_is_the_one_that_is_told() -> None:
    assert f"{LARGEST_PAYLOAD:,} bytes" in (ROOT / PUBLISH).read_text(encoding="utf-8")
