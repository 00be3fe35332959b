"""Queues, schedules, nodes, outboxes, breakers and plugins over HTTP."""

import asyncio
from typing import Any

import pytest

from mainspring import Cron, Mainspring
from mainspring.client.plain import plain
from mainspring.core.job import State
from mainspring.core.names import Name
from mainspring.errors import StoreUnavailable
from mainspring.stores.memory import MemoryStore
from mainspring.stores.overview import Overview
from mainspring.stores.records import QueueView
from mainspring.supervise import Backoff
from mainspring.testing import VirtualTime
from mainspring.web import Identity, Permission, api
from tests.web.conftest import BASE, client
from tests.web.world import Asks, Modest, World, declare, in_world


async def queue(world: World, name: str) -> QueueView:
    return next(one for one in await world.app.store.queues() if one.name == name)


# Queues.


@in_world
async def test_a_queue_is_paused_and_goes_on(world: World, ask: Asks) -> None:
    said = {"name": "default", "reason": "they are down"}
    assert await ask("queues/pause", said) == {"name": "default", "changed": True, "problem": None}
    assert (await ask("queues/pause", said))["changed"] is False
    paused = (await queue(world, "default")).paused
    assert paused
    assert (paused.by, paused.reason) == ("anna", "they are down")
    listed = await ask("queues/list")
    assert listed["queues"] == plain(await world.app.store.queues())
    assert (await ask("queues/resume", {"name": "default"}))["changed"] is True
    assert (await ask("queues/resume", {"name": "default"}))["changed"] is False


@in_world
async def test_a_queue_is_limited_until_that_is_taken_back(world: World, ask: Asks) -> None:
    if not isinstance(world.app.store, Overview):
        pytest.skip("its store does not play the role Overview")
    assert (await ask("queues/limit", {"name": "default", "concurrency": 2}))["changed"] is True
    (rule,) = [one for one in (await ask("queues/list"))["rules"] if one["name"] == "default"]
    assert (rule["limit"], rule["by"]) == (2, "anna")
    assert (await ask("queues/limit", {"name": "default", "concurrency": None}))["changed"] is True
    assert (await ask("queues/limit", {"name": "default", "concurrency": None}))["changed"] is False


@in_world
async def test_queues_are_shown_as_they_were_counted(ask: Asks) -> None:
    await ask("queues/limit", {"name": "default", "concurrency": 2})
    await asyncio.sleep(90)
    looked = await ask("queues/look")
    assert looked["counts"] is True
    assert looked["counted_at"]
    found = {one["name"]: one for one in looked["queues"]}
    assert list(found) == ["closed", "default"]
    default, closed = found["default"], found["closed"]
    assert default["depth"]["running"] == 1
    assert (default["places"], default["limit"], default["limited_by"]) == (2, 2, "anna")
    assert (default["nodes"], default["room"]) == (1, 20)
    assert sum(default["sparkline"]) == default["attempts"] > default["failures"] > 0
    assert closed["paused"]["reason"] == "for the tests"
    assert closed["depth"]["due"] == 3
    assert closed["depth"]["oldest"]


@pytest.mark.parametrize("store", [MemoryStore, Modest])
async def test_a_queue_is_shown_before_anything_is_in_it(virtual_time: VirtualTime, store: type[MemoryStore]) -> None:
    app = declare(Mainspring(store(clock=virtual_time.clock), clock=virtual_time.clock)).app
    async with app, client(api(app)) as found:
        await app.find("login").enqueue("anna")
        (closed, default) = (await found.get(f"{BASE}/queues/look")).json()["queues"]
    assert (default["name"], default["nodes"], default["depth"]["due"]) == ("default", 0, 0)
    assert (closed["name"], closed["depth"]["due"]) == ("closed", 1)


@pytest.mark.parametrize("action", ["pause", "resume"])
@in_world
async def test_a_queue_that_nobody_knows_is_a_slip_of_the_hand(world: World, ask: Asks, action: str) -> None:
    error = await ask.fails(404, f"queues/{action}", {"name": "defualt"})
    assert (error["code"], error["message"]) == (
        "unknown_queue",
        "no queue is named 'defualt'; did you mean 'default'?",
    )
    assert "defualt" not in {one.name for one in await world.app.store.queues()}


class Full(MemoryStore):
    """So full that what waits cannot be counted in time."""

    async def queues(self) -> tuple[QueueView, ...]:
        raise StoreUnavailable("it", "it takes too long")


