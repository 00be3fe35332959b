"""The demo, as a person starts it: real workers, real kills, real seconds; and its last words are true."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from uuid import UUID

import msgspec
import pytest

from mainspring.cli.demo.events import Moment, Watcher, changes
from mainspring.cli.demo.fates import FATES
from mainspring.cli.demo.story import Story
from mainspring.cli.demo.view import table
from mainspring.core.backoff import Backoff
from mainspring.core.job import Cause, Job, JobId, NodeId, State
from mainspring.core.machine import Event
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError
from mainspring.stores.records import AttemptView, JobView, NodeRecord, NodeView, Process, Progress
from tests.cli.conftest import WITHOUT_RICH, cli, environment, on_terminal, until

MAINSPRING = [sys.executable, "-W", "error", "-m", "mainspring"]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def lines(url: str, *arguments: str) -> list[dict[str, Any]]:
    done = cli(*arguments, "--json", "--url", url)
    assert done.exit_code == 0, done.output
    return [msgspec.json.decode(line) for line in done.output.splitlines()]


@pytest.mark.full
@pytest.mark.timeout(240)
def test_the_demo_ends_by_itself_and_its_last_words_are_true(tmp_path: Path) -> None:
    done = subprocess.run(
        [*MAINSPRING, "demo", "--seconds", "60", "--keep"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=environment({"TMPDIR": str(tmp_path)}),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "had not ended yet" not in done.stdout
    url = done.stdout.split("--url ")[1].strip()
    listed = [job for job in lines(url, "jobs", "list", "--limit", "1000") if job["task"] in FATES]
    jobs = [shown for job in listed for shown in shown_of(url, job)]
    text = done.stdout

    def events(*tasks: str) -> list[str]:
        return [attempt["event"] for job in jobs if job["task"] in tasks for attempt in job["attempts"]]

    states = [job["state"] for job in jobs]
    good = states.count("succeeded")
    assert (
        f"{len(jobs)} jobs enqueued, {len(jobs)} ended: {good} succeeded, 1 failed, 1 cancelled. None is lost." in text
    )
    (poison,) = [job for job in jobs if job["task"] == "poison"]
    assert (poison["state"], poison["cause"], poison["losses"]) == ("failed", "poison", 3)
    assert events("poison") == ["lost", "lost", "failed"]
    assert "One job killed its worker 3 times with SIGKILL and was stopped: failed, poison." in text
    assert text.count(" is gone\n") == 3, "nodes"
    hit = [job for job in jobs if job["task"] != "poison" and "lost" in [one["event"] for one in job["attempts"]]]
    assert all(job["state"] in {"succeeded", "cancelled"} for job in hit)
    if hit:
        assert re.search(rf"{len(hit)} jobs? that ran beside it went to another worker and ended well\.", text)
    assert f"3 jobs failed {events('flaky').count('will_retry')} times between them; all succeeded in the end." in text
    late = max(instant(job["started_at"]) - instant(job["run_at"]) for job in jobs if job["task"] == "later")
    assert f"3 delayed jobs started at most {late.total_seconds() * 1000:.0f} ms after their time." in text
    assert f"One snoozed {events('parcel').count('snoozed')} times" in text
    (march,) = [job for job in jobs if job["task"] == "march"]
    assert instant(march["started_at"]) < instant(march["cancel_requested_at"]) < instant(march["finished_at"])
    assert "One was cancelled while it ran and stopped" in text


def shown_of(url: str, job: dict[str, Any]) -> list[dict[str, Any]]:
    return lines(url, "jobs", "show", str(job["id"]))


def instant(text: object) -> datetime:
    return datetime.fromisoformat(str(text))


@pytest.mark.slow
def test_ctrl_c_ends_it_early_and_leaves_nothing_behind(tmp_path: Path) -> None:
    elsewhere = environment({"TMPDIR": str(tmp_path)})
    with subprocess.Popen([*MAINSPRING, "demo"], stdout=subprocess.PIPE, text=True, env=elsewhere) as process:
        assert process.stdout
        while " starts on " not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(60) == 0
    assert "None is lost." in rest
    assert "had not ended yet" in rest
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_reader_who_has_seen_enough_ends_it_quietly() -> None:
    with subprocess.Popen(
        [*MAINSPRING, "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment({})
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "code"),
    [(80, ""), pytest.param(120, "", marks=pytest.mark.full), (80, WITHOUT_RICH)],
    ids=["80", "120", "plain"],
)
def test_it_can_be_watched_on_a_terminal(columns: int, code: str) -> None:
    if not code:
        pytest.importorskip("rich")
    written, ended = on_terminal("demo", "--seconds", "3", "--no-stay", columns=columns, code=code)
    assert ended == 0, written
    assert "None is lost." in " ".join(written.split())
    assert ("FATE" in written) == (code == "")
    assert "Traceback" not in written
    assert "Watch it in a browser: http://127.0.0.1:" in written
    assert "it ends by itself" in written
    assert "--stay" in written


WITHOUT_UVICORN = (
    "import sys; sys.modules['uvicorn'] = None; from mainspring.cli import main; main(prog_name='mainspring')"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "hints"),
    [
        pytest.param([*MAINSPRING, "demo", "--no-dashboard"], 0, marks=pytest.mark.full),
        ([sys.executable, "-c", WITHOUT_UVICORN, "demo"], 1),
    ],
    ids=["not wanted", "not installed"],
)
def test_without_the_dashboard_there_is_the_story_alone(tmp_path: Path, command: list[str], hints: int) -> None:
    done = subprocess.run(
        [*command, "--seconds", "3", "--keep"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment({"TMPDIR": str(tmp_path)}),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "http://" not in done.stdout
    assert done.stdout.count("install Mainspring with the extra 'dashboard'") == hints
    tasks = {job["task"] for job in lines(done.stdout.split("--url ")[1].strip(), "jobs", "list", "--limit", "1000")}
    assert tasks <= set(FATES)


class Shown:
    """What the demo's dashboard answers."""

    def __init__(self, address: str) -> None:
        self._address = address

    def page(self, path: str) -> str:
        with urlopen(f"{self._address}{path}", timeout=30) as answer:  # noqa: S310 - the demo has told it
            return str(answer.read(), "utf-8")

    def look(self, what: str) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.page(f"api/v1/{what}"))
        return found

    def comes(self, what: str, fits: Callable[[dict[str, Any]], object]) -> None:
        until(lambda: fits(self.look(what)), lambda: self.look(what), seconds=60)


