"""Plugins that do harm: found among good ones, they are told of by name; installed, they harm nobody but themselves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mainspring import Every, Idle, Mainspring, Plugin
from mainspring.errors import CapabilityError, PluginError
from mainspring.plugins import BackgroundJobs, Capability, EnqueueTasks, Schedules, Services
from tests.plugins.packages import GOOD, Packages

pytestmark = pytest.mark.slow


@pytest.fixture
def packages(tmp_path: Path) -> Packages:
    return Packages(tmp_path / "packages")


# Found among others.

DISCOVER = """
import asyncio, json
from mainspring import Mainspring

app = Mainspring("memory://")

async def main() -> None:
    found = app.plugins.discover(allow={allow}, grant={grant})
    result = None
    if "good" in app.plugins:
        async with app.node():
            result = await (await app.enqueue("good:add", 2, 3)).result(timeout="20s")
    print(json.dumps({{
        "installed": sorted(found.installed), "refused": sorted(found.refused), "result": result,
        "broken": {{name: str(error) for name, error in found.broken.items()}},
        "tasks": sorted(map(str, app.registry.names)),
    }}))

if __name__ == "__main__":
    asyncio.run(main())
"""

HEAD = "from mainspring import *\nfrom mainspring.plugins import *\n"

BAD = {
    "raises": ("1 / 0", "cannot be loaded: ZeroDivisionError: division by zero"),
    "exits": ("import sys; sys.exit(7)", "cannot be loaded: SystemExit: 7"),
    "interrupts": ("raise KeyboardInterrupt('enough')", "cannot be loaded: KeyboardInterrupt: enough"),
    "panics": ("raise type('Panic', (BaseException,), {})('at once')", "cannot be loaded: Panic: at once"),
    "mute": (
        "class Mute(Exception):\n    def __str__(self): raise RuntimeError\nraise Mute",
        "cannot be loaded: Mute",
    ),
    "names_others": (
        "plugin = Plugin('names_others', '1')\n@plugin.task(name='good:add')\nasync def add(): ...",
        "cannot be loaded: BadName",
    ),
    "takes_others": (
        "import good\nplugin = Plugin('takes_others', '1')\nplugin.tasks.append(good.plugin.tasks[0])",
        "it declares good:add, which is not in its namespace",
    ),
    "pretends": ("plugin = Plugin('good', '6.6.6')", "it is installed already"),
    "asks_for_more": (
        "plugin = Plugin('asks_for_more', '1', requires=[BackgroundJobs(), HostWrite()])",
        "was not granted HostWrite",
    ),
    "is_none": ("plugin = 'a plugin, honestly'", "is no Plugin and makes none, but str"),
    "makes_none": ("async def plugin(): return 7", "is no Plugin and makes none, but coroutine"),
}


def discover(packages: Packages, *, allow: object = "all", grant: object = "all") -> dict[str, Any]:
    done = packages.program(DISCOVER.format(allow=repr(allow), grant=grant if grant != "all" else repr(grant)))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_broken_plugins_are_told_of_by_name_and_the_good_one_works(packages: Packages) -> None:
    packages.add("good", GOOD)
    for name, (code, _) in BAD.items():
        packages.add(name, HEAD + code)
    packages.offer("gone-package", "gone = there.is.no.such.module:plugin")
    some = "{'good': 'all', 'takes_others': 'all', 'pretends': 'all', 'asks_for_more': [__import__('good').BackgroundJobs()]}"
    found = discover(packages, grant=some)

    assert found["installed"] == ["good"]
    assert found["result"] == 5
    assert found["broken"].keys() == {*BAD, "gone"}
    for name, (_, problem) in BAD.items():
        assert problem in found["broken"][name]
    assert {task.partition(":")[0] for task in found["tasks"]} == {"good", "mainspring"}


def test_a_person_who_has_had_enough_of_waiting_ends_the_program(packages: Packages) -> None:
    """The other side of what `interrupts` does: Ctrl-C while a plugin is imported is no plugin's error."""
    packages.add("slow", "import os, signal\nprint('importing', flush=True)\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = packages.program(
        """
        from mainspring import Mainspring
        try:
            Mainspring("memory://").plugins.discover(allow="all")
        except KeyboardInterrupt:
            print("ended")
        """
    )
    assert done.stdout.split() == ["importing", "ended"], done.stderr


