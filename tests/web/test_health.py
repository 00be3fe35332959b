"""Whether a program answers, and whether it can work: for those who keep it running."""

import asyncio
from typing import Any

import httpx
import pytest

from mainspring import Mainspring
from mainspring.client.readiness import FRESH, PATIENCE, STALE
from mainspring.errors import StoreUnavailable
from mainspring.stores.memory import MemoryStore
from mainspring.stores.records import NodeRecord, SchemaVersion
from mainspring.testing import VirtualTime
from mainspring.web import Password, api
from tests.web.conftest import LOCAL, client

FAR = "203.0.113.7"


class Shaky(MemoryStore):
    """A store that can be made to fail, to hang, or to be of another version."""

    trouble: Exception | None = None
    hangs = False
    found = 3
    looks = 0

    async def list_breakers(self, **options: Any) -> Any:  # noqa: ANN401 - the store's own
        self.looks += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.trouble:
            raise self.trouble
        return await super().list_breakers(**options)

    async def schema(self) -> SchemaVersion:
        return SchemaVersion(found=self.found, wanted=3)


@pytest.fixture
def store(virtual_time: VirtualTime) -> Shaky:
    return Shaky(clock=virtual_time.clock)


@pytest.fixture
def app(virtual_time: VirtualTime, store: Shaky) -> Mainspring:
    return Mainspring(store, clock=virtual_time.clock)


async def asked(
    app: Mainspring, path: str = "readyz", *, host: str = LOCAL, headers: dict[str, str] | None = None
) -> httpx.Response:
    async with client(api(app, auth=Password("correct horse")), host=host) as found:
        return await found.get(f"/{path}", headers=headers)


async def test_a_process_that_answers_is_alive_whatever_its_store_does(app: Mainspring, store: Shaky) -> None:
    store.hangs = True
    response = await asked(app, "healthz", host=FAR)
    assert (response.status_code, response.json()) == (200, {"status": "ok", "checks": []})


async def test_it_is_ready_when_its_store_answers(app: Mainspring) -> None:
    response = await asked(app, host=FAR)
    assert (response.status_code, response.json()["checks"]) == (200, [{"name": "store", "ok": True}])
    assert response.headers["cache-control"] == "no-store"


async def test_a_store_that_hangs_is_waited_for_for_two_seconds(
    app: Mainspring, store: Shaky, virtual_time: VirtualTime
) -> None:
    store.hangs = True
    before = virtual_time.clock.monotonic()
    response = await asked(app)
    assert virtual_time.clock.monotonic() - before == PATIENCE == 2
    assert response.status_code == 503
    assert response.json()["checks"] == [{"name": "store", "ok": False, "problem": "it has not answered for 2 s"}]


@pytest.mark.parametrize("headers", [{}, {"x-forwarded-for": FAR}, {"host": "evil.example"}])
async def test_only_this_machine_is_told_what_is_wrong(app: Mainspring, store: Shaky, headers: dict[str, str]) -> None:
    store.trouble = StoreUnavailable("postgresql://anna@db", "no route to host")
    near = await asked(app)
    assert "no route to host" in near.json()["checks"][0]["problem"]
    far = await asked(app, host=LOCAL if headers else FAR, headers=headers)
    assert far.status_code == 503
    assert far.json() == {"status": "failing", "checks": [{"name": "store", "ok": False}]}


async def test_whatever_a_store_raises_is_a_no(app: Mainspring, store: Shaky) -> None:
    store.trouble = ZeroDivisionError("x")
    assert (await asked(app)).json()["checks"][0]["problem"] == "ZeroDivisionError: x"


async def test_tables_of_an_older_version_are_a_no_and_those_of_a_newer_one_are_the_stores_affair(
    app: Mainspring, store: Shaky
) -> None:
    store.found = 2
    assert "version 2" in (await asked(app)).json()["checks"][0]["problem"]
    store.found = 4
    await asyncio.sleep(FRESH)
    assert (await asked(app)).status_code == 200


async def test_it_recovers_by_itself(app: Mainspring, store: Shaky) -> None:
    store.trouble = StoreUnavailable("memory", "gone")
    assert (await asked(app)).status_code == 503
    store.trouble = None
    await asyncio.sleep(FRESH)
    assert (await asked(app)).status_code == 200


async def test_however_many_ask_the_store_is_asked_once_a_second(app: Mainspring, store: Shaky) -> None:
    for _ in range(20):
        await asked(app, host=FAR)
        await asyncio.sleep(0.1)
    assert store.looks <= 3


async def test_while_one_waits_for_a_store_that_hangs_the_others_have_the_last_answer(
    app: Mainspring, store: Shaky
) -> None:
    assert (await asked(app)).status_code == 200
    await asyncio.sleep(FRESH)
    store.hangs = True
    first = asyncio.ensure_future(asked(app))
    await asyncio.sleep(0.1)
    assert (await asked(app)).status_code == 200
    assert (await first).status_code == 503
    assert FRESH < PATIENCE < STALE


async def test_a_program_that_runs_a_node_is_ready_while_the_node_is(app: Mainspring) -> None:
    async with app, app.node() as node:
        response = await asked(app)
        assert response.json()["checks"] == [{"name": "store", "ok": True}, {"name": "node", "ok": True}]
        node.end()
        await asyncio.sleep(FRESH)
        response = await asked(app)
        assert response.status_code == 503
        assert response.json()["checks"][1] == {"name": "node", "ok": False, "problem": "it is stopping"}
    await asyncio.sleep(FRESH)
    assert [check["name"] for check in (await asked(app)).json()["checks"]] == ["store"]


class Closed(Shaky):
    """A store that lets nobody join again."""

    is_closed = False

    async def join(self, node: NodeRecord) -> int:
        if self.is_closed:
            raise StoreUnavailable("memory", "not now")
        return await super().join(node)


async def test_a_node_that_was_declared_dead_is_not_ready_until_it_is_back(virtual_time: VirtualTime) -> None:
    store = Closed(clock=virtual_time.clock)
    app = Mainspring(store, clock=virtual_time.clock)
    async with app, app.node(lease="15s") as node:
        store.is_closed = True
        (view,) = await store.nodes()
        assert await store.declare_dead(node.id, view.term)
        await asyncio.sleep(15)
        assert "declared dead" in (await asked(app)).json()["checks"][1]["problem"]
        store.is_closed = False
        await asyncio.sleep(15)
        assert (await asked(app)).status_code == 200


async def test_a_quiet_node_is_alive(app: Mainspring) -> None:
    async with app, app.node() as node:
        node.quiet()
        assert (await asked(app)).status_code == 200


async def test_only_looking_is_offered(app: Mainspring) -> None:
    async with client(api(app), host=LOCAL) as found:
        assert (await found.post("/readyz")).status_code == 405
        assert (await found.head("/healthz")).status_code == 200
