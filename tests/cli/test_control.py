"""`mainspring control`: schedules in plain words, statements of the program's, and the log brought into the file."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from click.testing import Result

from mainspring import Every
from mainspring.cli.control_statements import Progress
from mainspring.client.statements import Iterated
from tests.cli.conftest import Shop, cli
from tests.cli.schedules_shop import plan

HOSTED = """
import sqlite3
from contextlib import closing
from datetime import datetime
from mainspring import Mainspring, Plugin
from mainspring.plugins import BackgroundJobs

app = Mainspring("sqlite:///shop.db")
plugin = Plugin("photos", "1", requires=[BackgroundJobs()])

@plugin.task
async def sweep(since: datetime | None = None) -> str: ...

app.install(plugin, grant="all")

def execute_read(statement, params):
    with closing(sqlite3.connect("photos.db")) as photos, photos:
        return [{"id": number} for (number,) in photos.execute(statement, params)]

def execute_write(statement, params):
    with closing(sqlite3.connect("photos.db")) as photos, photos:
        if "rows" in params:
            if any(row["id"] == 13 for row in params["rows"]):
                raise ValueError("thirteen")
            return photos.executemany(statement, params["rows"]).rowcount
        return {"changed": photos.execute(statement, params).rowcount}

app.host.offer(execute_read=execute_read, execute_write=execute_write)
"""
QUERY = "SELECT id FROM photos WHERE width IS NULL ORDER BY id"
MUTATION = "UPDATE photos SET width = 800 WHERE id = :id"


@pytest.fixture
def hosted(shop: Shop) -> Shop:
    """A folder with an app whose program has a table of 25 photos."""
    (shop.folder / "hosted.py").write_text(HOSTED, encoding="utf-8")
    with closing(sqlite3.connect(shop.folder / "photos.db")) as photos:
        photos.execute("CREATE TABLE photos (id INTEGER, width INTEGER)")
        photos.executemany("INSERT INTO photos VALUES (?, NULL)", [(number,) for number in range(25)])
        photos.commit()
    return shop


def asked(*arguments: str, answer: str = "", code: int = 0) -> Result:
    """Run a command of the app with the host, with somebody at the keyboard."""
    done = cli("control", *arguments, "--app", "hosted:app", answer=answer)
    assert done.exit_code == code, done.output
    return done


def record(done: Result) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


def unwritten(shop: Shop) -> int:
    with closing(sqlite3.connect(shop.folder / "photos.db")) as photos:
        (found,) = photos.execute("SELECT count(*) FROM photos WHERE width IS NULL").fetchone()
        return int(found)


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


# Schedules in plain words.


def test_a_schedule_is_there_in_place_of_the_one_before(hosted: Shop) -> None:
    assert asked("add", "photos:sweep", "periodic", "60").output.startswith("photos:sweep is there: Every minute, ")
    row = record(asked("add", "photos.sweep", "cron", "0 9 * * *", "--json"))
    assert (row["qname"], row["task"], row["status"]) == ("photos:sweep", "photos:sweep", "idle")
    assert row["rule"] == {"type": "cron", "text": "0 9 * * *", "tz": "UTC"}
    assert [one["rule"]["type"] for one in hosted.lines("control", "list")] == ["cron"]


def test_arguments_are_read_as_the_task_reads_them(hosted: Shop) -> None:
    asked("add", "yearly", "manual", "--task", "photos:sweep", "--args", '{"since": "2026-01-01T00:00:00Z"}')
    (found,) = hosted.lines("schedules", "list")
    assert found["plan"]["template"]["payload"]["args"] == {"since": "2026-01-01T00:00:00Z"}
    told = asked("add", "yearly", "manual", "--task", "photos:sweep", "--args", '{"since": "soon"}', code=2).output
    assert "since" in told


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("periodic", "soon"), "0xB31"),
        (("periodic", "9" * 5000), "0xB31"),
        (("periodic",), "0xB31"),
        (("cron", "every day"), "0xB33"),
        (("once", "soon"), "0xB31"),
        (("daily",), "'daily' is not one of"),
    ],
)
@pytest.mark.usefixtures("hosted")
def test_what_cannot_be_added_is_told_in_one_line(words: tuple[str, ...], says: str) -> None:
    told = asked("add", "photos:sweep", *words, code=2).output
    assert says in told
    assert told.count("\n") == 1
    assert len(told) < 400


def test_rows_are_listed_for_people_page_by_page(shop: Shop) -> None:
    plan(shop, "hourly", Every("1h"))
    plan(shop, "nightly", Every("24h"))
    first = said(shop, "list", "-n", "1")
    assert "hourly" in first
    assert "nightly" not in first
    assert "--after hourly" in first
    assert "nightly" in said(shop, "list", "--after", "hourly")
    assert said(shop, "list", "--after", "nightly") == "No such schedules.\n"


def test_a_job_is_made_now_of_a_schedule_or_of_a_task(hosted: Shop) -> None:
    plan(hosted, "often", Every("15m"))
    (made,) = hosted.lines("control", "run", "often")
    assert hosted.job(made["id"])["facts"]["slot"]["schedule"] == "often"
    assert "no task is named 'photos:sweep'" in said(hosted, "run", "photos:sweep", code=1)
    made = record(asked("run", "photos.sweep", "--args", '{"since": "2026-01-01T00:00:00Z"}', "--json"))
    assert (made["task"], made["fresh"]) == ("photos:sweep", True)
    since = hosted.job(made["id"])["payload"]["args"]["since"]
    assert datetime.fromisoformat(since) == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.usefixtures("hosted")
def test_a_name_with_a_dot_is_found_in_the_store_without_the_app(shop: Shop) -> None:
    asked("add", "photos:sweep", "periodic", "60")
    assert said(shop, "cancel", "photos.sweep") == "photos.sweep is cancelled\n"
    assert shop.lines("schedules", "list") == []


@pytest.mark.usefixtures("hosted")
def test_a_name_with_a_dot_that_may_be_two_is_nobodys(shop: Shop) -> None:
    for name in ("a:b.c", "a.b:c"):
        asked("add", name, "periodic", "60", "--task", "photos:sweep")
    assert "it may be a:b.c and a.b:c; write it with the colon" in said(shop, "cancel", "a.b.c", code=1)
    asked("add", "a.b.c", "periodic", "60", "--task", "photos:sweep")
    assert said(shop, "cancel", "a.b.c") == "a.b.c is cancelled\n"
    assert [one["name"] for one in shop.lines("schedules", "list")] == ["a.b:c", "a:b.c"]


# Statements.


@pytest.mark.usefixtures("hosted")
def test_a_statement_is_carried_out_by_the_program() -> None:
    insert = ("submit", "INSERT INTO photos VALUES (:id, NULL)", "--params", '{"id": 99}')
    assert asked(*insert).output == '{"changed":1}\n'
    assert record(asked(*insert, "--json")) == {"result": {"changed": 1}}
    told = asked("submit", "INSERT INTO films VALUES (1)", code=1).output
    assert "no such table: films" in told
    assert "Traceback" not in told


def test_rows_are_written_in_batches_after_somebody_has_said_yes(hosted: Shop) -> None:
    done = asked("iterate", QUERY, MUTATION, "--batch-size", "10", answer="y\n", code=1)
    assert "Write 25 rows in 3 batches?" in done.stderr
    assert "batch 2 failed: WriteFailed: " in done.stderr
    assert done.stdout.endswith("written: 15 rows in 3 batches, 1 batch failed\n")
    assert unwritten(hosted) == 10


def test_without_a_yes_nothing_is_written(hosted: Shop) -> None:
    assert asked("iterate", QUERY, MUTATION, answer="n\n", code=1).stdout.endswith("nothing is written\n")
    assert "say --yes" in asked("iterate", QUERY, MUTATION, code=2).output
    assert unwritten(hosted) == 25


def test_a_dry_run_counts_and_asks_nothing(hosted: Shop) -> None:
    assert asked("iterate", QUERY, MUTATION, "--dry-run").stdout == "there are 25 rows in 1 batch\n"
    found = record(asked("iterate", QUERY, MUTATION, "--dry-run", "--batch-size", "4", "--json"))
    assert (found["rows"], found["batches"], found["failed"]) == (25, 7, 0)
    assert unwritten(hosted) == 25


def test_programs_get_the_counts(hosted: Shop) -> None:
    found = record(asked("iterate", QUERY, MUTATION, "--batch-size", "1", "--retries", "2", "--yes", "--json", code=1))
    assert (found["rows"], found["batches"], found["failed"], found["retried"]) == (24, 25, 1, 2)
    assert len(found["errors"]) == 1
    assert unwritten(hosted) == 1


def test_statements_need_an_app_that_offers_a_host(shop: Shop) -> None:
    assert "it needs the app" in cli("control", "submit", "x").output
    done = cli("control", "submit", "x", "--app", "shop:app")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "0xD21" in done.stderr
    assert not shop.path.exists()


def test_how_far_it_is_is_told_on_stderr_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr("mainspring.cli.control_statements.time.monotonic", lambda: now)
    progress = Progress("written", 5000)
    for seconds, rows in ((1.0, 1000), (6.0, 2000), (7.0, 3000), (12.0, 4000)):
        now = seconds
        progress(Iterated(rows=rows, batches=rows // 1000))
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "2,000 of 5,000 rows written, 2 batches\n4,000 of 5,000 rows written, 4 batches\n"
