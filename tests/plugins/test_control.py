"""The control object: schedules in plain words, statements in batches, and a checkpoint."""

import asyncio
import pickle
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring import Context, Cron, Every, Mainspring, Manual, Once, Plugin
from mainspring.client import control
from mainspring.client.statements import Iterated
from mainspring.core.job import State
from mainspring.core.rules import Rule, same_rule
from mainspring.errors import (
    ControlError,
    FlushFailed,
    HostMissing,
    JobCancelled,
    LeaseLost,
    PayloadError,
    ReadFailed,
    StoreError,
    StoreUnavailable,
    UnknownSchedule,
    UnknownTask,
)
from mainspring.plugins import BackgroundJobs, HostWrite, Schedules
from mainspring.plugins.mirror import DELETE
from mainspring.stores.memory import MemoryStore
from mainspring.testing import FaultyStore, VirtualTime
from tests.plugins.mirrors import Flaky, Nowhere


class Sweeper:
    """A plugin whose jobs take their time."""

    def __init__(self) -> None:
        self.plugin = Plugin("db", "1", requires=[BackgroundJobs(), Schedules()])
        self.fired = 0
        self.ended: list[str] = []

        @self.plugin.task
        async def sweep(seconds: float = 0, fail: bool = False) -> None:
            self.fired += 1
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                self.ended.append("cancelled")
                raise
            if fail:
                raise ValueError("on purpose")

        @self.plugin.schedule(Every("1m"))
        @self.plugin.task
        async def declared(_: Context) -> None:
            self.fired += 1


@pytest.fixture
def sweeper(app: Mainspring) -> Sweeper:
    sweeper = Sweeper()
    app.install(sweeper.plugin, grant="all")
    app._upkeep = False
    return sweeper


def code_of(raised: "pytest.ExceptionInfo[ControlError]") -> int:
    return raised.value.code


# Adding.


@pytest.mark.usefixtures("sweeper")
@pytest.mark.parametrize(
    ("kind", "arg", "rule"),
    [
        ("periodic", 60, Every("60s")),
        ("periodic", "90", Every("90s")),
        ("cron", "0 9 * * *", Cron("0 9 * * *")),
        ("cron", "30 0 9 * * *", Cron("30 0 9 * * *")),
        ("once", "2099-01-01T00:00:00+00:00", Once(datetime(2099, 1, 1, tzinfo=UTC))),
        ("once", 4_070_908_800, Once(datetime(2099, 1, 1, tzinfo=UTC))),
        ("manual", "whatever", Manual()),
        (Every("2h"), None, Every("2h")),
    ],
)
async def test_a_schedule_is_added_in_plain_words_or_by_a_rule(
    app: Mainspring,
    kind: str | Every,
    arg: object,
    rule: Rule,
) -> None:
    await app.control.add("db:sweep", kind, arg)
    found = (await app.schedules.get("db:sweep")).plan
    assert same_rule(rule, found.rule)
    assert str(found.template.task) == "db:sweep"
    (row,) = await app.control.list()
    assert (row.qname, row.status, row.consecutive_failures, row.task) == ("db:sweep", "idle", 0, "db:sweep")


@pytest.mark.usefixtures("sweeper")
@pytest.mark.parametrize(
    ("qname", "kind", "arg", "code"),
    [
        ("", "manual", None, 0xB30),
        ("db:", "manual", None, 0xB30),
        ("a:b:c", "manual", None, 0xB30),
        ("db:sweep", "periodic", 0, 0xB31),
        ("db:sweep", "periodic", -1, 0xB31),
        ("db:sweep", "periodic", "1.5", 0xB31),
        ("db:sweep", "periodic", 1.5, 0xB31),
        ("db:sweep", "periodic", True, 0xB31),
        ("db:sweep", "periodic", None, 0xB31),
        ("db:sweep", "periodic", "٣", 0xB31),
        ("db:sweep", "periodic", 10**30, 0xB31),
        pytest.param("db:sweep", "periodic", 10**5000, 0xB31, id="more digits than Python prints"),
        pytest.param("db:sweep", "periodic", "9" * 5000, 0xB31, id="more digits than Python reads"),
        pytest.param("db:sweep", "once", 10**5000, 0xB31, id="more digits than any date"),
        ("db:sweep", "once", "tomorrow", 0xB31),
        ("db:sweep", "once", 10**30, 0xB31),
        ("db:sweep", "once", None, 0xB31),
        ("db:sweep", "hourly", None, 0xB32),
        ("db:sweep", None, None, 0xB32),
        ("db:sweep", "cron", "61 * * * *", 0xB33),
        ("db:sweep", "cron", "", 0xB33),
    ],
)
async def test_what_makes_no_sense_has_a_number(app: Mainspring, qname: str, kind: Any, arg: object, code: int) -> None:  # noqa: ANN401
    with pytest.raises(ControlError) as raised:
        await app.control.add(qname, kind, arg)
    assert code_of(raised) == code
    assert str(raised.value).startswith(f"0x{code:X}: ")
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (copy.code, str(copy)) == (code, str(raised.value))
    assert await app.control.list() == ()