def test_what_nobody_allowed_is_not_even_imported(packages: Packages) -> None:
    packages.add("good", GOOD)
    packages.add("deadly", "import os; os._exit(9)")
    found = discover(packages, allow=["good", "missing"])
    assert (found["installed"], found["refused"]) == (["good"], ["deadly"])
    assert "no entry point of that name" in found["broken"]["missing"]


def test_a_name_that_two_packages_offer_is_given_to_neither(packages: Packages) -> None:
    packages.add("good", GOOD)
    packages.add("thief", HEAD + "plugin = Plugin('thief', '1')", offers="good = thief:plugin")
    found = discover(packages, allow=["good"])
    assert found["installed"] == []
    assert "several packages offer it" in found["broken"]["good"]
    assert "thief-package (thief:plugin)" in found["broken"]["good"]


def test_a_package_whose_files_cannot_be_read_hinders_no_other(packages: Packages) -> None:
    packages.add("good", GOOD)
    packages.offer("garbled-package", "garbled = garbled:plugin").write_bytes(b"[mainspring.plugins]\n\xff\xfe = \xff")
    found = discover(packages)
    assert (found["installed"], found["result"]) == (["good"], 5)
    assert any("garbled" in name for name in found["broken"])


# Declared by hand, around what `Plugin` lets declare.


def forged(how: str) -> Plugin:
    plugin, other = Plugin("forger", "1"), Plugin("victim", "1")
    for one in (plugin, other):

        @one.schedule(Every("1h"))
        @one.task
        async def work() -> None: ...

        @one.service
        async def watch() -> Idle:
            return Idle()

    match how:
        case "task":
            plugin.tasks.extend(other.tasks)
        case "schedule":
            plugin.plans.update(other.plans)
        case "schedule of another's task":
            plugin.plans.update(zip(plugin.plans, other.plans.values(), strict=True))
        case "service":
            plugin.services.update(other.services)
        case "identity":
            object.__setattr__(plugin, "id", "victim")
        case _:
            plugin.plans.update(
                (name, type(plan)(**{**_fields(plan), "template": _queued(plan.template)}))
                for name, plan in plugin.plans.items()
            )
    return plugin


def _fields(struct: Any) -> dict[str, Any]:  # noqa: ANN401 - any struct
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def _queued(template: Any) -> Any:  # noqa: ANN401 - as above
    return type(template)(**{**_fields(template), "queue": "default"})


@pytest.mark.parametrize(
    "how", ["task", "schedule", "schedule of another's task", "service", "identity", "queue of its schedule"]
)
def test_what_is_not_a_plugins_own_is_refused_when_it_is_installed(how: str) -> None:
    app = Mainspring("memory://")
    with pytest.raises(PluginError, match=r"namespace|another queue"):
        app.install(forged(how), grant=[BackgroundJobs(), Schedules(), Services()])
    assert not app.registry.names


@pytest.mark.parametrize(
    ("action", "missing"),
    [
        ("own", None),
        ("own elsewhere", "BackgroundJobs in the queue default"),
        ("plan elsewhere", "BackgroundJobs in the queue default"),
        ("the neighbour's", None),
        ("the neighbour's elsewhere", "BackgroundJobs in the queue default"),
        ("the program's", None),
        ("the program's elsewhere", None),
        ("the program's in the neighbour's queue", "BackgroundJobs in the queue neighbour"),
    ],
)
async def test_no_plugin_gets_around_a_limit_by_way_of_another_queue(
    app: Mainspring, action: str, missing: str | None
) -> None:
    errors: list[str | None] = []
    plugin, neighbour = Plugin("sly", "1"), Plugin("neighbour", "1")

    @app.task(name="pay")
    async def pay() -> None: ...

    @neighbour.task
    async def theirs() -> None: ...

    @plugin.task
    async def own() -> None: ...

    @plugin.task
    async def probe() -> None:
        actions: dict[str, Callable[[], Any]] = {
            "own": own.enqueue,
            "own elsewhere": own.using(queue="default").enqueue,
            "plan elsewhere": lambda: app.schedules.add("sly:s", Every("1h"), own.using(queue="default").call()),
            "the neighbour's": theirs.enqueue,
            "the neighbour's elsewhere": theirs.using(queue="default").enqueue,
            "the program's": pay.enqueue,
            "the program's elsewhere": pay.using(queue="mail").enqueue,
            "the program's in the neighbour's queue": pay.using(queue="neighbour").enqueue,
        }
        try:
            await actions[action]()
            errors.append(None)
        except CapabilityError as error:
            errors.append(error.capability)

    grant: list[Capability] = [BackgroundJobs(1), Schedules(), EnqueueTasks()]
    app.install(plugin, grant=grant)
    app.install(neighbour, grant=grant)
    async with app.node():
        await (await probe.enqueue()).result(timeout="1m")
    assert errors == [missing]


