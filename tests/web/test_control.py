"""The control object over HTTP: each action does what the method of the same name does."""

import asyncio
import logging
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from mainspring import Mainspring, Snooze
from mainspring.client.plain import plain
from mainspring.stores.memory import MemoryStore
from mainspring.testing import FaultyStore, VirtualTime
from mainspring.web import Identity, api
from mainspring.web.prefix import inner
from tests.web.conftest import BASE, Ask, Photos, client, error_of

SWEEP = {"qname": "photos:sweep", "kind": "periodic", "arg": 60}


def body(response: httpx.Response) -> Any:  # noqa: ANN401 - JSON
    assert response.status_code == 200, response.text
    return response.json()


# Schedules.


async def test_a_schedule_is_added_listed_and_cancelled(app: Mainspring, ask: Ask) -> None:
    added = body(await ask("control/add", SWEEP))
    (row,) = await app.control.list()
    assert added == plain(row)
    assert body(await ask("control/list")) == {"schedules": [added], "after": None}
    gone = body(await ask("control/cancel", {"qname": "photos.sweep"}))
    assert gone == {"name": "photos.sweep", "changed": True, "problem": None}
    assert await app.control.list() == ()


async def test_lists_come_in_pages(ask: Ask) -> None:
    for name in ("a", "b", "c"):
        await ask("control/add", {"qname": name, "kind": "manual", "task": "photos:sweep"})
    first = body(await ask("control/list?limit=2"))
    assert ([row["qname"] for row in first["schedules"]], first["after"]) == (["a", "b"], "b")
    second = body(await ask("control/list?limit=2&after=b"))
    assert ([row["qname"] for row in second["schedules"]], second["after"]) == (["c"], None)


async def test_arguments_are_checked_as_the_task_declares_them(app: Mainspring, ask: Ask) -> None:
    wrong = error_of(await ask("control/add", {**SWEEP, "args": {"width": "wide"}}), 422)
    assert (wrong["code"], "width" in wrong["message"]) == ("bad_arguments", True)
    body(await ask("control/add", {**SWEEP, "args": {"width": 200}}))
    assert b'"width":200' in (await app.schedules.get("photos:sweep")).plan.template.payload


async def test_a_job_is_made_now(app: Mainspring, ask: Ask) -> None:
    made = body(await ask("control/run", {"qname": "photos:sweep", "args": {"width": 7}}))
    assert (made["task"], made["fresh"]) == ("photos:sweep", True)
    view = await app.job(made["id"]).refresh()
    assert b'"width":7' in view.payload


async def test_who_may_not_enqueue_runs_what_is_scheduled_and_nothing_else(ask: Ask, app: Mainspring) -> None:
    """Arguments of one's own, or a task that no schedule has, would be a job that nobody has foreseen."""
    operator, runs = Identity.of("otto", "operator"), {"qname": "photos:sweep"}
    refused = await ask("control/run", {**runs, "args": {"width": 7}}, auth=lambda _: operator)
    assert error_of(refused, 403)["message"] == "otto may not do jobs.enqueue"
    assert error_of(await ask("control/run", runs, auth=lambda _: operator), 404)["code"] == "unknown_schedule"
    assert not (await app.jobs()).jobs
    await ask("control/add", {**runs, "kind": "manual", "args": {"width": 3}})
    assert (await ask("control/run", runs, auth=lambda _: operator)).status_code == 200
    assert (await ask("control/run", {"qname": "photos.sweep"}, auth=lambda _: operator)).status_code == 200
    assert [one.payload for one in (await app.jobs()).jobs] == [b'{"v":1,"args":{"width":3}}'] * 2


@pytest.mark.parametrize(
    ("action", "said", "status", "code"),
    [
        ("control/cancel", {"qname": "photos:swep"}, 404, "unknown_schedule"),
        ("control/run", {"qname": "photos:swep"}, 404, "unknown_task"),
        ("control/add", {**SWEEP, "task": "photos:swep"}, 404, "unknown_task"),
        ("control/add", {**SWEEP, "kind": "daily"}, 422, "invalid"),
        ("control/add", {**SWEEP, "kind": "cron"}, 422, "refused"),
        ("control/add", {**SWEEP, "qname": "a:b:c"}, 422, "refused"),
        ("control/submit", {"statement": "FAIL"}, 422, "host_failed"),
    ],
)
async def test_what_cannot_be_done_is_told_by_a_code(
    ask: Ask, action: str, said: dict[str, object], status: int, code: str
) -> None:
    assert error_of(await ask(action, said), status)["code"] == code


