"""Schedules that are changed from a shell, which app a command is about, and questions before much is done."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring import Cron, Every, Manual
from mainspring.cli.schedules_run import Progress
from mainspring.cli.schedules_words import placed_text
from mainspring.client.planned_words import standing
from mainspring.core.schedule import Slot
from mainspring.stores.records import Look
from tests.cli.conftest import Shop, cli
from tests.cli.schedules_shop import declare, pass_over, plan, planner

pytestmark = pytest.mark.slow

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


def said(shop: Shop, *arguments: str, code: int = 0) -> str:
    done = cli("schedules", *arguments, "--url", shop.url)
    assert done.exit_code == code, done.output
    return done.output


def kept(shop: Shop, name: str = "nightly") -> dict[str, Any]:
    (found,) = shop.lines("schedules", "show", name)
    return found


# Changing.


def test_the_rule_of_a_schedule_is_changed(shop: Shop) -> None:
    plan(shop)
    text = said(shop, "change", "nightly", "--cron", "0 2 * * *", "--tz", "Europe/Berlin")
    assert text.startswith("nightly is changed: At 02:00 every day, Europe/Berlin time. Next: 20")
    assert kept(shop)["plan"]["rule"] == {"type": "cron", "text": "0 2 * * *", "tz": "Europe/Berlin"}
    said(shop, "change", "nightly", "--tz", "Asia/Tokyo")
    assert kept(shop)["plan"]["rule"] == {"type": "cron", "text": "0 2 * * *", "tz": "Asia/Tokyo"}


def test_an_end_is_given_and_taken_back(shop: Shop) -> None:
    plan(shop, rule=Cron("0 2 * * *", tz="Europe/Berlin"))
    said(shop, "change", "nightly", "--until", "2099-01-01T00:00", "--max-runs", "3", "--description", "the books")
    found = kept(shop)["plan"]
    assert (found["until"], found["max_runs"]) == ("2098-12-31T23:00:00Z", 3)
    said(shop, "change", "nightly", "--no-until")
    assert (kept(shop)["plan"]["until"], kept(shop)["plan"]["max_runs"]) == (None, 3)
    said(shop, "change", "nightly", "--no-max-runs")
    assert (kept(shop)["plan"]["max_runs"], kept(shop)["plan"]["description"]) == (None, "the books")


def test_the_jobs_of_a_schedule_are_changed_with_the_app(shop: Shop) -> None:
    plan(shop)
    arguments = (
        "change",
        "nightly",
        "--task",
        "nap",
        "--args",
        '{"seconds": 1}',
        "--timeout",
        "5m",
        "--max-attempts",
        "2",
    )
    done = cli("schedules", *arguments, "--app", "shop:app")
    assert (done.exit_code, done.stderr) == (0, "")
    template = kept(shop)["plan"]["template"]
    assert (template["task"], template["timeout"], template["max_attempts"]) == ("nap", 300.0, 2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "say what to change"),
        (["--queue", "mail"], "go with --task"),
        (["--until", "2099-01-01", "--no-until"], "say one of them"),
        (["--tz", "Asia/Tokyo"], "--tz alone changes the zone of a cron expression"),
        (["--start", "2099-01-01"], "say when by one of"),
        (["--jitter", "2h"], "a jitter of 2:00:00 is longer than the interval of 1:00:00"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(shop: Shop, arguments: list[str], says: str) -> None:
    plan(shop)
    before = kept(shop)
    assert says in said(shop, "change", "nightly", *arguments, code=2)
    assert kept(shop) == before


def test_who_changes_what_is_declared_in_code_is_told_that_it_is_declared_again(shop: Shop) -> None:
    declare(shop, "hourly", owner="shop")
    assert "declared by shop, and is declared again" in said(shop, "change", "hourly", "--every", "2h")


# Adding.


def test_a_first_slot_and_a_helping_can_be_said(shop: Shop) -> None:
    options = ("--every", "1d", "--start", "2099-01-01T09:00", "--missed", "all", "--per-tick", "2")
    done = cli("schedules", "add", "shop:app", "nightly", "--task", "where", *options)
    assert (done.exit_code, done.stderr) == (0, "")
    found = kept(shop)
    assert (found["next_slot"], found["plan"]["missed"]["per_tick"]) == ("2099-01-01T09:00:00Z", 2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--every", "1h", "--tz", "Europe/Berlin"], "--tz goes with --cron or --once"),
        (["--every", "1h", "--until", "2020-01-01"], "has passed already"),
        (["--manual", "--start", "2099-01-01"], "--start goes with --every"),
        (["--every=-5s"], "time does not run backwards"),
        (["--every", "1m", "--jitter", "2m"], "is longer than the interval"),
    ],
)
@pytest.mark.usefixtures("shop")
def test_what_would_be_dead_on_arrival_is_refused(arguments: list[str], says: str) -> None:
    done = cli("schedules", "add", "shop:app", "nightly", "--task", "where", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert says in done.stderr


def test_a_time_on_a_wall_is_told_with_what_was_made_of_it() -> None:
    tz = "Europe/Berlin"
    plainly, gap, fold = (datetime.fromisoformat(f"2027-{day}T02:30") for day in ("01-31", "03-28", "10-31"))
    assert placed_text(plainly, tz) == "2027-01-31 02:30 in Europe/Berlin is 2027-01-31 02:30 CET, 2027-01-31 01:30 UTC"
    assert placed_text(gap, tz) == (
        "2027-03-28 02:30 in Europe/Berlin is 2027-03-28 03:30 CEST, 2027-03-28 01:30 UTC: "
        "clocks go forward that day, and do not show 02:30"
    )
    assert placed_text(fold, tz).endswith(
        "is 2027-10-31 02:30 CEST, 2027-10-31 00:30 UTC: "
        "clocks go back that day and show it twice, and this is the first; for the other give its offset"
    )
    assert placed_text(plainly, "UTC") == ""
    assert placed_text(plainly.replace(tzinfo=UTC), tz) == ""


@pytest.mark.usefixtures("shop")
def test_adding_once_says_what_was_made_of_it() -> None:
    options = ("--once", "2099-03-29T02:30", "--tz", "Europe/Berlin", "--task", "where")
    done = cli("schedules", "add", "shop:app", "spring", *options)
    assert "2099-03-29 03:30 CEST, 2099-03-29 01:30 UTC: clocks go forward that day" in done.stdout


# Which app.


@pytest.mark.slow
def test_the_app_can_be_said_by_an_option_or_a_variable(shop: Shop) -> None:
    done = cli("schedules", "add", "one", "--app", "shop:app", "--manual", "--task", "where")
    assert (done.exit_code, done.stderr) == (0, "")
    done = cli("schedules", "add", "two", "--manual", "--task", "where", MAINSPRING_APP="shop:app")
    assert (done.exit_code, done.stderr) == (0, "")
    listed = cli("schedules", "list", "--json", MAINSPRING_APP="shop:app").stdout
    assert re.findall(r'"name":"(\w+)"', listed) == ["one", "two"]
    enqueued = cli("jobs", "enqueue", "add", "1", MAINSPRING_APP="shop:app")
    assert (enqueued.exit_code, enqueued.stderr) == (0, "")
    assert cli("jobs", "enqueue", "--app", "shop:app", "add", "1").exit_code == 0
    assert cli("jobs", "enqueue", "shop:app", "add", "1", MAINSPRING_APP="nothing:app").exit_code == 0
    assert len(shop.lines("jobs", "list")) == 3


def test_a_url_counts_more_than_the_variable(shop: Shop) -> None:
    plan(shop)
    done = cli("schedules", "list", "--url", shop.url, MAINSPRING_APP="nothing:app")
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.usefixtures("shop")
def test_a_command_that_needs_the_app_says_so() -> None:
    done = cli("schedules", "add", "nightly", "--manual", "--task", "where")
    assert done.exit_code == 2
    assert "it needs the app: say --app MODULE:APP, or set $MAINSPRING_APP" in done.stderr


@pytest.mark.usefixtures("shop")
def test_a_worker_finds_its_app_by_the_variable() -> None:
    done = cli("worker", MAINSPRING_APP="nothing:app")
    assert done.exit_code == 2
    assert "there is no module 'nothing'" in done.stderr


def test_a_rule_without_quotes_is_told_of_them() -> None:
    done = cli("schedules", "explain", "0", "9", "*", "*", "*")
    assert done.exit_code == 2
    assert "put it in quotes, as in '0 9 * * MON-FRI'" in done.output
    assert cli("schedules", "explain", "0 9 * * *", "--limit", "2").exit_code == 0


# Backfills.


def many(shop: Shop) -> tuple[str, ...]:
    plan(shop, rule=Every("1m", start=datetime(2026, 1, 1, tzinfo=UTC)), ago=2 * DAY, overlap="skip")
    pass_over(shop)
    end = datetime.now(UTC) - DAY
    return ("backfill", "nightly", "--from", (end - 20 * HOUR).isoformat(), "--to", end.isoformat())


@pytest.mark.parametrize(("answer", "code", "made"), [("y\n", 0, 1200), ("n\n", 1, 0)])
def test_more_than_a_thousand_jobs_are_asked_for(shop: Shop, answer: str, code: int, made: int) -> None:
    done = cli("schedules", *many(shop), "--url", shop.url, answer=answer)
    assert done.exit_code == code, done.output
    assert "Make 1,200 jobs?" in done.output
    assert len(shop.lines("jobs", "list", "--limit", "2000")) == made


def test_where_nobody_can_answer_a_large_backfill_needs_a_yes(shop: Shop) -> None:
    arguments = many(shop)
    assert "say --yes" in said(shop, *arguments, code=2)
    assert shop.lines("jobs", "list") == []
    assert "1,200 of them without a job" in said(shop, *arguments, "--dry-run")


def test_jobs_of_a_backfill_may_stand_behind_others_and_are_told_to_overlap(shop: Shop) -> None:
    *arguments, end = many(shop)
    arguments[3] = (datetime.fromisoformat(end) - timedelta(minutes=5)).isoformat()
    text = said(shop, *arguments, end, "--priority", "0")
    assert "overlap=skip does not hold for jobs of a backfill" in text
    assert {job["priority"] for job in shop.lines("jobs", "list")} == {0}


def test_progress_is_told_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 0.1, 4.9, 5.0, 5.1, 10.2, 20.0])
    monkeypatch.setattr("mainspring.cli.schedules_run.time.monotonic", lambda: next(times))
    progress = Progress(6000)
    for done in range(1000, 7000, 1000):
        progress.tell(done)
    assert capsys.readouterr().err.splitlines() == ["3,000 of 6,000", "5,000 of 6,000"]


def test_a_backfill_of_what_has_no_slots_says_why(shop: Shop) -> None:
    plan(shop, rule=Manual())
    now = datetime.now(UTC)
    span = ("--from", (now - DAY).isoformat(), "--to", now.isoformat())
    assert "it is run by hand only, and has no slots" in said(shop, "backfill", "nightly", *span, code=2)


def test_a_backfill_refuses_slots_of_which_nothing_is_known_since_runs_were_kept_for_less(shop: Shop) -> None:
    plan(shop, rule=Cron("0 * * * *"), ago=20 * DAY, keep_runs="1d")
    app, _ = planner(shop)
    app.schedules.change_sync("nightly", keep_runs="30d")
    app.close_sync()
    now = datetime.now(UTC)
    span = ("--from", (now - 10 * DAY).isoformat(), "--to", (now - HOUR).isoformat(), "--dry-run")
    assert "is too long ago" in said(shop, "backfill", "nightly", *span, code=2)


# Jobs and their schedules.


def test_a_job_says_which_schedule_made_it(shop: Shop) -> None:
    plan(shop, rule=Cron("0 * * * *"), ago=2 * DAY)
    pass_over(shop)
    job = said(shop, "run", "nightly").strip()
    assert "schedule   nightly, by hand\n" in cli("jobs", "show", job, "--url", shop.url).output
    now = datetime.now(UTC)
    said(shop, "backfill", "nightly", "--from", (now - 3 * HOUR).isoformat(), "--to", (now - HOUR).isoformat())
    shop.enqueue("add", 1)
    found = shop.lines("jobs", "list", "--schedule", "nightly")
    assert [one["id"] for one in found][-1] == job
    assert len(found) == 3
    text = cli("jobs", "show", found[0]["id"], "--url", shop.url).output
    assert re.search(r"schedule   nightly, for the slot of 20.* \(backfill\)\n", text)
    assert len(shop.lines("jobs", "list", "--schedule", "nightly", "--limit", "1")) == 1
    assert shop.lines("jobs", "list", "--schedule", "nightly", "--state", "failed") == []
    assert cli("jobs", "list", "--schedule", "nightly", "--tag", "x", "--url", shop.url).exit_code == 2


def test_a_slot_that_is_held_does_not_hide_that_the_schedule_is_late(shop: Shop) -> None:
    app, add = planner(shop)
    there = app.schedules.add_sync("nightly", Every("1h"), add.call(a=2), overlap="queue_one")
    app.close_sync()
    assert there.next_at
    held = Look(schedule=replace(there, held=Slot(at=there.created_at), waits=True))
    assert standing(held, there.created_at) == "held"
    assert standing(held, there.next_at + HOUR) == "late"