# While they run.

HOSTILE = {
    "blocks": """
plugin = Plugin("blocks", "1", requires=[BackgroundJobs(max_concurrent=2)])

@plugin.task(timeout="200ms")
def attack() -> None:
    threading.Event().wait()
""",
    "floods": """
plugin = Plugin("floods", "1", requires=[BackgroundJobs(max_concurrent=2)])
now = most = begun = 0

@plugin.task(priority="critical")
async def attack() -> None:
    global now, most, begun
    begun += 1
    now += 1
    most = max(most, now)
    try:
        await attack.enqueue_many([attack.call() for _ in range(50)])
        await asyncio.sleep(0.2)
    finally:
        now -= 1
""",
    "kills_slots": """
plugin = Plugin("kills_slots", "1", requires=[BackgroundJobs(max_concurrent=1)])

@plugin.task(executor="process", retry=Retry.fixed("10ms", max_attempts=1000), loss_limit=1000)
def attack() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

@plugin.task(executor="process", retry=Retry.fixed("10ms", max_attempts=1000))
def attack_too() -> None:
    os._exit(3)
""",
    "escapes": """
plugin = Plugin("escapes", "1", requires=[BackgroundJobs(max_concurrent=1)])

class Panic(BaseException):
    pass

ERRORS = [SystemExit, Panic, GeneratorExit, asyncio.CancelledError, KeyboardInterrupt, StopIteration, MemoryError]

@plugin.task(retry=Retry.none())
async def attack() -> None:
    for number in range(len(ERRORS)):
        await one.enqueue(number)
        await one_in_a_thread.enqueue(number)

@plugin.task(retry=Retry.none())
async def one(number: int) -> None:
    raise ERRORS[number]("on purpose")

@plugin.task(retry=Retry.none())
def one_in_a_thread(number: int) -> None:
    raise ERRORS[number]("on purpose")
""",
    "bad_services": """
plugin = Plugin("bad_services", "1", requires=[Services()])

begun = {}

class Panic(BaseException):
    pass

def begin(name):
    begun[name] = begun.get(name, 0) + 1

def listen(event):
    raise SystemExit("a listener")

@plugin.service(listeners=[listen])
async def raises() -> None:
    begin("raises")
    raise RuntimeError("as ever")

@plugin.service(singleton=True)
async def raises_alone() -> None:
    begin("raises_alone")
    raise RuntimeError("as ever")

@plugin.service
async def exits() -> None:
    begin("exits")
    raise SystemExit(3)

@plugin.service(on_panic="propagate")
async def leaves() -> None:
    begin("leaves")
    raise SystemExit(4)

@plugin.service(singleton=True)
async def panics() -> None:
    begin("panics")
    raise Panic

@plugin.service
async def interrupts() -> None:
    begin("interrupts")
    raise KeyboardInterrupt

@plugin.service
async def hangs() -> None:
    begin("hangs")
    await asyncio.to_thread(threading.Event().wait)

@plugin.service
async def cancels() -> None:
    begin("cancels")
    asyncio.current_task().cancel()
    await asyncio.sleep(0)
""",
}

IMPORTS = "import asyncio, os, signal, threading\nfrom mainspring import *\nfrom mainspring.plugins import *\n"

