"""Jobs over HTTP: each action does to the store what it says."""

from functools import partial
from html import unescape
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.core.backoff import Backoff
from mainspring.core.job import FINISHED, JobId, State
from mainspring.core.names import Name
from mainspring.ids import new_id
from mainspring.stores.overview import Overview
from mainspring.stores.records import NewJob
from mainspring.testing import VirtualTime
from mainspring.web import Identity, api, dashboard
from tests.web.conftest import BASE, client, error_of
from tests.web.world import ADMIN, Asks, Modest, World, declare, filled, in_world, until

NOBODY = "0190f000-0000-7000-8000-000000000001"


def ids(found: Any) -> list[str]:  # noqa: ANN401 - JSON
    return [one["id"] for one in found["jobs"]]


async def is_over(world: World, job: str) -> bool:
    return await world.app.job(job).state() in FINISHED


def needs_overview(world: World) -> None:
    if not isinstance(world.app.store, Overview):
        pytest.skip("its store does not play the role Overview")


# Looking.


@in_world
async def test_jobs_are_listed_in_pages_and_by_what_they_are(world: World, ask: Asks) -> None:
    everything = await ask("jobs/list", limit="200")
    assert everything["after"] is None
    assert set(world.jobs.values()) < set(ids(everything))
    seen: list[str] = []
    page = await ask("jobs/list", limit="3")
    while page["after"]:
        seen += ids(page)
        page = await ask("jobs/list", limit="3", after=page["after"])
    assert seen + ids(page) == ids(everything)
    for state, job in world.jobs.items():
        assert job in ids(await ask("jobs/list", state=state, limit="200"))
    both = await ask("jobs/list", state="failed, cancelled", limit="200")
    assert {one["state"] for one in both["jobs"]} == {"failed", "cancelled"}
    assert ids(await ask("jobs/list", tag="late")) == [world.jobs[State.SCHEDULED]]
    assert ids(await ask("jobs/list", task="fail")) == [world.jobs[State.FAILED]]
    assert ids(await ask("jobs/list", cause="exhausted")) == [world.jobs[State.FAILED]]
    assert {one["queue"] for one in (await ask("jobs/list", queue="closed"))["jobs"]} == {"closed"}
    (child,) = (await ask("jobs/list", parent=world.family))["jobs"]
    assert child["facts"]["parent"] == world.family


@in_world
async def test_jobs_are_searched_for_by_what_is_in_them(world: World, ask: Asks) -> None:
    needs_overview(world)
    assert ids(await ask("jobs/list", error="<B>NO")) == [world.jobs[State.FAILED]]
    assert ids(await ask("jobs/list", argument="a=7")) == [world.jobs[State.READY]]
    assert world.jobs[State.RUNNING] in ids(await ask("jobs/list", node=world.node.id))
    assert ids(await ask("jobs/list", since="1h", task="fail")) == [world.jobs[State.FAILED]]
    assert ids(await ask("jobs/list", until="1h")) == []
    found = await ask("jobs/list", argument="a=123")
    assert (found["jobs"], found["in_time"], found["after"]) == ([], True, None)
    assert found["looked"] > 5


@in_world
async def test_a_search_for_a_name_that_nobody_knows_says_so_and_what_was_meant(world: World, ask: Asks) -> None:
    @world.app.task(name="shop.mails.send_mail", queue="letters")
    async def send_mail() -> None: ...

    async def hint(**which: str) -> object:
        return (await ask("jobs/list", **which))["hint"]

    meant = "no task is named 'send_mail'; did you mean 'shop.mails.send_mail'?"
    assert await hint(task="send_mail") == meant
    assert await hint(task="send_mail", state="failed") == meant
    assert await hint(task="parnet") == "no task is named 'parnet'; did you mean 'parent'?"
    assert await hint(task="zzz") == "no task is named 'zzz'"
    assert await hint(queue="lettres") == "no queue is named 'lettres'; did you mean 'letters'?"
    for known in ({"task": "shop.mails.send_mail"}, {"queue": "letters"}, {"tag": "nobody's"}, {"task": "add"}):
        assert await hint(**known) is None
    async with client(dashboard(world.app, auth=lambda _: ADMIN)) as found:
        assert meant.capitalize() in unescape((await found.get("/jobs?task=send_mail")).text)


@in_world
async def test_a_task_that_only_a_node_or_a_job_knows_is_known(world: World) -> None:
    job = JobId(new_id(world.app.store.now()))
    kept = NewJob(id=job, task=Name("", "of-old"), payload=b"{}", backoff=Backoff.fixed("1s"), max_attempts=1)
    await world.app.store.enqueue([kept])
    elsewhere = Mainspring(world.app.store, clock=world.app.clock)
    hints = {"quiet": None, "of-old": None, "qiuet": "no task is named 'qiuet'; did you mean 'quiet'?"}
    async with client(api(elsewhere, auth=lambda _: ADMIN)) as found:
        for task, hint in hints.items():
            asked = await found.get(f"{BASE}/jobs/list", params={"task": task, "state": "cancelled"})
            assert asked.json()["hint"] == hint, task


