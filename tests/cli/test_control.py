"""`mainspring control`: schedules that are cancelled with their jobs, and the log brought into the file."""

import sqlite3
from contextlib import closing

from mainspring import Every
from tests.cli.conftest import Shop, cli
from tests.cli.schedules_shop import plan


def said(shop: Shop, *arguments: str, code: int = 0) -> str:
    done = cli("control", *arguments, "--url", shop.url)
    assert done.exit_code == code, done.output
    return done.output


def test_a_schedule_is_cancelled_with_its_jobs(shop: Shop) -> None:
    plan(shop, "often", Every("15m"))
    assert cli("schedules", "run", "often", "--url", shop.url).exit_code == 0
    assert said(shop, "cancel", "often") == "often is cancelled\n"
    assert shop.lines("schedules", "list") == []
    assert [job["state"] for job in shop.lines("jobs", "list")] == ["cancelled"]


def test_what_cannot_be_cancelled_is_told_of_and_hinders_no_other(shop: Shop) -> None:
    plan(shop, "often", Every("15m"))
    told = said(shop, "cancel", "nothing", "a:b:c", "often", code=1)
    assert "no schedule is named 'nothing'" in told
    assert "0xB37" in told
    assert "often is cancelled" in told


def test_a_cancel_is_told_to_programs(shop: Shop) -> None:
    plan(shop, "often", Every("15m"))
    assert shop.lines("control", "cancel", "often") == [{"name": "often", "changed": True, "problem": None}]


def test_a_flush_brings_the_log_into_the_file(shop: Shop) -> None:
    plan(shop, "often", Every("15m"))
    assert said(shop, "flush") == "flushed\n"
    copy = shop.folder / "copy.db"
    copy.write_bytes(shop.path.read_bytes())
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT name FROM mainspring_schedules").fetchall() == [("often",)]
    assert shop.lines("control", "flush") == [{"flushed": True}]
