"""`mainspring schedules`, on a real file: what is planned, and what an operator may do about it."""

import asyncio
import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from mainspring import Cron, Every, Manual, Missed, Once, Retry
from mainspring.cli.schedules_show import run_table
from mainspring.core.names import Name
from mainspring.core.schedule import Run
from tests.cli.conftest import Shop, cli, until
from tests.cli.schedules_shop import declare, pass_over, plan, planner

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def said(shop: Shop, *arguments: str, code: int = 0) -> str:
    done = cli("schedules", *arguments, "--url", shop.url)
    assert done.exit_code == code, done.output
    return done.output


def lines(shop: Shop, *arguments: str) -> list[dict[str, object]]:
    return shop.lines("schedules", *arguments)


def names(shop: Shop, *options: str) -> list[object]:
    return [line["name"] for line in lines(shop, "list", *options)]


# Looking.


def test_schedules_are_listed_with_rule_task_next_slot_and_state(shop: Shop) -> None:
    plan(shop, "nightly", Cron("0 12 * * *", tz="Europe/Berlin"))
    plan(shop, "often", Every("15m"))
    plan(shop, "slow", Every("2h", after_end=True))
    plan(shop, "by-hand", Manual())
    heading, by_hand, nightly, often, slow = said(shop, "list").splitlines()
    assert heading.split() == ["NAME", "STATE", "RULE", "TASK", "NEXT", "WHEN", "LAST", "NOTE"]
    assert by_hand.split() == ["by-hand", "on", "on", "demand", "add"]
    assert nightly.startswith("nightly  on     0 12 * * * Europe/Berlin  add   ")
    assert re.search(r" 12:00(:00)? CES?T +in [0-9.]+ (h|min|s)$", nightly)
    assert "every 15 min" in often
    assert re.search(r" in 1[45] min$", often)
    assert "2 h after the end" in slow


def test_the_last_run_of_each_is_listed(shop: Shop) -> None:
    plan(shop)
    said(shop, "run", "nightly")
    assert re.search(r"open [0-9.]+ s ago$", said(shop, "list"), re.MULTILINE)


def test_a_schedule_that_nobody_fires_is_late(shop: Shop) -> None:
    plan(shop, rule=Every("1m"), ago=HOUR)
    assert said(shop, "list").splitlines()[1].split()[:2] == ["nightly", "late"]
    assert "owed       59 slots not decided" in said(shop, "show", "nightly")
    assert "59 slots from before now are not decided yet: is a worker there?" in said(shop, "next", "nightly")


def test_a_schedule_that_has_come_to_its_end_is_over(shop: Shop) -> None:
    plan(shop, rule=Every("1m"), until=datetime.now(UTC) + timedelta(seconds=1))
    assert said(shop, "list").splitlines()[1].split()[:2] == ["nightly", "over"]
    assert said(shop, "next", "nightly") == "There are none: it is over.\n"
    assert lines(shop, "next", "nightly") == []


def test_pages_follow_one_another_by_the_name_of_the_last(shop: Shop) -> None:
    for name in "abcde":
        plan(shop, name)
    assert "There are more: --after b" in said(shop, "list", "--limit", "2")
    assert names(shop, "--limit", "2", "--after", "b") == ["c", "d"]
    assert "There are more" not in said(shop, "list", "--after", "b")


def test_schedules_of_one_owner_are_listed(shop: Shop) -> None:
    plan(shop, "added")
    declare(shop, "declared", owner="mill", release="1.2")
    assert names(shop) == ["added", "declared"]
    assert names(shop, "--owner", "mill") == ["declared"]
    assert said(shop, "list", "--owner", "nobody") == "No such schedules.\n"
    assert "owner      mill, release 1.2\n" in said(shop, "show", "declared")
    assert "owner      nobody: added at run time\n" in said(shop, "show", "added")