RUN = """
import asyncio, json, os, sys
from mainspring import Mainspring, Retry
import good

app = Mainspring(sys.argv[1])

@app.task(name="own", retry=Retry.none())
def own() -> str:
    return "own"

async def main() -> None:
    found = app.plugins.discover(allow="all")
    async with app.node(concurrency=12, processes=2, grace="500ms", stop_grace="100ms"):
        for name in found.installed:
            for task in ("attack", "attack_too"):
                if any(str(one) == f"{name}:{task}" for one in app.registry.names):
                    await app.enqueue_many([app.find(f"{name}:{task}").call() for _ in range(6)])
        await asyncio.sleep(1)
        before, slowest, results = dict(good.seen), 0.0, []
        for number in range(8):
            began = asyncio.get_running_loop().time()
            for task in ("good:add", "good:add_apart"):
                results.append(await (await app.enqueue(task, number, number)).result(timeout="30s"))
            results.append(await (await app.enqueue("own")).result(timeout="30s"))
            slowest = max(slowest, asyncio.get_running_loop().time() - began)
            await asyncio.sleep(0.1)
        import bad_services, floods
        attempts = {}
        for task in map(str, app.registry.names):
            jobs = [*(await app.jobs(task=task, limit=500)).jobs, *(await app.jobs(task=task, state="running")).jobs]
            attempts[task] = sum(view.job.claims for view in jobs)
        counts = {queue.name: queue.running for queue in await app.store.queues()}
        report = {
            "broken": {name: str(error) for name, error in found.broken.items()},
            "installed": sorted(found.installed), "results": results, "slowest": slowest, "running": counts,
            "most": floods.most, "floods": floods.begun, "steps": bad_services.begun,
            "gone_on": {key: good.seen[key] - before[key] for key in before},
            "attempts": attempts,
            "failed": sorted(
                str(view.job.task) for view in (await app.jobs(state="failed", limit=1000)).jobs
                if view.job.task.namespace == "escapes"
            ),
        }
        began = asyncio.get_running_loop().time()
    report["shutdown"] = asyncio.get_running_loop().time() - began
    print(json.dumps(report), flush=True)
    os._exit(0)  # threads that block for ever would keep it

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def afterwards(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What was seen in a program that had a good plugin and all of the hostile ones, at the same time."""
    packages = Packages(tmp_path_factory.mktemp("hostile"))
    packages.add("good", GOOD)
    for name, code in HOSTILE.items():
        packages.add(name, IMPORTS + code)
    (packages.folder / "program.py").write_text(RUN, encoding="utf-8")
    url = "memory://" if request.param == "memory" else f"sqlite:///{packages.folder}/jobs.db"
    done = packages.run("-m", "program", url, timeout=45)
    assert done.returncode == 0, done.stderr[-4000:]
    seen: dict[str, Any] = json.loads(done.stdout)
    assert not seen["broken"]
    assert seen["installed"] == sorted(["good", *HOSTILE])
    return seen


def test_what_is_hostile_has_really_attacked(afterwards: dict[str, Any]) -> None:
    """Else the other tests of this program would tell nothing."""
    attempts = afterwards["attempts"]
    assert attempts["blocks:attack"] >= 2
    assert afterwards["floods"] >= 2
    assert attempts["kills_slots:attack"] + attempts["kills_slots:attack_too"] >= 5
    assert attempts["escapes:one"] >= 7
    assert attempts["escapes:one_in_a_thread"] >= 7
    assert afterwards["steps"].keys() == {
        "raises", "raises_alone", "exits", "leaves", "panics", "interrupts", "hangs", "cancels"
    }  # fmt: skip


def test_jobs_of_others_go_on_whatever_hostile_plugins_do(afterwards: dict[str, Any]) -> None:
    assert afterwards["results"] == [result for number in range(8) for result in (2 * number, 2 * number, "own")]
    assert afterwards["slowest"] < 10  # a slot that was killed is replaced first; nothing waits for what blocks


def test_schedules_and_services_of_others_go_on_whatever_hostile_plugins_do(afterwards: dict[str, Any]) -> None:
    assert afterwards["gone_on"]["schedule"] >= 1
    assert afterwards["gone_on"]["steps"] >= 5


def test_a_flood_keeps_to_what_its_plugin_was_granted(afterwards: dict[str, Any]) -> None:
    assert afterwards["most"] == 2
    assert max(afterwards["running"].get(name, 0) for name in ("floods", "blocks")) <= 2


def test_a_node_ends_in_time_whatever_hostile_plugins_do(afterwards: dict[str, Any]) -> None:
    assert afterwards["shutdown"] < 20


def test_whatever_a_job_raises_ends_that_job_and_no_more(afterwards: dict[str, Any]) -> None:
    kinds = {"escapes:one", "escapes:one_in_a_thread"}
    assert set(afterwards["failed"]) == kinds
