"""Flaw Q25: queue statistics were those of the newest 200 jobs, there was always one server, and any page could read it."""

from mainspring.stores.records import JobFilter
from mainspring.web import Identity, api
from mainspring.web.groups import ALL
from tests.web.conftest import BASE, client
from tests.web.world import Asks, World, in_world


@in_world
async def test_q25_queues_are_counted_whole_and_not_by_the_newest_jobs(world: World, ask: Asks) -> None:
    before = {one["name"]: one["waiting"] for one in (await ask("queues/list"))["queues"]}
    add = world.app.find("add")
    old = [add.using(queue="closed").call(number) for number in range(450)]
    await world.app.enqueue_many(old)
    await world.app.enqueue_many([add.using(delay="1h", queue="newer").call(number) for number in range(300)])
    newest = (await world.app.store.list_jobs(JobFilter(), limit=200)).jobs
    assert {view.job.queue for view in newest} == {"newer"}
    found = {one["name"]: one["waiting"] for one in (await ask("queues/list"))["queues"]}
    assert (found["closed"], found["newer"]) == (before["closed"] + 450, 300)


@in_world
async def test_q25_nodes_are_those_that_there_are(world: World, ask: Asks) -> None:
    assert len((await ask("nodes/list"))["nodes"]) == 1
    async with world.app.node(concurrency=3) as second, world.app.node(concurrency=5) as third:
        listed = (await ask("nodes/list"))["nodes"]
        assert [one["id"] for one in listed] == [world.node.id, second.id, third.id]
        assert [one["concurrency"] for one in listed][1:] == [3, 5]
        assert [one["running"] for one in listed] == [1, 0, 0]
    assert len((await ask("nodes/list"))["nodes"]) == 1


@in_world
async def test_q25_no_page_of_another_site_can_read_an_answer(world: World) -> None:
    headers = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    async with client(api(world.app, auth=lambda _: Identity.of("anna", "admin"))) as found:
        for route in ALL:
            for method in ("GET", "POST", "OPTIONS"):
                response = await found.request(method, f"{BASE}{route.path}", headers=headers)
                assert not [name for name in response.headers if name.startswith("access-control")]