def test_a_schedule_as_json_has_its_record_and_what_follows_from_it(shop: Shop) -> None:
    plan(shop, rule=Cron("0 2 * * *", tz="Europe/Berlin"), missed=Missed.all(limit=3), overlap="skip", jitter="30s")
    (found,) = lines(shop, "list")
    assert found["name"] == "nightly"
    assert found["plan"]["rule"] == {"type": "cron", "text": "0 2 * * *", "tz": "Europe/Berlin"}  # type: ignore[index]  # JSON
    assert found["plan"]["template"]["payload"] == {"v": 1, "args": {"a": 2}}  # type: ignore[index]  # as above
    assert found["plan"]["jitter"] == 30.0  # type: ignore[index]  # as above
    assert found["explained"] == "At 02:00 every day, Europe/Berlin time."
    assert (found["paused"], found["is_over"], found["open"], found["owner"]) == (None, False, [], None)
    assert str(found["next_slot"]).endswith("Z")
    (shown,) = lines(shop, "show", "nightly")
    assert {**found, "last_runs": []} == shown


def test_everything_about_a_schedule_is_shown(shop: Shop) -> None:
    plan(
        shop,
        rule=Cron("0 2 * * *", tz="Europe/Berlin"),
        ago=DAY,
        missed=Missed.all(limit=3),
        overlap="skip",
        jitter="30s",
        max_runs=10,
        description="the books",
    )
    said(shop, "run", "nightly")
    said(shop, "pause", "nightly", "--reason", "no paper")
    text = said(shop, "show", "nightly")
    for part in (
        "schedule   nightly\n",
        "about      the books\n",
        "rule       0 2 * * * Europe/Berlin\n           At 02:00 every day, Europe/Berlin time.\n",
        "state      paused\n",
        ": no paper\n",
        "task       add\n",
        'arguments  {"a": 2}\n',
        "queue      default, priority 50\n",
        "missed     all, 3 at most, 5 a tick, none more than 1 d late\n",
        "overlap    skip\n",
        "jitter     up to 30 s\n",
        "fired      0 of 10 slots\n",
        "kept       runs for 30 d\n",
        "Recent runs\n",
        "by hand  ready",
    ):
        assert part in text, text


def test_one_that_cannot_be_understood_here_does_not_hide_the_others(shop: Shop) -> None:
    plan(shop, "good")
    plan(shop, "strange", Cron("0 2 * * *", tz="Europe/Berlin"))
    with closing(sqlite3.connect(shop.path)) as connection, connection:
        ((record,),) = connection.execute("SELECT record FROM mainspring_schedules WHERE name = 'strange'")
        changed = record.replace(b"Europe/Berlin", b"Mars/Olympus")
        connection.execute("UPDATE mainspring_schedules SET record = ? WHERE name = 'strange'", [changed])
    text = said(shop, "list")
    assert text.splitlines()[1].startswith("good ")
    assert "strange cannot be understood here: " in text
    assert "Mars/Olympus" in text
    assert "Mars/Olympus" in str(lines(shop, "list")[1]["unreadable"])


@pytest.mark.parametrize("command", ["show", "next", "run", "pause", "resume", "runs"])
def test_a_name_that_is_not_there_brings_the_nearest_to_mind_and_ends_with_1(shop: Shop, command: str) -> None:
    plan(shop)
    assert said(shop, command, "nigthly", code=1) == (
        "mainspring: no schedule is named 'nigthly'; did you mean 'nightly'?\n"
    )


# What became of slots.


def test_a_schedule_that_was_decided_while_the_clock_was_ahead_is_reset(shop: Shop) -> None:
    plan(shop, "often", Every("1h"), ago=-DAY)
    plan(shop, "sound", Every("1h"))
    doctor = cli("doctor", "--url", shop.url)
    assert "often" in doctor.output
    assert "mainspring schedules reset NAME" in doctor.output

    assert said(shop, "reset", "often", "sound") == "often goes on from now\nsound is not ahead of the clock\n"
    assert "mainspring schedules reset NAME" not in cli("doctor", "--url", shop.url).output
    (shown,) = lines(shop, "show", "often")
    assert datetime.fromisoformat(str(shown["next_slot"])) < datetime.now(UTC) + HOUR