async def test_a_queue_is_stopped_without_counting_what_is_in_it(virtual_time: VirtualTime) -> None:
    app = declare(Mainspring(Full(clock=virtual_time.clock), clock=virtual_time.clock)).app
    async with app, client(api(app)) as found:
        await app.find("add").using(queue="of-a-job").enqueue(1)
        for name in ("default", "closed", "of-a-job"):
            for action in ("pause", "resume"):
                answer = await found.post(f"{BASE}/queues/{action}", json={"name": name})
                assert answer.json()["changed"] is True
        nobody = await found.post(f"{BASE}/queues/pause", json={"name": "nobody's"})
        assert nobody.status_code == 503


# Schedules.


@in_world
async def test_a_schedule_is_shown_with_its_slots_and_runs(ask: Asks) -> None:
    listed = await ask("schedules/list")
    assert [one["name"] for one in listed["schedules"]] == ["by-hand", "nightly", "often"]
    assert (listed["standing"]["nightly"], listed["after"], listed["unreadable"]) == ("on", None, {})
    first = await ask("schedules/list", limit="2")
    assert [one["name"] for one in (await ask("schedules/list", after=first["after"]))["schedules"]] == ["often"]
    shown = await ask("schedules/show", name="nightly")
    assert shown["rule"] == "30 2 * * * Europe/Berlin"
    assert shown["schedule"]["explained"].startswith("At 02:30")
    assert len(shown["next"]) == 10
    assert shown["next"][0]["local"].endswith("02:30:00+01:00")
    assert shown["runs"] == []
    assert (await ask.fails(404, "schedules/show", name="nihgtly"))["code"] == "unknown_schedule"


@in_world
async def test_changes_of_clocks_are_marked(world: World, ask: Asks) -> None:
    """In 2030, clocks go forward at 02:00 on 31 March."""
    rule = Cron("30 2 31 3 *", tz="Europe/Berlin")
    await world.app.schedules.add("yearly", rule, world.app.find("add").call(1))
    shown = await ask("schedules/show", name="yearly")
    moved = [(one["slot"], one["moved_from"]) for one in shown["next"] if one["mark"] == "moved"]
    assert moved == [("2030-03-31T01:00:00Z", ["2030-03-31T02:30:00"])]
    first = shown["next"][0]
    assert first["local"] == "2030-03-31T03:00:00+02:00"
    assert any("02:30 does not exist that day" in one for one in first["says"])
    assert first["clock_changes"] == [
        {"at": "2030-03-31T01:00:00Z", "shown": "2030-03-31T02:00:00", "instead": "2030-03-31T03:00:00"}
    ]


@in_world
async def test_a_schedule_is_run_paused_and_resumed(world: World, ask: Asks) -> None:
    made = await ask("schedules/run", {"name": "by-hand"})
    assert await world.app.job(made["id"]).result("1m") == {"sum": 3}
    (run,) = (await ask("schedules/show", name="by-hand"))["runs"]
    assert (run["job"], run["origin"]) == (made["id"], "manual")
    timeline = (await ask("jobs/show", id=made["id"]))["timeline"]
    assert timeline[0]["text"] == "by the schedule by-hand, by hand"
    said = {"name": "often", "reason": "enough"}
    assert [(await ask("schedules/pause", said))["changed"] for _ in range(2)] == [True, False]
    paused = (await world.app.schedules.get("often")).paused
    assert paused
    assert (paused.by, paused.reason) == ("anna", "enough")
    assert [(await ask("schedules/resume", {"name": "often"}))["changed"] for _ in range(2)] == [True, False]


@pytest.mark.slow
@in_world
async def test_slots_of_the_past_are_made_up_for_in_steps(world: World, ask: Asks) -> None:
    await world.app.schedules.add("minutes", Cron("* * * * *"), world.app.find("add").using(queue="closed").call(1))
    said: dict[str, Any] = {"name": "minutes", "since": "2029-12-30T00:00:00Z", "until": "2029-12-31T00:00:00Z"}
    counted = await ask("schedules/backfill", {**said, "dry_run": True})
    assert (counted["slots"], counted["missing"], counted["made"]) == (1000, 1000, 0)
    first = await ask("schedules/backfill", {**said, "priority": 0})
    assert (first["made"], first["after"][:16]) == (1000, "2029-12-30T16:39")
    second = await ask("schedules/backfill", {**said, "since": first["after"]})
    assert (second["slots"], second["made"], second["after"]) == (441, 441, None)
    again = await ask("schedules/backfill", said)
    assert (again["slots"], again["missing"], again["made"]) == (1000, 0, 0)
    assert (await queue(world, "closed")).waiting > 1441


SPANS = [
    (("2029-12-31T00:00:00Z", "2029-12-30T00:00:00Z"), "start is later than end"),
    (("2029-12-31T00:00:00Z", "2099-12-30T00:00:00Z"), "has not come yet"),
    (("0001-01-01T00:00:00+12:00", "2029-12-30T00:00:00Z"), "no time for a slot"),
    (("2029-12-31T00:00:00Z", "9999-12-31T23:59:59-12:00"), "no time for a slot"),
    (("2029-12-31T00:00:00", "2029-12-31T00:00:00Z"), "since"),
]


