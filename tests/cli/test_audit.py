"""What people do by commands is in the audit log, beside what they do over HTTP: who, what, to how many, and how it went."""

import asyncio
import os
import platform
import pty
import pwd
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from mainspring import Every, Mainspring
from mainspring.cli.words import me
from mainspring.web import api
from tests.cli.audited import (
    APP,
    CHANGES,
    ELSEWHERE,
    LONG,
    LOOKS,
    PROGRAM,
    SHORT,
    World,
    check_that_each_leaves_its_line,
    read_audit,
    world_of,
)
from tests.cli.conftest import Shop, cli, environment, until
from tests.cli.test_usage import every_command
from tests.web.conftest import BASE, client


@pytest.fixture
def world(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world_of(shop, monkeypatch) as found:
        yield found


# All commands.


def test_every_command_leaves_a_line_or_is_listed_as_one_that_changes_nothing() -> None:
    audited = [does.command for does in CHANGES]
    assert sorted([*audited, *LOOKS, *ELSEWHERE]) == sorted(" ".join(words) for words in every_command())


def test_what_every_command_does_is_one_line(world: World) -> None:
    assert world.told() == []  # what a program does is not in it
    check_that_each_leaves_its_line(world)


def test_who_only_looks_leaves_none(world: World) -> None:
    for command, words in LOOKS.items():
        world.run(*command.split(), *words)
    assert world.told() == []


# Who.


def test_who_it_was_is_the_user_that_the_system_knows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody")
    world.run("queues", "pause", "mail")
    (line,) = world.entries()
    assert line.entry.who == f"cli:{pwd.getpwuid(os.getuid()).pw_name}@{platform.node()}"


def test_a_user_without_a_name_is_known_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999_999)
    assert me() == f"3999999999@{platform.node()}"


# What came of it.


REFUSED = (
    (("jobs", "retry", "{due}"), ("jobs.retry", "{due}", None, "wrong_state")),
    (("jobs", "delete", "0" * 32), ("jobs.delete", "00000000-0000-0000-0000-000000000000", None, "unknown_job")),
    (("schedules", "run", "nightley"), ("schedules.run", "nightley", None, "unknown_schedule")),
    (("schedules", "change", "no", "--every", "1h"), ("schedules.change", "no", None, "unknown_schedule")),
    (("schedules", "backfill", "no", *SHORT), ("schedules.backfill", "no", None, "unknown_schedule")),
    (("breakers", "open", "add"), ("breakers.open", "add", None, "unknown_breaker")),
    (("nodes", "quiet", "nobody"), ("nodes.quiet", "nobody", None, "unknown_node")),
    (("outbox", "replay", "--outbox", "no", "--yes"), ("outboxes.replay", "no", None, "unknown_outbox")),
    (("control", "run", "nothing"), ("control.run", "nothing", None, "unknown_task")),
    (("control", "cancel", "nothing"), ("control.cancel", "nothing", None, "unknown_schedule")),
    (("control", "submit", "FAIL"), ("control.submit", "", None, "host_failed")),
)


def test_what_is_refused_leaves_its_code(world: World) -> None:
    for words, _ in REFUSED:
        world.run(*words, code=1)
    assert world.told() == [(line[0], line[1].format(**world.names), *line[2:]) for _, line in REFUSED]


def test_of_several_the_count_says_to_how_many_it_was_done(world: World) -> None:
    nobody = [str(uuid4()) for _ in range(6)]
    old, due = world.names["old"], world.names["due"]
    world.run("jobs", "retry", due, old, code=1)
    world.run("jobs", "cancel", old, *nobody, code=1)
    world.run("jobs", "cancel", *nobody, code=1)
    world.run("schedules", "pause", "nightly", "byhand", "no", code=1)
    world.run("queues", "resume", "mail")
    assert world.told() == [
        ("jobs.retry", f"{due}, {old}", 1, "done"),
        ("jobs.cancel", f"{', '.join([old, *nobody[:4]])} and 2 more", 1, "done"),
        ("jobs.cancel", f"{', '.join(nobody[:5])} and 1 more", None, "unknown_job"),
        ("schedules.pause", "nightly, byhand, no", 1, "done"),
        ("queues.resume", "mail", 0, "done"),
    ]


def test_dead_letters_are_named_without_their_keys(world: World) -> None:
    world.run("outbox", "replay", "1", "2", "--outbox", "orders", "--yes")
    world.run("outbox", "discard", "--type", "OrderPaid", "--key", "customer-4", "--yes")
    world.run("outbox", "replay", "--key", "nobody", "--yes")
    world.run("outbox", "discard", "--outbox", "orders", "--partition", "0", "--type", "", "--yes")
    world.run("outbox", "discard", "--all", "--yes")
    assert world.told() == [
        ("outboxes.replay", "orders, letters 1, 2", 2, "done"),
        ("outboxes.discard", "type=OrderPaid, key", 1, "done"),
        ("outboxes.replay", "key", 0, "done"),
        ("outboxes.discard", "orders, partition 0, type=", 0, "done"),
        ("outboxes.discard", "all of them", 1, "done"),
    ]


