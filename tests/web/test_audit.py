"""Every change that somebody asks for is a line in the store and in the log, done or not."""

import asyncio
import logging
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.core.job import State
from mainspring.errors import StoreUnavailable
from mainspring.stores.memory import MemoryStore
from mainspring.stores.overview import EntryFilter, NewEntry, Overview
from mainspring.testing import VirtualTime
from mainspring.web import Identity, api
from mainspring.web.groups import ALL
from mainspring.web.routes import AnyRoute
from mainspring.web.shares import REFUSALS
from tests.web.conftest import BASE, Photos, client, photo_app
from tests.web.world import Asks, Modest, World, in_world

OTTO = Identity.of("otto", "viewer")
ANNA = Identity.of("anna", "admin")


def known(who: Identity, _: object) -> Identity:
    return who


async def entries(app: Mainspring) -> list[NewEntry]:
    store = app.store
    assert isinstance(store, Overview)
    return [one.entry for one in (await store.audit(EntryFilter(), limit=1000)).entries][::-1]


async def test_a_dry_run_that_hands_a_query_to_the_program_leaves_a_line(app: Mainspring, photos: Photos) -> None:
    said = {"driving_query": "INSERT … RETURNING id", "mutation": "SELECT 1", "dry_run": True}
    async with app, client(api(app, auth=partial(known, ANNA))) as found:
        assert (await found.post(f"{BASE}/control/iterate", json=said)).json()["rows"] == 25
        assert photos.said == [("INSERT … RETURNING id", {})]
        (line,) = await entries(app)
        assert (line.who, line.action, line.count, line.outcome) == ("anna", "control.iterate", 25, "dry_run")


async def test_a_change_that_failed_leaves_a_line_however_many_were_refused_before(
    app: Mainspring, photos: Photos
) -> None:
    async with app, client(api(app, auth=partial(known, ANNA))) as found:
        for _ in range(REFUSALS + 5):
            assert (await found.post(f"{BASE}/queues/pause", json={"nmae": "mail"})).status_code == 422
        failed = await found.post(f"{BASE}/control/submit", json={"statement": "FAIL"})
        assert (failed.status_code, failed.json()["error"]["code"]) == (422, "host_failed")
        assert photos.said == [("FAIL", {})]  # what it has changed before it failed, nobody knows
        *_, line = await entries(app)
        assert (line.action, line.outcome) == ("control.submit", "host_failed")


@in_world
async def test_who_did_what_to_how_many_is_kept(world: World, ask: Asks) -> None:
    if not isinstance(world.app.store, Overview):
        pytest.skip("its store does not play the role Overview")
    job = world.jobs[State.FAILED]
    await ask("jobs/list")
    await ask("jobs/retry", {"id": job})
    await ask.response("jobs/delete", {"id": job}, OTTO)
    await ask.response("jobs/retry", {"id": "x"})
    await ask("jobs/bulk", {"action": "cancel", "which": {"state": "scheduled", "argument": "a=1"}})
    await ask("jobs/bulk", {"action": "cancel", "ids": list(world.jobs.values()), "dry_run": True})
    await ask.response("jobs/bulk", {"action": "delete", "which": {}, "dry_run": True}, OTTO)
    await ask("jobs/bulk", {"action": "retry", "ids": [job]})
    await ask("jobs/bulk", {"action": "retry", "ids": list(world.jobs.values())})
    await ask("jobs/bulk", {"action": "retry", "which": {}})
    await ask("queues/pause", {"name": "default", "reason": "because"})
    await ask("jobs/enqueue", {"task": "add", "args": {"a": 1}})
    await ask("outboxes/replay", {"outbox": "orders"})
    await ask("breakers/open", {"task": "fail"})
    told = [(one.who, one.action, one.about, one.count, one.outcome) for one in await entries(world.app)]
    assert told == [
        ("anna", "jobs.retry", job, 1, "done"),
        ("otto", "jobs.delete", job, None, "not_allowed"),
        ("anna", "jobs.retry", "", None, "invalid"),
        ("anna", "jobs.cancel", "those with state=scheduled argument=a", told[3][3], "done"),
        ("otto", "jobs.delete", "all of them", None, "not_allowed"),
        ("anna", "jobs.retry", job, told[5][3], "done"),
        ("anna", "jobs.retry", f"{', '.join(list(world.jobs.values())[:5])} and 2 more", told[6][3], "done"),
        ("anna", "jobs.retry", "all of them", told[7][3], "done"),
        ("anna", "queues.pause", "default", 1, "done"),
        ("anna", "jobs.enqueue", "add", None, "done"),
        ("anna", "outboxes.replay", "orders", 3, "done"),
        ("anna", "breakers.open", "fail", 1, "done"),
    ]
    assert told[3][3]
    listed = await ask("audit/list", who="otto")
    assert [(one["who"], one["action"], one["outcome"]) for one in listed["entries"]] == [
        ("otto", "jobs.delete", "not_allowed"),
        ("otto", "jobs.delete", "not_allowed"),
    ]
    retried, *_ = [one for one in (await ask("jobs/show", id=job))["timeline"] if one["word"] == "retried"]
    assert retried["text"] == "by anna"
    viewer = await ask("jobs/show", None, OTTO, id=job)
    assert "retried" not in {one["word"] for one in viewer["timeline"]}
    page = await ask("audit/list", limit="2")
    assert [one["action"] for one in page["entries"]] == ["breakers.open", "outboxes.replay"]
    more = await ask("audit/list", limit="200", after=str(page["after"]))
    assert len(more["entries"]) == 10


