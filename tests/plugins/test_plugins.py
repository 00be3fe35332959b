"""Plugins: installed whole or not at all, limited by what they were granted, taken out and brought back."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mainspring import Context, Every, Idle, Mainspring, Plugin, ServiceContext
from mainspring.core.job import State
from mainspring.core.limits import Scope
from mainspring.errors import (
    BadName,
    CapabilityError,
    DeclarationError,
    NameTaken,
    PluginError,
    ScheduleError,
    StoreUnavailable,
    UnknownTask,
)
from mainspring.plugins import (
    BackgroundJobs,
    Capability,
    Done,
    EnqueueTasks,
    Failed,
    HostWrite,
    JobOutcome,
    Schedules,
    Services,
)
from mainspring.runtime import planned
from mainspring.runtime.definition import Definition, Registry
from mainspring.settings import NodeSettings
from mainspring.stores.port import Store

EVERYTHING: list[Capability] = [BackgroundJobs(), Schedules(), Services(), HostWrite(), EnqueueTasks()]


class Thumbnails:
    """A plugin that has one of each, and what became of them."""

    def __init__(self, *, max_concurrent: int | None = None, requires: list[Capability] | None = None) -> None:
        given = [BackgroundJobs(max_concurrent), Schedules(), Services()] if requires is None else requires
        self.plugin = Plugin("thumbnails", "1.2", requires=given)
        self.calls: list[str] = []
        self.most_at_once = 0
        self.steps = 0
        self._at_once = 0

        @self.plugin.task(name="make")
        async def make(photo: str, seconds: float = 0) -> str:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            await asyncio.sleep(seconds)
            self._at_once -= 1
            self.calls.append(photo)
            return photo

        @self.plugin.schedule(Every("1m"))
        @self.plugin.task
        async def sweep(ctx: Context) -> None:
            self.calls.append(str(ctx.schedule))

        @self.plugin.service(every="10s")
        async def look(_: ServiceContext) -> Idle:
            self.steps += 1
            return Idle()

        self.make = make


# Declaring.


def test_what_a_plugin_declares_is_in_its_namespace() -> None:
    thumbnails = Thumbnails()
    app = Mainspring("memory://")
    app.install(thumbnails.plugin, grant="all")

    assert {str(name) for name in app.registry.names} == {"thumbnails:make", "thumbnails:sweep"}
    assert app.find("thumbnails:make") is thumbnails.make
    assert {definition.queue for definition in app.registry} == {"thumbnails"}
    assert [str(name) for name in thumbnails.plugin.services] == ["thumbnails:look"]


@pytest.mark.parametrize("name", ["other:make", ":make", "thumbnails:make"])
def test_a_plugin_cannot_name_anything_outside_of_its_namespace(name: str) -> None:
    plugin = Plugin("thumbnails", "1")

    async def make() -> Idle:
        return Idle()

    with pytest.raises(BadName, match="namespace"):
        plugin.task(name=name)(make)
    with pytest.raises(BadName, match="namespace"):
        plugin.task(aliases=name)(make)
    with pytest.raises(BadName, match="namespace"):
        plugin.service(name=name)(make)
    task = plugin.task(make)
    with pytest.raises(BadName, match="namespace"):
        plugin.schedule(Every("1m"), name=name)(task)


def test_a_plugin_schedules_its_own_tasks_only() -> None:
    other = Plugin("other", "1")

    @other.task
    async def make() -> None: ...

    with pytest.raises(ScheduleError, match=r"above @plugin\.task"):
        Plugin("thumbnails", "1").schedule(Every("1m"))(make)


@pytest.mark.parametrize(("id_", "version"), [("", "1"), ("a b", "1"), ("a:b", "1"), ("a", ""), (7, "1")])
def test_a_plugin_has_a_name_that_can_be_kept(id_: str, version: str) -> None:
    with pytest.raises(DeclarationError, match="plugin"):
        Plugin(id_, version)


def test_the_queue_of_a_plugin_is_its_own() -> None:
    async def make() -> None: ...

    with pytest.raises(DeclarationError, match="leave out queue"):
        Plugin("thumbnails", "1").task(queue="mail")(make)


# Installing.


@pytest.mark.parametrize("missing", [BackgroundJobs, Schedules, Services])
def test_a_missing_grant_is_named_and_nothing_is_registered(missing: type[Capability]) -> None:
    app = Mainspring("memory://")
    grant = [one for one in EVERYTHING if not isinstance(one, missing)]
    with pytest.raises(CapabilityError) as raised:
        app.install(Thumbnails().plugin, grant=grant)

    assert (raised.value.plugin, raised.value.capability, raised.value.code) == (
        "thumbnails",
        missing.__name__,
        0x05,
    )
    assert isinstance(raised.value, PermissionError)
    assert not app.registry.names
    assert not app._services
    assert not app._planned.everything()
    assert list(app.plugins) == []


def test_what_is_declared_has_to_be_granted_even_if_it_was_not_asked_for() -> None:
    app = Mainspring("memory://")
    with pytest.raises(CapabilityError, match="BackgroundJobs"):
        app.install(Thumbnails(requires=[]).plugin, grant="all")


def test_what_is_required_has_to_be_granted_even_if_nothing_is_declared() -> None:
    app = Mainspring("memory://")
    with pytest.raises(CapabilityError, match="HostWrite"):
        app.install(Plugin("writer", "1", requires=[HostWrite()]))


def test_a_name_that_is_taken_leaves_nothing_behind() -> None:
    app = Mainspring("memory://")
    thumbnails = Thumbnails()

    @app.service(name="thumbnails:look")
    async def look() -> Idle:
        return Idle()

    with pytest.raises(NameTaken):
        app.install(thumbnails.plugin, grant="all")
    assert not app.registry.names

    app = Mainspring("memory://")

    @app.task(name="thumbnails:sweep")
    async def sweep() -> None: ...

    with pytest.raises(NameTaken):
        app.install(thumbnails.plugin, grant="all")
    assert {str(name) for name in app.registry.names} == {"thumbnails:sweep"}
    assert not app._services
    assert not app._queues
    assert "thumbnails" not in app._connection.guard._granted, "the program's own task of that namespace is no plugin's"
    Mainspring("memory://").install(thumbnails.plugin, grant="all")


@pytest.mark.parametrize("what", ["task", "alias", "service", "queue of a task", "queue", "default queue"])
def test_a_plugin_does_not_take_a_name_under_which_the_program_acts(what: str) -> None:
    """Else the program's own jobs would be held to the plugin's grants and limits, and be the plugin's to change."""
    app = Mainspring("memory://")
    id_ = "default" if what == "default queue" else "billing"

    async def pay() -> None: ...

    match what:
        case "task":
            app.task(name="billing:pay")(pay)
        case "alias":
            app.task(aliases="billing:pay")(pay)
        case "service":
            app.service(name="billing:watch")(pay)
        case "queue of a task":
            app.task(queue="billing")(pay)
        case "queue":
            app.queue("billing")
        case _:
            pass  # it is there in any app
    before = app.registry.names

    with pytest.raises(NameTaken, match=f"(namespace|queue) named '{id_}'"):
        app.install(Plugin(id_, "1"))

    assert (id_ in app.plugins, app.registry.names) == (False, before)