def test_what_is_only_counted_leaves_none_refused_or_not(world: World) -> None:
    world.run("schedules", "backfill", "nightly", *LONG, "--dry-run")
    world.run("schedules", "backfill", "nothing", *LONG, "--dry-run", code=1)
    assert world.told() == []


def test_a_query_that_was_handed_to_the_program_leaves_a_line_though_nothing_was_written(world: World) -> None:
    world.run("control", "iterate", "GET", "SET", "--dry-run")
    world.run("control", "iterate", "GET", "SET", code=1, answer="n\n")
    assert world.told() == [("control.iterate", "", None, "dry_run")] * 2


def test_who_thinks_better_of_it_leaves_none(world: World) -> None:
    asks = (
        ("schedules", "remove", "nightly", "byhand"),
        ("schedules", "backfill", "nightly", *LONG),
        ("outbox", "replay", "--all"),
        ("outbox", "discard", "1"),
    )
    for words in asks:
        world.run(*words, code=1, answer="n\nn\n")
        world.run(*words, code=2)  # nobody answers
    assert world.told() == []


@pytest.mark.parametrize("how", ["ctrl-d", "ctrl-c"])
def test_a_question_that_is_left_open_ends_at_once_and_leaves_none(world: World, how: str) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "mainspring", "schedules", "remove", "nightly", *APP],
        env=environment({}),
        stdin=theirs,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(theirs)
        assert process.stderr is not None
        while process.stderr.read(1) != "?":
            pass
        until(lambda: all(is_asleep(process.pid) for _ in range(5)))  # it has begun to read what is typed
        if how == "ctrl-d":
            os.write(ours, b"\x04")
        else:
            process.send_signal(signal.SIGINT)
        try:
            assert process.wait(60) == 130
        finally:
            process.kill()
    os.close(ours)
    assert world.told() == []


def test_what_was_done_before_somebody_thought_better_is_told(world: World) -> None:
    world.run("schedules", "remove", "gone", "nightly", code=1, answer="y\nn\n")
    world.run("schedules", "remove", "byhand", "nightly", code=2, answer="y\n")
    assert world.told() == [
        ("schedules.remove", "gone, nightly", 1, "done"),
        ("schedules.remove", "byhand, nightly", 1, "done"),
    ]


def test_what_makes_no_sense_leaves_none(world: World) -> None:
    world.run("jobs", "enqueue", "ad", "1", code=1)
    for words in (
        ("jobs", "enqueue", "add", '"one"'),
        ("jobs", "retry", "7"),
        ("schedules", "add", "extra", "--task", "add", "--cron", "soon"),
        ("schedules", "change", "nightly"),
        ("schedules", "run", "nightly", "--timeout", "1s"),
        ("outbox", "replay"),
    ):
        world.run(*words, code=2)
    assert world.told() == []


def test_a_job_that_is_waited_for_has_its_line_whatever_becomes_of_it(world: World) -> None:
    world.run("jobs", "enqueue", "add", "1", "--wait", "--timeout", "50ms", code=1)
    world.run("schedules", "run", "byhand", "--wait", "--timeout", "50ms", code=1)
    assert world.told() == [("jobs.enqueue", "add", None, "done"), ("schedules.run", "byhand", None, "done")]


def test_a_line_is_of_when_somebody_said_yes(world: World) -> None:
    before = datetime.now(UTC)
    with subprocess.Popen(
        [sys.executable, "-m", "mainspring", "outbox", "discard", "--all", *APP],
        env=environment({}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while process.stderr.read(1) != "?":
            pass
        asked = datetime.now(UTC)
        until(lambda: datetime.now(UTC) - asked > timedelta(seconds=0.3))
        process.communicate("y\n", timeout=30)
    (line,) = world.entries()
    assert line.at - before > timedelta(seconds=0.3)
    assert line.at > asked


def test_what_is_broken_off_says_so(world: World) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "mainspring", "nodes", "stacks", "node-7", *APP], env=environment({})
    ) as process:
        until(lambda: orders(world))
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert world.told() == [("nodes.stacks", "node-7", None, "cut_off")]


