"""What plugin code is kept from although it has the app in hand, and who counts as the plugin."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest

from mainspring import Context, Every, Mainspring, Message, Plugin
from mainspring.core.job import State
from mainspring.errors import CapabilityError
from mainspring.plugins import BackgroundJobs, Capability, EnqueueTasks, HostWrite, Schedules, Services
from mainspring.runtime.middleware import Next
from mainspring.stores.memory import MemoryStore

ALL: list[Capability] = [BackgroundJobs(), Schedules(), Services(), HostWrite(), EnqueueTasks()]

Act = Callable[[], Awaitable[object]]


class Sly:
    """A plugin that was granted everything that can be, and does what it is told to."""

    def __init__(self, app: Mainspring) -> None:
        self.plugin = Plugin("sly", "1")
        self.refused: list[CapabilityError] = []
        self.act: Act | None = None
        self.acts_as_a_service = False

        @app.task(name="pay", breaker=True)
        async def pay() -> None: ...

        @self.plugin.task
        async def own() -> None: ...

        @self.plugin.task
        async def probe() -> None:
            await self._try()

        @self.plugin.service(every="1h")
        async def watch() -> None:
            if self.acts_as_a_service:
                await self._try()

        self.pay, self.own, self.probe = pay, own, probe
        self.orders = app.outbox("orders", partitions=1)

    async def _try(self) -> None:
        if self.act is None:
            return
        try:
            await self.act()
        except CapabilityError as error:
            self.refused.append(error)


@pytest.fixture
def sly(app: Mainspring) -> Sly:
    return Sly(app)


def soon(function: Callable[[], object]) -> Act:
    async def act() -> object:
        return function()

    return act


def actions(app: Mainspring, sly: Sly) -> dict[str, Act]:
    """Everything that only the program may do."""

    async def work() -> None: ...

    async def work_on(_: Message[Any]) -> None: ...

    def declared(declare: Callable[[Any], object]) -> Act:
        return soon(lambda: declare(work))

    return {
        "app.install": soon(lambda: app.install(Plugin("accomplice", "1"))),
        "app.uninstall": lambda: app.uninstall("neighbour"),
        "app.plugins.discover": soon(lambda: app.plugins.discover(allow=[])),
        "app.host.offer": soon(lambda: app.host.offer(execute_write=lambda *_: None)),
        "app.host.provide": soon(lambda: app.host.provide(int, 7)),
        "app.host.withdraw": soon(app.host.withdraw),
        "app.breakers": lambda: app.breakers.close("pay"),
        "app.breakers.listener": soon(lambda: app.breakers.listener(lambda _: None)),
        "app.store": lambda: app.store.pause("default", by="sly"),
        "app.instead": soon(lambda: app.instead(MemoryStore()).__enter__()),
        "app.close": app.close,
        "app.task": declared(app.task),
        "app.schedule": soon(lambda: app.schedule(Every("1h"), name="more")(sly.pay)),
        "app.service": declared(app.service),
        "app.queue": soon(lambda: app.queue("default", concurrency=1)),
        "app.middleware": declared(app.middleware),
        "app.listener": declared(app.listener),
        "app.node": app.node().__aenter__,
        "app.outbox": soon(lambda: app.outbox("more")),
        "outbox.handler": soon(lambda: sly.orders.handler(work_on)),
        "outbox.listener": soon(lambda: sly.orders.listener(lambda _: None)),
        "outbox.letters": sly.orders.discard,
    }


ACTIONS = sorted(actions(Mainspring("memory://"), Sly(Mainspring("memory://"))))


@pytest.mark.parametrize("what", ACTIONS)
async def test_only_the_program_itself_steers(app: Mainspring, sly: Sly, what: str) -> None:
    """Whatever a plugin was granted; and nothing of it has happened."""
    written: list[str] = []
    app.host.offer(execute_write=lambda statement, _: written.append(statement))
    app.install(Plugin("neighbour", "1"))
    app.install(sly.plugin, grant=ALL)
    sly.act = actions(app, sly)[what]
    async with app.node():
        before = (set(app.registry.names), app.host.offers, "neighbour" in app.plugins)
        await (await sly.probe.enqueue()).result("1m")
        await (await sly.pay.enqueue()).result("1m")
        assert (set(app.registry.names), app.host.offers, "neighbour" in app.plugins) == before
        assert not [queue for queue in await app.store.queues() if queue.paused]
        await app.host.execute_write("the program's")
    assert [(error.plugin, error.capability) for error in sly.refused] == [("sly", what)]
    assert "only the program itself may do that" in str(sly.refused[0])
    assert written == ["the program's"]


@pytest.mark.parametrize("what", ["app.install", "app.breakers"])
async def test_a_service_of_a_plugin_steers_as_little_as_its_jobs(app: Mainspring, sly: Sly, what: str) -> None:
    app.install(sly.plugin, grant=ALL)
    sly.act, sly.acts_as_a_service = actions(app, sly)[what], True
    async with app.node():
        await asyncio.sleep(5)
    assert [error.capability for error in sly.refused] == [what]


@pytest.mark.parametrize("what", ["cancel", "retry", "delete", "move"])
@pytest.mark.parametrize("whose", ["the program itself", "sly"])
async def test_a_plugin_changes_its_own_jobs_and_no_others(app: Mainspring, sly: Sly, what: str, whose: str) -> None:
    app.install(sly.plugin, grant=ALL)
    task = sly.own if whose == "sly" else sly.pay
    changes: dict[str, Callable[[Any], Awaitable[object]]] = {
        "cancel": lambda job: job.cancel(),
        "retry": lambda job: job.retry(),
        "delete": lambda job: job.delete(),
        "move": lambda job: job.move(priority="low"),
    }
    job = await task.using(delay="1h").enqueue()
    if what == "retry":
        await job.cancel()
    before = await job.refresh()
    changed: list[bool] = []

    async def act() -> None:
        await changes[what](app.job(job.id))
        changed.append(True)

    sly.act = act
    async with app.node():
        await (await sly.probe.enqueue()).result("1m")
        if whose == "sly":
            assert (sly.refused, changed) == ([], [True])
        else:
            assert [error.capability for error in sly.refused] == ["jobs of the program itself"]
            assert await job.refresh() == before


async def test_no_job_is_moved_out_of_the_queue_that_a_plugin_is_limited_by(app: Mainspring, sly: Sly) -> None:
    app.install(sly.plugin, grant=ALL)
    job = await sly.own.using(delay="1h").enqueue()
    sly.act = lambda: job.move(queue="default")
    async with app.node():
        await (await sly.probe.enqueue()).result("1m")
    assert [error.capability for error in sly.refused] == ["BackgroundJobs in the queue default"]
    assert (await job.refresh()).job.queue == "sly"


@pytest.mark.parametrize("grants", [ALL, [BackgroundJobs(), Services()]], ids=["granted", "not granted"])
async def test_a_plugin_publishes_if_it_may_enqueue_tasks_of_the_program(
    app: Mainspring, sly: Sly, grants: list[Capability]
) -> None:
    """What the program does about a message is as good as a task of it."""
    app.install(sly.plugin, grant=grants)
    sly.act = lambda: sly.orders.publish(None, "news")
    async with app.node():
        await (await sly.probe.enqueue()).result("1m")
        (partition,) = await sly.orders.stats()
    assert [error.capability for error in sly.refused] == ([] if grants is ALL else ["EnqueueTasks"])
    assert partition.view.last == (1 if grants is ALL else 0)


async def test_many_rows_are_no_way_around_a_write_that_was_not_granted(app: Mainspring, sly: Sly) -> None:
    written: list[str] = []
    app.host.offer(execute_read=lambda *_: [1, 2], execute_write=lambda statement, _: written.append(statement))
    app.install(sly.plugin, grant=[BackgroundJobs(), Services()])
    sly.act = lambda: app.control.iterate("READ", "WRITE", batch_size=1)
    async with app.node():
        await (await sly.probe.enqueue()).result("1m")
    assert [error.capability for error in sly.refused] == ["HostWrite"]
    assert not written


# Who acts.


@pytest.mark.parametrize("where", ["task", "to_thread", "copied context"])
async def test_what_takes_the_context_along_acts_for_the_plugin(app: Mainspring, sly: Sly, where: str) -> None:
    app.install(sly.plugin, grant=ALL)

    def withdraw() -> None:
        app.host.withdraw()

    async def act() -> None:
        match where:
            case "task":
                await asyncio.create_task(soon(withdraw)())  # type: ignore[arg-type]  # a coroutine, as it happens
            case "to_thread":
                await asyncio.to_thread(withdraw)
            case _:
                with ThreadPoolExecutor(1) as pool:
                    await asyncio.wrap_future(pool.submit(copy_context().run, withdraw))

    sly.act = act
    async with app.node():
        await (await sly.probe.enqueue()).result("1m")
    assert [error.capability for error in sly.refused] == ["app.host.withdraw"]


async def test_in_a_thread_of_a_plugins_own_only_its_context_is_known(app: Mainspring) -> None:
    """What decision 0037 says of the fence: this is where it ends."""
    plugin = Plugin("sly", "1")
    outcomes: list[str] = []
    app.host.offer(execute_write=lambda *_: None)

    @plugin.task
    async def probe(ctx: Context) -> None:
        def in_a_thread() -> None:
            app.host.provide(int, 7)
            outcomes.append("the app was asked")
            try:
                ctx.host.execute_write_sync("a")
            except CapabilityError as error:
                outcomes.append(error.capability)

        thread = threading.Thread(target=in_a_thread)
        thread.start()
        await asyncio.to_thread(thread.join)

    app.install(plugin, grant=[BackgroundJobs()])
    async with app.node():
        await (await probe.enqueue()).result("1m")
    assert outcomes == ["the app was asked", "HostWrite"]


@pytest.mark.parametrize("blocking", [False, True])
async def test_what_the_program_offers_acts_for_the_program(app: Mainspring, sly: Sly, *, blocking: bool) -> None:
    """A plugin may have it write; what the program enqueues for that is no matter of the plugin's grants."""

    async def write(*_: object) -> str:
        return str((await sly.pay.enqueue()).id)

    app.host.offer(execute_write=(lambda *_: str(sly.pay.enqueue_sync().id)) if blocking else write)
    app.install(sly.plugin, grant=[BackgroundJobs(), Services(), HostWrite()])
    made: list[str] = []

    async def act() -> None:
        made.append(await app.host.execute_write("a"))
        await sly.pay.enqueue()  # its own doing again

    sly.act = act
    async with app.node():
        await (await sly.probe.enqueue()).result("1m")
        assert await app.job(made[0]).result("1m") is None
    assert [error.capability for error in sly.refused] == ["EnqueueTasks"]