@pytest.mark.parametrize("what", ["task", "alias", "service", "queue"])
def test_nor_does_the_program_declare_what_would_be_taken_for_a_plugins(what: str) -> None:
    app = Mainspring("memory://")
    app.install(Thumbnails().plugin, grant="all")
    before = app.registry.names

    async def pay() -> None: ...

    with pytest.raises(PluginError, match=r"plugin thumbnails: .* would be taken for its own"):
        match what:
            case "task":
                app.task(name="thumbnails:pay")(pay)
            case "alias":
                app.task(aliases="thumbnails:pay")(pay)
            case "service":
                app.service(name="thumbnails:watch")(pay)
            case _:
                app.task(queue="thumbnails")(pay)
    assert app.registry.names == before


def test_a_plugin_is_installed_once() -> None:
    app = Mainspring("memory://")
    thumbnails = Thumbnails()
    app.install(thumbnails.plugin, grant="all")
    with pytest.raises(PluginError, match="installed already"):
        app.install(Thumbnails().plugin, grant="all")
    with pytest.raises(PluginError, match="another app"):
        Mainspring("memory://").install(thumbnails.plugin, grant="all")


@pytest.mark.parametrize("grant", [BackgroundJobs(), "everything", [BackgroundJobs], 7])
def test_a_grant_that_is_none_is_refused(grant: object) -> None:
    with pytest.raises(DeclarationError, match="grant"):
        Mainspring("memory://").install(Plugin("a", "1"), grant=grant)  # type: ignore[arg-type]  # that is the point


