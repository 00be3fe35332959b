"""Schedules on PostgreSQL, from the command line, as on a file."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mainspring import Cron, Every
from tests.cli.conftest import cli, until
from tests.cli.postgres_shop import ServerShop, shop_on
from tests.cli.schedules_shop import plan
from tests.servers.postgres import Server


@pytest.fixture
def shop(postgres: Server, postgres_schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerShop:
    monkeypatch.delenv("MAINSPRING_URL", raising=False)
    monkeypatch.setenv("SHOP_URL", "")
    monkeypatch.chdir(tmp_path)
    return shop_on(postgres, postgres_schema, tmp_path)


def said(shop: ServerShop, *arguments: str, code: int = 0) -> str:
    done = cli("schedules", *arguments, "--url", shop.url)
    assert done.exit_code == code, done.output
    return done.output


def test_a_schedule_is_added_fired_paused_run_backfilled_and_removed(shop: ServerShop) -> None:
    shop.migrate()
    done = cli("schedules", "add", "shop:app", "often", "--every", "1s", "--task", "add", "--args", '{"a": 2}')
    assert (done.exit_code, done.stderr) == (0, "")
    assert said(shop, "list").splitlines()[1].split()[:4] == ["often", "on", "every", "1"]
    with shop.worker() as worker:
        until(lambda: "succeeded" in said(shop, "runs", "often"))
        assert said(shop, "pause", "often", "--reason", "enough") == "often is paused\n"
        job = said(shop, "run", "often").strip()
        until(lambda: shop.job(job)["state"] == "succeeded")
        assert ": enough\n" in said(shop, "show", "often")
        assert said(shop, "resume", "often") == "often goes on\n"
        worker.signal()
        assert worker.ends() == 0
    assert {run["state"] for run in shop.lines("schedules", "runs", "often") if run["job"]} == {"succeeded"}
    assert said(shop, "pause", "oftn", code=1) == "mainspring: no schedule is named 'oftn'; did you mean 'often'?\n"
    assert said(shop, "remove", "often", "--yes") == "often is gone\n"
    assert "often" not in said(shop, "list")


def test_slots_of_before_its_time_are_backfilled_once(shop: ServerShop) -> None:
    shop.migrate()
    plan(shop, rule=Cron("0 * * * *"))
    end = datetime.now(UTC).replace(minute=30) - timedelta(days=1)
    span = ("--from", (end - timedelta(hours=5)).isoformat(), "--to", end.isoformat())
    (first,) = shop.lines("schedules", "backfill", "nightly", *span)
    (again,) = shop.lines("schedules", "backfill", "nightly", *span)
    assert (first["slots"], first["made"], again["slots"], again["made"]) == (5, 5, 5, 0)
    assert len(shop.lines("jobs", "list")) == 5


def test_pages_and_slots_are_as_on_a_file(shop: ServerShop) -> None:
    shop.migrate()
    for name in "abc":
        plan(shop, name, Every("1h"))
    assert "There are more: --after b" in said(shop, "list", "--limit", "2")
    assert [line["name"] for line in shop.lines("schedules", "list", "--after", "b")] == ["c"]
    slots = [json.loads(line) for line in said(shop, "next", "a", "-n", "2", "--json").splitlines()]
    first, second = (datetime.fromisoformat(slot["slot"]) for slot in slots)
    assert second - first == timedelta(hours=1)
