"""`mainspring outbox`: what a person sees of messages on their way, and does about those that were given up."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from click.testing import Result

from mainspring import Mainspring
from mainspring.core.job import NodeId
from mainspring.core.outbox import Stand
from mainspring.runtime.process import this_process
from mainspring.stores.outbox import LetterFilter, NewLetter, NewMessage, Outboxes, Stride
from mainspring.stores.records import NodeRecord
from tests.cli.conftest import Shop, cli

ME = NodeId("node-1")


def in_store(shop: Shop, work: Callable[[Mainspring, Outboxes], Awaitable[Any]]) -> Any:  # noqa: ANN401 - the test knows
    async def run() -> object:
        app = shop.app()
        async with app:
            assert isinstance(app.store, Outboxes)
            return await work(app, app.store)

    return asyncio.run(run())


def message(number: int, *, outbox: str = "orders", partitions: int = 2, partition: int = 0) -> NewMessage:
    return NewMessage(
        outbox=outbox,
        partitions=partitions,
        partition=partition,
        payload=b'{"order":%d}' % number,
        type="OrderPlaced" if number % 2 else "OrderPaid",
        key=f"customer-{number}",
    )


def publish(shop: Shop, *new: NewMessage) -> None:
    in_store(shop, lambda _, store: store.publish(new))


def give_up(shop: Shop, count: int, *, outbox: str = "orders", error: str = "ValueError: no such stock") -> None:
    """Have the next messages of partition 0 become dead letters, one after the other."""

    async def work(app: Mainspring, store: Outboxes) -> None:
        node = NodeId(f"node-{uuid4()}")
        term = await app.store.join(NodeRecord(id=node, process=this_process(), tasks=frozenset()))
        for _ in range(count):
            (view, *_others) = (await store.look_at_partitions([outbox])).partitions
            stand = view.stand
            (first,) = await store.read_messages(outbox, 0, stand.cursor, 1)
            after = Stand(revision=stand.revision + 1, cursor=first.seq)
            letter = NewLetter(message=first, attempts=10, error=error)
            stride = Stride(outbox=outbox, partition=0, before=stand.revision, after=after, letters=(letter,))
            assert await store.stride(node, term, [stride]) == (True,)
        await app.store.declare_dead(node, term)

    in_store(shop, work)


def stands(shop: Shop, after: Stand, *, held: bool = False) -> None:
    async def work(app: Mainspring, store: Outboxes) -> None:
        term = await app.store.join(NodeRecord(id=ME, process=this_process(), tasks=frozenset()))
        await store.look_at_partitions(["orders"])
        assert await store.stride(ME, term, [Stride(outbox="orders", partition=0, before=0, after=after)]) == (True,)
        if not held:
            await app.store.declare_dead(ME, term)

    in_store(shop, work)


def answered(*arguments: str, answer: str) -> Result:
    return cli(*arguments, answer=answer)


@pytest.fixture
def letters(shop: Shop) -> Shop:
    """A shop with five dead letters: four of orders, the last one of mail."""
    publish(shop, *(message(number) for number in range(1, 5)), message(7, outbox="mail", partitions=1))
    give_up(shop, 4)
    give_up(shop, 1, outbox="mail", error="OSError: nobody answers\nat all")
    return shop


def ids(shop: Shop, *arguments: str) -> list[int]:
    return [one["id"] for one in shop.lines("outbox", "deadletters", *arguments)]


def test_without_outboxes_there_is_a_word_on_how_to_have_one(shop: Shop) -> None:
    cli("migrate", "--url", shop.url)
    for command in ("list", "lag"):
        assert 'app.outbox("orders")' in cli("outbox", command, "--url", shop.url).output
        assert shop.lines("outbox", command) == []
    assert cli("outbox", "deadletters", "--url", shop.url).output == "No such dead letters.\n"


def test_outboxes_are_listed_with_what_is_kept_and_what_was_given_up(letters: Shop) -> None:
    publish(letters, message(9, partition=1))
    mail, orders = letters.lines("outbox", "list")
    assert (mail["name"], mail["partitions"], mail["letters"]) == ("mail", 1, 1)
    assert (orders["name"], orders["partitions"], orders["letters"], orders["aside"]) == ("orders", 2, 4, 0)
    assert orders["kept"] >= 1
    listed = cli("outbox", "list", "--url", letters.url).output.splitlines()
    assert listed[0].split() == ["OUTBOX", "PARTITIONS", "KEPT", "SIZE", "ASIDE", "DEAD", "LETTERS", "CREATED"]
    assert listed[2].startswith("orders           2")


def test_lag_tells_what_waits_since_when_and_why(shop: Shop) -> None:
    publish(shop, message(1), message(2), message(3, outbox="mail", partitions=1))
    stands(shop, Stand(revision=1, cursor=1, holder=ME, attempts=2, error="ValueError: no"), held=True)
    (orders,) = shop.lines("outbox", "lag", "orders")
    assert (orders["partition"], orders["cursor"], orders["last"], orders["backlog"]) == (0, 1, 2, 1)
    assert (orders["holder"], orders["attempts"], orders["error"]) == (ME, 2, "ValueError: no")
    assert orders["age"] >= 0
    shown = cli("outbox", "lag", "orders", "--url", shop.url).output
    assert "node-1" in shown
    assert "attempt 2 failed: ValueError: no" in shown
    assert [one["outbox"] for one in shop.lines("outbox", "lag")] == ["mail", "orders"]
    assert len(shop.lines("outbox", "lag", "--all")) == 3


def test_where_nothing_waits_lag_says_so(letters: Shop) -> None:
    assert cli("outbox", "lag", "--url", letters.url).output == "Nothing waits.\n"


@pytest.mark.parametrize(
    "words",
    [
        ("lag", "ordres"),
        ("deadletters", "--outbox", "ordres"),
        ("replay", "--outbox", "ordres"),
        ("discard", "--outbox", "ordres"),
    ],
)
def test_an_outbox_that_is_not_there_is_told_with_the_nearest(letters: Shop, words: tuple[str, ...]) -> None:
    done = cli("outbox", *words, "--url", letters.url)
    assert done.exit_code == 1
    assert done.output == "mainspring: there is no outbox 'ordres' in this store; did you mean 'orders'?\n"


def test_dead_letters_are_listed_with_the_newest_failure_first(letters: Shop) -> None:
    found = letters.lines("outbox", "deadletters")
    assert [one["outbox"] for one in found] == ["mail", *["orders"] * 4]
    assert found[1]["payload"] == {"order": 4}
    assert (found[1]["attempts"], found[1]["state"], found[1]["key"]) == (10, "pending", "customer-4")
    listed = cli("outbox", "deadletters", "--url", letters.url).output
    assert "OSError: nobody answers\n" in listed, "of an error the first line"


@pytest.mark.parametrize(
    ("words", "orders"),
    [
        (("--outbox", "mail"), [7]),
        (("--type", "OrderPaid"), [4, 2]),
        (("--key", "customer-3"), [3]),
        (("--outbox", "orders", "--partition", "1"), []),
        (("--outbox", "orders", "--partition", "0", "--limit", "2"), [4, 3]),
        (("--state", "resolved", "--state", "discarded"), []),
        (("--state", "all", "--outbox", "orders"), [4, 3, 2, 1]),
    ],
)
def test_dead_letters_are_found_by_filters(letters: Shop, words: tuple[str, ...], orders: list[int]) -> None:
    assert [one["payload"]["order"] for one in letters.lines("outbox", "deadletters", *words)] == orders


def test_a_long_list_goes_on_where_the_page_before_ended(letters: Shop) -> None:
    done = cli("outbox", "deadletters", "--limit", "3", "--url", letters.url).output
    place = done.splitlines()[-1].removeprefix("There are more: --after ")
    assert len(ids(letters, "--after", place)) == 2


def test_a_dead_letter_is_shown_with_all_that_is_known_of_it(letters: Shop) -> None:
    (one,) = ids(letters, "--outbox", "mail")
    shown = cli("outbox", "deadletters", str(one), "--url", letters.url).output
    assert '{"order": 7}' in shown
    assert "mail/0/1" in shown
    assert "OSError: nobody answers\n            at all" in shown
    assert "attempts    10" in shown


def test_a_payload_is_shown_as_it_was_published(shop: Shop) -> None:
    app = shop.app()
    orders = app.outbox("orders", partitions=1, payload=dict[str, int])

    async def work() -> None:
        async with app:
            await orders.publish(None, {"order": 5})

    asyncio.run(work())
    give_up(shop, 1)
    assert 'payload     {"order": 5}\n' in cli("outbox", "deadletters", "1", "--url", shop.url).output


def test_an_id_that_is_not_there_is_told(letters: Shop) -> None:
    done = cli("outbox", "deadletters", "999", "--url", letters.url)
    assert (done.exit_code, done.output) == (1, "999: there is no such dead letter\n")


def test_what_is_to_be_replayed_is_shown_and_asked_for(letters: Shop) -> None:
    arguments = ("outbox", "replay", "--outbox", "orders", "--url", letters.url)
    refused = answered(*arguments, answer="n\n")
    assert refused.exit_code == 1
    assert "Put 4 dead letters back at the end of the line?" in refused.output
    assert "customer-1" in refused.stdout
    assert len(ids(letters)) == 5, "nothing was done"
    done = answered(*arguments, answer="y\n")
    assert done.exit_code == 0
    assert done.stdout.endswith("4 dead letters put back\n")
    assert len(ids(letters)) == 1
    (lag,) = letters.lines("outbox", "lag", "orders")
    assert lag["backlog"] == 4


def test_where_nobody_answers_it_wants_a_yes(letters: Shop) -> None:
    done = cli("outbox", "discard", "--all", "--url", letters.url)
    assert done.exit_code == 2
    assert "--yes" in done.output
    assert len(ids(letters)) == 5


@pytest.mark.parametrize("command", ["replay", "discard"])
def test_nobody_means_all_by_saying_nothing(letters: Shop, command: str) -> None:
    done = cli("outbox", command, "--yes", "--url", letters.url)
    assert done.exit_code == 2
    assert "--all" in done.output


def test_replay_takes_the_oldest_failures_first_and_says_what_is_left(letters: Shop) -> None:
    (counts,) = letters.lines("outbox", "replay", "--outbox", "orders", "--limit", "3", "--yes")
    assert counts == {"found": 4, "chosen": 3, "done": 3}
    assert [one["payload"]["order"] for one in letters.lines("outbox", "deadletters", "--outbox", "orders")] == [4]

    async def waiting(_: Mainspring, store: Outboxes) -> list[bytes]:
        await store.look_at_partitions(["orders"])
        return [one.payload for one in await store.read_messages("orders", 0, 4, 10)]

    assert in_store(letters, waiting) == [b'{"order":1}', b'{"order":2}', b'{"order":3}']
    done = cli("outbox", "discard", "--all", "--limit", "1", "--yes", "--url", letters.url)
    assert done.output == "1 dead letter discarded\nThere are 1 more.\n"


def test_many_dead_letters_are_done_in_several_steps(shop: Shop) -> None:
    publish(shop, *(message(number) for number in range(1, 251)))
    give_up(shop, 250)
    assert cli("outbox", "replay", "--all", "--yes", "--url", shop.url).output == "250 dead letters put back\n"
    (lag,) = shop.lines("outbox", "lag")
    assert lag["backlog"] == 250


def test_one_that_somebody_is_at_is_left_to_them(letters: Shop) -> None:
    async def take(_: Mainspring, store: Outboxes) -> int:
        (taken,) = await store.take_letters(LetterFilter(outbox="mail"), timedelta(minutes=5), 1)
        return taken.id

    taken = in_store(letters, take)
    done = cli("outbox", "replay", str(taken), "--yes", "--url", letters.url)
    assert done.exit_code == 1
    assert f"{taken}: somebody is reprocessing it, and has until" in done.output
    assert cli("outbox", "discard", str(taken), "--yes", "--url", letters.url).exit_code == 1


def test_of_several_ids_those_that_can_be_are_discarded(letters: Shop) -> None:
    first, second, *_ = ids(letters)
    assert cli("outbox", "discard", str(first), "--yes", "--url", letters.url).exit_code == 0
    done = cli("outbox", "discard", str(first), str(second), "999", "--yes", "--url", letters.url)
    assert done.exit_code == 1
    assert f"{first}: it was discarded" in done.output
    assert "999: there is no such dead letter" in done.output
    assert "1 dead letter discarded" in done.output
    assert ids(letters, "--state", "discarded") == [first, second]


def test_a_partition_needs_its_outbox_and_has_to_be_there(letters: Shop) -> None:
    assert cli("outbox", "deadletters", "--partition", "1", "--url", letters.url).exit_code == 2
    done = cli("outbox", "replay", "--outbox", "orders", "--partition", "2", "--url", letters.url)
    assert done.exit_code == 2
    assert "its partitions are 0 to 1" in done.output


def examined(shop: Shop) -> list[str]:
    return [line for line in cli("doctor", "--url", shop.url).output.splitlines() if "  outbox  " in line]


def test_the_doctor_tells_of_dead_letters(letters: Shop) -> None:
    assert examined(letters) == ["warn  outbox       dead letters are pending: mail (1), orders (4)"]


def test_the_doctor_says_nothing_of_outboxes_where_there_are_none(shop: Shop) -> None:
    cli("migrate", "--url", shop.url)
    assert examined(shop) == []


def test_the_doctor_is_content_with_messages_that_were_just_published(shop: Shop) -> None:
    publish(shop, message(1))
    assert examined(shop) == ["ok    outbox       1 outbox, 1 message waits"]


def test_the_doctor_tells_of_messages_that_nobody_delivers(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(shop, message(1), message(2))
    monkeypatch.setattr("mainspring.client.health.messages.UNHANDLED", timedelta(0))
    (told,) = examined(shop)
    assert told.startswith("fail  outbox       nobody delivers 2 messages of orders/0; the oldest is of ")


def test_the_doctor_tells_of_a_partition_that_keeps_failing(shop: Shop) -> None:
    publish(shop, message(1))
    stands(shop, Stand(revision=1, attempts=5, error="ValueError: no\nmore"))
    (told,) = examined(shop)
    assert told == "warn  outbox       orders/0 has failed 5 times: ValueError: no"


def test_the_doctor_tells_of_a_partition_that_is_far_behind(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(shop, message(1), message(2))
    stands(shop, Stand(revision=1, cursor=1, holder=ME, given=1), held=True)
    monkeypatch.setattr("mainspring.client.health.messages.LATE", timedelta(0))
    assert any("1 message waits in orders/0" in line for line in examined(shop))