@pytest.mark.usefixtures("virtual_time")
async def test_a_task_of_a_plugin_that_is_not_installed_says_so() -> None:
    thumbnails = Thumbnails()
    with pytest.raises(PluginError, match="not installed"):
        await thumbnails.make.enqueue("a")
    assert await thumbnails.make("a") == "a"


# Running.


async def test_a_node_that_runs_takes_up_a_plugin_at_once(app: Mainspring) -> None:
    thumbnails = Thumbnails()
    async with app.node():
        app.install(thumbnails.plugin, grant="all")
        job = await thumbnails.make.enqueue("a")
        assert await job.result(timeout="4s") == "a"
        await asyncio.sleep(65)
    assert thumbnails.calls == ["a", "thumbnails:sweep"]
    assert thumbnails.steps == 7


@pytest.mark.parametrize(("asked", "granted"), [(2, 3), (3, 2), (2, None), (None, 2)])
async def test_no_more_jobs_of_a_plugin_run_at_a_time_than_granted(
    app: Mainspring, another_app: Callable[[], Mainspring], asked: int | None, granted: int | None
) -> None:
    programs = [(app, Thumbnails(max_concurrent=asked)), (another_app(), Thumbnails(max_concurrent=asked))]
    for program, thumbnails in programs:
        program.install(thumbnails.plugin, grant=[BackgroundJobs(granted), Schedules(), Services()])
    (first, one), (second, two) = programs
    async with first.node(), second.node():
        began = asyncio.get_running_loop().time()
        jobs = [await one.make.enqueue(str(number), seconds=10) for number in range(6)]
        for job in jobs:
            await job.result(timeout="1m")
        took = asyncio.get_running_loop().time() - began
    assert 30 <= took < 40, "six of 10 s each, two at a time over both nodes"
    assert sorted(one.calls + two.calls)[:6] == [str(number) for number in range(6)]