def test_runs_say_what_became_of_each_slot(shop: Shop) -> None:
    plan(shop, "often", Every("1m"), ago=HOUR)
    app, _ = planner(shop, ago=HOUR - MINUTE / 2)
    app.schedules.pause_sync("often")
    app.close_sync()
    assert said(shop, "runs", "often") == "No such runs.\n"
    said(shop, "resume", "often")
    job = said(shop, "run", "often").strip()
    heading, by_hand, paused = said(shop, "runs", "often").splitlines()
    assert heading.split() == ["DECIDED", "SLOT", "STATE", "COUNT", "LATE", "JOB", "NOTE"]
    assert by_hand.split()[3:] == ["by", "hand", "ready", job, "manual"]
    assert " UTC to " in paused
    assert paused.split()[-4:] == ["paused", "60", "59", "min"]  # as late as the first of them
    first, second = lines(shop, "runs", "often")
    assert (first["id"], first["job"], first["origin"], first["slot"]) == (job, job, "manual", None)
    assert (second["job"], second["reason"], second["count"]) == (None, "paused", 60)


def test_the_state_and_the_error_of_a_job_are_those_of_its_run(shop: Shop) -> None:
    app = shop.app()

    @app.task(name="fail", retry=Retry.none())
    async def fail() -> None:
        raise ValueError("nobody home\nat all")

    async def play() -> None:
        async with app.node():
            await app.schedules.add("broken", Manual(), fail.call())
            job = await app.schedules.run("broken")
            while await job.state() != "failed":
                await asyncio.sleep(0.01)

    asyncio.run(play())
    assert said(shop, "runs", "broken").splitlines()[1].endswith("manual, ValueError: nobody home")
    (run,) = lines(shop, "runs", "broken")
    assert (run["state"], run["error"]) == ("failed", "ValueError: nobody home")
    assert re.search(r"failed [0-9.]+ s ago$", said(shop, "list"), re.MULTILINE)


def test_runs_of_all_schedules_are_named_and_go_on_page_by_page(shop: Shop) -> None:
    plan(shop, "a")
    plan(shop, "b")
    jobs = [said(shop, "run", name).strip() for name in ("a", "b", "a")]
    text = said(shop, "runs", "--limit", "2")
    assert [line.split()[0] for line in text.splitlines()[:3]] == ["SCHEDULE", "a", "b"]
    assert f"There are more: --after {jobs[1]}" in text
    (last,) = lines(shop, "runs", "--limit", "2", "--after", jobs[1])
    assert (last["schedule"], last["id"]) == ("a", jobs[0])


def test_a_run_in_a_zone_that_is_not_known_here_is_shown_in_utc(shop: Shop) -> None:
    plan(shop, rule=Cron("0 12 * * *", tz="Asia/Tokyo"), ago=2 * DAY)
    pass_over(shop)
    with closing(sqlite3.connect(shop.path)) as connection, connection:
        connection.execute("UPDATE mainspring_runs SET zone = 'Mars/Olympus'")
    assert " 03:00 UTC to " in said(shop, "runs", "nightly")


def test_times_below_one_another_have_one_form(shop: Shop) -> None:
    start = datetime.now(UTC).replace(second=0, microsecond=0) + DAY
    plan(shop, "whole", Once(start))
    plan(shop, "within", Once(start + timedelta(seconds=7)))
    assert [line.count(":00 UTC") for line in said(shop, "list").splitlines()[1:]] == [1, 0]
    runs = [
        Run(
            id=uuid4(),
            schedule=Name.parse("often"),
            slot=start + timedelta(seconds=place),
            decided_at=start,
            zone="UTC",
        )
        for place in (30, 0)
    ]
    _, rows = run_table(runs, {}, start, named=False)
    assert [row[1] for row in rows] == [f"{start:%Y-%m-%d %H:%M}:{second} UTC" for second in ("30", "00")]


def test_runs_of_a_schedule_that_was_removed_are_still_there(shop: Shop) -> None:
    plan(shop)
    job = said(shop, "run", "nightly").strip()
    said(shop, "remove", "nightly", "--yes")
    assert [run["id"] for run in lines(shop, "runs", "nightly")] == [job]


# Operating.