@in_world
async def test_a_line_names_the_job_that_was_made(world: World, ask: Asks) -> None:
    if not isinstance(world.app.store, Overview):
        pytest.skip("its store does not play the role Overview")
    job = world.jobs[State.FAILED]
    made = [
        (await ask("jobs/clone", {"id": job}))["id"],
        (await ask("jobs/enqueue", {"task": "add", "args": {"a": 1}}))["id"],
        (await ask("schedules/run", {"name": "nightly"}))["id"],
    ]
    listed = (await ask("audit/list"))["entries"][::-1]
    assert [(one["about"], one["detail"]) for one in listed] == [
        (about, {"job": id_}) for about, id_ in zip((job, "add", "nightly"), made, strict=True)
    ]


@in_world
async def test_letters_are_named_by_their_ids(world: World, ask: Asks) -> None:
    if not isinstance(world.app.store, Overview):
        pytest.skip("its store does not play the role Overview")
    ids = [one["id"] for one in (await ask("outboxes/letters"))["letters"]]
    await ask("outboxes/replay", {"ids": ids[:1]})
    await ask("outboxes/discard", {"outbox": "orders", "ids": ids[1:]})
    told = [one.about for one in await entries(world.app)]
    assert told == [f"letter {ids[0]}", f"orders, letters {', '.join(map(str, ids[1:]))}"]


@pytest.mark.parametrize("route", [route for route in ALL if route.changes], ids=lambda route: route.name)
async def test_every_change_becomes_one_line_whatever_came_of_it(
    app: Mainspring,
    route: AnyRoute,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "mainspring.audit")
    foreign = {"origin": "http://evil.example"}
    asks: list[tuple[Identity, dict[str, Any], dict[str, str], str]] = [
        (OTTO, {"json": {}}, {}, "not_allowed"),
        (ANNA, {"json": []}, {}, "invalid"),
        (ANNA, {"content": b"{}"}, {}, "not_json"),
        (ANNA, {"json": {}}, foreign, "foreign_origin"),
    ]
    async with app:
        for who, sent, headers, _ in asks:
            async with client(api(app, auth=partial(known, who))) as found:
                await found.post(f"{BASE}{route.path}", headers=headers, **sent)
        kept = [(one.who, one.action, one.outcome) for one in await entries(app)]
    expected = [(who.name, route.name, code) for who, _, _, code in asks]
    if route.name == "jobs.bulk":
        expected[0] = ("otto", "jobs.bulk", "invalid")  # who looks may ask, and has said nothing
    assert kept == expected
    lines = [one.getMessage() for one in caplog.records if one.name == "mainspring.audit"]
    assert [line.split()[:2] for line in lines] == [[who, name] for who, name, _ in kept]


