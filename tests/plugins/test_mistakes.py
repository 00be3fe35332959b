"""Mistakes that are easily made with plugins and hosts, and the words that help."""

import re
import sys
from typing import Any

import pytest

from mainspring import Context, Every, Mainspring, Manual, Plugin, Retry
from mainspring.errors import CapabilityError, DeclarationError, JobFailed, PluginError
from mainspring.plugins import (
    BackgroundJobs,
    Done,
    DoneAndReschedule,
    Failed,
    HostWrite,
    Schedules,
    Services,
)
from mainspring.plugins.capability import Grants
from mainspring.plugins.sinks import LadybugSink, Neo4jSink
from mainspring.stores.memory import MemoryStore
from mainspring.testing import VirtualTime


class Mailer:
    """A service of the program's own."""


async def sweep() -> None: ...


async def watch() -> None: ...


@pytest.fixture
def app(virtual_time: VirtualTime) -> Mainspring:
    """One on a store in memory: none of these mistakes reaches a store."""
    return Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)


@pytest.fixture
def alone() -> Mainspring:
    return Mainspring("memory://")


# What a plugin asks for.


@pytest.mark.parametrize(
    ("requires", "advice"),
    [
        ([BackgroundJobs], "write BackgroundJobs(), with parentheses"),
        ([Schedules(), Services], "write Services(), with parentheses"),
        (BackgroundJobs(), "a list of capabilities, as in [BackgroundJobs()]"),
        (BackgroundJobs, "a list of capabilities, as in [BackgroundJobs()]"),
        ("BackgroundJobs", "a list of capabilities, as in [BackgroundJobs()], not 'BackgroundJobs'"),
        (["BackgroundJobs"], "capabilities, like BackgroundJobs(), and not 'BackgroundJobs'"),
        (None, "a list of capabilities, as in [BackgroundJobs()]"),
    ],
)
def test_what_a_plugin_requires_is_a_list_of_capabilities(requires: Any, advice: str) -> None:  # noqa: ANN401 -- mistakes
    with pytest.raises(DeclarationError, match=rf"plugin tidy: requires: .*{re.escape(advice)}"):
        Plugin("tidy", "1", requires=requires)


@pytest.mark.parametrize(
    ("grant", "advice"),
    [
        ([BackgroundJobs], "write BackgroundJobs(), with parentheses"),
        (BackgroundJobs(), "a list of capabilities, as in [BackgroundJobs()], or 'all' that it requires"),
        ("All", "or 'all' that it requires, not 'All'"),
    ],
)
def test_what_a_plugin_is_granted_is_a_list_of_capabilities_or_all(
    alone: Mainspring,
    grant: Any,  # noqa: ANN401 -- mistakes
    advice: str,
) -> None:
    with pytest.raises(DeclarationError, match=rf"grant: .*{re.escape(advice)}"):
        alone.install(Plugin("tidy", "1"), grant=grant)


def test_all_that_is_not_granted_is_named_at_once(alone: Mainspring) -> None:
    plugin = Plugin("tidy", "1", requires=[HostWrite(), BackgroundJobs(2)])
    plugin.job(schedule=Every("1h"))(sweep)
    plugin.service(watch)
    with pytest.raises(CapabilityError) as raised:
        alone.install(plugin, grant=[BackgroundJobs()])
    assert raised.value.capability == "HostWrite, Schedules, Services"
    assert "its host adds HostWrite(), Schedules(), Services() to app.install(…, grant=[…])" in str(raised.value)
    alone.install(plugin, grant=[BackgroundJobs(), HostWrite(), Schedules(), Services()])


def test_all_does_not_cover_what_a_plugin_did_not_ask_for_and_its_author_is_told(alone: Mainspring) -> None:
    plugin = Plugin("tidy", "1", requires=[BackgroundJobs()])
    plugin.job(schedule=Every("1h"))(sweep)
    with pytest.raises(CapabilityError, match=r"its author adds Schedules\(\) to Plugin\(…, requires=\[…\]\)"):
        alone.install(plugin, grant="all")


# How a job is declared.