def test_schedules_are_paused_for_a_reason_and_go_on(shop: Shop) -> None:
    plan(shop)
    assert said(shop, "pause", "nightly", "--reason", "no paper") == "nightly is paused\n"
    assert said(shop, "pause", "nightly") == "nightly was paused already\n"
    row = said(shop, "list").splitlines()[1]
    assert row.split()[:2] == ["nightly", "paused"]
    assert ": no paper" in row
    (found,) = lines(shop, "list")
    assert found["paused"]["reason"] == "no paper"  # type: ignore[index]  # JSON
    assert "@" in found["paused"]["by"]  # type: ignore[index]  # as above
    assert "no slot makes a job" in said(shop, "next", "nightly")
    assert said(shop, "resume", "nightly") == "nightly goes on\n"
    assert said(shop, "resume", "nightly") == "nightly was not paused\n"
    assert lines(shop, "resume", "nightly") == [{"name": "nightly", "changed": False, "problem": None}]


def test_one_that_is_not_there_does_not_hinder_the_others(shop: Shop) -> None:
    plan(shop, "a")
    plan(shop, "b")
    text = said(shop, "pause", "a", "nobody", "b", code=1)
    assert "a is paused\n" in text
    assert "b is paused\n" in text
    assert "no schedule is named 'nobody'" in text
    done = cli("schedules", "resume", "a", "nobody", "--json", "--url", shop.url)
    assert done.exit_code == 1
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert first == {"name": "a", "changed": True, "problem": None}
    assert (second["name"], second["changed"]) == ("nobody", False)
    assert "no schedule is named" in second["problem"]


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, []), ("n\n", 1, ["nightly"])])
def test_removing_asks_first(shop: Shop, answer: str, code: int, left: list[str]) -> None:
    plan(shop)
    done = cli("schedules", "remove", "nightly", "--url", shop.url, answer=answer)
    assert done.exit_code == code
    assert "Remove nightly (every 1 h, add)? [y/N]" in done.output
    assert names(shop) == left


def test_removing_where_nobody_can_answer_needs_a_yes(shop: Shop) -> None:
    plan(shop)
    assert "nobody answers; say --yes" in said(shop, "remove", "nightly", code=2)
    assert names(shop) == ["nightly"]
    assert said(shop, "remove", "nightly", "--yes") == "nightly is gone\n"
    assert said(shop, "list") == "No such schedules.\n"


def test_who_removes_what_is_declared_in_code_is_told_that_it_comes_back(shop: Shop) -> None:
    declare(shop, "nightly", owner="mill")
    text = said(shop, "remove", "nightly", "--yes")
    assert "nightly is declared by mill, and comes back with its next start" in text
    assert names(shop) == []
    declare(shop, "nightly", owner="mill")
    assert names(shop) == ["nightly"]


def test_running_now_prints_the_job(shop: Shop) -> None:
    plan(shop)
    job = said(shop, "run", "nightly").strip()
    found = shop.job(job)
    assert (found["task"], found["payload"]["args"], found["state"]) == ("add", {"a": 2}, "ready")
    assert found["facts"]["slot"]["schedule"] == "nightly"
    (line,) = lines(shop, "run", "nightly")
    assert (line["task"], line["schedule"]) == ("add", "nightly")


def test_a_run_whose_unique_key_is_taken_ends_with_1_and_says_so(shop: Shop) -> None:
    app, add = planner(shop)
    app.schedules.add_sync("single", Manual(), add.using(unique="one").call())
    app.close_sync()
    said(shop, "run", "single")
    assert "another one has the unique key" in said(shop, "run", "single", code=1)
    assert [run["reason"] for run in lines(shop, "runs", "single")] == ["taken", None]


@pytest.mark.slow
def test_waiting_for_a_run_prints_its_result(shop: Shop) -> None:
    plan(shop)
    with shop.worker() as worker:
        worker.says("at a time")
        done = shop.run("schedules", "run", "nightly", "--wait", "--timeout", "30s", "--app", "shop:app")
        assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
        until(lambda: [run["state"] for run in lines(shop, "runs", "nightly")] == ["succeeded"])
        worker.signal()
        worker.ends()


def test_a_timeout_needs_something_to_wait_for(shop: Shop) -> None:
    plan(shop)
    assert "--timeout limits --wait" in said(shop, "run", "nightly", "--timeout", "1s", code=2)


# Slots of the past.