@in_world
async def test_a_span_that_makes_no_sense_is_refused(ask: Asks) -> None:
    for (since, until), says in SPANS:
        error = await ask.fails(422, "schedules/backfill", {"name": "nightly", "since": since, "until": until})
        assert says in error["message"]


# Nodes.


@in_world
async def test_a_node_is_shown_with_what_it_is_at(world: World, ask: Asks) -> None:
    await asyncio.sleep(10)  # until it has said something of itself
    listed = await ask("nodes/list")
    assert [one["id"] for one in listed["nodes"]] == [world.node.id]
    assert listed["standing"] == {world.node.id: "alive"}
    assert listed["ended"] == 0
    shown = await ask("nodes/show", id=world.node.id)
    assert [job["task"] for job in shown["jobs"]] == ["nap"]
    assert shown["said"]["report"]["places"] == 20
    assert shown["said"] == listed["said"][world.node.id]
    assert {one["service"]["name"] for one in shown["services"]} >= {"claimer", "keeper"}
    error = await ask.fails(404, "nodes/show", id=f"{world.node.id}x")
    assert (error["code"], world.node.id in error["message"]) == ("unknown_node", True)


@in_world
async def test_a_node_does_as_it_is_told(world: World, ask: Asks) -> None:
    node = {"id": world.node.id}
    given = await ask("nodes/concurrency", {**node, "places": 3})
    assert given["order"] == {"type": "concurrency", "places": 3}
    await ask("nodes/quiet", node)
    await asyncio.sleep(5)
    assert (await ask("nodes/list"))["nodes"][0]["concurrency"] == 3
    orders = (await ask("nodes/show", id=world.node.id))["orders"]
    assert [one["order"]["type"] for one in orders] == ["concurrency", "quiet"]
    assert all(one["done_at"] for one in orders)
    job = await world.app.enqueue("add", 1)
    await asyncio.sleep(60)
    assert await job.state() == "ready"
    await ask("nodes/resume", node)
    assert await job.result("1m") == {"sum": 2}


@in_world
async def test_a_node_says_where_it_stands(world: World, ask: Asks) -> None:
    answered = await ask("nodes/stacks", {"id": world.node.id, "seconds": 10})
    assert "thread " in answered["answer"]
    jobs = [one["job"] for one in answered["parts"]]
    assert jobs[0] == world.jobs[State.RUNNING]
    assert set(jobs[1:]) == {None}
    assert all(one["title"] in answered["answer"] for one in answered["parts"])
    (part,) = (await ask("nodes/stacks", {"id": world.node.id, "seconds": 10, "job": jobs[0]}))["parts"]
    assert "in nap\n" in part["text"]
    ended = {"id": world.node.id, "seconds": 10, "job": world.jobs[State.FAILED]}
    assert len((await ask("nodes/stacks", ended))["parts"]) > 1
    error = await ask.fails(409, "nodes/stacks", {"id": world.node.id, "seconds": 0.01})
    assert (error["code"], "hint" in error) == ("no_answer", True)
    assert (await ask.fails(422, "nodes/stacks", {"id": world.node.id, "seconds": 11}))["code"] == "invalid"


@in_world
async def test_orders_to_a_node_that_has_ended_are_refused(world: World, ask: Asks) -> None:
    async with world.app.node(concurrency=1) as other:
        assert (await ask("nodes/stop", {"id": other.id}))["order"] == {"type": "stop"}
    assert [one["id"] for one in (await ask("nodes/list"))["nodes"]] == [world.node.id]
    assert (await ask("nodes/list"))["ended"] == 1
    assert (await ask("nodes/list", all="true"))["standing"][other.id] == "dead"
    assert (await ask.fails(409, "nodes/quiet", {"id": other.id}))["code"] == "node_gone"


@in_world
async def test_services_come_by_name_and_say_whether_they_are_in_trouble(world: World, ask: Asks) -> None:
    @world.app.service(name="zealous", listeners=(), backoff=Backoff.fixed("1h"))
    async def zealous() -> None:
        raise OSError("no route")

    @world.app.service(name="fine", listeners=())
    async def fine() -> None: ...

    await asyncio.sleep(10)
    services = (await ask("services/list"))["services"]
    assert [one["service"]["name"] for one in services[:2]] == ["fine", "zealous"]
    assert (services[1]["service"]["error"], services[1]["node"]) == ("OSError: no route", world.node.id)
    assert [one["service"]["name"] for one in services if one["is_in_trouble"]] == ["zealous"]
    own = [one["service"]["name"] for one in services if one["service"]["is_own"]]
    assert own == [one["service"]["name"] for one in services[2:]] == sorted(own)
    assert (await ask("nodes/show", id=world.node.id))["services"] == services
    assert (await ask("nodes/list"))["said"][world.node.id]["troubled"] == ["zealous"]


