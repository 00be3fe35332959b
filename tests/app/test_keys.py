"""The text of unique and limit keys: the same for the same call, however it was written, in every process."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from mainspring import Limit, Mainspring
from mainspring.client.keys import Keys
from mainspring.core.codec import Arguments
from mainspring.core.keys import MAX_KEY_BYTES, shorten_key


@dataclass(frozen=True)
class Order:
    number: int
    lines: tuple[str, ...] = ()


class Customer(BaseModel):
    name: str
    tags: list[str] = []


def keys_of(function: Callable[..., object]) -> Keys:
    return Keys(Arguments.of(function, subject="it"))


def unique(function: Callable[..., object], names: tuple[str, ...] | None, *args: Any, **kwargs: Any) -> str:  # noqa: ANN401 - any arguments
    keys = keys_of(function)
    return keys.unique(keys.arguments.encode(args, kwargs), names)


def limit(function: Callable[..., object], names: tuple[str, ...], *args: Any, **kwargs: Any) -> str | None:  # noqa: ANN401 - any arguments
    keys = keys_of(function)
    return keys.limit(keys.arguments.encode(args, kwargs), names)


def send(to: str, copies: int = 1, ratio: float = 1, note: str | None = None) -> None: ...


def test_how_arguments_are_given_does_not_matter() -> None:
    assert unique(send, None, "ada", 2) == unique(send, None, copies=2, to="ada") == '{"copies":2,"to":"ada"}'
    assert unique(send, ("copies", "to"), "ada", 2) == unique(send, ("to", "copies"), copies=2, to="ada")


def test_of_all_arguments_those_that_equal_their_defaults_are_left_out() -> None:
    plain = unique(send, None, "ada")

    assert plain == '{"to":"ada"}'
    assert unique(send, None, "ada", 1, 1.0, None) == plain
    assert unique(send, None, "ada", ratio=1) == plain
    assert unique(send, None, "ada", 2) != plain


def test_a_named_argument_counts_with_its_default() -> None:
    assert unique(send, ("copies",), "ada") == unique(send, ("copies",), "bob", 1) == '{"copies":1}'


def test_an_int_for_a_float_is_the_same_float() -> None:
    assert unique(send, ("ratio",), "ada", ratio=2) == unique(send, ("ratio",), "ada", ratio=2.0)


def test_true_is_not_one() -> None:
    def anything(value: Any = 1) -> None: ...  # noqa: ANN401 - so that both fit

    assert unique(anything, None, True) != unique(anything, None, 1)


def test_values_of_all_kinds_make_keys() -> None:
    def take(order: Order, customer: Customer, when: datetime, prices: dict[str, int]) -> None: ...

    when = datetime(2030, 1, 1, tzinfo=UTC)
    one = unique(take, None, Order(7, ("a", "b")), Customer(name="ada"), when, {"b": 1, "a": 2})
    two = unique(take, None, Order(7, ("a", "b")), Customer(name="ada"), when, {"a": 2, "b": 1})

    assert one == two
    assert one.startswith('{"customer":{"name":"ada"')
    assert unique(take, ("order",), Order(7), Customer(name="ada"), when, {}) == '{"order":{"number":7,"lines":[]}}'


def test_keys_are_the_same_in_every_process() -> None:
    program = """
from mainspring import Limit, Mainspring
from mainspring.client.keys import Keys
from mainspring.core.codec import Arguments
def send(to: set[str]) -> None: ...
arguments = Arguments.of(send, subject="it")
print(Keys(arguments).unique(arguments.encode(({"ada", "bob", "eve", "joe", "kim", "liz"},), {}), None))
"""
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert seen == {'{"to":["ada","bob","eve","joe","kim","liz"]}\n'}


def test_a_long_key_is_kept_as_its_hash() -> None:
    long, longer = "x" * MAX_KEY_BYTES, "x" * (MAX_KEY_BYTES + 1)

    assert limit(send, ("to",), long) == long
    assert unique(send, None, long).startswith("sha256:")
    assert len(unique(send, None, longer)) == len("sha256:") + 64
    assert unique(send, None, long) != unique(send, None, longer)
    hashed = limit(send, ("to",), longer)
    assert hashed
    assert hashed.startswith("sha256:")


@pytest.mark.usefixtures("virtual_time")
async def test_a_long_key_that_is_given_is_kept_as_its_hash_and_found_by_its_text() -> None:
    app = Mainspring("memory://")

    @app.task(unique=True, limit=Limit(concurrency=1, key="to"))
    async def work(to: str) -> None: ...

    long = "é" * MAX_KEY_BYTES
    async with app:
        first = await work.using(key=long, unique=long).enqueue("ada")
        again = await work.using(unique=long).enqueue("bob")
        other = await work.using(unique=long + "é").enqueue("bob")
        kept = await first.refresh()
        found = await app.overview.search(key=long)

    assert (again.fresh, again.id, other.fresh) == (False, first.id, True)
    assert kept.unique is not None
    assert kept.key == kept.unique.key == shorten_key(long)
    assert [view.job.id for view in found.jobs] == [first.id]


def test_a_text_with_half_a_surrogate_pair_has_a_hash_too() -> None:
    assert shorten_key("\ud800" * MAX_KEY_BYTES).startswith("sha256:")


@pytest.mark.parametrize(
    ("names", "key"),
    [
        (("to",), "ada"),
        (("copies",), "2"),
        (("note",), None),
        (("to", "note"), '{"note":null,"to":"ada"}'),
        (("note", "note"), None),
    ],
)
def test_a_limit_counts_under_its_arguments_and_none_is_not_limited(names: tuple[str, ...], key: str | None) -> None:
    assert limit(send, names, "ada", 2) == key


def test_what_stands_behind_stars_can_be_part_of_a_key() -> None:
    def gather(*ids: int, **prices: float) -> None: ...

    assert unique(gather, None, 1, 2, tea=3) == '{"ids":[1,2],"prices":{"tea":3.0}}'
    assert unique(gather, ("ids",)) == '{"ids":null}'