def test_a_backfill_makes_jobs_for_slots_that_have_none(shop: Shop) -> None:
    plan(shop, rule=Cron("0 * * * *"), ago=2 * DAY)
    pass_over(shop)
    end = datetime.now(UTC).replace(minute=30) - DAY
    span = ("--from", (end - 5 * HOUR).isoformat(), "--to", end.isoformat())
    dry = said(shop, "backfill", "nightly", *span, "--dry-run")
    assert dry.startswith("5 slots from ")
    assert dry.endswith(", 5 of them without a job\n")
    assert [run["origin"] for run in lines(shop, "runs", "nightly")] == ["slot"]
    assert said(shop, "backfill", "nightly", *span).splitlines()[1] == "5 jobs made"
    (again,) = lines(shop, "backfill", "nightly", *span)
    assert (again["slots"], again["missing"], again["made"]) == (5, 0, 0)
    made = [run for run in lines(shop, "runs", "nightly") if run["origin"] == "backfill"]
    assert [run["is_catch_up"] for run in made] == [True] * 5
    assert len({run["slot"] for run in made}) == 5


def test_more_than_a_thousand_slots_are_backfilled_in_parts(shop: Shop) -> None:
    plan(shop, rule=Every("1m", start=datetime(2026, 1, 1, tzinfo=UTC)), ago=2 * DAY)
    pass_over(shop)
    end = datetime.now(UTC).replace(second=30) - DAY
    text = said(
        shop, "backfill", "nightly", "--from", (end - 1200 * MINUTE).isoformat(), "--to", end.isoformat(), "--yes"
    )
    assert text.splitlines()[1:] == ["1,200 jobs made"]  # quick enough to say nothing on the way
    assert len(shop.lines("jobs", "list", "--limit", "2000")) == 1200


def test_times_of_a_backfill_are_on_the_clocks_of_the_schedule(shop: Shop) -> None:
    plan(shop, rule=Cron("0 12 * * *", tz="Asia/Tokyo"), ago=10 * DAY)
    pass_over(shop)
    day = datetime.now(UTC).date() - 5 * DAY
    (line,) = lines(shop, "backfill", "nightly", "--from", f"{day}T12:00", "--to", f"{day + DAY}", "--dry-run")
    assert (line["from"], line["slots"], line["made"]) == (f"{day}T03:00:00Z", 1, 0)


@pytest.mark.parametrize(
    ("start", "end", "says"),
    [
        (-DAY, DAY, "has not come yet; backfill what is past"),
        (-DAY, -2 * DAY, "start is later than end"),
        (-40 * DAY, -DAY, "is too long ago: what became of slots is known since"),
    ],
)
def test_a_backfill_that_cannot_be_is_refused_before_the_first_job(
    shop: Shop, start: timedelta, end: timedelta, says: str
) -> None:
    plan(shop, rule=Cron("0 * * * *"))
    now = datetime.now(UTC)
    span = ("--from", (now + start).isoformat(), "--to", (now + end).isoformat())
    assert says in said(shop, "backfill", "nightly", *span, code=2)
    assert lines(shop, "runs", "nightly") == []


def test_a_fixed_delay_has_no_slots_of_the_past(shop: Shop) -> None:
    plan(shop, rule=Every("1m", after_end=True), ago=DAY)
    now = datetime.now(UTC)
    span = ("--from", (now - HOUR).isoformat(), "--to", now.isoformat())
    assert "counts from the end of a run" in said(shop, "backfill", "nightly", *span, code=2)


# Adding one from a shell.