@in_world
async def test_what_a_node_runs_is_shown_to_those_who_may_look_at_jobs(world: World, ask: Asks) -> None:
    for permissions, shown in [({"nodes.look"}, []), ({"nodes.look", "jobs.look"}, ["nap"])]:
        who = Identity("otto", frozenset(map(Permission, permissions)))
        found = await ask("nodes/show", None, who, id=world.node.id)
        assert [one["task"] for one in found["jobs"]] == shown
        assert found["node"]["running"] == 1


# Outboxes.


@in_world
async def test_dead_letters_are_listed_replayed_and_discarded(ask: Asks) -> None:
    listed = await ask("outboxes/list")
    assert {one["name"]: one["letters"] for one in listed["outboxes"]} == {"orders": 3, "sent": 0}
    assert {(one["outbox"], one["partition"]) for one in listed["lags"]} == {("orders", 0), ("orders", 1), ("sent", 0)}
    letters = (await ask("outboxes/letters", outbox="orders"))["letters"]
    assert {one["error"].split()[0] for one in letters} == {"Fail:"} or all(
        "nobody wants" in one["error"] for one in letters
    )
    hidden = "\N{BULLET}" * 3
    assert {one["payload"]["value"]["card_number"] for one in letters} == {hidden}
    page = await ask("outboxes/letters", limit="2")
    rest = await ask("outboxes/letters", limit="2", after=page["after"])
    assert [one["id"] for one in (*page["letters"], *rest["letters"])] == [one["id"] for one in letters]
    assert await ask("outboxes/discard", {"ids": [letters[0]["id"], 999]}) == {"changed": 1}
    assert len((await ask("outboxes/letters", state="discarded"))["letters"]) == 1
    assert await ask("outboxes/replay", {"outbox": "orders", "limit": 1}) == {"changed": 1}
    assert await ask("outboxes/replay", {"outbox": "orders", "key": "nobody"}) == {"changed": 0}


UNCLEAR: list[tuple[dict[str, Any], int, str]] = [
    ({}, 422, "invalid"),
    ({"key": "1"}, 422, "invalid"),
    ({"partition": 0, "ids": [1]}, 422, "invalid"),
    ({"outbox": "ordres"}, 404, "unknown_outbox"),
    ({"outbox": "orders", "partition": 2}, 422, "refused"),
    ({"ids": [0]}, 422, "invalid"),
    ({"ids": [2**63]}, 422, "invalid"),
]


@in_world
async def test_which_dead_letters_are_meant_must_be_said(ask: Asks) -> None:
    for said, status, code in UNCLEAR:
        for action in ("replay", "discard"):
            assert (await ask.fails(status, f"outboxes/{action}", said))["code"] == code


@in_world
async def test_a_page_that_is_none_is_refused(ask: Asks) -> None:
    for query in ({"after": "nonsense"}, {"after": "x y"}, {"state": "dead"}, {"state": ","}):
        assert (await ask.fails(422, "outboxes/letters", **query))["code"] == "invalid"


# Breakers.


@in_world
async def test_a_breaker_is_opened_closed_and_reset(world: World, ask: Asks) -> None:
    (listed,) = (await ask("breakers/list"))["breakers"]
    assert (listed["task"], listed["circuit"]["phase"]) == ("fail", "closed")
    said = {"task": "fail", "reason": "they are down"}
    opened = await ask("breakers/open", said)
    assert (opened["changed"], opened["change"]["by"], opened["change"]["reason"]) == (True, "anna", "they are down")
    assert (await ask("breakers/open", said))["changed"] is False
    (view,) = await world.app.store.breakers([Name("", "fail")])
    assert view.circuit.forced
    await ask("breakers/close", said)
    await ask("breakers/reset", said)
    story = await ask("breakers/show", task="fail")
    assert [one["target"] for one in story["changes"]][:3] == ["closed", "closed", "open"]
    for action in ("open", "close", "reset"):
        error = await ask.fails(404, f"breakers/{action}", {"task": "fial"})
        assert (error["code"], "did you mean 'fail'" in error["message"]) == ("unknown_breaker", True)


# Plugins.


@in_world
async def test_plugins_are_listed(ask: Asks) -> None:
    found = (await ask("plugins/list"))["plugins"]
    assert ("mainspring", "built-in") in {(one["name"], one["state"]) for one in found}