async def test_the_nearest_name_and_the_number_of_an_error_are_told(ask: Ask) -> None:
    body(await ask("control/add", SWEEP))
    message = error_of(await ask("control/cancel", {"qname": "photos:swep"}), 404)["message"]
    assert message.endswith("did you mean 'photos:sweep'?")
    assert error_of(await ask("control/add", {**SWEEP, "arg": "soon"}), 422)["number"] == 0xB31


# Statements.


async def test_a_statement_is_carried_out_by_the_program(ask: Ask, photos: Photos) -> None:
    said = {"statement": "SET", "params": {"rows": [1, 2]}}
    assert body(await ask("control/submit", said)) == {"result": {"changed": 2, "by": None}}
    assert photos.written == [1, 2]
    odd = body(await ask("control/submit", {"statement": "ODD"}))
    assert "<class 'object'>" in odd["result"]


async def test_rows_are_written_in_batches_and_counted(ask: Ask, photos: Photos) -> None:
    said = {"driving_query": "READ", "mutation": "WRITE", "batch_size": 10, "retries": 1}
    counted = body(await ask("control/iterate", {**said, "dry_run": True}))
    assert (counted["rows"], counted["batches"], photos.written) == (25, 3, [])
    done = body(await ask("control/iterate", said))
    assert (done["rows"], done["batches"], done["failed"], done["retried"], done["stopped"]) == (15, 3, 1, 1, False)
    assert "thirteen" in done["errors"][0]
    assert photos.written == [*range(10), *range(20, 25)]


async def test_a_long_piece_of_work_ends_after_its_time(app: Mainspring, ask: Ask, photos: Photos) -> None:
    async def slowly(statement: str, params: Any) -> None:  # noqa: ANN401 - a program's own
        await asyncio.sleep(20)
        await photos.write(statement, params)

    app.host.offer(execute_write=slowly)
    done = body(await ask("control/iterate", {"driving_query": "READ", "mutation": "WRITE", "batch_size": 1}))
    assert (done["rows"], done["stopped"]) == (2, True)


async def test_a_program_without_a_host_says_so(app: Mainspring, ask: Ask) -> None:
    app.host.withdraw()
    found = error_of(await ask("control/submit", {"statement": "x"}), 409)
    assert (found["code"], found["number"]) == ("no_host", 0xD21)


async def test_a_program_may_put_it_off(app: Mainspring, ask: Ask) -> None:
    async def later(_: str, __: object) -> None:
        raise Snooze("1m")

    app.host.offer(execute_write=later)
    assert error_of(await ask("control/submit", {"statement": "x"}), 409)["code"] == "not_now"


# The checkpoint, and the store.


async def test_a_flush_needs_no_body(ask: Ask) -> None:
    assert body(await ask("control/flush", content=b"")) == {"flushed": True}
    assert body(await ask("control/flush", {})) == {"flushed": True}


async def test_a_store_that_is_away_is_told_as_such(virtual_time: VirtualTime) -> None:
    faulty = FaultyStore(MemoryStore(clock=virtual_time.clock))
    app = Mainspring(faulty.as_store, clock=virtual_time.clock)
    await app.control.flush()
    faulty.drop("flush")
    async with client(api(app)) as found:
        assert error_of(await found.post(f"{BASE}/control/flush"), 503)["code"] == "flush_failed"