async def test_whoever_sees_the_tasks_of_a_plugin_sees_what_it_is_held_to(
    app: Mainspring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node on another thread may look at any moment of an install: it runs no job without its limit or its grants."""
    thumbnails = Thumbnails(max_concurrent=2)
    add = Registry.add
    seen: list[object] = []

    def look(registry: Registry, *definitions: Definition) -> None:
        add(registry, *definitions)
        limits = [gate.concurrency for gate in node._parts.gates() if gate.scope is Scope.QUEUE]
        seen.append((limits, "thumbnails" in app._connection.guard._granted, thumbnails.plugin.connection.lender))

    async with app:
        node = app.make_node(NodeSettings())
        monkeypatch.setattr(Registry, "add", look)
        app.install(thumbnails.plugin, grant="all")
    assert seen[:1] == [([2], True, app._connection)]


# Uninstalling.


async def test_jobs_of_a_plugin_that_is_uninstalled_wait_and_go_on_when_it_is_back(app: Mainspring) -> None:
    thumbnails = Thumbnails()
    async with app.node(unknown_task_grace="1m"):
        app.install(thumbnails.plugin, grant="all")
        job = await thumbnails.make.using(delay="10s").enqueue("a")
        await app.uninstall("thumbnails")
        with pytest.raises(UnknownTask):
            app.find("thumbnails:make")
        await asyncio.sleep(600)  # ten times the grace
        assert (await job.refresh()).job.state is State.SCHEDULED
        assert thumbnails.calls == []

        app.install(thumbnails.plugin, grant="all")
        assert await job.result(timeout="10s") == "a"


async def test_schedules_of_a_plugin_pause_while_it_is_uninstalled(app: Mainspring) -> None:
    thumbnails = Thumbnails()
    async with app.node():
        app.install(thumbnails.plugin, grant="all")
        await asyncio.sleep(150)
        assert thumbnails.calls == ["thumbnails:sweep"] * 2
        await app.uninstall("thumbnails")
        paused = (await app.schedules.get("thumbnails:sweep")).paused
        assert paused
        assert paused.reason == "plugin thumbnails is not installed"
        await asyncio.sleep(600)
        assert len(thumbnails.calls) == 2

        app.install(thumbnails.plugin, grant="all")
        await asyncio.sleep(121)
        assert (await app.schedules.get("thumbnails:sweep")).paused is None
        runs = (await app.schedules.runs("thumbnails:sweep")).runs
    assert len(thumbnails.calls) == 4
    assert [run.reason for run in runs if run.reason] == ["paused"]


async def test_what_a_person_has_paused_stays_paused_when_a_plugin_comes_back(app: Mainspring) -> None:
    thumbnails = Thumbnails()
    async with app.node():
        app.install(thumbnails.plugin, grant="all")
        await asyncio.sleep(1)
        await app.schedules.pause("thumbnails:sweep", by="an operator")
        await app.uninstall("thumbnails")
        app.install(thumbnails.plugin, grant="all")
        await asyncio.sleep(121)
        paused = (await app.schedules.get("thumbnails:sweep")).paused
    assert paused
    assert paused.by == "an operator"
    assert thumbnails.calls == []


async def test_schedules_go_on_where_another_program_has_the_plugin_still(
    app: Mainspring, another_app: Callable[[], Mainspring]
) -> None:
    one, two, other = Thumbnails(), Thumbnails(), another_app()
    app.install(one.plugin, grant="all")
    other.install(two.plugin, grant="all")
    async with app.node(), other.node():
        await app.uninstall("thumbnails")
        await asyncio.sleep(121)
    assert (one.calls, two.calls) == ([], ["thumbnails:sweep"] * 2)


@pytest.mark.parametrize("singleton", [False, True])
async def test_services_of_a_plugin_stop_with_it_and_start_again(app: Mainspring, *, singleton: bool) -> None:
    steps: list[str] = []
    plugin = Plugin("watcher", "1")

    @plugin.service(every="10s", singleton=singleton)
    async def watch() -> None:
        steps.append("begins")
        try:
            await asyncio.sleep(5)
        finally:
            steps.append("ends")

    async with app.node():
        app.install(plugin, grant=[Services()])
        await asyncio.sleep(1)
        assert steps == ["begins"]
        await app.uninstall("watcher")
        await asyncio.sleep(60)
        assert steps == ["begins", "ends"]
        app.install(plugin, grant=[Services()])
        await asyncio.sleep(2)
        assert steps == ["begins", "ends", "begins"]


async def test_another_node_takes_over_the_singleton_of_a_plugin_that_is_uninstalled(
    app: Mainspring, another_app: Callable[[], Mainspring]
) -> None:
    steps: list[str] = []

    def watcher(program: str) -> Plugin:
        plugin = Plugin("watcher", "1")

        @plugin.service(every="10s", singleton=True)
        async def watch() -> None:
            steps.append(program)

        return plugin

    other = another_app()
    app.install(watcher("one"), grant=[Services()])
    async with app.node():
        await asyncio.sleep(1)
        other.install(watcher("two"), grant=[Services()])
        async with other.node():
            await asyncio.sleep(30)
            assert set(steps) == {"one"}
            await app.uninstall("watcher")
            await asyncio.sleep(2)
            assert steps[-1] == "two"


def test_what_is_not_installed_cannot_be_uninstalled() -> None:
    app = Mainspring("memory://")
    with pytest.raises(PluginError, match="not installed"):
        app.plugins.uninstall_sync("thumbnails")


# What plugins may do while they run.


class Prober:
    """A plugin that tries what it is told to, as a job or as a service."""

    def __init__(self, app: Mainspring) -> None:
        self.plugin = Plugin("prober", "1")
        self.error: Exception | None = None
        self.act: Callable[[], object] | None = None
        self.acts_as_a_service = False

        @app.task(name="pay")
        async def pay() -> None: ...

        @self.plugin.task
        async def own() -> None: ...

        @self.plugin.task
        async def probe() -> None:
            await self._try()

        @self.plugin.task
        def probe_in_a_thread() -> None:
            try:
                pay.enqueue_sync()
            except CapabilityError as error:
                self.error = error

        @self.plugin.service(every="1h")
        async def probe_as_a_service() -> None:
            if self.acts_as_a_service:
                await self._try()

        self.pay, self.own, self.probe, self.probe_in_a_thread = pay, own, probe, probe_in_a_thread

    async def _try(self) -> None:
        if self.act is None:
            return
        try:
            await self.act()  # type: ignore[misc]  # whatever it is, it is awaited
        except CapabilityError as error:
            self.error = error


@pytest.mark.parametrize("where", ["job", "service"])
@pytest.mark.parametrize(
    ("action", "grant", "missing"),
    [
        ("own", [], None),
        ("pay", [], "EnqueueTasks"),
        ("pay", [EnqueueTasks()], None),
        ("pay", [EnqueueTasks(("",))], None),
        ("pay", [EnqueueTasks(("mail",))], "EnqueueTasks of the program itself"),
        ("plan", [], "Schedules"),
        ("plan", [Schedules()], None),
        ("plan for others", [Schedules()], "Schedules of the program itself"),
        ("plan what others do", [Schedules()], "EnqueueTasks"),
        ("pause", [], "Schedules"),
        ("pause", [Schedules()], "Schedules of the program itself"),
    ],
)
async def test_a_capability_is_asked_for_where_it_is_used(
    app: Mainspring, where: str, action: str, grant: list[Capability], missing: str | None
) -> None:
    prober = Prober(app)
    await app.schedules.add("nightly", Every("1h"), prober.pay.call())
    actions: dict[str, Callable[[], object]] = {
        "own": prober.own.enqueue,
        "pay": prober.pay.enqueue,
        "plan": lambda: app.schedules.add("prober:mine", Every("1h"), prober.own.call()),
        "plan for others": lambda: app.schedules.add("yours", Every("1h"), prober.own.call()),
        "plan what others do": lambda: app.schedules.add("prober:mine", Every("1h"), prober.pay.call()),
        "pause": lambda: app.schedules.pause("nightly"),
    }
    prober.act = actions[action]
    prober.acts_as_a_service = where == "service"
    app.install(prober.plugin, grant=[BackgroundJobs(), Services(), *grant])
    async with app.node():
        if where == "job":
            await (await prober.probe.enqueue()).result(timeout="1m")
        await asyncio.sleep(1)
    assert (str(prober.error.capability) if isinstance(prober.error, CapabilityError) else None) == missing


async def test_a_capability_is_asked_for_in_threads_too(app: Mainspring) -> None:
    prober = Prober(app)
    app.install(prober.plugin, grant=[BackgroundJobs(), Services()])
    async with app.node():
        await (await prober.probe_in_a_thread.enqueue()).result(timeout="1m")
    assert isinstance(prober.error, CapabilityError)


async def test_the_program_itself_may_do_anything(app: Mainspring) -> None:
    prober = Prober(app)
    app.install(prober.plugin, grant=[BackgroundJobs(), Services()])
    await prober.own.enqueue()
    await prober.pay.enqueue()
    await app.schedules.add("prober:mine", Every("1h"), prober.own.call())


async def test_what_still_runs_of_a_plugin_that_was_uninstalled_may_nothing_more(app: Mainspring) -> None:
    prober = Prober(app)

    async def later() -> None:
        await asyncio.sleep(10)
        await prober.pay.enqueue()

    prober.act = later
    app.install(prober.plugin, grant=[BackgroundJobs(), Services(), EnqueueTasks()])
    async with app.node():
        await prober.probe.enqueue()
        await asyncio.sleep(1)
        await app.uninstall("prober")
        await asyncio.sleep(20)
    assert isinstance(prober.error, CapabilityError)


async def test_a_slot_whose_plugin_is_installed_nowhere_makes_no_job_and_says_so(
    app: Mainspring, another_app: Callable[[], Mainspring]
) -> None:
    thumbnails = Thumbnails()
    app.install(thumbnails.plugin, grant="all")
    async with app.node():
        await asyncio.sleep(61)
    async with another_app().node() as node:  # its code does not have the plugin any more, and nobody uninstalled it
        await asyncio.sleep(300)
        assert node.running == 0
        runs = (await app.schedules.runs("thumbnails:sweep")).runs
        assert [run.reason for run in runs] == ["no_provider", None]
        assert runs[0].count == 5
        async with app.node():
            await asyncio.sleep(120)
    assert len(thumbnails.calls) == 3


# Coming and going.


async def test_uninstalled_and_installed_at_once_schedules_go_on(app: Mainspring) -> None:
    thumbnails = Thumbnails()
    async with app.node():
        app.install(thumbnails.plugin, grant="all")
        await asyncio.sleep(1)
        await app.uninstall("thumbnails")
        app.install(thumbnails.plugin, grant="all")
        await asyncio.sleep(121)
        assert (await app.schedules.get("thumbnails:sweep")).paused is None
    assert thumbnails.calls == ["thumbnails:sweep"] * 2


async def test_an_uninstall_during_a_declaration_pauses_all_the_same(app: Mainspring) -> None:
    plugin = Plugin("many", "1")
    for number in range(5):

        @plugin.schedule(Every("1m"), name=f"sweep-{number}")
        @plugin.task(name=f"sweep-{number}")
        async def sweep() -> None: ...

    async with app.node():
        app.install(plugin, grant=[BackgroundJobs(), Schedules()])
        await asyncio.sleep(0)  # the node has begun to tell the store
        await app.uninstall("many")
        await asyncio.sleep(20)
        page = await app.schedules.list(owner="plugin:many")
        assert [look.schedule.name for look in page.looks if look.schedule.paused is None] == []
        app.install(plugin, grant=[BackgroundJobs(), Schedules()])
        await asyncio.sleep(20)
        page = await app.schedules.list(owner="plugin:many")
        assert [look.schedule.paused for look in page.looks] == [None] * 5


async def test_an_uninstall_that_met_an_outage_can_be_repeated(
    app: Mainspring, monkeypatch: pytest.MonkeyPatch
) -> None:
    thumbnails = Thumbnails()
    async with app:
        app.install(thumbnails.plugin, grant="all")
        async with app.node():
            await asyncio.sleep(1)

        async def out(*_: object) -> None:
            raise StoreUnavailable("store", "it is out")

        with monkeypatch.context() as patch:
            patch.setattr(app.store, "move", out)
            with pytest.raises(StoreUnavailable):
                await app.uninstall("thumbnails")
        assert "thumbnails" not in app.plugins
        await app.uninstall("thumbnails")
        assert (await app.schedules.get("thumbnails:sweep")).paused


@pytest.mark.parametrize("singleton", [False, True])
async def test_a_service_that_stops_slowly_starts_again(app: Mainspring, *, singleton: bool) -> None:
    begun: list[int] = []
    plugin = Plugin("watcher", "1")

    @plugin.service(every="1s", singleton=singleton)
    async def watch() -> None:
        begun.append(1)
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.3)

    async with app.node():
        app.install(plugin, grant=[Services()])
        await asyncio.sleep(1)
        await app.uninstall("watcher")
        await asyncio.sleep(0.1)
        app.install(plugin, grant=[Services()])
        await asyncio.sleep(5)
        assert len(begun) == 2


def test_a_schedule_name_that_is_taken_leaves_nothing_behind() -> None:
    app = Mainspring("memory://")

    @app.schedule(Every("1m"), name="thumbnails:sweep")
    @app.task(name="sweep")
    async def sweep() -> None: ...

    with pytest.raises(NameTaken, match="schedule"):
        app.install(Thumbnails().plugin, grant="all")
    assert {str(name) for name in app.registry.names} == {"sweep"}


def test_what_is_declared_after_the_install_is_refused() -> None:
    app = Mainspring("memory://")
    plugin = Plugin("late", "1")
    app.install(plugin)

    async def work() -> None: ...

    with pytest.raises(PluginError, match="installed already"):
        plugin.task(work)
    with pytest.raises(PluginError, match="installed already"):
        plugin.service(work)
    assert plugin.tasks == []


def test_a_namespace_is_no_list_of_them() -> None:
    with pytest.raises(DeclarationError, match="several namespaces"):
        EnqueueTasks("mail")  # type: ignore[arg-type]  # the mistake
    assert EnqueueTasks(["mail"]).allows("mail")  # type: ignore[arg-type]  # a list will do
    assert not EnqueueTasks(("mail",)).allows("")


async def test_a_transaction_of_the_store_is_a_write_of_the_hosts(app: Mainspring) -> None:
    plugin = Plugin("writer", "1")
    errors: list[Exception] = []

    @plugin.task(max_attempts=1)
    async def write(ctx: Context) -> None:
        try:
            ctx.transaction()
        except CapabilityError as error:
            errors.append(error)
        with ThreadPoolExecutor(1) as pool:  # where nobody knows who acts
            try:
                await asyncio.wrap_future(pool.submit(asyncio.run, _write(ctx)))
            except CapabilityError as error:
                errors.append(error)

    app.host.offer(execute_write=lambda *_: None)
    app.install(plugin, grant=[BackgroundJobs()])
    async with app.node():
        await (await write.enqueue()).result(timeout="1m")
    assert [type(error) for error in errors] == [CapabilityError, CapabilityError]


async def _write(ctx: Context) -> None:
    await ctx.host.execute_write("DELETE FROM photos")


@pytest.mark.parametrize("outcome", [JobOutcome, Done, Failed])
def test_an_outcome_that_would_mean_nothing_is_refused(outcome: Any) -> None:  # noqa: ANN401 - a type, or several
    async def work() -> None: ...

    work.__annotations__["return"] = outcome
    for declare in (Mainspring("memory://").task, Plugin("a", "1").task):
        with pytest.raises(DeclarationError, match=r"@plugin\.job"):
            declare(work)


async def test_a_plugin_can_be_uninstalled_by_itself(app: Mainspring) -> None:
    thumbnails = Thumbnails()
    app.install(thumbnails.plugin, grant="all")
    await app.uninstall(thumbnails.plugin)
    assert "thumbnails" not in app.plugins


def test_a_mirror_needs_a_sink() -> None:
    with pytest.raises(DeclarationError, match="LadybugSink"):
        Mainspring("memory://").mirror("graph.lbug")  # type: ignore[arg-type]  # the mistake


async def test_an_uninstall_does_not_mind_that_another_was_faster(
    app: Mainspring, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = Plugin("tidy", "1", requires=[BackgroundJobs(), Schedules()])

    @plugin.job(schedule=Every("1h"))
    async def sweep() -> None: ...

    app.install(plugin, grant="all")
    plain = planned.owned_by

    async def overtaken(store: Store, owner: str) -> Any:  # noqa: ANN401 -- as it is
        found = await plain(store, owner)
        for look in found[0]:
            if look.schedule.paused is None:
                await app.schedules.pause(str(look.schedule.name))
        return found

    async with app.node():
        await asyncio.sleep(1)
        monkeypatch.setattr(planned, "owned_by", overtaken)
        await app.uninstall("tidy")
        assert (await app.schedules.get("tidy:sweep")).paused
