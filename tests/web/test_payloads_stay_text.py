"""Whatever a program, a job or an address says, a page shows it as text."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from mainspring import Breaker, Context, Cron, Fail, Mainspring, Plugin, Retry
from mainspring.outbox.message import Message
from mainspring.stores.memory import MemoryStore
from mainspring.stores.overview import Overview
from mainspring.testing import VirtualTime
from mainspring.web import Identity, dashboard
from mainspring.web.pages import ALL
from tests.web.conftest import client

EVIL = """<script>alert(1)</script>'"><img src=x onerror=alert(2)>{{31337*2}}</textarea></title>\u2028&lt;b&gt;"""
NAME = """<script>alert(1)</script>'"><img/src=x/onerror=alert(2)>{{31337*2}}"""
"""The same for names, which have no spaces."""
SAID_BY_PEOPLE = {"schedules", "schedule", "letters", "breakers", "plugins", "audit"}
"""Pages that certainly have something of it to show."""
ALLOWED = {"script": {"src", "defer"}}


class Tags(HTMLParser):
    """Notes every tag and attribute that a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def check(text: str) -> None:
    assert "<script>" not in text
    assert "<img" not in text
    assert "62674" not in text  # a template within a template
    tags = Tags()
    tags.feed(text)
    for tag, attributes in tags.found:
        assert tag != "img"
        assert not [name for name in attributes if name.startswith("on") or name in {"style", "srcdoc"}], (
            tag,
            attributes,
        )
        assert not any((value or "").lower().startswith(("javascript:", "data:")) for value in attributes.values())
        if tag == "script":
            assert set(attributes) <= ALLOWED["script"]
            assert re.match(r"([.][.]/)*static/", attributes["src"] or "")


@asynccontextmanager
async def browser(virtual_time: VirtualTime) -> AsyncIterator[httpx.AsyncClient]:
    app = Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock, owner="<img>owner")

    class Evil(Exception):
        pass

    Evil.__name__ = Evil.__qualname__ = NAME

    @app.task(name=NAME, queue=NAME, retry=Retry.none(), breaker=Breaker())
    async def task(ctx: Context, text: str, more: dict[str, str]) -> dict[str, str]:
        ctx.log(EVIL, level=EVIL[:50])
        ctx.progress(50, EVIL)
        await ctx.save("<img>key", EVIL)
        if text == "wait":
            await asyncio.sleep(3600)
        if text == "fail":
            raise Evil(EVIL)
        return more

    @app.service(name=NAME, listeners=())
    async def service() -> None:
        raise Evil(EVIL)

    app.schedule(Cron("0 0 * * *"), name=NAME, kwargs={"text": "fail", "more": {EVIL: EVIL}}, description=EVIL)(task)
    app.install(Plugin("photos", "<img>1", docs=EVIL), grant="all")
    outbox = app.outbox("orders", partitions=1)

    @outbox.handler(max_attempts=1)
    async def handle(message: Message[Any]) -> None:
        raise Fail(f"{message.seq} {EVIL}")

    async with app:
        for text in ("wait", "fail", "done"):
            await task.using(tags=[EVIL]).enqueue(text, {EVIL: EVIL})
        await task.using(delay="1h").enqueue(EVIL, {})
        await app.store.pause("<img>queue", by=EVIL, reason=EVIL)
        assert isinstance(app.store, Overview)
        await app.store.limit_queue(NAME, 7, by=EVIL)
        who = Identity.of(EVIL, "admin")
        async with app.node(queues=[NAME]), client(dashboard(app, auth=lambda _: who, title=EVIL)) as found:
            await app.schedules.run(NAME)
            await asyncio.sleep(1)
            await app.schedules.pause(NAME, by=EVIL, reason=EVIL)
            await app.breakers.open(NAME, by=EVIL, reason=EVIL)
            await outbox.publish(None, {EVIL: EVIL}, key=NAME)
            await found.post("/do/jobs.retry", data={"id": EVIL})
            await found.post("/do/schedules.run", data={"name": NAME})
            await asyncio.sleep(12)
            yield found


async def test_nothing_that_jobs_say_becomes_markup(virtual_time: VirtualTime) -> None:
    async with browser(virtual_time) as found:
        jobs = (await found.get("/api/v1/jobs/list")).json()["jobs"]
        assert {job["state"] for job in jobs} == {"running", "failed", "succeeded", "scheduled", "ready"}
        (node,) = (await found.get("/api/v1/nodes/list")).json()["nodes"]
        told = {
            "job": [f"id={job['id']}" for job in jobs],
            "node": [f"id={node['id']}"],
            "schedule": [urlencode({"name": NAME})],
        }
        for page in ALL:
            for query in told.get(page.path, ["x=1"]):
                for part in ("", *page.parts):
                    response = await found.get(f"/{page.path}?{query}&part={part}")
                    assert response.status_code == 200
                    check(response.text)
                    assert page.path not in SAID_BY_PEOPLE or "alert(1)" in response.text


@pytest.mark.slow
async def test_nothing_that_an_address_says_becomes_markup(virtual_time: VirtualTime) -> None:
    async with browser(virtual_time) as found:
        names = [
            "state",
            "queue",
            "task",
            "key",
            "tag",
            "error",
            "since",
            "until",
            "argument",
            "node",
            "parent",
            "after",
            "name",
            "owner",
            "outbox",
            "type",
            "partition",
            "who",
            "action",
            "about",
        ]
        for name in [*names, "limit", "part", "id", "minutes", EVIL]:
            for page in ALL:
                check((await found.get(f"/{page.path}", params={name: EVIL})).text)
        check((await found.get(f"/{NAME}")).text)
        check((await found.post(f"/do/{NAME}", headers={"hx-request": "true"})).text)


async def test_nothing_that_a_node_answers_becomes_markup(virtual_time: VirtualTime) -> None:
    async with browser(virtual_time) as found:
        (node,) = (await found.get("/api/v1/nodes/list")).json()["nodes"]
        for headers in ({"hx-request": "true"}, {}):
            response = await found.post("/do/nodes.stacks", data={"id": node["id"]}, headers=headers)
            assert response.status_code == 200
            assert "of job" in response.text
            check(response.text)


async def test_nothing_that_a_form_says_becomes_markup(virtual_time: VirtualTime) -> None:
    async with browser(virtual_time) as found:
        for headers in ({"hx-request": "true"}, {}):
            for form in ({"id": EVIL}, {EVIL: "x"}):
                response = await found.post("/do/jobs.retry", data=form, headers=headers)
                assert response.status_code == 422
                check(response.text)
                assert "\n" not in response.headers["hx-trigger"]