async def test_a_store_without_the_role_says_so(virtual_time: VirtualTime) -> None:
    store = Modest(clock=virtual_time.clock)
    async with filled(declare(Mainspring(store, clock=virtual_time.clock))) as world:
        ask = Asks(world)
        for action, query in [("jobs/list", {"error": "x"}), ("jobs/list", {"argument": "a"}), ("audit/list", {})]:
            error = await ask.fails(409, action, **query)
            assert (error["code"], "hint" in error) == ("no_overview", True)
        assert (await ask.fails(409, "queues/limit", {"name": "default", "concurrency": 1}))["code"] == "no_overview"
        assert ids(await ask("jobs/list", task="fail", state="failed")) == [world.jobs[State.FAILED]]
        assert [one["task"] for one in (await ask("jobs/show", id=world.family))["children"]] == ["add"]
        assert [one["task"] for one in (await ask("nodes/show", id=world.node.id))["jobs"]] == ["nap"]
        assert (await ask("queues/list"))["rules"] == []
        done = await ask("jobs/bulk", {"action": "retry", "which": {"state": "failed"}})
        assert done["changed"] == 1


@in_world
async def test_a_job_that_is_too_deep_to_be_read_hides_no_other(world: World, ask: Asks) -> None:
    deep = NewJob(
        id=JobId(new_id(world.app.store.now())),
        task=Name("", "add"),
        payload=b'{"args":{"a":' + b"[" * 5000 + b"]" * 5000 + b"}}",
        backoff=Backoff.fixed("1s"),
        max_attempts=1,
        queue="closed",
    )
    await world.app.store.enqueue([deep])
    assert str(deep.id) in ids(await ask("jobs/list", queue="closed"))
    assert (await ask("jobs/show", id=str(deep.id)))["job"]["payload"] == "\N{BULLET}" * 3


SENSELESS = [
    ({"state": "done"}, "done: there are scheduled, ready"),
    ({"since": "yesterday"}, "write 2026-01-31T09:00:00Z"),
    ({"since": "2026-01-31T09:00:00"}, "with a zone"),
    ({"since": "0001-01-01T00:00:00+14:00"}, "write 2026-01-31T09:00:00Z"),
    ({"since": "9999-12-31T23:59:59-23:59"}, "write 2026-01-31T09:00:00Z"),
    ({"until": "9999-12-31T23:59:59-00:01"}, "write 2026-01-31T09:00:00Z"),
    ({"argument": "a..b"}, "write order.id=7"),
    ({"argument": "=7"}, "write order.id=7"),
    ({"task": "a b"}, "spaces"),
    ({"limit": "201"}, "limit"),
    ({"limit": "0"}, "limit"),
    ({"queue": "a\0b"}, "queue"),
    ({"cause": "fate"}, "cause"),
    ({"parent": "x"}, "parent"),
]


@in_world
async def test_a_search_that_makes_no_sense_says_what_would(ask: Asks) -> None:
    for query, says in SENSELESS:
        assert says in (await ask.fails(422, "jobs/list", **query))["message"]


@in_world
async def test_a_job_is_shown_with_all_that_is_kept(world: World, ask: Asks) -> None:
    shown = await ask("jobs/show", id=world.jobs[State.RUNNING])
    assert shown["job"]["state"] == "running"
    assert shown["job"]["saved"] == {"dream": "sheep", "password": "\N{BULLET}" * 3}
    assert [line["message"] for line in shown["lines"]] == ["good night"]
    assert [one["word"] for one in shown["timeline"]] == ["enqueued", "started", "running"]
    assert shown["timeline"][-1]["text"] == "50 % asleep"
    assert shown["timeline"][-1]["node"] == world.node.id
    failed = await ask("jobs/show", id=world.jobs[State.FAILED])
    assert [one["word"] for one in failed["timeline"]] == ["enqueued", "started", "failed", "finished"]
    assert "ValueError: <b>no</b>" in failed["timeline"][2]["text"]
    assert failed["timeline"][3]["text"] == "failed, exhausted"
    (attempt,) = failed["attempts"]
    assert "raise ValueError" in attempt["error"]["traceback"]
    family = await ask("jobs/show", id=world.family)
    (child,) = family["children"]
    assert (child["task"], family["message"]) == ("add", None)
    assert f"by job {world.family}" in (await ask("jobs/show", id=child["id"]))["timeline"][0]["text"]


