"""Host services: wired late, set again, withdrawn; typed; refused to those who may not, or no longer."""

import asyncio
import logging
import pickle
import threading
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import pytest

from mainspring import Context, JobHandle, Mainspring, Plugin, Snooze
from mainspring.core.job import State
from mainspring.core.outcome import HostNotReady
from mainspring.errors import (
    CapabilityError,
    CompactionFailed,
    DeclarationError,
    HostError,
    HostMissing,
    JobCancelled,
    LeaseLost,
    ReadFailed,
    WriteFailed,
)
from mainspring.plugins import BackgroundJobs, HostWrite, JobHost
from mainspring.testing import VirtualTime
from tests.jobs.conftest import Victim, victim

MINUTE = 60


class Graph:
    """A program's own storage, in each way that its functions may be written."""

    def __init__(self) -> None:
        self.written: list[tuple[str, Any]] = []
        self.threads: set[str] = set()
        self.compactions = 0

    async def write(self, statement: str, params: Any) -> int:  # noqa: ANN401 - as the program likes it
        self._note()
        await asyncio.sleep(1)
        self.written.append((statement, params))
        return len(self.written)

    def write_blocking(self, statement: str, params: Any) -> int:  # noqa: ANN401 - as the program likes it
        self._note()
        self.written.append((statement, params))
        return len(self.written)

    async def compact(self) -> None:
        self.compactions += 1

    def _note(self) -> None:
        self.threads.add(threading.current_thread().name)