def added(*arguments: str) -> str:
    done = cli("schedules", "add", "shop:app", *arguments)
    assert (done.exit_code, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_a_schedule_is_added_with_arguments_and_options(shop: Shop) -> None:
    text = added(
        "nightly", "--cron", "0 2 * * *", "--tz", "Europe/Berlin", "--task", "add", "--args", '{"a": 7}',
        "--queue", "books", "--priority", "90", "--tag", "x", "--missed", "all", "--limit", "3", "--grace", "2h",
        "--overlap", "queue_one", "--jitter", "30s", "--until", "2099-01-01T00:00", "--max-runs", "5",
        "--keep-runs", "7d", "--description", "the books",
    )  # fmt: skip
    assert text.startswith("nightly is added: At 02:00 every day, Europe/Berlin time. Next: 20")
    (found,) = lines(shop, "list")
    plan = found["plan"]
    assert isinstance(plan, dict)
    assert plan["template"]["payload"]["args"] == {"a": 7}
    assert [plan["template"][name] for name in ("task", "queue", "priority", "tags")] == ["add", "books", 90, ["x"]]
    assert plan["missed"] == {"policy": "all", "grace": 7200.0, "limit": 3, "per_tick": 5}
    assert (plan["overlap"], plan["jitter"], plan["max_runs"]) == ("queue_one", 30.0, 5)
    assert (plan["until"], plan["keep_runs"]) == ("2098-12-31T23:00:00Z", 7 * 86400.0)
    assert (plan["description"], found["owner"]) == ("the books", None)


@pytest.mark.slow
def test_rules_of_all_kinds_are_added(shop: Shop) -> None:
    assert "Every 15 minutes" in added("a", "--every", "15m", "--task", "where")
    assert "after the end" in added("b", "--every", "15m", "--after-end", "--task", "where")
    assert "2099-01-31 08:00" in added("c", "--once", "2099-01-31T09:00", "--tz", "Europe/Berlin", "--task", "where")
    done = json.loads(added("d", "--manual", "--task", "where", "--json"))
    assert (done["name"], done["next_slot"], done["plan"]["rule"]) == ("d", None, {"type": "manual"})
    assert names(shop) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--cron", "0 25 * * *", "--task", "add"], "hour: '25' is out of range"),
        (["--cron", "0 2 * * *", "--tz", "Europe/Berln", "--task", "add"], "did you mean 'Europe/Berlin'?"),
        (["--once", "2020-01-01", "--task", "add", "--args", '{"a": 1}'], "has passed already"),
        (["--once", "soon", "--task", "add"], "'soon' is no instant; write it as 2027-01-31, "),
        (["--every", "1h", "--manual", "--task", "add"], "one of --cron, --every, --once or --manual"),
        (["--task", "add"], "one of --cron, --every, --once or --manual"),
        (["--manual", "--after-end", "--task", "add"], "--after-end goes with --every"),
        (["--every", "1h", "--limit", "3", "--task", "add"], "--limit and --per-tick go with --missed, which was not"),
        (
            ["--every", "1h", "--missed", "skip", "--limit", "3", "--task", "add"],
            "--limit and --per-tick go with --missed all",
        ),
        (["--every", "1h", "--task", "add"], "add at a: missing argument"),
        (["--every", "1h", "--task", "add", "--args", '{"a": "x"}'], "add at a: expected `int`, got `str`"),
        (["--every", "1h"], "Missing option '--task'"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_told_in_one_line(shop: Shop, arguments: list[str], says: str) -> None:
    done = cli("schedules", "add", "shop:app", "nightly", *arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert not shop.path.exists() or names(shop) == []


def test_a_name_that_is_taken_and_a_task_that_is_not_there_end_with_1(shop: Shop) -> None:
    plan(shop)
    done = cli("schedules", "add", "shop:app", "nightly", "--manual", "--task", "where")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "there is a schedule named 'nightly' already" in done.stderr
    assert "schedules change" in done.stderr
    done = cli("schedules", "add", "shop:app", "other", "--manual", "--task", "wher")
    assert (done.exit_code, done.stderr) == (1, "mainspring: no task is named 'wher'; did you mean 'where'?\n")


def test_looking_at_a_file_that_is_not_there_makes_none(shop: Shop) -> None:
    done = cli("schedules", "list", "--url", shop.url)
    assert done.exit_code == 3
    assert not shop.path.exists()


def test_an_id_of_a_run_that_is_none_is_wrong_usage(shop: Shop) -> None:
    plan(shop)
    assert "is not a valid UUID" in said(shop, "runs", "--after", "7", code=2)
    assert said(shop, "runs", "--after", str(uuid4())) == "No such runs.\n"


def test_once_is_shown_in_words(shop: Shop) -> None:
    plan(shop, rule=Once(datetime(2099, 1, 31, 9, tzinfo=UTC)))
    assert said(shop, "list").splitlines()[1].split()[:4] == ["nightly", "on", "once", "add"]
    assert "2099-01-31 09:00 UTC" in said(shop, "list")