@pytest.mark.parametrize(
    ("args", "kwargs"), [((sweep,), {}), ((Every("1h"),), {}), ((), {}), ((Every("1h"),), {"timeout": "1m"})]
)
def test_a_job_that_is_declared_without_saying_its_schedule_is_told_how(args: Any, kwargs: Any) -> None:  # noqa: ANN401 -- mistakes
    plugin = Plugin("tidy", "1")
    with pytest.raises(DeclarationError, match=re.escape("write @plugin.job(schedule=Every('1h'))")):
        plugin.job(*args, **kwargs)


@pytest.mark.parametrize(
    ("outcome", "advice"),
    [
        (Done, "write `return Done()`, with parentheses"),
        (DoneAndReschedule, "write `return DoneAndReschedule(…)`, with parentheses"),
        (Failed, "write `return Failed(…)`, with parentheses"),
    ],
)
async def test_an_outcome_without_its_parentheses_fails_the_job_and_says_what_to_write(
    app: Mainspring, outcome: type, advice: str
) -> None:
    plugin = Plugin("tidy", "1", requires=[BackgroundJobs(), Schedules()])

    @plugin.job(schedule=Manual())
    async def sweep() -> Any:  # noqa: ANN401 -- what a function without annotations returns
        return outcome

    app.install(plugin, grant="all")
    async with app.node():
        job = await sweep.enqueue()
        with pytest.raises(JobFailed, match=re.escape(advice)):
            await job.result(timeout="1m")
        assert (await job.refresh()).job.attempt == 1


# What a host offers.


def test_what_a_program_offers_under_a_name_of_its_own_goes_by_its_type(alone: Mainspring) -> None:
    offer: Any = alone.host.offer
    with pytest.raises(DeclarationError, match=r"no 'send_mail' to offer; .* app\.host\.provide\(Mailer, mailer\)"):
        offer(send_mail=sweep)
    assert alone.host.offers == ()


async def test_a_service_is_asked_for_by_its_type_and_not_by_a_name(app: Mainspring) -> None:
    app.host.provide(Mailer, Mailer())
    name: Any = "Mailer"
    advice = r"get takes the class that it was provided by, as get\(Mailer\), not 'Mailer'"
    with pytest.raises(DeclarationError, match=advice):
        app.host.get(name)

    @app.task(name="send", retry=Retry.none())
    async def send(ctx: Context) -> None:
        ctx.host.get(name)

    async with app.node():
        job = await send.enqueue()
        with pytest.raises(JobFailed, match=advice):
            await job.result(timeout="1m")


def test_a_plugin_that_is_not_there_is_told_with_those_that_are(alone: Mainspring) -> None:
    alone.install(Plugin("tidy", "1"))
    with pytest.raises(PluginError, match="plugin tydi: it is not installed; there are: tidy"):
        alone.plugins.uninstall_sync("tydi")


def test_a_job_that_wants_arguments_is_told_that_nobody_gives_them() -> None:
    async def mail(to: str) -> None: ...

    with pytest.raises(DeclarationError, match=r"job tidy:mail: its schedule gives it no arguments .*at to: missing"):
        Plugin("tidy", "1").job(schedule=Every("1h"))(mail)


def test_what_was_never_asked_for_is_for_the_host_to_grant_or_the_author_to_ask_for() -> None:
    with pytest.raises(CapabilityError, match=r"where that says 'all', its author adds it to Plugin\(…, requires="):
        Grants([BackgroundJobs()]).must("tidy", HostWrite)


# The mirror.


def test_a_sink_whose_package_is_missing_says_so_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ladybug", None)
    with pytest.raises(ModuleNotFoundError, match="install Mainspring with the extra 'graph'"):
        LadybugSink("graph.lbug")


def test_a_sink_for_neo4j_takes_a_driver_and_no_address() -> None:
    with pytest.raises(DeclarationError, match=r"Neo4jSink: it takes an async driver, .* not 'neo4j://localhost'"):
        Neo4jSink("neo4j://localhost")  # type: ignore[arg-type]  # the mistake