def look_around(process: "subprocess.Popen[str]") -> None:
    assert process.stdout
    while not (found := re.search(r"browser: (http://127\.0\.0\.1:\d+/)$", process.stdout.readline())):
        pass
    shown = Shown(found[1])
    for page in ("", "jobs"):
        assert "<h1>" in shown.page(page)
    while "The dashboard stays at" not in process.stdout.readline():
        pass
    shown.comes("queues/list", lambda said: any(one["paused"] and one["waiting"] for one in said["queues"]))
    shown.comes("queues/list", lambda said: any(one["limit"] != one["declared"] for one in said["rules"]))
    shown.comes("schedules/list", lambda said: {"on", "paused"} <= set(said["standing"].values()))
    shown.comes("schedules/show?name=exchange-rates", lambda said: said["runs"])
    shown.comes("outboxes/letters?outbox=orders", lambda said: said["letters"])
    shown.comes("breakers/show?task=payment.charge", lambda said: said["changes"])
    shown.comes("services/list", lambda said: any(one["service"]["error"] for one in said["services"]))
    shown.comes("services/list", lambda said: any(one["service"]["is_singleton"] for one in said["services"]))
    shown.comes("plugins/list", lambda said: "thumbnails" in {one["name"] for one in said["plugins"]})
    shown.comes("audit/list", lambda said: {"queues.pause", "jobs.retry"} <= {one["action"] for one in said["entries"]})
    shown.comes("jobs/list?tag=album", lambda said: any(one["facts"]["parent"] for one in said["jobs"]))
    shown.comes("jobs/list?state=failed&task=mail.send", lambda said: said["jobs"])
    shown.comes("overview", lambda said: said["tasks"] and said["errors"])


@pytest.mark.slow
def test_every_page_of_its_dashboard_has_something_to_show(tmp_path: Path) -> None:
    elsewhere = environment({"TMPDIR": str(tmp_path)})
    with subprocess.Popen(
        [*MAINSPRING, "demo", "--seconds", "3", "--stay"], stdout=subprocess.PIPE, text=True, env=elsewhere
    ) as process:
        try:
            look_around(process)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert list(tmp_path.iterdir()) == []


# The words, one by one.


def job(task: str = "film", state: State = State.READY, **fields: object) -> Job:
    given = {"id": JobId(UUID(int=1)), "run_at": NOON, "backoff": Backoff.fixed(1), "max_attempts": 6}
    return Job(task=Name("", task), state=state, **{**given, **fields})  # type: ignore[arg-type]  # by name, as given


