"""`mainspring migrate`: tables are made when asked for, and only then."""

import sqlite3
from contextlib import closing

from tests.cli.conftest import Shop, cli


def test_check_changes_nothing_and_says_whether_there_is_something_to_do(shop: Shop) -> None:
    done = cli("migrate", "--check", "--url", shop.url)
    assert done.exit_code == 1
    assert "it has no tables yet" in done.output
    assert not shop.path.exists()


def test_a_store_is_made_and_then_up_to_date(shop: Shop) -> None:
    made = cli("migrate", "--url", shop.url)
    assert (made.exit_code, "made, version" in made.output) == (0, True)
    again = cli("migrate", "--url", shop.url)
    assert (again.exit_code, "up to date" in again.output) == (0, True)
    check = cli("migrate", "--check", "--json", "--url", shop.url)
    assert check.exit_code == 0
    (line,) = shop.lines("migrate", "--check")
    assert line["store"] == f"sqlite {shop.path}"
    assert line["found"] == line["now"] == line["wanted"]


def test_a_user_s_own_tables_stay_beside_ours(shop: Shop) -> None:
    with closing(sqlite3.connect(shop.path)) as mine:
        mine.execute("CREATE TABLE customers (name TEXT)")
        mine.execute("INSERT INTO customers VALUES ('Ada')")
        mine.commit()
    assert cli("migrate", "--url", shop.url).exit_code == 0
    with closing(sqlite3.connect(shop.path)) as mine:
        assert mine.execute("SELECT name FROM customers").fetchall() == [("Ada",)]


def test_what_is_no_database_is_refused_and_left_alone(shop: Shop) -> None:
    shop.path.write_text("dear diary", encoding="utf-8")
    done = cli("migrate", "--url", shop.url)
    assert done.exit_code == 3
    assert done.output.count("\n") == 1
    assert shop.path.read_text(encoding="utf-8") == "dear diary"


def test_a_store_in_memory_has_nothing_to_bring_up() -> None:
    assert cli("migrate", "--url", "memory://").exit_code == 2
