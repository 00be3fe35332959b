"""How errors name a PostgreSQL store: its hosts and its database, and never a password."""

import pytest

from mainspring.clock import SystemClock
from mainspring.stores.postgres.settings import Settings


def name_of(dsn: str) -> str:
    return Settings(dsn=dsn, clock=SystemClock()).store


@pytest.mark.parametrize(
    ("dsn", "place"),
    [
        ("postgresql://ann:hunter2@db.example:5432/shop", "db.example:5432/shop"),
        ("postgresql://ann:hunter2@a:1,b:2/shop?sslmode=require", "a:1,b:2/shop"),
        ("postgres://[::1]:5432/shop", "[::1]:5432/shop"),
        ("postgresql:///shop?host=/tmp&password=hunter2", "/shop"),
    ],
)
def test_hosts_and_database_are_named(dsn: str, place: str) -> None:
    assert name_of(dsn) == f"PostgreSQL store {place} (schema mainspring)"


@pytest.mark.parametrize("sign", ["@", "/", "?", "#", "/a@", "?b@"])
def test_a_password_that_is_not_quoted_is_never_shown(sign: str) -> None:
    assert name_of(f"postgresql://ann:hun{sign}ter2@db/shop") == "PostgreSQL store (schema mainspring)"


@pytest.mark.parametrize("dsn", ["host=db password=hunter2", "postgresql://ann:hunter2", "postgresql://"])
def test_what_is_no_plain_url_is_not_shown(dsn: str) -> None:
    assert name_of(dsn) == "PostgreSQL store (schema mainspring)"
