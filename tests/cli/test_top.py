"""`mainspring top`: one look, and a live view on a real terminal."""

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import signal
import sqlite3
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring import Context, Mainspring, Retry
from mainspring.cli.table import fit
from mainspring.cli.top_frame import headline, printable, sections, shares
from mainspring.cli.top_gather import Frame, RunningRow, gather
from mainspring.client.measuring import WRITTEN
from mainspring.core.job import JobId, NodeId
from mainspring.core.tally import Count, Counted, Line
from mainspring.stores.memory import MemoryStore
from mainspring.stores.overview import Tally
from mainspring.stores.records import NodeRecord, Process
from mainspring.testing import VirtualTime
from tests.cli.conftest import WITHOUT_RICH, Shop, cli, environment, on_terminal

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
A_MINUTE = timedelta(minutes=1)
ELSEWHERE = Process(host="elsewhere", pid=1, started="long ago")


def tally(at: datetime, by: str, counted: Counted) -> Tally:
    return Tally(at=at, span=A_MINUTE, by=by, body=msgspec.json.encode(counted))


# What is gathered.


@pytest.fixture
def store(virtual_time: VirtualTime) -> MemoryStore:
    return MemoryStore(clock=virtual_time.clock)


@pytest.fixture
def app(virtual_time: VirtualTime, store: MemoryStore) -> Mainspring:
    return Mainspring(store, clock=virtual_time.clock)


async def test_a_frame_has_what_is_there(app: Mainspring, store: MemoryStore) -> None:
    @app.task(name="film", queue="films")
    async def film(ctx: Context) -> None:
        ctx.progress(40, "cutting\nand pasting")
        await asyncio.sleep(3600)

    @app.task(name="fail", retry=Retry.none())
    async def fail() -> None:
        raise ValueError("no such\nuser")

    async with app, app.node(concurrency=2) as node:
        first = await film.enqueue()
        await fail.enqueue()
        for _ in range(3):
            await film.enqueue()
        await film.using(delay="2h").enqueue()
        await store.pause("mail")
        await asyncio.sleep(200)
        frame = await gather(app)
    (one,) = frame.nodes
    assert (one.id, one.state, one.running, one.places) == (node.id, "alive", 2, 2)
    queues = {queue.name: queue for queue in frame.queues}
    films = queues["films"]
    assert (films.due, films.later, films.running, films.oldest_at is not None) == (2, 1, 2, True)
    assert queues["mail"].paused
    assert {row.id for row in frame.running} >= {first.id}
    assert (frame.running[-1].percent, frame.running[-1].message) == (40, "cutting\nand pasting")
    assert [row.error for row in frame.failed] == ["ValueError: no such\nuser"]
    assert frame.warnings == ()


async def test_a_frame_has_what_nodes_have_said_and_counted(app: Mainspring, store: MemoryStore) -> None:
    async with app:
        id_ = NodeId("n1")
        term = await store.join(NodeRecord(id=id_, process=ELSEWHERE, tasks=frozenset(), concurrency=3))
        await store.report(id_, term, b'{"memory": 12345678}')
        await store.limit_queue("films", 4)
        last = (store.now() - WRITTEN).replace(second=0, microsecond=0) - A_MINUTE
        line = Line(
            queue="films", task="film", ends={"succeeded": 5, "failed": 1}, runs={40: 6}, errors={"ValueError": 1}
        )
        other = Line(queue="more", task="film", ends={"succeeded": 1}, runs={80: 1})
        await store.write_tallies(
            [tally(last, "a", Counted(lines=(line, other))), tally(last, "b", Counted(enqueued=8))]
        )
        frame = await gather(app)
    assert [(node.places, node.memory) for node in frame.nodes] == [(3, 12345678)]
    queues = {queue.name: queue for queue in frame.queues}
    assert (queues["films"].ended, queues["films"].bad, queues["films"].limit) == (6, 1, 4)
    assert [(task.task, task.ended, task.bad) for task in frame.tasks] == [("film", 7, 1)]
    assert [(error.error, error.count, error.task) for error in frame.errors] == [("ValueError", 1, "film")]
    assert frame.enqueued == 8