async def test_a_name_to_cancel_that_is_none_has_a_number_of_its_own(app: Mainspring) -> None:
    with pytest.raises(ControlError) as raised:
        await app.control.cancel("a:b:c")
    assert code_of(raised) == 0xB37


@pytest.mark.usefixtures("sweeper")
async def test_a_task_that_nobody_has_is_not_planned(app: Mainspring) -> None:
    with pytest.raises(UnknownTask, match="did you mean") as raised:
        await app.control.add("db:sweeep", "manual")
    assert raised.value.code == 0x01


@pytest.mark.usefixtures("sweeper")
async def test_added_again_it_is_one_schedule_with_the_new_rule(app: Mainspring) -> None:
    await app.control.add("db:sweep", "periodic", 60)
    await app.control.add("db:sweep", "cron", "0 9 * * *", kwargs={"seconds": 2})
    (row,) = await app.control.list()
    assert row.rule == Cron("0 9 * * *")


async def test_a_name_with_a_dot_is_that_of_the_only_pair_that_prints_so(app: Mainspring) -> None:
    one, two = Plugin("uni", "1"), Plugin("uni.system", "1")

    @one.task(name="system.sweep")
    async def sweep() -> None: ...

    @two.task
    async def compact() -> None: ...

    app.install(one, grant=[BackgroundJobs()])
    app.install(two, grant=[BackgroundJobs()])
    assert str((await app.control.add("uni.system.sweep", "manual")).name) == "uni:system.sweep"
    assert str((await app.control.add("uni.system.compact", "manual")).name) == "uni.system:compact"
    assert await app.control.cancel("uni.system.sweep")

    three = Plugin("uni.system.deep", "1")

    @three.task(name="sweep")
    async def deep() -> None: ...

    await app.uninstall("uni")

    @one.task(name="system.deep.sweep")
    async def same() -> None: ...

    app.install(one, grant=[BackgroundJobs()])
    app.install(three, grant=[BackgroundJobs()])
    with pytest.raises(ControlError, match="write it with the colon"):
        await app.control.add("uni.system.deep.sweep", "manual")


# Cancelling.


async def test_cancel_takes_a_schedule_away_with_its_jobs(
    app: Mainspring, another_app: Callable[[], Mainspring], sweeper: Sweeper
) -> None:
    async with app.node(concurrency=2):
        await app.control.add("db:sweep", "periodic", 10, kwargs={"seconds": 3600})
        await asyncio.sleep(45)
        jobs = (await app.jobs(task="db:sweep")).jobs
        assert sorted(view.job.state for view in jobs) == [State.READY, State.READY, State.RUNNING, State.RUNNING]
        assert await app.control.cancel("db:sweep")
        await asyncio.sleep(20)
        states = {view.job.state for view in (await app.jobs(task="db:sweep")).jobs}
    assert states == {State.CANCELLED}
    assert sweeper.ended == ["cancelled", "cancelled"]

    fired = sweeper.fired
    again, other = another_app(), Sweeper()
    again.install(other.plugin, grant="all")
    async with again.node():
        await asyncio.sleep(60)
    assert (sweeper.fired, [row.qname for row in await again.control.list() if row.qname == "db:sweep"]) == (fired, [])


async def test_all_jobs_of_a_schedule_are_cancelled_however_many_wait(app: Mainspring, sweeper: Sweeper) -> None:
    await app.control.add("db:sweep", "manual")
    for _ in range(25):
        await app.schedules.run("db:sweep")
    assert await app.control.cancel("db:sweep")
    assert {view.job.state for view in (await app.jobs(limit=100)).jobs} == {State.CANCELLED}
    assert sweeper.fired == 0


