"""The pages of queues, nodes and services, as a server would ask them."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from html import unescape

import httpx
import pytest

from mainspring import Limit, Mainspring, Retry
from mainspring.core.job import NodeId
from mainspring.runtime.report import Report, ServiceReport, ServiceState, written
from mainspring.stores.memory import MemoryStore
from mainspring.stores.overview import Overview
from mainspring.stores.records import NodeRecord, Process
from mainspring.supervise import Backoff
from mainspring.testing import VirtualTime
from mainspring.web import Auth, Identity, dashboard
from tests.web.conftest import BASE, client
from tests.web.world import Modest

VIEWER, OPERATOR = (Identity.of("anna", role) for role in ("viewer", "operator"))
ELSEWHERE = Process(host="another-machine boot namespace", pid=77, started="then")


@pytest.fixture
def app(virtual_time: VirtualTime) -> Mainspring:
    app = Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)

    @app.task(name="film.encode", queue="media")
    async def encode(seconds: float = 600) -> None:
        await asyncio.sleep(seconds)

    @app.task(name="mail.send", queue="mail")
    async def send() -> None: ...

    app.queue("media", limit=Limit(concurrency=3))
    return app


@asynccontextmanager
async def browse(app: Mainspring, who: Identity = OPERATOR) -> AsyncIterator[httpx.AsyncClient]:
    async with app, client(dashboard(app, auth=lambda _: who)) as found:
        yield found


async def posted(found: httpx.AsyncClient, action: str, **form: str) -> httpx.Response:
    return await found.post(f"/do/{action}", data=form, headers={"hx-request": "true"})


async def text_of(found: httpx.AsyncClient, path: str) -> str:
    """What a person reads there."""
    response = await found.get(f"/{path}")
    assert response.status_code == 200
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", response.text)))


def as_one(who: Identity) -> Auth:
    return lambda _: who


def actions(html: str) -> set[str]:
    return set(re.findall(r'hx-post="do/([\w.]+)"', html))


async def test_a_queue_says_how_full_it_is(app: Mainspring) -> None:
    async with browse(app) as found, app.node(concurrency=8):
        for _ in range(4):
            await app.enqueue("film.encode")
        await app.enqueue("mail.send")
        await asyncio.sleep(90)
        text = await text_of(found, "queues")
        html = (await found.get("/queues")).text
    assert "3 of 3 limited in code" in text
    assert "places on 1 node" in text
    assert re.search(r"what waits and runs was counted \d+ s ago", text)
    assert 'href="jobs?queue=media"' in html
    assert "1 attempts ended in the last hour, 1 a minute at most" in html


async def test_a_queue_that_no_node_takes_from_says_so(app: Mainspring) -> None:
    async with browse(app) as found:
        text = await text_of(found, "queues")
    assert "no node takes from it" in text


async def test_of_very_many_queues_some_are_shown_and_all_can_be_found(app: Mainspring) -> None:
    for number in range(130):
        await app.find("mail.send").using(queue=f"of-{number:03}").enqueue()

    def shown(html: str) -> list[str]:
        return re.findall(r'id="queue-(of-\d+)"', html)

    async with browse(app) as found:
        page = (await found.get("/queues")).text
        assert 90 < len(shown(page)) <= 100
        assert len(shown((await found.get("/queues?all=true")).text)) == 130
        for part in ("", "&part=queues"):
            assert shown((await found.get(f"/queues?name=OF-12{part}")).text) == [f"of-12{one}" for one in range(10)]
        assert "No queue fits." in (await found.get("/queues?name=none-such")).text


async def test_where_nobody_counts_what_waits_is_exact(virtual_time: VirtualTime) -> None:
    app = Mainspring(Modest(clock=virtual_time.clock), clock=virtual_time.clock)

    @app.task(name="mail.send", queue="mail")
    async def send() -> None: ...

    async with browse(app) as found:
        await send.enqueue()
        html = (await found.get("/queues")).text
        assert "The store keeps no counts" in html
        assert actions(html) >= {"queues.pause"}
        assert 'data-opens="limit"' not in html
        await posted(found, "queues.pause", name="mail")
        assert actions((await found.get("/queues")).text) >= {"queues.resume"}


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("services", "The store keeps no reports of nodes"),
        ("audit", "has no audit log"),
        ("jobs?error=x", "has no search by error"),
    ],
)
async def test_what_a_store_does_not_keep_is_said_on_the_page(virtual_time: VirtualTime, path: str, says: str) -> None:
    app = Mainspring(Modest(clock=virtual_time.clock), clock=virtual_time.clock)
    async with browse(app) as found:
        response = await found.get(f"/{path}")
        assert response.status_code == 200
        assert says in response.text
        if path == "services":
            assert (await found.get(f"/{path}?part=services")).status_code == 200


async def test_without_a_queue_it_is_said_how_one_comes_to_be(virtual_time: VirtualTime) -> None:
    app = Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)
    async with browse(app) as found:
        assert "There are no queues yet. " in await text_of(found, "queues")
        assert "No node is at work. " in await text_of(found, "nodes")
        assert "No node has told of its services. " in await text_of(found, "services")
        async with app.node():
            await asyncio.sleep(5)
            assert "The app has no services of its own. " in await text_of(found, "services")


async def test_a_queue_that_is_paused_says_who_did_it_and_why(app: Mainspring) -> None:
    async with browse(app) as found:
        assert (await posted(found, "queues.pause", name="mail", reason="they are down")).status_code == 200
        await asyncio.sleep(60)
        assert "mail paused by anna 1 min ago : they are down" in await text_of(found, "queues")
        assert (await posted(found, "queues.resume", name="mail")).status_code == 200
        assert "paused" not in await text_of(found, "queues?part=queues")


async def test_failed_jobs_without_a_warning_are_not_called_fine(app: Mainspring) -> None:
    @app.task(name="broken", retry=Retry.none())
    async def broken() -> None:
        raise ValueError("no")

    async with browse(app) as found, app.node():
        await broken.enqueue()
        await asyncio.sleep(90)
        page = await text_of(found, "")
        assert "Failed 1 in an hour" in page
        assert "No warnings." in page


async def test_a_declared_rate_is_shown_beside_a_limit(app: Mainspring) -> None:
    app.queue("payments", limit=Limit(rate="5/s"))
    async with browse(app) as found, app.node():
        await asyncio.sleep(90)
        assert "5/s start, by code" in await text_of(found, "queues")
        page = unescape((await found.get("/queues")).text)
        assert '"declared": "5/s start", "name": "payments", "now": "what is in code"' in page
        rules = (await found.get(f"{BASE}/queues/list")).json()["rules"]
        assert [one["rate"] for one in rules if one["name"] == "payments"] == [{"count": 5, "period": 1.0, "burst": 5}]
        looked = (await found.get(f"{BASE}/queues/look")).json()["queues"]
        assert [(one["declared"], one["rate"]) for one in looked if one["name"] == "payments"] == [(None, "5/s")]
        assert (await posted(found, "queues.limit", name="payments", concurrency="3")).status_code == 200
        assert "limited by anna; code: 5/s start" in await text_of(found, "queues")
        assert "3 at a time, by anna, and 5/s start, by code" in unescape((await found.get("/queues")).text)


async def test_a_limit_is_set_and_taken_back(app: Mainspring) -> None:
    async with browse(app) as found, app.node():
        await asyncio.sleep(90)
        assert (await posted(found, "queues.limit", name="media", concurrency="2")).status_code == 200
        assert "0 of 2 limited by anna; code: 3 at a time" in await text_of(found, "queues")
        assert "Take back" in await text_of(found, "queues")
        assert (await posted(found, "queues.limit", name="media", concurrency="")).status_code == 200
        assert "0 of 3 limited in code" in await text_of(found, "queues")
        for wrong in ("0", "-1", "many", "1000001"):
            assert (await posted(found, "queues.limit", name="media", concurrency=wrong)).status_code == 422
        assert (await posted(found, "queues.limit", name="media")).status_code == 422  # a slip of the hand, and no null
        assert isinstance(app.store, Overview)
        assert {one.limit for one in await app.store.queue_rules()} == {None}


async def test_nodes_say_how_they_are(app: Mainspring) -> None:
    async with browse(app) as found, app.node(concurrency=8, queues=["media"]) as node:
        await app.enqueue("film.encode")
        far = NodeRecord(id=NodeId("far"), process=ELSEWHERE, tasks=frozenset(), concurrency=2, version="9.9")
        await app.store.join(far)
        await asyncio.sleep(14)
        text = await text_of(found, "nodes")
        assert " ms in step media Quiet " in text
        assert "its clock is in step " in await text_of(found, f"node?id={node.id}")
        assert re.search(rf"{node.id} \S+, pid \d+, \S+ alive (now|1 s ago) 1 of 8 [\d.]+ MB", text)
        assert "far another-machine, pid 77, 9.9 alive 14 s ago 0 of 2" in text
        await asyncio.sleep(30)
        text = await text_of(found, "nodes")
        assert "far" not in text
        assert "1 node that has ended" in text
        ended = await text_of(found, "nodes?all=true")
        assert "Ended hide" in ended
        assert "far another-machine, pid 77" in ended


async def test_orders_are_given_and_their_answers_shown(app: Mainspring) -> None:
    async with browse(app) as found, app.node(concurrency=8) as node:
        job = await app.enqueue("film.encode")
        await asyncio.sleep(1)
        assert (await posted(found, "nodes.quiet", id=node.id)).status_code == 200
        assert (await posted(found, "nodes.concurrency", id=node.id, places="5")).status_code == 200
        await asyncio.sleep(15)
        page = f"node?id={node.id}"
        text = await text_of(found, page)
        assert "alive quiet" in text
        assert "concurrency 5 15 s ago done" in text
        assert "quiet 15 s ago done" in text
        assert "1 of 5" in text
        assert "nodes.resume" in actions((await found.get(f"/{page}")).text)
        assert "film.encode media 1 " in text
        assert f"job?id={job.id}" in (await found.get(f"/{page}")).text


async def test_the_stack_of_a_job_is_shown_where_it_was_asked_for(app: Mainspring) -> None:
    async with browse(app) as found, app.node() as node:
        job = await app.enqueue("film.encode")
        await asyncio.sleep(1)
        assert "nodes.stacks" in actions((await found.get(f"/job?id={job.id}")).text)
        response = await posted(found, "nodes.stacks", id=node.id, job=str(job.id))
        assert response.status_code == 200
        assert "hx-retarget" not in response.headers
        assert "<html" not in response.text
        assert "in encode\n" in unescape(response.text)
        assert f'href="job?id={job.id}"' in response.text
        whole = await found.post("/do/nodes.stacks", data={"id": node.id})
        assert "<html" in whole.text
        assert f'href="../job?id={job.id}"' in whole.text
        late = await posted(found, "nodes.stacks", id=node.id, seconds="0.001")
        assert late.status_code == 409
        assert late.headers["hx-retarget"] == "#toasts"


async def test_where_a_node_stood_is_told_to_those_who_may_ask_for_it(app: Mainspring) -> None:
    async with app.node() as node:
        async with client(dashboard(app, auth=as_one(OPERATOR))) as found:
            for _ in range(2):
                await posted(found, "nodes.stacks", id=node.id)
            page = (await found.get(f"/node?id={node.id}")).text
            assert page.count("thread MainThread") == 2  # to be read and to be copied, of the last answer alone
            orders = (await found.get("/api/v1/nodes/show", params={"id": node.id})).json()["orders"]
            assert ["thread MainThread" in one["answer"] for one in orders] == [True, True]
        async with client(dashboard(app, auth=as_one(VIEWER))) as found:
            assert "MainThread" not in (await found.get(f"/node?id={node.id}")).text
            orders = (await found.get("/api/v1/nodes/show", params={"id": node.id})).json()["orders"]
            assert [one["answer"] for one in orders] == [None, None]


async def test_services_in_trouble_say_what_is_wrong(app: Mainspring) -> None:
    @app.service(name="poll", backoff=Backoff.fixed(1000), listeners=())
    async def poll() -> None:
        raise OSError("no route to host")

    @app.service(name="export", singleton=True, listeners=())
    async def export() -> None: ...

    async with browse(app) as found, app.node() as node, app.node() as other:
        await asyncio.sleep(20)
        text = await text_of(found, "services")
        of_node = await text_of(found, f"node?id={node.id}")
        nodes = await text_of(found, "nodes")
    for one in (node, other):
        assert re.search(
            rf"poll {one.id} failing tries again in 1[56] min \u2013 1 1 in a row OSError: no route to host", text
        )
    assert {"singleton, held here", "singleton "} <= set(re.findall(r"singleton(?:, held here| )", text))
    assert "standby" in text
    assert "Mainspring's own (" in text
    assert f"2 in trouble: poll on {min(node.id, other.id)}, poll on {max(node.id, other.id)} " in text
    assert "OSError: no route to host" in of_node
    assert nodes.count("1 service in trouble") == 2


async def test_a_service_that_flaps_keeps_its_place(app: Mainspring) -> None:
    is_down = False

    @app.service(name="poll&co", every=1, backoff=Backoff.fixed(1000), listeners=())
    async def poll() -> None:
        if is_down:
            raise OSError("no route to host")

    @app.service(name="export", every=1, listeners=())
    async def export() -> None: ...

    async with browse(app) as found, app.node() as node:
        await asyncio.sleep(40)
        pages = [(await found.get("/services")).text]
        is_down = True
        await asyncio.sleep(40)
        pages.append((await found.get("/services")).text)
    well, troubled = (re.findall(r'<tr id="([^"]*)"', html) for html in pages)
    assert well == troubled
    assert well[:2] == [f"service-export-{node.id}", f"service-poll&amp;co-{node.id}"]
    assert "None is in trouble." in pages[0]
    assert f'1 in trouble:</b> <a href="#service-poll%26co-{node.id}">poll&amp;co</a> on {node.id}' in pages[1]


async def test_a_service_of_our_own_in_trouble_is_in_sight_when_the_page_is_opened(app: Mainspring) -> None:
    service = ServiceReport(name="claimer", is_own=True, state=ServiceState.FAILING, failures=2, error="OSError: no")
    async with browse(app) as found:
        far = NodeRecord(id=NodeId("far"), process=ELSEWHERE, tasks=frozenset(), concurrency=2)
        term = await app.store.join(far)
        assert isinstance(app.store, Overview)
        await app.store.report(far.id, term, written(Report(services=(service,))))
        for path, block in {"services?": "services", "node?id=far&": "details"}.items():
            whole, part = [(await found.get(f"/{path}{query}")).text for query in ("", f"part={block}")]
            assert '<details id="own" open>' in whole
            assert '<details id="own">' in part  # what opens by itself moves what somebody reads
            assert "1 in trouble" in part


PRESSED = {
    "queues": {"queues.pause", "queues.limit"},
    "nodes": {"nodes.quiet", "nodes.stop", "nodes.concurrency"},
    "node?id=": {"nodes.quiet", "nodes.stop", "nodes.concurrency", "nodes.stacks"},
    "services": set(),
}


@pytest.mark.parametrize("path", PRESSED)
async def test_buttons_are_shown_to_those_who_may_press_them(app: Mainspring, path: str) -> None:
    async with app.node() as node:
        await asyncio.sleep(5)
        here = f"{path}{node.id}" if path.endswith("=") else path
        for who, buttons in ((VIEWER, set()), (OPERATOR, PRESSED[path])):
            async with client(dashboard(app, auth=as_one(who))) as found:
                html = (await found.get(f"/{here}")).text
                assert actions(html) == buttons
                assert ("data-opens" in html) is bool(buttons)
                if who is VIEWER:
                    for action in PRESSED[path]:
                        assert (await posted(found, action, id=node.id, name="mail", places="1")).status_code == 403


async def test_a_body_that_does_not_stop_is_shown_where_it_runs_and_at_its_job(
    app: Mainspring, virtual_time: VirtualTime
) -> None:
    @app.task(name="stubborn")
    async def stubborn() -> None:
        ends = virtual_time.elapsed + 60
        while virtual_time.elapsed < ends:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(ends - virtual_time.elapsed)

    async with app.node(stop_grace="3s") as node, browse(app) as found:
        job = await stubborn.enqueue()
        await asyncio.sleep(1)
        await job.cancel()
        await asyncio.sleep(10)
        of_job = (await found.get(f"/api/v1/jobs/show?id={job.id}")).json()
        of_node = (await found.get(f"/api/v1/nodes/show?id={node.id}")).json()
        assert (of_job["job"]["state"], of_job["still_on"]) == ("cancelled", [node.id])
        assert [(one["id"], one["is_abandoned"]) for one in of_node["said"]["report"]["running"]] == [
            (str(job.id), True)
        ]
        assert f"Its code still runs on {node.id} : it did not stop" in await text_of(found, f"job?id={job.id}")
        assert f"stubborn {job.id} did not stop when told to." in await text_of(found, f"node?id={node.id}")
        assert "data-ended" not in (await found.get(f"/job?id={job.id}")).text
        await asyncio.sleep(60)
        assert "still runs" not in await text_of(found, f"job?id={job.id}")
        assert "did not stop" not in await text_of(found, f"node?id={node.id}")
        assert "data-ended" in (await found.get(f"/job?id={job.id}")).text


async def test_the_audit_page_leads_to_the_job_that_was_made(app: Mainspring) -> None:
    async with browse(app, Identity.of("anna", "admin")) as found:
        made = (await found.post("/api/v1/jobs/enqueue", json={"task": "mail.send"})).json()["id"]
        assert f'<a href="job?id={made}">{made}</a>' in (await found.get("/audit")).text