async def test_a_census_that_was_written_down_is_not_taken_again(
    store: MemoryStore, app: Mainspring, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> Any:  # noqa: ANN401 - nothing
        raise AssertionError("it counts")

    monkeypatch.setattr(store, "census", never)
    async with app:
        count = Count(queue="q", task="t", due=10_000)
        minute = store.now().replace(second=0, microsecond=0)
        counted = Counted(counted_at=store.now(), counts=(count,), nodes=1)
        await store.write_tallies([tally(minute, "", counted)])
        frame = await gather(app)
    assert [queue.due for queue in frame.queues] == [10_000]
    assert [one.code for one in frame.warnings] == ["no_node"]
    (rows,) = [section.rows for section in sections(frame) if section.rows]
    assert "10,000+" in rows[0]


async def test_what_cannot_be_counted_in_time_and_who_is_silent_is_told(
    app: Mainspring, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    census = store.census

    async def partly(since: datetime, *, budget: timedelta) -> Any:  # noqa: ANN401 - a census
        assert budget < timedelta(seconds=1)
        return msgspec.structs.replace(await census(since), complete=False)

    monkeypatch.setattr(store, "census", partly)
    async with app:
        await store.join(NodeRecord(id=NodeId("n1"), process=ELSEWHERE, tasks=frozenset()))
        await asyncio.sleep(20)
        frame = await gather(app)
    assert [one.code for one in frame.warnings] == ["node_silent", "no_node", "census_cut_short"]


# How it is laid out.


@given(st.lists(st.integers(0, 60), max_size=8), st.integers(0, 200))
def test_rows_fit_into_the_room_and_the_longest_give_way_first(wanted: list[int], room: int) -> None:
    given = shares(wanted, room)
    assert sum(rows + 2 for rows in given if rows) <= room
    assert all(got <= want for got, want in zip(given, wanted, strict=True))
    if sum(rows + 2 for rows in wanted if rows) <= room:
        assert given == wanted
    cut = [got for got, want in zip(given, wanted, strict=True) if 0 < got < want]
    if cut:
        assert max(given) <= max(cut) + 1


@given(st.text())
def test_nothing_that_is_shown_can_steer_the_terminal(text: str) -> None:
    shown = printable(text)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", shown)


def frame_of(**fields: Any) -> Frame:  # noqa: ANN401 - those of a frame
    nothing: dict[str, Any] = dict.fromkeys(Frame.__struct_fields__, ())
    return Frame(**{**nothing, "now": datetime(2026, 1, 1, tzinfo=UTC), "enqueued": None, "counted_at": None, **fields})


def test_an_empty_store_has_a_headline_and_no_more() -> None:
    frame = frame_of()
    assert headline(frame) == "00:00:00 UTC   0 nodes   0 of 0 places   0 due"
    assert [section.rows for section in sections(frame)] == [[]] * 6


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.5, "0 due"), (8, "0 due (counted 8.0 s ago)"), (50, "0 due (counted 50 s ago)")]
)
def test_the_headline_has_the_age_of_the_counts(seconds: float, text: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert headline(frame_of(counted_at=now - timedelta(seconds=seconds))).endswith(f"places   {text}")


def test_a_job_that_is_not_done_has_no_full_bar() -> None:
    row = RunningRow(
        id=JobId(UUID(int=1)),
        task="t",
        queue="q",
        node=None,
        attempt=1,
        started_at=None,
        percent=99.5,
        message="199 of 200",
    )
    (section,) = [one for one in sections(frame_of(running=(row,))) if one.rows]
    assert section.rows[0][-1] == "█████████░  99 % 199 of 200"


@pytest.mark.parametrize("width", [44, 60, 80, 120, 200])
def test_every_section_fits_into_a_line(width: int) -> None:
    for section in sections(frame_of()):
        columns, _ = fit(section.columns, [], width)
        assert sum(len(column.title) + 2 for column in columns) - 2 <= width


# One look.


@pytest.fixture
def filled(shop: Shop) -> Shop:
    for number in range(3):
        shop.enqueue("add", number)
    shop.enqueue("once", "x")
    return shop


def test_once_prints_a_look_that_is_not_cut(filled: Shop) -> None:
    done = cli("top", "--url", filled.url, "--once")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0].endswith("due") or "enqueued/min" in lines[0]
    assert lines[1].startswith("! nodes: no node is at work, and 4 jobs are due")
    assert [line.split()[:2] for line in lines[-2:]] == [["default", "3"], ["mail", "1"]]


@pytest.mark.parametrize("code", ["", WITHOUT_RICH], ids=["rich", "plain"])
def test_once_fits_a_terminal_with_rich_and_without(filled: Shop, code: str) -> None:
    written, ended = on_terminal("top", "--once", "--url", filled.url, columns=60, code=code)
    assert ended == 0, written
    rows = ESCAPE.sub("", written).partition("QUEUE")[2].splitlines()
    assert rows
    assert max(len(row.rstrip()) for row in rows) <= 60


def test_json_is_one_record(filled: Shop) -> None:
    (frame,) = filled.lines("top")
    assert set(frame) == set(Frame.__struct_fields__)
    assert {queue["name"]: queue["due"] for queue in frame["queues"]} == {"default": 3, "mail": 1}


def test_an_app_can_be_named(filled: Shop) -> None:
    del filled
    done = cli("top", "shop:app", "--json")
    assert json.loads(done.output)["nodes"] == []


def test_what_cannot_be_is_said(filled: Shop) -> None:
    done = cli("top", "--url", filled.url)
    assert (done.exit_code, "--once" in done.output) == (2, True)
    done = cli("top", "shop:app", "--url", filled.url, "--once")
    assert done.exit_code == 2
    written, ended = on_terminal("top", "--url", filled.url, code=WITHOUT_RICH)
    assert (ended, "install Mainspring with the extra 'rich'" in written) == (2, True)
    done = cli("top", "--url", "sqlite:///nowhere.db", "--once")
    assert (done.exit_code, "no such file" in done.output) == (3, True)