async def test_strangers_are_in_the_log_and_do_not_fill_the_store(
    app: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mainspring.audit")
    async with app, client(api(app, auth=lambda _: None)) as found:
        await found.post(f"{BASE}/control/flush")
        assert await entries(app) == []
    assert [one.getMessage() for one in caplog.records if one.name == "mainspring.audit"] == [
        "unknown control.flush : 401"
    ]


async def test_nobody_passes_for_somebody_at_a_shell(app: Mainspring) -> None:
    async with app, client(api(app, auth=partial(known, Identity.of("cli:root@host", "admin")))) as found:
        await found.post(f"{BASE}/control/flush")
        assert [one.who for one in await entries(app)] == ["http:cli:root@host"]


async def test_of_rows_that_a_program_wrote_a_line_says_how_many(app: Mainspring, photos: Photos) -> None:
    async with app, client(api(app)) as found:
        await found.post(f"{BASE}/control/iterate", json={"driving_query": "GET", "mutation": "SET", "batch_size": 10})
        (line,) = await entries(app)
    assert (line.action, line.about, line.count, line.outcome) == ("control.iterate", "", 15, "done")
    assert len(photos.written) == 15  # all but those of the batch with the thirteen


async def test_a_line_that_cannot_be_kept_undoes_nothing(
    virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(clock=virtual_time.clock)
    app = photo_app(Mainspring(store, clock=virtual_time.clock), Photos())

    async def away(_: object, **__: object) -> None:
        raise StoreUnavailable("memory", "it is away")

    monkeypatch.setattr(store, "write_audit", away)
    async with app, client(api(app)) as found:
        response = await found.post(f"{BASE}/control/add", json={"qname": "photos:sweep", "kind": "manual"})
        assert response.status_code == 200
        assert await app.control.list()
    (error,) = [one for one in caplog.records if one.name == "mainspring.audit" and one.levelname == "ERROR"]
    assert error.getMessage() == "not in the audit log: local control.add photos:sweep: done; memory: it is away"


@pytest.mark.parametrize("amid", ["the change", "the line"])
async def test_a_server_that_ends_amid_a_change_leaves_its_line(
    app: Mainspring, monkeypatch: pytest.MonkeyPatch, amid: str
) -> None:
    async with app:
        store = app.store
        assert isinstance(store, MemoryStore)
        reached = asyncio.Event()
        verb = store.pause if amid == "the change" else store.write_audit

        async def slow(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - the verb's own
            reached.set()
            await asyncio.sleep(1)
            return await verb(*args, **options)

        monkeypatch.setattr(store, verb.__name__, slow)
        await app.enqueue("photos:sweep")
        queue = (await store.queues())[0].name
        async with client(api(app, auth=partial(known, ANNA))) as found:
            asking = asyncio.create_task(found.post(f"{BASE}/queues/pause", json={"name": queue}))
            await reached.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        kept = [(one.who, one.action, one.about, one.outcome) for one in await entries(app)]
    assert kept == [("anna", "queues.pause", queue, "cut_off" if amid == "the change" else "done")]


async def test_a_line_is_of_when_it_was_asked_for(app: Mainspring, monkeypatch: pytest.MonkeyPatch) -> None:
    async with app:
        store = app.store
        assert isinstance(store, MemoryStore)
        pause = store.pause

        async def slow(*args: Any, **options: Any) -> bool:  # noqa: ANN401 - the verb's own
            await asyncio.sleep(1)
            return await pause(*args, **options)

        monkeypatch.setattr(store, "pause", slow)
        await app.enqueue("photos:sweep")
        queue, asked = (await store.queues())[0].name, store.now()
        async with client(api(app)) as found:
            await found.post(f"{BASE}/queues/pause", json={"name": queue})
        (line,) = (await store.audit(EntryFilter())).entries
        assert store.now() - asked >= timedelta(seconds=1)
        assert line.at == asked


async def test_a_store_without_the_role_has_it_in_the_log_only(
    virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mainspring.audit")
    app = Mainspring(Modest(clock=virtual_time.clock), clock=virtual_time.clock)
    async with app, client(api(app)) as found:
        assert (await found.post(f"{BASE}/control/flush")).status_code == 200
    assert [one.levelname for one in caplog.records if one.name == "mainspring.audit"] == ["INFO"]


async def test_what_a_line_is_about_is_short_and_on_one_line(app: Mainspring) -> None:
    async with app, client(api(app)) as found:
        await found.post(f"{BASE}/queues/pause", json={"name": "x\ny"})
        await found.post(f"{BASE}/jobs/bulk", json={"action": "cancel", "which": {"error": "y" * 999}})
        first, second = await entries(app)
    assert first.about == r"'x\ny'"
    assert len(second.about) == 500