@in_world
async def test_a_job_tells_of_the_message_it_was_made_of(world: World, ask: Asks) -> None:
    shown = await ask("jobs/show", id=world.sent)
    assert shown["message"] == {"outbox": "sent", "partition": 0, "seq": 1}
    assert shown["timeline"][0]["text"] == "from the message sent/0/1"


@pytest.mark.parametrize(
    ("state", "may"),
    [
        (State.SCHEDULED, ["jobs.cancel", "jobs.run_now", "jobs.delete", "jobs.enqueue"]),
        (State.READY, ["jobs.cancel", "jobs.delete", "jobs.enqueue"]),
        (State.RUNNING, ["jobs.cancel", "jobs.enqueue"]),
        (State.RETRYING, ["jobs.cancel", "jobs.run_now", "jobs.delete", "jobs.enqueue"]),
        (State.SUCCEEDED, ["jobs.delete", "jobs.enqueue"]),
        (State.FAILED, ["jobs.retry", "jobs.delete", "jobs.enqueue"]),
        (State.CANCELLED, ["jobs.retry", "jobs.delete", "jobs.enqueue"]),
    ],
)
@in_world
async def test_what_makes_sense_can_be_done_and_nothing_else(
    world: World, ask: Asks, state: State, may: list[str]
) -> None:
    job = world.jobs[state]
    await world.app.store.pause("default")  # else the node would be quicker than we are
    assert (await ask("jobs/show", id=job))["may"] == may
    viewer = Identity.of("otto", "viewer")
    assert (await ask("jobs/show", None, viewer, id=job))["may"] == []
    for action in ("retry", "run_now", "cancel", "delete"):
        permission = f"jobs.{action}"
        allowed = (await ask("jobs/show", id=job))["may"]
        response = await ask.response(f"jobs/{action}", {"id": job})
        if permission in allowed:
            assert response.status_code == 200, response.text
            assert response.json()["changed"]
            if state is State.RUNNING and action == "cancel":
                await until(partial(is_over, world, job))  # what was asked to stop does, whenever that is
            if action == "delete":
                assert (await ask.fails(404, "jobs/show", id=job))["code"] == "unknown_job"
        elif response.status_code == 200:
            assert action == "cancel" or not response.json()["changed"]
        else:
            assert error_of(response, 409)["code"] == "wrong_state"


# Changing.


@in_world
async def test_a_failed_job_is_run_again(world: World, ask: Asks) -> None:
    job = world.jobs[State.CANCELLED]
    await world.app.store.pause("default")  # else the node may have it by the time we are told
    assert await ask("jobs/retry", {"id": job}) == {"id": job, "changed": True, "state": "ready"}
    await world.app.store.resume("default")
    await world.app.job(job).result("1m")
    assert await ask.state(job) is State.SUCCEEDED


@in_world
async def test_a_waiting_job_is_run_now_and_keeps_its_place_if_it_is_due(world: World, ask: Asks) -> None:
    later, due = world.jobs[State.SCHEDULED], world.jobs[State.READY]
    before = (await world.app.job(due).refresh()).job.run_at
    assert (await ask("jobs/run_now", {"id": due}))["changed"] is False
    assert (await world.app.job(due).refresh()).job.run_at == before
    assert (await ask("jobs/run_now", {"id": later}))["changed"] is True
    await world.app.job(later).result("1m")


@in_world
async def test_a_running_job_is_asked_to_stop(world: World, ask: Asks) -> None:
    job = world.jobs[State.RUNNING]
    assert (await ask("jobs/cancel", {"id": job}))["state"] in {"running", "cancelled"}
    with pytest.raises(Exception, match="was cancelled"):
        await world.app.job(job).result("1m")
    words = [one["word"] for one in (await ask("jobs/show", id=job))["timeline"]]
    assert words[-3:] == ["cancel_requested", "cancelled", "finished"] or "cancel_requested" in words


@in_world
async def test_a_clone_is_like_the_old_one_and_its_child(world: World, ask: Asks) -> None:
    old = world.jobs[State.SCHEDULED]
    made = await ask("jobs/clone", {"id": old})
    assert (made["task"], made["fresh"]) == ("add", True)
    first, second = [await world.app.job(one).refresh() for one in (old, made["id"])]
    assert second.payload == first.payload
    assert (second.facts.tags, str(second.facts.parent)) == (("late",), old)
    assert (second.job.queue, second.job.priority) == (first.job.queue, first.job.priority)
    await world.app.job(made["id"]).result("1m")


@in_world
async def test_a_clone_of_a_unique_job_that_waits_is_that_job(world: World, ask: Asks) -> None:
    made = await ask("jobs/clone", {"id": world.hidden})
    assert (made["id"], made["fresh"]) == (world.hidden, False)