# Live.


class Terminal:
    """A terminal that a command runs on: what it shows can be read, and keys be pressed."""

    def __init__(self, ours: int, process: "subprocess.Popen[bytes]") -> None:
        self._ours = ours
        self.process = process
        self.text = ""

    def shows(self, what: str, times: int = 1, seconds: float = 60) -> None:
        """Wait until something was written so many times from now on."""
        deadline, start = time.monotonic() + seconds, len(self.text)
        while self.text.count(what, start) < times:
            left = deadline - time.monotonic()
            assert left > 0, self.text
            if select.select([self._ours], [], [], left)[0]:
                self.text += os.read(self._ours, 65536).decode("utf-8", "replace")

    def press(self, key: str) -> None:
        os.write(self._ours, key.encode())

    def drain(self) -> None:
        while select.select([self._ours], [], [], 0.2)[0]:
            self.text += os.read(self._ours, 65536).decode("utf-8", "replace")

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    @property
    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self._ours)[3] & termios.ECHO)


@contextmanager
def live(shop: Shop, *options: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-W", "error", "-m", "mainspring", "top", "--url", shop.url, "--every", "0.1", *options]
    variables = {"TERM": "xterm-256color", "COLUMNS": "", "LINES": ""}
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(variables), start_new_session=True
    ) as process:
        terminal = Terminal(ours, process)
        try:
            yield terminal
        finally:
            if process.poll() is None:
                process.kill()
            os.close(ours)
            os.close(theirs)


def test_it_draws_again_and_again_until_q_and_leaves_the_terminal_as_it_was(filled: Shop) -> None:
    with live(filled) as terminal:
        before = terminal.echoes
        terminal.shows("q quits, p pauses", times=3)
        assert "\x1b[?1049h" in terminal.text  # the other screen
        within = terminal.echoes
        filled.enqueue("once", "y")
        terminal.shows("5 due")
        terminal.press("q")
        assert terminal.process.wait(60) == 0
        terminal.drain()
        assert terminal.text.count("\x1b[?1049l") == 1
        assert terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l")  # the cursor is back
        assert (before, within, terminal.echoes) == (True, False, True)


@pytest.mark.slow
def test_p_has_it_stand_still_and_go_on(filled: Shop) -> None:
    with live(filled) as terminal:
        terminal.shows("4 due")
        terminal.press("p")
        terminal.shows("paused, p goes on", times=2)
        filled.enqueue("once", "y")
        terminal.shows("paused, p goes on", times=3)
        assert "5 due" not in terminal.text
        terminal.press("p")
        terminal.shows("5 due")
        terminal.press("q")
        assert terminal.process.wait(60) == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_the_terminal_as_it_was_too(filled: Shop, number: signal.Signals) -> None:
    with live(filled) as terminal:
        terminal.shows("q quits")
        terminal.process.send_signal(number)
        assert terminal.process.wait(60) == (130 if number is signal.SIGINT else 0)
        terminal.drain()
        assert terminal.text.count("\x1b[?1049l") == 1
        assert "Traceback" not in terminal.text
        assert terminal.echoes


@pytest.mark.slow
def test_it_fits_the_terminal_and_follows_its_size(shop: Shop) -> None:
    app = shop.app()

    @app.task(name="work")
    async def work() -> None: ...

    for number in range(30):
        work.using(queue=f"a-queue-with-a-rather-long-name-{number}").enqueue_sync()
    app.close_sync()
    with live(shop) as terminal:
        terminal.shows("30 due", times=2)
        assert most(terminal.text) in range(20, 25)
        terminal.resize(8, 40)
        terminal.shows("\x1b[H", times=3)
        terminal.text = terminal.text[terminal.text.rindex("\x1b[H") :]
        terminal.shows("\x1b[H", times=2)
        assert most(terminal.text) <= 8
        for frame in terminal.text.split("\x1b[H"):
            assert all(len(line.rstrip()) <= 40 for line in ESCAPE.sub("", frame).splitlines())
        assert "DUE" in terminal.text
        terminal.press("q")
        assert terminal.process.wait(60) == 0


def most(text: str) -> int:
    """Count the lines of the last whole frame."""
    return len(ESCAPE.sub("", text.split("\x1b[H")[-2]).splitlines())


@pytest.mark.slow
def test_a_store_that_goes_away_is_told_and_waited_for(filled: Shop) -> None:
    with live(filled) as terminal:
        terminal.shows("4 due")
        with closing(sqlite3.connect(filled.path, isolation_level=None)) as holder:
            holder.execute("ALTER TABLE mainspring_breakers RENAME TO elsewhere")
        terminal.shows("does not answer")
        assert terminal.process.poll() is None
        with closing(sqlite3.connect(filled.path, isolation_level=None)) as holder:
            holder.execute("ALTER TABLE elsewhere RENAME TO mainspring_breakers")
        terminal.text = ""
        terminal.shows("q quits", times=3)
        assert "does not answer" not in terminal.text[terminal.text.rindex("UTC") :]
        terminal.press("q")
        assert terminal.process.wait(60) == 0