async def test_middleware_acts_for_the_program_before_and_after_a_plugins_job(app: Mainspring, sly: Sly) -> None:
    seen: list[str] = []

    @app.middleware
    async def audited(ctx: Context, call_next: Next) -> object:
        if ctx.task != "sly:probe":
            return await call_next()
        await sly.pay.enqueue()
        value = await call_next()
        await sly.pay.enqueue()
        seen.append(ctx.task)
        return value

    app.install(sly.plugin, grant=[BackgroundJobs(), Services()])
    sly.act = sly.pay.enqueue
    async with app.node():
        await (await sly.probe.enqueue()).result("1m")
        await asyncio.sleep(5)
        paid = (await app.jobs(task="pay", state=State.SUCCEEDED)).jobs
    assert (seen, len(paid)) == (["sly:probe"], 2)
    assert [error.capability for error in sly.refused] == ["EnqueueTasks"]


# After an uninstall.


@pytest.mark.parametrize(
    ("what", "capability"),
    [
        ("execute_read", "execute_read"),
        ("compact_storage", "compact_storage"),
        ("execute_write", "HostWrite"),
        ("get", "Mailer"),
        ("transaction", "HostWrite"),
        ("enqueue", "EnqueueTasks"),
        ("plan", "Schedules"),
        ("cancel", "BackgroundJobs"),
    ],
)
@pytest.mark.parametrize("by_way_of", ["ctx", "app"])
async def test_what_is_left_of_a_plugin_that_was_uninstalled_is_refused_and_told_why(
    app: Mainspring, what: str, capability: str, by_way_of: str
) -> None:
    class Mailer: ...

    app.host.offer(execute_read=lambda *_: [], execute_write=lambda *_: None, compact_storage=lambda: None)
    app.host.provide(Mailer, Mailer())

    @app.task(name="pay")
    async def pay() -> None: ...

    plugin = Plugin("leaver", "1")
    goes_on = asyncio.Event()
    answers: list[object] = []

    @plugin.task
    async def own() -> None: ...

    @plugin.task
    async def work(ctx: Context) -> None:
        host = ctx.host if by_way_of == "ctx" else app.host
        waiting = await own.using(delay="1h").enqueue()
        attempts: dict[str, Act] = {
            "execute_read": lambda: host.execute_read("a"),
            "compact_storage": host.compact_storage,
            "execute_write": lambda: host.execute_write("a"),
            "get": soon(lambda: host.get(Mailer)),
            "transaction": soon(ctx.transaction),
            "enqueue": pay.enqueue,
            "plan": lambda: app.schedules.pause("leaver:any"),
            "cancel": waiting.cancel,
        }
        await goes_on.wait()
        try:
            answers.append(await attempts[what]())
        except CapabilityError as error:
            answers.append(error)

    app.install(plugin, grant=ALL)
    async with app.node():
        await work.enqueue()
        await asyncio.sleep(5)
        await app.uninstall("leaver")
        goes_on.set()
        await asyncio.sleep(5)
    (answer,) = answers
    assert isinstance(answer, CapabilityError)
    assert (answer.plugin, answer.capability) == ("leaver", capability)
    assert "it was uninstalled" in str(answer)
    assert "was not granted" not in str(answer)