def view(job: Job, **fields: object) -> JobView:
    return JobView(job=job, payload=b"{}", enqueued_at=NOON, **fields)  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (None, view(job(state=State.READY)), []),
        (None, view(job(state=State.SCHEDULED, run_at=NOON + timedelta(seconds=6))), ["is scheduled, due in 6.0 s"]),
        (view(job()), view(job(state=State.RUNNING, lease=1), node=NodeId("n")), ["starts on n"]),
        (
            view(job(state=State.RUNNING, lease=1)),
            view(job(state=State.READY, lease=1, losses=1)),
            ["is lost with its worker, and goes to another"],
        ),
        (
            view(job(state=State.RUNNING, lease=3, losses=2)),
            view(job(state=State.FAILED, lease=3, losses=3, cause=Cause.POISON)),
            ["is lost with its worker", "has failed, cause: poison"],
        ),
        (
            view(job(state=State.RUNNING, lease=1)),
            view(
                job(state=State.RETRYING, lease=1, run_at=NOON + timedelta(seconds=1)),
                error=AttemptError(type="OSError", message="gone"),
            ),
            ["fails (OSError: gone), next try in 1.0 s"],
        ),
        (
            view(job(state=State.RUNNING, lease=1)),
            view(job(state=State.SCHEDULED, lease=1, run_at=NOON + timedelta(seconds=2))),
            ["snoozes for 2.0 s"],
        ),
        (
            view(job(state=State.RUNNING, lease=1)),
            view(job(state=State.CANCELLED, lease=1, cancel_requested_at=NOON)),
            ["is asked to stop", "is cancelled"],
        ),
        (
            view(job(state=State.RUNNING, lease=1)),
            view(job(state=State.SUCCEEDED, lease=1, attempt=2)),
            ["succeeds, try 2"],
        ),
        (view(job(state=State.RUNNING, lease=1)), view(job(state=State.RUNNING, lease=1)), []),
    ],
)
def test_what_has_become_of_a_job_is_told(before: JobView | None, after: JobView, says: list[str]) -> None:
    assert list(changes(before, after, NOON)) == says


def node(name: str, *, alive: bool) -> NodeView:
    record = NodeRecord(id=NodeId(name), process=Process(host="h", pid=1, started="1"), tasks=frozenset())
    return NodeView(node=record, term=1, counter=1, alive=alive, joined_at=NOON, renewed_at=NOON)


def moment(*jobs: JobView, nodes: tuple[NodeView, ...] = ()) -> Moment:
    return Moment(seconds=1.0, now=NOON, jobs=jobs, nodes=nodes)


def test_nodes_that_come_and_go_are_told_once() -> None:
    watcher = Watcher()
    said = [
        [happening.what for happening in watcher.look(moment(nodes=(node("n", alive=alive),)))]
        for alive in (True, True, False, False)
    ]
    assert said == [["n joins"], [], ["n is gone"], []]


def test_the_table_says_how_far_slow_jobs_are_and_how_many_workers_were_killed() -> None:
    rows = table(
        moment(
            view(job(state=State.RUNNING), progress=Progress(40.0)),
            view(job(state=State.RUNNING), progress=Progress(60.0)),
            view(job("poison", State.FAILED, losses=3, cause=Cause.POISON)),
            view(job("march", State.RUNNING), progress=Progress(0.0, "step 3")),
        )
    )
    assert [row[0] for row in rows] == ["film", "march", "poison"]
    assert [row[-1] for row in rows] == ["█████░░░░░  50 %", "running, step 3", "failed: 3 killed workers"]


def test_a_job_that_is_missing_in_the_end_would_be_told() -> None:
    there, missing = JobId(UUID(int=1)), JobId(UUID(int=2))
    story = Story(enqueued=frozenset({there, missing}), jobs=[view(job(state=State.SUCCEEDED))], attempts={there: ()})
    assert not story.nothing_lost
    assert list(story.sentences()) == ["2 jobs enqueued, 1 ended: 1 succeeded. The books do not balance!"]


@pytest.mark.parametrize(("well", "words"), [(0, "0 have"), (1, "1 has"), (2, "2 have")])
def test_one_job_has_and_several_have_ended(well: int, words: str) -> None:
    ids = [JobId(UUID(int=number)) for number in range(6)]
    tasks = ["film"] * 3 + ["flaky"] * 3
    states = ([State.SUCCEEDED] * well + [State.READY] * (3 - well)) * 2
    events = [Event.LOST] * 3 + [Event.WILL_RETRY] * 3
    attempts = {
        id_: [AttemptView(job=id_, lease=1, attempt=1, node=NodeId("n"), event=event, started_at=NOON, ended_at=NOON)]
        for id_, event in zip(ids, events, strict=True)
    }
    views = [view(job(task, state, id=id_)) for id_, task, state in zip(ids, tasks, states, strict=True)]
    told = list(Story(enqueued=frozenset(ids), jobs=views, attempts=attempts).sentences())
    assert f"3 jobs that ran beside it went to another worker and {words[0]} of them{words[1:]} ended well." in told
    assert f"3 jobs failed 3 times between them; {words} succeeded so far." in told