@pytest.mark.parametrize("left", [1, 12])
async def test_a_job_that_is_left_behind_by_many_that_have_ended_is_cancelled_too(
    app: Mainspring, sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    monkeypatch.setattr(control, "PAGE", 5)
    await app.control.add("db:sweep", "manual")
    behind = [await app.schedules.run("db:sweep") for _ in range(left)]
    for _ in range(6):
        await (await app.schedules.run("db:sweep")).cancel()
    assert await app.control.cancel("db:sweep")
    assert {(await job.refresh()).job.state for job in behind} == {State.CANCELLED}
    assert sweeper.fired == 0


async def test_one_that_is_declared_in_code_stays_cancelled_over_a_restart(
    app: Mainspring, another_app: Callable[[], Mainspring], sweeper: Sweeper
) -> None:
    async with app.node():
        await asyncio.sleep(65)
        assert sweeper.fired == 1
        assert await app.control.cancel("db:declared")
        await asyncio.sleep(300)
    assert sweeper.fired == 1

    again, other = another_app(), Sweeper()
    again.install(other.plugin, grant="all")
    async with again.node():
        await asyncio.sleep(300)
        assert [row.status for row in await again.control.list() if row.qname == "db:declared"] == ["cancelled"]
        assert other.fired == 0
        await again.control.add("db:declared", "periodic", 30)
        await asyncio.sleep(65)
    assert other.fired == 2


@pytest.mark.parametrize("before", ["ann", "uninstalled", "cancelled"])
async def test_one_that_is_paused_already_is_cancelled_all_the_same(
    app: Mainspring, sweeper: Sweeper, before: str
) -> None:
    async with app.node():
        await asyncio.sleep(1)
        match before:
            case "ann":
                await app.schedules.pause("db:declared", by="ann")
            case "uninstalled":
                await app.uninstall("db")
            case _:
                assert await app.control.cancel("db:declared")
        assert await app.control.cancel("db:declared")
        if before == "uninstalled":
            app.install(sweeper.plugin, grant="all")
        await asyncio.sleep(300)
        assert [row.status for row in await app.control.list() if row.qname == "db:declared"] == ["cancelled"]
    assert sweeper.fired == 0


async def test_what_control_cancelled_is_deleted_by_the_mirror_once(app: Mainspring, sweeper: Sweeper) -> None:
    sink = Flaky(Nowhere())
    app.mirror(sink)
    async with app.node():
        await app.control.add("db:sweep", "periodic", 3600)
        await asyncio.sleep(2)
        assert sorted(row["qname"] for _, parameters in sink.calls for row in parameters.get("rows", ())) == [
            "db:declared",
            "db:sweep",
        ]
        sink.calls.clear()
        for name in ("db:declared", "db:sweep"):
            assert await app.control.cancel(name)
        await asyncio.sleep(60)
    deleted = [name for statement, parameters in sink.calls if statement == DELETE for name in parameters["qnames"]]
    assert deleted == ["db:declared", "db:sweep"]
    assert sink.kinds["write"] == 0
    assert sweeper.fired == 0


@pytest.mark.parametrize("executor", ["coroutine", "thread"])
@pytest.mark.parametrize("declared", [False, True])
async def test_control_cancel_reaches_the_body_at_once(
    app: Mainspring, virtual_time: VirtualTime, *, declared: bool, executor: str
) -> None:
    """And a body that goes on after it writes nothing more: not through its host, not of its own job."""
    plugin = Plugin("db", "1")
    begun, told, wrote = asyncio.Event(), asyncio.Event(), list[str]()
    loop = asyncio.get_running_loop()
    refused: list[type[Exception]] = []
    seen: list[float] = []
    app.host.offer(execute_write=lambda statement, _: wrote.append(statement))

    def stopped() -> None:
        seen.append(virtual_time.elapsed)
        told.set()

    async def coroutine(ctx: Context) -> str:
        await ctx.host.execute_write("before")
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        stopped()
        try:
            await ctx.host.execute_write("after")
        except (JobCancelled, LeaseLost) as error:
            refused.append(type(error))
        ctx.raise_if_cancelled()
        return "went on"

    def thread(ctx: Context) -> str:
        ctx.host.execute_write_sync("before")
        loop.call_soon_threadsafe(begun.set)
        while not ctx.cancelled:
            threading.Event().wait(0.001)
        loop.call_soon_threadsafe(stopped)
        try:
            ctx.host.execute_write_sync("after")
        except (JobCancelled, LeaseLost) as error:
            refused.append(type(error))
        ctx.raise_if_cancelled()
        return "went on"

    task: Any = plugin.task(name="work")(coroutine if executor == "coroutine" else thread)
    if declared:
        plugin.schedule(Manual())(task)
    app.install(plugin, grant=[BackgroundJobs(), Schedules(), HostWrite()])
    async with app.node():
        if not declared:
            await app.control.add("db:work", "manual")
        await asyncio.sleep(1)
        job = await app.schedules.run("db:work")
        await begun.wait()
        cancelled = virtual_time.elapsed
        assert await app.control.cancel("db:work")
        await told.wait()
        with pytest.raises(JobCancelled):
            await job.result("1m")
        view = await job.refresh()
    assert seen == [pytest.approx(cancelled, abs=0.05)]
    assert (wrote, refused) == (["before"], [JobCancelled])
    assert (view.job.state, view.result) == (State.CANCELLED, None)


async def test_what_is_not_there_cannot_be_cancelled(app: Mainspring) -> None:
    assert not await app.control.cancel("db:nothing")


# Looking.


@pytest.mark.usefixtures("sweeper")
async def test_a_row_tells_how_a_schedule_has_been_going(app: Mainspring) -> None:
    async with app.node():
        await app.control.add("db:sweep", "periodic", 600, task="db:sweep", kwargs={"fail": True})
        await asyncio.sleep(1300)
        (row,) = [row for row in await app.control.list() if row.qname == "db:sweep"]
        assert (row.consecutive_failures, row.last_state) == (2, "failed")
        assert "on purpose" in str(row.last_error)
        assert row.next
        assert row.last_started
        assert row.next - row.last_started == timedelta(minutes=10)
        await app.control.add("db:sweep", "periodic", 600)
        await asyncio.sleep(700)
        (row,) = [row for row in await app.control.list() if row.qname == "db:sweep"]
        assert (row.consecutive_failures, row.last_state, row.status) == (0, "succeeded", "idle")


@pytest.mark.usefixtures("sweeper")
async def test_rows_come_by_name_and_page_by_page(app: Mainspring) -> None:
    for name in ("a", "b", "c"):
        await app.control.add(name, "manual", task="db:sweep")
    assert [row.qname for row in await app.control.list(limit=2)] == ["a", "b"]
    assert [row.qname for row in await app.control.list(limit=2, after="b")] == ["c"]
    assert (await app.control.get("b")).task == "db:sweep"
    with pytest.raises(UnknownSchedule):
        await app.control.get("d")


# Running one now.


async def test_a_job_is_made_now_of_a_schedule_or_else_of_a_task(app: Mainspring, sweeper: Sweeper) -> None:
    await app.control.add("nightly", "manual", task="db:sweep", kwargs={"seconds": 1})
    for name in ("nightly", "db:sweep", "db.sweep"):
        await app.control.run(name)
    jobs = (await app.jobs()).jobs
    assert [view.facts.slot.schedule if view.facts.slot else None for view in jobs] == [None, None, "nightly"]
    with pytest.raises(UnknownTask):
        await app.control.run("hourly")
    assert sweeper.fired == 0


@pytest.mark.usefixtures("sweeper")
async def test_with_arguments_it_is_a_job_of_the_task(app: Mainspring) -> None:
    await app.control.add("db:sweep", "manual", kwargs={"seconds": 1})
    args, kwargs = app.control.arguments("db.sweep", {"seconds": 7})
    job = await app.control.run("db:sweep", args=args, kwargs=kwargs)
    view = await job.refresh()
    assert view.facts.slot is None
    assert b'"seconds":7' in view.payload
    with pytest.raises(PayloadError, match="seconds"):
        app.control.arguments("db:sweep", {"seconds": "long"})


@pytest.mark.usefixtures("sweeper")
async def test_a_printed_name_is_found_among_the_schedules_of_a_program_that_is_not_here(
    app: Mainspring, another_app: Callable[[], Mainspring]
) -> None:
    await app.control.add("db:sweep", "manual")
    elsewhere = another_app()
    assert (await elsewhere.control.get("db.sweep")).qname == "db:sweep"
    assert (await elsewhere.control.run("db.sweep")).task == "db:sweep"
    assert await elsewhere.control.cancel("db.sweep")
    assert await app.control.list() == ()
    for name in (".", "..", "a.", ".a", "a..b"):
        assert not await elsewhere.control.cancel(name)


# Statements.


class Database:
    """A host that keeps numbers, and fails when it is told to."""

    def __init__(self, rows: int = 0) -> None:
        self.rows: Any = list(range(rows))
        self.written: list[int] = []
        self.sizes: list[int] = []
        self.fails: list[int] = []

    async def execute_read(self, statement: str, params: Any = None) -> Any:  # noqa: ANN401 - a host's own
        assert (statement, params) == ("READ", {})
        return self.rows

    async def execute_write(self, statement: str, params: Any = None) -> Any:  # noqa: ANN401 - a host's own
        if statement != "WRITE":
            return (statement, params)
        self.sizes.append(len(params["rows"]))
        if self.fails and self.fails.pop(0):
            raise OSError("disk is full")
        self.written += params["rows"]
        return None


def hosted(app: Mainspring, database: Database) -> Mainspring:
    app.control._host = lambda: database
    return app


async def test_a_statement_is_carried_out_by_the_host_and_its_result_returned(app: Mainspring) -> None:
    hosted(app, Database())
    assert await app.control.submit("CREATE (n {a: $a})", {"a": 1}) == ("CREATE (n {a: $a})", {"a": 1})


@pytest.mark.parametrize("what", ["submit", "iterate"])
async def test_without_a_host_nothing_is_carried_out(app: Mainspring, what: str) -> None:
    app.control._host = lambda: None
    with pytest.raises(ControlError) as raised:
        await (app.control.submit("x") if what == "submit" else app.control.iterate("READ", "WRITE"))
    assert code_of(raised) == 0xD20


async def test_an_app_always_has_a_host_and_says_that_it_offers_nothing(app: Mainspring) -> None:
    with pytest.raises(HostMissing) as raised:
        await app.control.submit("x")
    assert raised.value.code == 0xD21


async def test_what_is_read_and_is_no_rows_is_a_read_that_failed(app: Mainspring) -> None:
    app.host.offer(execute_read=lambda *_: 7, execute_write=lambda *_: None)
    with pytest.raises(ReadFailed, match="no rows, but int") as raised:
        await app.control.iterate("READ", "WRITE")
    assert raised.value.code == 0xD13


@given(
    rows=st.integers(0, 50),
    size=st.integers(1, 20),
    fails=st.lists(st.booleans(), max_size=30),
    retries=st.integers(0, 3),
    form=st.sampled_from(["list", "generator", "async"]),
)
def test_every_row_is_written_once_or_counted_as_failed(
    rows: int, size: int, fails: list[bool], retries: int, form: str
) -> None:
    with VirtualTime() as time:
        database = Database(rows)
        database.fails = [int(one) for one in fails]
        if form == "generator":
            database.rows = (number for number in range(rows))
        elif form == "async":
            database.rows = asynchronous(rows)
        app = hosted(Mainspring(MemoryStore(clock=time.clock), clock=time.clock), database)
        told: list[Iterated] = []
        done = time.run(app.control.iterate("READ", "WRITE", batch_size=size, retries=retries, progress=told.append))
    batches = -(-rows // size)
    assert done.batches == batches == len(told)
    assert (told[-1] if told else done) == done
    assert max(database.sizes, default=0) <= size
    assert len(database.sizes) == batches + done.retried
    assert done.rows == len(database.written) == len(set(database.written))
    assert database.written == sorted(database.written)
    assert (done.rows == rows) == (done.failed == 0)
    assert len(done.errors) == min(done.failed, 10)
    assert not done.stopped


async def asynchronous(rows: int) -> AsyncIterator[int]:
    for number in range(rows):
        yield number


async def test_whoever_watches_can_have_it_end(app: Mainspring) -> None:
    hosted(app, database := Database(10))
    done = await app.control.iterate("READ", "WRITE", batch_size=3, progress=lambda so_far: so_far.batches < 2)
    assert done == Iterated(rows=6, batches=2, stopped=True)
    assert database.written == [0, 1, 2, 3, 4, 5]


class Cursor:
    """Rows of which some can be read, and whether somebody has closed them."""

    def __init__(self, good: int) -> None:
        self.good = good
        self.is_closed = False

    def rows(self) -> Iterator[int]:
        try:
            yield from range(self.good)
            raise OSError("the disk is gone")
        finally:
            self.is_closed = True

    async def later(self) -> AsyncIterator[int]:
        with closing(self.rows()) as rows:  # type: ignore[type-var]  # a generator, as it happens
            for row in rows:
                yield row


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_rows_that_cannot_be_read_any_more_are_a_read_that_failed(app: Mainspring, *, asynchronous: bool) -> None:
    hosted(app, database := Database())
    cursor = Cursor(5)
    database.rows = cursor.later() if asynchronous else cursor.rows()
    told: list[Iterated] = []
    with pytest.raises(ReadFailed, match="after 5 rows: OSError: the disk is gone") as raised:
        await app.control.iterate("READ", "WRITE", batch_size=2, progress=told.append)
    assert raised.value.code == 0xD13
    assert told[-1] == Iterated(rows=4, batches=2)
    assert database.written == [0, 1, 2, 3]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("end", ["stopped", "raised", "cancelled"])
async def test_what_a_host_has_open_for_reading_is_closed_however_it_ends(
    app: Mainspring, end: str, *, asynchronous: bool
) -> None:
    class Patient(Database):
        async def execute_write(self, statement: str, params: Any = None) -> Any:  # noqa: ANN401 - a host's own
            await asyncio.sleep(1)
            return await super().execute_write(statement, params)

    hosted(app, database := Patient())
    cursor = Cursor(1000)
    database.rows = rows = cursor.later() if asynchronous else cursor.rows()

    def progress(_: Iterated) -> bool:
        if end == "raised":
            raise RuntimeError("no more")
        if end == "cancelled":
            work.cancel()
        return end != "stopped"

    async def whole() -> None:
        await app.control.iterate("READ", "WRITE", batch_size=2, progress=progress)

    work = asyncio.ensure_future(whole())
    await asyncio.wait([work])
    assert cursor.is_closed
    assert rows is not None  # nor was it by being forgotten
    assert (work.cancelled(), not work.cancelled() and work.exception() is not None) == (
        end == "cancelled",
        end == "raised",
    )


async def test_whoever_cancels_it_has_it_end_after_whole_batches(app: Mainspring) -> None:
    class Slow(Database):
        async def execute_write(self, statement: str, params: Any = None) -> Any:  # noqa: ANN401 - a host's own
            await asyncio.sleep(1)
            return await super().execute_write(statement, params)

    hosted(app, database := Slow(100))
    work = asyncio.ensure_future(app.control.iterate("READ", "WRITE", batch_size=10))
    await asyncio.sleep(3.5)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await asyncio.sleep(10)
    assert database.written == list(range(30))


async def test_a_dry_run_counts_and_writes_nothing(app: Mainspring) -> None:
    hosted(app, database := Database(10))
    told: list[Iterated] = []
    done = await app.control.iterate("READ", "WRITE", batch_size=4, dry_run=True, progress=told.append)
    assert done == told[-1] == Iterated(rows=10, batches=3)
    assert database.sizes == []


@pytest.mark.parametrize(("size", "retries"), [(0, 0), (1, -1)])
async def test_a_batch_has_at_least_one_row(app: Mainspring, size: int, retries: int) -> None:
    hosted(app, Database(1))
    with pytest.raises(ControlError, match="batch size"):  # before anything is read
        await app.control.iterate("NOTHING", "WRITE", batch_size=size, retries=retries)


# The checkpoint.


async def test_a_flush_that_fails_has_a_number(virtual_time: VirtualTime) -> None:
    faulty = FaultyStore(MemoryStore(clock=virtual_time.clock))
    app = Mainspring(faulty.as_store, clock=virtual_time.clock)
    await app.control.flush()
    faulty.drop("flush")
    with pytest.raises(FlushFailed) as raised:
        await app.control.flush()
    assert raised.value.code == 0xD22
    assert isinstance(raised.value, StoreError)
    assert isinstance(raised.value.__cause__, StoreUnavailable)


# For code that waits.


def test_code_without_a_loop_has_twins() -> None:
    app = hosted(Mainspring("memory://"), database := Database(5))
    app.install(Sweeper().plugin, grant="all")
    app.control.add_sync("db:sweep", "periodic", 60)
    assert [row.qname for row in app.control.list_sync()] == ["db:sweep"]
    assert app.control.get_sync("db:sweep").status == "idle"
    assert app.control.run_sync("db:sweep").fresh
    assert app.control.cancel_sync("db:sweep")
    assert app.control.submit_sync("x") == ("x", {})
    assert app.control.iterate_sync("READ", "WRITE", batch_size=2).batches == 3
    app.control.flush_sync()
    app.close_sync()
    assert database.written == [0, 1, 2, 3, 4]