@in_world
async def test_a_job_whose_task_is_not_known_here_can_be_cloned(world: World) -> None:
    other = Mainspring(world.app.store, clock=world.app.clock)
    async with client(api(other, auth=lambda _: ADMIN)) as found:
        response = await found.post(f"{BASE}/jobs/clone", json={"id": world.jobs[State.SUCCEEDED]})
        assert response.json()["fresh"] is True
        said = {"task": "add", "args": {"a": 1}}
        assert error_of(await found.post(f"{BASE}/jobs/enqueue", json=said), 404)["code"] == "unknown_task"


@in_world
async def test_a_job_is_enqueued_with_arguments_that_fit(world: World, ask: Asks) -> None:
    said = {"task": "add", "args": {"a": 5}, "tags": ["x"], "priority": 9, "delay": "10s", "queue": "slow"}
    made = await ask("jobs/enqueue", said)
    view = await world.app.job(made["id"]).refresh()
    assert (view.job.priority, view.job.queue, view.facts.tags) == (9, "slow", ("x",))
    assert await world.app.job(made["id"]).result("1m") == {"sum": 6}
    for wrong in ({"a": "five"}, {"a": 1, "c": 2}, {}):
        error = await ask.fails(422, "jobs/enqueue", {"task": "add", "args": wrong})
        assert error["code"] == "bad_arguments"
    assert "did you mean 'add'" in (await ask.fails(404, "jobs/enqueue", {"task": "ad"}))["message"]


@in_world
async def test_a_job_that_is_not_there_is_told_as_such(ask: Asks) -> None:
    for action in ("retry", "cancel", "run_now", "delete", "clone"):
        assert (await ask.fails(404, f"jobs/{action}", {"id": NOBODY}))["code"] == "unknown_job"


# Many at once.


@in_world
async def test_many_are_changed_in_steps_until_there_is_nothing_more(world: World, ask: Asks) -> None:
    jobs = [await world.app.find("add").using(delay="1h", tags=["many"]).enqueue(number) for number in range(25)]
    said: dict[str, Any] = {"action": "cancel", "which": {"tag": "many"}, "limit": 10}
    counted = await ask("jobs/bulk", {**said, "dry_run": True})
    assert (counted["found"], counted["changed"], counted["refused"]) == (10, 0, 0)
    assert {await job.state() for job in jobs} == {State.SCHEDULED}
    steps = [await ask("jobs/bulk", said)]
    while steps[-1]["after"]:
        steps.append(await ask("jobs/bulk", {**said, "after": steps[-1]["after"]}))
    assert sum(step["changed"] for step in steps) == 25
    assert max(step["found"] for step in steps) == 10
    assert {await job.state() for job in jobs} == {State.CANCELLED}
    again = await ask("jobs/bulk", {**said, "limit": 500})
    assert (again["changed"], again["refused"], len(again["problems"])) == (0, 25, 5)


@in_world
async def test_many_are_changed_by_their_ids(world: World, ask: Asks) -> None:
    chosen = [world.jobs[State.FAILED], world.jobs[State.CANCELLED], world.jobs[State.SUCCEEDED], NOBODY]
    counted = await ask("jobs/bulk", {"action": "retry", "ids": chosen, "dry_run": True})
    assert (counted["found"], counted["refused"]) == (3, 2)
    done = await ask("jobs/bulk", {"action": "retry", "ids": [*chosen, chosen[0]]})
    assert (done["found"], done["changed"], done["refused"], done["after"]) == (3, 2, 2, None)
    assert {one["id"] for one in done["problems"]} == set(chosen[2:])


@pytest.mark.parametrize("action", ["retry", "cancel", "run_now", "delete"])
@in_world
async def test_what_is_done_to_many_is_what_is_done_to_one(world: World, ask: Asks, action: str) -> None:
    """The same jobs, and the same refusals, as one by one."""
    done = await ask("jobs/bulk", {"action": action, "ids": list(world.jobs.values())})
    changes = {
        "retry": {State.FAILED, State.CANCELLED},
        "cancel": {State.SCHEDULED, State.READY, State.RETRYING, State.RUNNING},
        "run_now": {State.SCHEDULED, State.RETRYING},
        "delete": set(State) - {State.RUNNING},
    }[action]
    assert (done["changed"], done["refused"]) == (len(changes), len(State) - len(changes))
    for state, job in world.jobs.items():
        (view,) = await world.app.store.get([JobId(world.app.job(job).id)])
        assert (view is None) == (action == "delete" and state in changes)


@in_world
async def test_which_jobs_are_meant_must_be_said(ask: Asks) -> None:
    unclear: list[dict[str, Any]] = [{}, {"ids": [NOBODY], "which": {}}, {"ids": []}, {"which": {"limit": 5}}]
    for said in unclear:
        assert (await ask.fails(422, "jobs/bulk", {"action": "delete", **said}))["code"] == "invalid"