def test_who_breaks_off_because_the_store_hangs_does_not_wait_for_the_line_too(world: World) -> None:
    """The store waits for a minute for whoever has the file locked; a line that nobody waits for gets two seconds."""
    with (
        closing(sqlite3.connect(world.shop.path, isolation_level=None)) as other,
        subprocess.Popen(
            [sys.executable, "-m", "mainspring", "queues", "pause", "mail", *APP],
            env=environment({}),
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        until(lambda: is_waiting(process.pid))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=100)
        assert time.monotonic() - began < 30
        other.execute("ROLLBACK")
    assert process.returncode == 130
    assert "not in the audit log" in said
    assert "the store did not answer in time" in said


def test_who_reads_no_further_hinders_no_line(world: World) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "mainspring", "queues", "pause", "mail", *APP],
        env=environment({}),
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(30) == 0
    assert world.told() == [("queues.pause", "mail", 1, "done")]


def is_asleep(pid: int) -> bool:
    """Say whether the main thread of a process waits for something, and has for a moment."""
    time.sleep(0.02)
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "S"


def is_waiting(pid: int) -> bool:
    """Report whether a process waits for the lock of the file: it has opened the log, and a thread of it sleeps."""
    process = Path(f"/proc/{pid}")
    has_opened = any(one.readlink().suffix == ".db-wal" for one in (process / "fd").iterdir() if one.is_symlink())
    return has_opened and any(
        (thread / "wchan").read_text(encoding="ascii") == "hrtimer_nanosleep" for thread in (process / "task").iterdir()
    )


def orders(world: World) -> int:
    with closing(sqlite3.connect(world.shop.path)) as found:
        (number,) = found.execute("SELECT count(*) FROM mainspring_orders").fetchone()
        return int(number)


# Where it cannot be kept.


def test_a_line_that_cannot_be_kept_undoes_nothing(world: World) -> None:
    with closing(sqlite3.connect(world.shop.path)) as found:
        found.execute(
            "CREATE TRIGGER full BEFORE INSERT ON mainspring_audit BEGIN SELECT RAISE(ABORT, 'it is full'); END"
        )
    old = world.names["old"]
    done = cli("jobs", "retry", old, *APP)
    assert (done.exit_code, done.stdout) == (0, f"{old} will run again\n")
    assert done.stderr.startswith(f"not in the audit log: cli:{me()} jobs.retry {old}: done; ")
    assert "it is full" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert world.shop.job(old)["state"] == "ready"
    refused = cli("jobs", "retry", old, *APP)
    assert refused.exit_code == 1
    assert "wrong_state" in refused.stderr


def test_statements_make_no_store_for_their_line(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    with world_of(shop, monkeypatch) as world:
        monkeypatch.setenv("SHOP_URL", "sqlite:///elsewhere.db")
        assert world.run("control", "submit", "SET").output == "null\n"
        assert not Path("elsewhere.db").exists()
        assert world.told() == []


def test_a_store_that_keeps_no_audit_log_is_left_alone(shop: Shop) -> None:
    folder = shop.folder / "data"
    url = f"sidecar:///{folder}"
    app = Mainspring(url)
    app.schedules.add_sync("nightly", Every("1d"), app.task(name="sweep")(sweep).call())
    (shop.folder / "audited_shop.py").write_text(PROGRAM, encoding="utf-8")
    done = cli("control", "submit", "SET", *APP, SHOP_URL=url)  # while the program has its document open
    assert (done.exit_code, done.stdout, done.stderr) == (0, "null\n", "")
    app.close_sync()
    done = cli("schedules", "pause", "nightly", "--url", url)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "nightly is paused\n", "")
    assert "audit" not in "".join(path.read_text() for path in folder.rglob("*") if path.is_file())


async def sweep() -> None: ...


# Where it is read.


def test_a_retry_by_a_command_is_in_the_life_of_its_job(world: World) -> None:
    old = world.names["old"]
    world.run("jobs", "retry", "{done}", code=0)
    world.run("jobs", "retry", old)
    world.run("jobs", "retry", old, code=1)
    world.run("jobs", "cancel", old)

    async def shown() -> list[tuple[str, str]]:
        app = world.shop.app()
        async with app, client(api(app)) as found:
            answer = await found.get(f"{BASE}/jobs/show", params={"id": old})
            return [(one["word"], one["text"]) for one in answer.json()["timeline"]]

    assert asyncio.run(shown()) == [
        ("enqueued", ""),
        ("retried", f"by cli:{me()}"),
        ("retry", f"by cli:{me()}, wrong state"),
        ("cancel_requested", f"by cli:{me()}"),
        ("finished", "cancelled"),
    ]


def test_programs_read_it_by_whoever_it_was(world: World) -> None:
    world.run("queues", "pause", "mail")

    async def read() -> int:
        async with world.shop.app() as app:
            return len((await app.overview.audit(who=f"cli:{me()}")).entries)

    assert asyncio.run(read()) == len(read_audit(world.shop)) == 1
    assert cli("queues", "list", "--url", world.shop.url).exit_code == 0
