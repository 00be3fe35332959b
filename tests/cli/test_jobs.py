"""`mainspring jobs`, on a real file, with jobs that a real node has run."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any
from uuid import uuid4

import pytest

from mainspring import Context, JobHandle, Mainspring, Retry, Snooze
from tests.cli.conftest import Shop, cli


def tasks(app: Mainspring) -> dict[str, Any]:
    """Give an app the tasks that these tests need, in this process."""

    @app.task(name="add")
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @app.task(name="fail", retry=Retry.none(), queue="mail")
    async def fail(ctx: Context) -> None:
        ctx.log("about to fail", "warning")
        raise ValueError("nobody home\nat all")

    @app.task(name="nap")
    async def nap() -> None:
        raise Snooze("1h", "tired")

    return {"add": add, "fail": fail, "nap": nap}


def played(shop: Shop, *names: str) -> list[str]:
    """Enqueue jobs and have a node run them; returns their ids."""
    app = shop.app()
    known = tasks(app)

    async def play() -> list[JobHandle[Any]]:
        async with app.node():
            jobs = [await known[name].using(tags=["x"]).enqueue(*([7] if name == "add" else [])) for name in names]
            for job in jobs:
                while await job.state() in {"ready", "running"}:
                    await asyncio.sleep(0.01)
            return jobs

    return [str(job.id) for job in run(play())]


def run(work: "Coroutine[Any, Any, list[JobHandle[Any]]]") -> list[JobHandle[Any]]:
    return asyncio.run(work)


def waiting(shop: Shop, count: int = 1) -> list[str]:
    """Enqueue jobs that nobody runs."""
    app = shop.app()
    add = tasks(app)["add"]
    jobs = [str(add.enqueue_sync(number).id) for number in range(count)]
    app.close_sync()
    return jobs


def states(shop: Shop, *options: str) -> list[tuple[str, str]]:
    return [(line["id"], line["state"]) for line in shop.lines("jobs", "list", *options)]


def test_jobs_are_listed_newest_first_and_by_what_is_asked_for(shop: Shop) -> None:
    add, fail = played(shop, "add", "fail")
    assert states(shop) == [(fail, "failed"), (add, "succeeded")]
    for options in (["--state", "failed"], ["--task", "fail"], ["--queue", "mail"], ["--cause", "exhausted"]):
        assert states(shop, *options) == [(fail, "failed")]
    assert states(shop, "--state", "failed", "--state", "succeeded", "--tag", "x") == states(shop)
    assert states(shop, "--tag", "y") == []


def test_pages_follow_one_another_by_the_id_of_the_last_job(shop: Shop) -> None:
    ids = waiting(shop, 5)
    first = cli("jobs", "list", "--limit", "2", "--url", shop.url)
    assert f"There are more: --after {ids[3]}" in first.output
    assert [job for job, _ in states(shop, "--limit", "2", "--after", ids[3])] == [ids[2], ids[1]]
    last = cli("jobs", "list", "--after", ids[3], "--url", shop.url)
    assert "There are more" not in last.output


def test_the_table_is_for_people(shop: Shop) -> None:
    add, fail = played(shop, "add", "fail")
    lines = cli("jobs", "list", "--url", shop.url).output.splitlines()
    assert lines[0].split() == ["ID", "STATE", "TASK", "QUEUE", "TRIES", "WHEN", "NOTE"]
    assert lines[1].startswith(f"{fail}  failed     fail  mail       1/1")
    assert lines[1].endswith("s ago  exhausted: ValueError: nobody home")
    assert lines[2].startswith(f"{add}  succeeded  add   default    1/6")


def test_an_empty_list_says_so_to_people_and_nothing_to_programs(shop: Shop) -> None:
    waiting(shop, 0)
    cli("migrate", "--url", shop.url)
    assert cli("jobs", "list", "--url", shop.url).output == "No such jobs.\n"
    assert shop.lines("jobs", "list") == []


@pytest.mark.parametrize(
    ("option", "given", "meant"), [("--task", "faill", "fail"), ("--queue", "mails", "mail"), ("--queue", "qqq", "")]
)
def test_a_name_that_nobody_knows_brings_the_nearest_to_mind(shop: Shop, option: str, given: str, meant: str) -> None:
    played(shop, "fail")
    cli("queues", "pause", "mail", "--url", shop.url)  # a queue is known by what is kept of it
    hint = f"no {option[2:]} is named {given!r}" + (f"; did you mean {meant!r}?" if meant else "")
    asked = ("jobs", "list", option, given, "--url", shop.url)
    assert cli(*asked).stdout == f"No such jobs: {hint}\n"
    as_json = cli(*asked, "--json")
    assert (as_json.stdout, as_json.stderr, as_json.exit_code) == ("", f"mainspring: {hint}\n", 0)


def test_a_name_that_is_known_is_not_doubted(shop: Shop) -> None:
    played(shop, "fail")
    for option, given in (("--task", "fail"), ("--queue", "mail")):
        asked = ("jobs", "list", option, given, "--state", "cancelled", "--url", shop.url)
        assert cli(*asked).output == "No such jobs.\n"
        assert cli(*asked, "--json").output == ""


def test_everything_about_a_job_is_shown(shop: Shop) -> None:
    (fail,) = played(shop, "fail")
    text = cli("jobs", "show", fail, "--url", shop.url).output
    for part in (
        f"job        {fail}\n",
        "task       fail\n",
        "state      failed (exhausted)\n",
        "why        It raised an error or took too long in its only attempt.\n",
        "queue      mail, priority 50\n",
        "tries      1 of 1\n",
        "arguments  {}\n",
        "tags       x\n",
        "Last error\n  Traceback (most recent call last):\n",
        "ValueError: nobody home\n",
        "warning about to fail",
        "Attempts that did not succeed\n",
    ):
        assert part in text, text


def test_a_result_is_shown(shop: Shop) -> None:
    (add,) = played(shop, "add")
    text = cli("jobs", "show", add, "--url", shop.url).output
    assert 'arguments  {"a": 7}\n' in text
    assert "result     8\n" in text
    assert "Last error" not in text


def test_a_job_as_json_is_one_document_with_its_attempts_and_log(shop: Shop) -> None:
    (fail,) = played(shop, "fail")
    found = shop.job(fail)
    assert found["payload"] == {"v": 1, "args": {}}
    assert found["error"]["message"] == "nobody home\nat all"
    (attempt,) = found["attempts"]
    assert (attempt["event"], attempt["attempt"], attempt["error"]["type"]) == ("failed", 1, "ValueError")
    (line,) = found["log_lines"]
    assert (line["level"], line["message"]) == ("warning", "about to fail")


def test_why_a_job_snoozed_is_shown(shop: Shop) -> None:
    (nap,) = played(shop, "nap")
    (attempt,) = shop.job(nap)["attempts"]
    assert (attempt["event"], attempt["reason"]) == ("snoozed", "tired")
    assert "tired" in cli("jobs", "show", nap, "--url", shop.url).output


def test_a_job_that_is_not_there_ends_with_1(shop: Shop) -> None:
    waiting(shop)
    job = str(uuid4())
    done = cli("jobs", "show", job, "--url", shop.url)
    assert done.exit_code == 1
    assert done.output == f"mainspring: job {job} is not there: it never was, was deleted, or is past its retention\n"


def test_a_failed_job_is_retried(shop: Shop) -> None:
    (fail,) = played(shop, "fail")
    assert cli("jobs", "retry", fail, "--url", shop.url).output == f"{fail} will run again\n"
    found = shop.job(fail)
    assert (found["state"], found["granted"], found["cause"]) == ("ready", 1, None)


def test_jobs_are_cancelled_and_deleted(shop: Shop) -> None:
    first, second = waiting(shop, 2)
    assert cli("jobs", "cancel", first, "--url", shop.url).output == f"{first} is cancelled\n"
    assert cli("jobs", "delete", second, "--url", shop.url).output == f"{second} is gone\n"
    assert states(shop) == [(first, "cancelled")]


def test_one_that_cannot_be_changed_does_not_hinder_the_others(shop: Shop) -> None:
    add, fail = played(shop, "add", "fail")
    gone = str(uuid4())
    done = cli("jobs", "retry", add, gone, fail, "--url", shop.url)
    assert done.exit_code == 1
    assert f"{add}: a job cannot go from succeeded to ready: it succeeded" in done.output
    assert f"job {gone} is not there" in done.output
    assert f"{fail} will run again" in done.output
    assert shop.job(fail)["state"] == "ready"


def test_as_json_each_job_has_a_line_of_its_own(shop: Shop) -> None:
    (job,) = waiting(shop)
    gone = str(uuid4())
    done = cli("jobs", "cancel", job, gone, "--json", "--url", shop.url)
    assert done.exit_code == 1
    first, second = (json.loads(line) for line in done.output.splitlines())
    assert first == {"id": job, "done": True, "state": "cancelled", "problem": None}
    assert (second["id"], second["done"]) == (gone, False)
    assert "is not there" in second["problem"]


# From a shell into the queue.


def enqueued(*arguments: str) -> str:
    done = cli("jobs", "enqueue", "shop:app", *arguments)
    assert (done.exit_code, done.stderr) == (0, ""), done.stderr
    return done.stdout.strip()


def test_arguments_are_json_by_position_or_by_name(shop: Shop) -> None:
    positional = enqueued("add", "7", "-5")
    named = enqueued("add", "--args", '{"a": 1, "b": 2}')
    both = enqueued("add", "3", "--args", '{"b": 4}')
    assert [shop.job(job)["payload"]["args"] for job in (positional, named, both)] == [
        {"a": 7, "b": -5},
        {"a": 1, "b": 2},
        {"a": 3, "b": 4},
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["add", "hello"], "argument hello is no JSON; if it is meant as text, write '\"hello\"'"),
        (["add", '"hello"'], "add at a: expected `int`, got `str`"),
        (["add"], "add at a: missing argument"),
        (["add", "1", "--dleay", "5s"], "No such option: --dleay"),
        (["add", "1", "2", "3"], "takes 2 by position, 3 given"),
        (["add", "--args", "[1]"], "--args takes an object"),
        (["add", "--args", "a=1"], "--args takes an object of JSON, as in '{\"photo\": 7}', not a=1"),
        (["add", "--args", '{"c": 1}'], "add at c: unknown argument"),
        (["add", "1", "--delay", "soon"], "'soon' is no valid duration"),
        (["add", "1", "--priority", "101"], "101 is not in the range"),
    ],
)
def test_arguments_that_do_not_fit_are_told_in_one_line(shop: Shop, arguments: list[str], says: str) -> None:
    done = cli("jobs", "enqueue", "shop:app", *arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not shop.path.exists()


@pytest.mark.usefixtures("shop")
def test_a_task_that_is_not_there_brings_the_nearest_to_mind() -> None:
    done = cli("jobs", "enqueue", "shop:app", "ad")
    assert (done.exit_code, done.stderr) == (1, "mainspring: no task is named 'ad'; did you mean 'add'?\n")


def test_options_say_when_and_where(shop: Shop) -> None:
    options = ("--delay", "1h", "--priority", "90", "--queue", "mail", "--tag", "a", "--tag", "b")
    found = shop.job(enqueued("add", "1", *options))
    assert (found["state"], found["priority"], found["queue"]) == ("scheduled", 90, "mail")
    assert found["facts"]["tags"] == ["a", "b"]


def test_one_that_is_there_already_is_named_and_said_to_be(shop: Shop) -> None:
    first = shop.enqueue("once", "hello")
    done = cli("jobs", "enqueue", "shop:app", "once", '"hello"')
    assert (done.exit_code, done.stdout) == (0, f"{first}\n")
    assert "was there before" in done.stderr
    done = cli("jobs", "enqueue", "shop:app", "once", '"hello"', "--json")
    assert json.loads(done.stdout) == {"id": first, "task": "once", "fresh": False}


@pytest.mark.slow
def test_waiting_prints_the_result_and_fails_with_the_job(shop: Shop) -> None:
    with shop.worker() as worker:
        worker.says("at a time")
        good = shop.run("jobs", "enqueue", "shop:app", "add", "40", "2", "--wait", "--timeout", "30s")
        assert (good.returncode, good.stdout) == (0, "42\n")
        bad = shop.run("jobs", "enqueue", "shop:app", "fail", '"by design"', "--wait")
        assert bad.returncode == 1
        assert bad.stderr.endswith("failed (exhausted): ValueError: by design\n")
        long = shop.run("jobs", "enqueue", "shop:app", "nap", "5", "--wait", "--timeout", "200ms")
        assert long.returncode == 1
        assert "after 0.2 s; it goes on" in long.stderr
        worker.signal()
        worker.says("once more to hurry")
        worker.signal()
        worker.ends()


@pytest.mark.slow
@pytest.mark.usefixtures("shop")
def test_whoever_waits_is_told_why_the_job_does_not_begin() -> None:
    done = cli("jobs", "enqueue", "shop:app", "add", "1", "--wait", "--timeout", "3s")
    assert done.exit_code == 1
    told, ended = done.stderr.splitlines()
    assert told == "mainspring: the job waits: no node is at work; start one, as with: mainspring worker MODULE:APP"
    assert "was still ready after 3 s" in ended


def test_a_task_that_is_taken_for_an_app_is_told_with_what_to_say(shop: Shop) -> None:
    (shop.folder / "mail.py").write_text("send = print", encoding="utf-8")
    done = cli("jobs", "enqueue", "mail:send", "1", MAINSPRING_APP="shop:app")
    assert done.exit_code == 2
    assert done.stderr.endswith("; if mail:send is the task, say --app shop:app too\n")