class Called:
    """A service that is an object, whose call is async."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    async def __call__(self, statement: str, params: Mapping[str, object]) -> int:
        return await self._graph.write(statement, params)


WAYS: dict[str, Callable[[Graph], Callable[[str, Any], object]]] = {
    "async": lambda graph: graph.write,
    "blocking": lambda graph: graph.write_blocking,
    "object": Called,
    "lambda": lambda graph: lambda *args: graph.write(*args),  # noqa: PLW0108 - a plain function that returns a coroutine
}


async def after(job: JobHandle[Any], seconds: float) -> tuple[State, int]:
    """Where a job stands after a while: its state and its attempts."""
    await asyncio.sleep(seconds)
    view = await job.refresh()
    return view.job.state, view.job.attempt


# Calling.


@pytest.mark.parametrize("way", WAYS)
async def test_a_coroutine_writes_through_its_host(app: Mainspring, way: str) -> None:
    graph = Graph()
    app.host.offer(execute_write=WAYS[way](graph), compact_storage=graph.compact)

    @app.task
    async def work(ctx: Context) -> int:
        await ctx.host.compact_storage()
        await ctx.host.execute_write("CREATE (n)")
        return int(await ctx.host.execute_write("CREATE (n {id: $id})", {"id": 7}))

    async with app.node():
        assert await (await work.enqueue()).result("1m") == 2
    assert graph.written == [("CREATE (n)", {}), ("CREATE (n {id: $id})", {"id": 7})]
    assert graph.compactions == 1
    assert (threading.current_thread().name in graph.threads) is (way != "blocking")


@pytest.mark.parametrize("way", WAYS)
async def test_a_handler_in_a_thread_waits_for_its_host(app: Mainspring, way: str) -> None:
    graph = Graph()
    app.host.offer(execute_write=WAYS[way](graph), execute_read=lambda *_: [1], compact_storage=graph.compact)

    @app.task
    def work(ctx: Context) -> list[int]:
        ctx.host.compact_storage_sync()
        return [ctx.host.execute_write_sync("a", [1]), *ctx.host.execute_read_sync("b")]

    @app.task(executor="thread")
    async def awaiting(ctx: Context) -> int:
        return int(await ctx.host.execute_write("c"))

    async with app.node():
        assert await (await work.enqueue()).result("1m") == [1, 1]
        assert await (await awaiting.enqueue()).result("1m") == 2
    assert graph.written == [("a", [1]), ("c", {})]


async def test_a_blocking_service_does_not_hold_up_the_loop(app: Mainspring) -> None:
    app.host.offer(compact_storage=lambda: time.sleep(0.05))
    turns = 0

    @app.task
    async def work(ctx: Context) -> None:
        nonlocal turns
        compacting = asyncio.ensure_future(ctx.host.compact_storage())
        while not compacting.done():
            turns += 1
            await asyncio.sleep(0)
        await compacting

    async with app.node():
        await (await work.enqueue()).result("1m")
    assert turns > 10


async def test_a_sync_call_on_the_loop_says_what_to_write_instead(app: Mainspring) -> None:
    app.host.offer(execute_write=lambda *_: None)

    @app.task(max_attempts=1)
    async def work(ctx: Context) -> str:
        with pytest.raises(RuntimeError, match=r"await ctx\.host\.execute_write"):
            ctx.host.execute_write_sync("a")
        return "told"

    async with app.node():
        assert await (await work.enqueue()).result("1m") == "told"


async def test_the_program_itself_uses_what_it_offers(app: Mainspring) -> None:
    graph = Graph()
    with pytest.raises(HostMissing) as missing:
        await app.host.execute_write("a")
    assert missing.value.code == 0xD21
    app.host.offer(execute_write=graph.write, execute_read=lambda *_: ["row"])
    with pytest.raises(HostMissing) as missing:
        await app.host.compact_storage()
    assert missing.value.code == 0xD10
    assert await app.host.execute_write("a", {"b": 1}) == 1
    assert await app.host.execute_read("a") == ["row"]
    assert app.host.offers == ("execute_write", "execute_read")


# Types of the program's own.


class Mailer:
    def __init__(self, sender: str) -> None:
        self.sender = sender


class Clockwork(Protocol):
    def wind(self) -> int: ...


class Watch:
    def wind(self) -> int:
        return 12


async def test_services_of_the_programs_own_are_found_by_their_type(app: Mainspring) -> None:
    app.host.provide(Mailer, Mailer("first"))
    app.host.provide(Clockwork, Watch())  # type: ignore[type-abstract]  # mypy wants a class that can be made
    app.host.provide(Mailer, Mailer("second"))

    @app.task
    async def work(ctx: Context) -> str:
        turns: int = ctx.host.get(Clockwork).wind()  # type: ignore[type-abstract]  # the same
        sender: str = ctx.host.get(Mailer).sender
        return f"{sender} {turns}"

    async with app.node():
        assert await (await work.enqueue()).result("1m") == "second 12"


@pytest.mark.parametrize(
    "wire",
    [
        lambda host: host.offer(execute_write="no function"),
        lambda host: host.provide(Mailer, "no mailer"),
        lambda host: host.provide("Mailer", Mailer("a")),
        lambda host: host.withdraw("execute_writes"),
    ],
)
def test_what_cannot_be_a_service_is_refused(wire: Callable[[Any], None]) -> None:
    with pytest.raises(DeclarationError, match="host"):
        wire(Mainspring("memory://").host)


# Not there.


@pytest.mark.parametrize(
    ("ask", "wired", "code"),
    [
        ("write", "nothing", 0xD21),
        ("compact", "nothing", 0xD21),
        ("get", "nothing", 0xD21),
        ("write", "withdrawn", 0xD21),
        ("write", "others", 0xD10),
        ("compact", "others", 0xD10),
        ("get", "others", 0xD10),
        ("write", "one withdrawn", 0xD10),
    ],
)
@pytest.mark.parametrize("where", ["coroutine", "thread"])
async def test_what_is_not_wired_has_the_job_snooze_and_nothing_counts(
    app: Mainspring, ask: str, wired: str, code: int, where: str
) -> None:
    graph = Graph()
    app.host.offer(execute_write=graph.write)
    match wired:
        case "nothing" | "withdrawn":
            app.host.withdraw()
        case "others":
            app.host.withdraw()
            app.host.offer(execute_read=lambda *_: [])
        case _:
            app.host.provide(Watch, Watch())
            app.host.withdraw("execute_write")
    raised: list[HostNotReady] = []

    def asked(ctx: Context) -> None:
        match ask:
            case "write":
                ctx.host.execute_write_sync("a")
            case "compact":
                ctx.host.compact_storage_sync()
            case _:
                ctx.host.get(Mailer)

    async def awaited(ctx: Context) -> None:
        match ask:
            case "write":
                await ctx.host.execute_write("a")
            case "compact":
                await ctx.host.compact_storage()
            case _:
                ctx.host.get(Mailer)

    @app.task(name="coroutine", max_attempts=1)
    async def work(ctx: Context) -> None:
        try:
            await awaited(ctx)
        except HostNotReady as error:
            raised.append(error)
            raise

    @app.task(name="thread", max_attempts=1)
    def work_in_a_thread(ctx: Context) -> None:
        try:
            asked(ctx)
        except HostNotReady as error:
            raised.append(error)
            raise

    async with app.node():
        job = await app.enqueue(where)
        await asyncio.sleep(1)
        view = await job.refresh()
        attempts = await app.store.attempts(job.id)
        assert (view.job.state, view.job.attempt) == (State.SCHEDULED, 0)
        assert [error.code for error in raised] == [code]
        assert f"0x{code:X}" in raised[0].reason
        assert any(f"0x{code:X}" in str(attempt) for attempt in attempts), "the reason is to be seen"

        app.host.offer(execute_write=graph.write, compact_storage=graph.compact)
        app.host.provide(Mailer, Mailer("late"))
        await job.result("10s")


async def test_the_log_warns_once_of_each_service_that_jobs_wait_for(
    app: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        await ctx.host.execute_write("a")
        ctx.host.get(Mailer)

    def warned() -> list[str]:
        told = [one.getMessage() for one in caplog.records if "jobs wait for it" in one.getMessage()]
        caplog.clear()
        return [message.partition("host service ")[2].partition(":")[0] for message in told]

    async with app.node():
        with caplog.at_level(logging.WARNING, logger="mainspring"):
            jobs = [await work.enqueue() for _ in range(5)]
            await asyncio.sleep(3 * MINUTE)
            assert warned() == ["execute_write"]
            app.host.offer(execute_write=lambda *_: None)
            await asyncio.sleep(3 * MINUTE)
            assert warned() == ["Mailer"]
            app.host.withdraw("execute_write")
            await asyncio.sleep(3 * MINUTE)
            assert warned() == ["execute_write"], "it had been there"
            app.host.offer(execute_write=lambda *_: None)
            app.host.provide(Mailer, Mailer("late"))
            for job in jobs:
                await job.result("2m")
    assert warned() == []


async def test_a_job_asks_less_and_less_often_for_what_is_not_there(app: Mainspring, virtual_time: VirtualTime) -> None:
    asked: list[float] = []

    @app.task
    async def work(ctx: Context) -> None:
        asked.append(virtual_time.elapsed)
        await ctx.host.compact_storage()

    async with app.node():
        await work.enqueue()
        await asyncio.sleep(6 * MINUTE)
    gaps = [round(later - earlier) for earlier, later in pairwise(asked)]
    assert gaps == [5, 10, 20, 40, 60, 60, 60, 60]


async def test_a_service_that_is_set_again_replaces_the_one_before(app: Mainspring) -> None:
    first, second = Graph(), Graph()

    @app.task
    async def work(ctx: Context) -> None:
        await ctx.host.execute_write("a")

    app.host.offer(execute_write=first.write, compact_storage=first.compact)
    async with app.node():
        await (await work.enqueue()).result("1m")
        app.host.offer(execute_write=second.write)
        await (await work.enqueue()).result("1m")
    assert (len(first.written), len(second.written)) == (1, 1)
    assert set(app.host.offers) == {"execute_write", "compact_storage"}


# Going wrong.


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_host_that_raises_is_an_ordinary_failure_with_its_code(app: Mainspring, *, blocking: bool) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    async def fail_soon(*_: object) -> None:
        fail()

    app.host.offer(
        **dict.fromkeys(["compact_storage", "execute_write", "execute_read"], fail if blocking else fail_soon)  # type: ignore[arg-type]  # a checker takes it for any name
    )
    seen: list[tuple[type[Exception], int, type]] = []

    @app.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        for call in (ctx.host.compact_storage(), ctx.host.execute_read("a"), ctx.host.execute_write("a")):
            try:
                await call
            except HostError as error:
                seen.append((type(error), error.code, type(error.__cause__)))
        await ctx.host.execute_write("a")

    async with app.node():
        job = await work.enqueue()
        state, attempts = await after(job, 5)
        error = (await job.refresh()).error
    assert (state, attempts) == (State.FAILED, 1)
    assert seen == [
        (CompactionFailed, 0xD11, OSError),
        (ReadFailed, 0xD13, OSError),
        (WriteFailed, 0xD12, OSError),
    ]
    assert error
    assert "WriteFailed" in error.type
    assert "disk full" in error.message


async def test_a_host_may_tell_a_job_to_come_back_later(app: Mainspring) -> None:
    async def busy(*_: object) -> None:
        raise Snooze("1h", "being backed up")

    app.host.offer(execute_write=busy)

    @app.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        await ctx.host.execute_write("a")

    async with app.node():
        job = await work.enqueue()
        state, attempts = await after(job, 5)
    assert (state, attempts) == (State.SCHEDULED, 0)


def test_what_a_host_raises_travels() -> None:
    for error in (
        HostMissing("execute_write", "no", 0xD10),
        HostNotReady("5s", "0xD21: no", 0xD21),
        WriteFailed("a", "b"),
    ):
        copy = pickle.loads(pickle.dumps(error))
        assert vars(copy) == vars(error)
        assert str(copy) == str(error)


SLOTTED = """
from mainspring import Context
from mainspring.errors import DeclarationError

