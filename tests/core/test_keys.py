"""Keys of jobs: kept as they are up to a length, and as their hash beyond it."""

import pytest

from mainspring.core.keys import MAX_KEY_BYTES, key_length, shorten_key


@pytest.mark.parametrize("key", ["", "a" * MAX_KEY_BYTES, "ä" * (MAX_KEY_BYTES // 2)])
def test_a_key_within_the_length_stays_as_it_is(key: str) -> None:
    assert shorten_key(key) == key


@pytest.mark.parametrize("key", ["a" * (MAX_KEY_BYTES + 1), "ä" * (MAX_KEY_BYTES // 2 + 1), "\ud800" * MAX_KEY_BYTES])
def test_a_longer_key_is_its_hash_which_is_always_the_same(key: str) -> None:
    short = shorten_key(key)
    assert short.startswith("sha256:")
    assert short == shorten_key(key) != shorten_key(f"{key}b")
    assert shorten_key(short) == short


def test_length_is_counted_in_bytes() -> None:
    assert (key_length("a"), key_length("ä"), key_length("\ud800")) == (1, 2, 3)