async def test_what_nobody_has_thought_of_is_in_the_log_and_not_in_the_answer(
    app: Mainspring, ask: Ask, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(**_: object) -> None:
        raise RuntimeError("the secret of the house")

    monkeypatch.setattr(app.control, "list", broken)
    response = await ask("control/list")
    error = error_of(response, 500)
    assert error["code"] == "internal"
    assert "secret" not in response.text
    (line,) = [one for one in caplog.records if one.name == "mainspring.web"]
    assert line.getMessage().split()[-1] in error["hint"]
    assert line.exc_info
    assert "secret" in str(line.exc_info[1])


async def test_text_that_has_no_place_in_json_is_told_all_the_same(
    app: Mainspring, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no file \udcff")

    caplog.set_level(logging.INFO, "mainspring.audit")
    app.host.offer(execute_write=fail)
    assert r"no file \udcff" in error_of(await ask("control/submit", {"statement": "x"}), 422)["message"]
    app.host.offer(execute_write=lambda *_: {"\udcff": ["\udcff"]})
    assert (await ask("control/submit", {"statement": "x"})).json() == {"result": {r"\udcff": [r"\udcff"]}}
    response = await ask("control/flush", {}, auth=lambda _: Identity.of("anna\udcff", "viewer"))
    assert error_of(response, 403)["message"] == r"anna\udcff may not do control.flush"
    assert [one.getMessage() for one in caplog.records if one.name == "mainspring.audit"] == [
        "local control.submit : 422",
        "local control.submit : 200",
        r"anna\udcff control.flush : 403",
    ]


async def test_every_change_is_in_the_log_with_who_and_what(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mainspring.audit")
    await ask("control/list")
    await ask("control/add", {**SWEEP, "args": {"name": "secret"}}, auth=lambda _: Identity.of("anna", "admin"))
    await ask("control/run", {"qname": "photos:sweep"}, auth=lambda _: Identity.of("otto", "viewer"))
    await ask("control/run", {"qname": "photos:sweep"}, auth=lambda _: None)
    await ask("control/cancel", {"qname": "x\nanna control.add y: 200"})
    assert [one.getMessage() for one in caplog.records if one.name == "mainspring.audit"] == [
        "anna control.add photos:sweep: 200",
        "otto control.run photos:sweep: 403",
        "unknown control.run : 401",
        r"local control.cancel 'x\nanna control.add y: 200': 422",
    ]


# Where it is mounted.


@pytest.mark.parametrize(
    ("root_path", "path"),
    [
        ("", "/inside/tools/api/v1/control/list"),
        ("/outside", "/outside/inside/tools/api/v1/control/list"),
        ("/outside", "/inside/tools/api/v1/control/list"),
        ("/outside/", "/inside/tools/api/v1/control/list"),
        ("/api/v1", "/inside/tools/api/v1/control/list"),
    ],
)
async def test_it_works_mounted_and_behind_a_proxy_that_takes_a_prefix_away(
    app: Mainspring, root_path: str, path: str
) -> None:
    whole = Starlette(routes=[Mount("/inside/tools", app=api(app))])
    async with client(whole, root_path=root_path) as found:
        assert body(await found.get(path)) == {"schedules": [], "after": None}
        assert body(await found.get(path.replace("control/list", "openapi.json")))["servers"] == [{"url": "."}]


@pytest.mark.parametrize("root_path", ["", "/outside", "/api", "/api/v1"])
async def test_it_works_alone_behind_a_prefix(app: Mainspring, root_path: str) -> None:
    async with client(api(app), root_path=root_path) as found:
        assert body(await found.get(f"{BASE}/control/list"))["schedules"] == []
        assert body(await found.get(f"{root_path}{BASE}/control/list"))["schedules"] == []
        for path in ("/elsewhere", f"{BASE}/control/list/"):
            assert error_of(await found.get(path), 404)["code"] == "not_found"


def test_only_whole_parts_of_a_prefix_are_taken_away() -> None:
    assert inner("/inside/api/v1/x", "/side", {"api"}) == "/inside/api/v1/x"
    assert inner("/side/api/v1/x", "/in/side", {"api"}) == "/api/v1/x"


async def test_it_opens_the_store_while_it_is_served_and_closes_it_after(app: Mainspring) -> None:
    sent: list[str] = []
    asgi = api(app)

    async def receive() -> dict[str, str]:
        if sent:
            await app.store.queues()  # raises where it is not open
            return {"type": "lifespan.shutdown"}
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:  # noqa: ANN401 - ASGI's own
        sent.append(message["type"])

    await asgi({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