def slotted(ctx: Context) -> str:
    try:
        return str(ctx.host)
    except DeclarationError as error:
        return str(error)
"""


async def test_a_process_slot_says_that_it_cannot_reach_the_host(
    app: Mainspring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slotted_host.py").write_text(SLOTTED, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    app.host.offer(execute_write=lambda *_: None)
    task = app.task(executor="process")(import_module("slotted_host").slotted)
    async with app.node(processes=1):
        assert "use the thread or coroutine executor" in await (await task.enqueue()).result("1m")


# Capabilities.


@pytest.mark.parametrize("granted", [False, True])
@pytest.mark.parametrize("where", ["coroutine", "thread"])
async def test_a_plugin_writes_only_if_it_may(app: Mainspring, *, granted: bool, where: str) -> None:
    graph = Graph()
    app.host.offer(execute_write=graph.write, execute_read=lambda *_: [], compact_storage=graph.compact)
    plugin = Plugin("writer", "1")

    @plugin.task(name="coroutine")
    async def work(ctx: Context) -> str:
        await ctx.host.compact_storage()
        await ctx.host.execute_read("a")
        try:
            await ctx.host.execute_write("a")
        except CapabilityError as error:
            return error.capability
        return "written"

    @plugin.task(name="thread")
    def work_in_a_thread(ctx: Context) -> str:
        try:
            ctx.host.execute_write_sync("a")
        except CapabilityError as error:
            return error.capability
        return "written"

    app.install(plugin, grant=[BackgroundJobs(), HostWrite()] if granted else [BackgroundJobs()])
    async with app.node():
        result = await (await app.enqueue(f"writer:{where}")).result("1m")
    assert result == ("written" if granted else "HostWrite")
    assert len(graph.written) == granted


async def test_a_plugin_that_was_uninstalled_meanwhile_writes_no_more(app: Mainspring) -> None:
    graph = Graph()
    app.host.offer(execute_write=graph.write)
    plugin = Plugin("writer", "1", requires=[BackgroundJobs(), HostWrite()])
    ended: list[str] = []

    @plugin.task
    async def work(ctx: Context) -> None:
        await ctx.host.execute_write("before")
        await asyncio.sleep(10)
        try:
            await ctx.host.execute_write("after")
        except CapabilityError as error:
            ended.append(error.capability)

    app.install(plugin, grant="all")
    async with app.node():
        await work.enqueue()
        await asyncio.sleep(5)
        await app.uninstall("writer")
        await asyncio.sleep(20)
    assert [statement for statement, _ in graph.written] == ["before"]
    assert ended == ["HostWrite"]


# Those who should have stopped.


class Stubborn:
    """A task that goes on whatever it is told, and tries to write all the while."""

    def __init__(self, app: Mainspring, virtual_time: VirtualTime, **options: Any) -> None:  # noqa: ANN401 - options of a task
        self.refused: list[tuple[float, type[Exception]]] = []
        self.wrote: list[float] = []
        self.told: list[float] = []
        self.over = asyncio.Event()
        self._time = virtual_time
        app.host.offer(execute_write=self._write)

        @app.task(name="stubborn", **options)
        async def work(ctx: Context) -> None:
            began = virtual_time.elapsed
            while virtual_time.elapsed < began + 60:
                try:
                    await asyncio.sleep(0.5)
                    await self._try(ctx.host)
                except asyncio.CancelledError:
                    self.told.append(virtual_time.elapsed)
            self.over.set()

        self.work = work

    async def _write(self, *_: object) -> None:
        self.wrote.append(self._time.elapsed)

    async def _try(self, host: JobHost) -> None:
        try:
            await host.execute_write("a")
        except (JobCancelled, LeaseLost) as error:
            self.refused.append((self._time.elapsed, type(error)))


async def test_a_body_that_goes_on_after_a_cancel_cannot_write(app: Mainspring, virtual_time: VirtualTime) -> None:
    stubborn = Stubborn(app, virtual_time)
    async with app.node(stop_grace="5s"):
        job = await stubborn.work.enqueue()
        await asyncio.sleep(10.25)
        await job.cancel()
        cancelled = virtual_time.elapsed
        await stubborn.over.wait()
        assert await job.state() is State.CANCELLED
    assert stubborn.told == [pytest.approx(cancelled)]
    assert max(stubborn.wrote) < cancelled
    kinds = [kind for _, kind in stubborn.refused]
    assert kinds == sorted(kinds, key=[JobCancelled, LeaseLost].index)
    assert set(kinds) == {JobCancelled, LeaseLost}


async def test_a_cancel_that_the_node_has_not_heard_of_yet_is_seen_by_the_next_write(
    app: Mainspring, another_app: Callable[[], Mainspring], virtual_time: VirtualTime
) -> None:
    stubborn = Stubborn(app, virtual_time)
    async with app.node(), another_app() as elsewhere:
        job = await stubborn.work.enqueue()
        await asyncio.sleep(10.25)
        await elsewhere.job(job.id).cancel()
        cancelled = virtual_time.elapsed
        await stubborn.over.wait()
    assert max(stubborn.wrote) < cancelled
    assert min(stubborn.refused[0][0], stubborn.told[0]) <= cancelled + 0.5


async def test_a_body_out_of_time_cannot_write(app: Mainspring, virtual_time: VirtualTime) -> None:
    stubborn = Stubborn(app, virtual_time, timeout="10s", max_attempts=1)
    async with app.node(stop_grace="5s"):
        began = virtual_time.elapsed
        job = await stubborn.work.enqueue()
        await stubborn.over.wait()
        assert await job.state() is State.FAILED
    assert max(stubborn.wrote) <= began + 10.1


async def test_a_node_that_stood_still_cannot_write_for_a_job_that_others_have(
    app: Mainspring, another_app: Callable[[], Mainspring], virtual_time: VirtualTime
) -> None:
    """The process is frozen, its node is declared dead, its job runs elsewhere; and then it goes on, none the wiser."""
    stubborn = Stubborn(app, virtual_time)
    gate, hosts = asyncio.Event(), []

    @app.task(name="frozen")
    async def frozen(ctx: Context) -> None:
        hosts.append(ctx.host)
        await gate.wait()

    other = another_app()

    @other.task(name="frozen")
    async def elsewhere() -> None:
        await asyncio.sleep(30)

    async with app:
        victim = Victim(app)
        await victim.start()
        await frozen.enqueue()
        await asyncio.sleep(1)
        (host,) = hosts
        host._host = app.host
        (view,) = await app.store.nodes()
        assert await app.store.declare_dead(view.node.id, 1)
        async with other.node():
            await asyncio.sleep(1)
            with pytest.raises(LeaseLost):
                await host.execute_write("a")
        victim.kill()
    assert stubborn.wrote == []


async def test_losses_are_not_forgotten_while_a_host_is_not_there(app: Mainspring) -> None:
    dies = True

    @app.task(name="poison")
    async def poison(ctx: Context) -> None:
        if dies:
            await asyncio.sleep(3600)
        await ctx.host.execute_write("a")

    async with app:
        job = await poison.enqueue()
        async with victim(app) as doomed:
            await asyncio.sleep(1)
            doomed.kill()
        dies = False
        async with app.node():
            await asyncio.sleep(60)
            view = await job.refresh()
            assert (view.job.state, view.job.losses) == (State.SCHEDULED, 1)
