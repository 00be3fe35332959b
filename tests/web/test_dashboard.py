"""The dashboard as a server would ask it: pages, parts of pages, forms, static files, what goes wrong."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from msgspec import structs
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mainspring import Context, Every, Mainspring, Retry
from mainspring.core.job import State
from mainspring.errors import DeclarationError, StoreUnavailable
from mainspring.stores.memory import MemoryStore
from mainspring.testing import VirtualTime
from mainspring.web import Auth, Identity, Password, StartupToken, TokenFile, dashboard
from mainspring.web.assets import FILES, VERSIONS
from mainspring.web.dashboard import POLICY
from mainspring.web.groups import ALL as ROUTES
from mainspring.web.pages import ALL
from mainspring.web.pages.page import Page
from tests.web.conftest import LOCAL, client
from tests.web.world import Modest

TAKES = {route.name: structs.fields(route.takes) for route in ROUTES}
PAGES = [page.path for page in ALL if not any(field.required for field in TAKES[page.gathers])]
"""Those that need not be told what they are about."""
VIEWER, OPERATOR, ADMIN = (Identity.of("anna", role) for role in ("viewer", "operator", "admin"))


@pytest.fixture
def app(virtual_time: VirtualTime) -> Mainspring:
    app = Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)

    @app.task(name="mail.send", queue="mail", retry=Retry.none())
    async def send(ctx: Context, to: str) -> str:
        ctx.log(f"to {to}")
        if to == "nobody":
            raise ValueError("no such user")
        return to

    return app


@asynccontextmanager
async def browse(app: Mainspring, auth: Auth | None = None, *, host: str = LOCAL) -> AsyncIterator[httpx.AsyncClient]:
    async with app, client(dashboard(app, auth=auth), host=host) as found:
        yield found


async def failed_job(app: Mainspring) -> str:
    job = await app.enqueue("mail.send", "nobody")
    async with app.node():
        while await job.state() is not State.FAILED:
            await asyncio.sleep(0.1)
    return str(job.id)


async def node_page(app: Mainspring) -> str:
    """The page of a node that has ended."""
    async with app.node() as node:
        await asyncio.sleep(3)
    return f"node?id={node.id}"


async def query_of(app: Mainspring, page: Page) -> str:
    """What a page has to be told."""
    match page.path:
        case "job":
            return f"id={await failed_job(app)}&"
        case "node":
            return (await node_page(app)).partition("?")[2] + "&"
        case "schedule":
            await app.schedules.add("often", Every("10m"), app.find("mail.send").call("anna"))
            return "name=often&"
        case _:
            return ""


# Pages.


@pytest.mark.parametrize("path", PAGES)
async def test_each_page_is_there_before_there_is_anything_to_show(app: Mainspring, path: str) -> None:
    async with browse(app) as found:
        response = await found.get(f"/{path}")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "</html>" in response.text


async def test_of_a_store_that_keeps_no_counts_the_first_page_shows_what_is_there(virtual_time: VirtualTime) -> None:
    app = Mainspring(Modest(clock=virtual_time.clock), clock=virtual_time.clock)

    @app.task(name="work")
    async def work() -> None: ...

    async with browse(app) as found:
        for _ in range(7):
            await work.enqueue()
        response = await found.get("/")
        parts = [(await found.get(f"/?part={part}")).status_code for part in ALL[0].parts]
    assert response.status_code == 200
    assert '<span class="figure">7</span>' in response.text
    assert "keeps no counts" in response.text
    assert parts == [200] * 3


async def test_a_page_says_what_may_be_done_with_it(app: Mainspring) -> None:
    async with browse(app) as found:
        headers = (await found.get("/jobs")).headers
    assert headers["content-security-policy"] == POLICY
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["x-content-type-options"] == "nosniff"


async def test_nothing_on_a_page_needs_what_the_policy_forbids(app: Mainspring) -> None:
    async with browse(app) as found:
        await app.enqueue("mail.send", "anna")
        id_ = await failed_job(app)
        for path in (*PAGES, f"job?id={id_}", await node_page(app), "nowhere"):
            text = (await found.get(f"/{path}")).text
            assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text), path
            assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text)), path
            assert "http://" not in text, path
            assert "https://" not in text, path


async def test_every_link_is_relative_and_one_word_long(app: Mainspring) -> None:
    async with browse(app) as found:
        id_ = await failed_job(app)
        for path in (*PAGES, f"job?id={id_}", await node_page(app)):
            text = (await found.get(f"/{path}")).text
            for link in re.findall(r'(?:href|src|action|hx-get|hx-post|sse-connect)="([^"]*)"', text):
                assert re.fullmatch(r"#main|([.]|[a-z]*|do/[a-z_.]+|static/[\w./]+)([?][^\s]*)?", link), link


@pytest.mark.parametrize(("page", "part"), [(page, part) for page in ALL for part in page.parts])
async def test_each_part_of_a_page_can_be_asked_for_alone(app: Mainspring, page: Page, part: str) -> None:
    async with browse(app) as found:
        query = await query_of(app, page)
        whole = (await found.get(f"/{page.path}?{query}")).text
        response = await found.get(f"/{page.path}?{query}part={part}")
        assert response.status_code == 200
        assert "<html" not in response.text
        assert response.text.strip() in whole
        assert f"part={part}" in whole or query  # what has ended stays as it is


async def test_a_part_that_is_not_there_is_not_found(app: Mainspring) -> None:
    async with browse(app) as found:
        assert (await found.get("/jobs?part=title")).status_code == 404


async def test_a_job_that_has_ended_is_not_asked_for_again_and_again(app: Mainspring) -> None:
    async with browse(app) as found:
        ended, waits = await failed_job(app), await app.enqueue("mail.send", "anna")
        await asyncio.sleep(11)  # until then its node may say that its body goes on
        for part in ("", "&part=job"):
            assert "data-ended" in (await found.get(f"/job?id={ended}{part}")).text
            assert "data-ended" not in (await found.get(f"/job?id={waits.id}{part}")).text


async def test_the_page_of_a_job_shows_what_is_kept_of_it(app: Mainspring) -> None:
    async with browse(app) as found:
        text = (await found.get(f"/job?id={await failed_job(app)}")).text
    for shown in (
        "mail.send",
        "ValueError",
        "no such user",
        "Traceback (most recent",
        "&#34;to&#34;: &#34;nobody&#34;",
    ):
        assert shown in text
    assert "to nobody" in text  # its log


@pytest.mark.parametrize("query", ["id=", "id=nonsense", "id=01a1e2c4-e3e1-762d-bc6d-d8e60860967d", ""])
async def test_a_job_that_is_not_there_is_a_page_too(app: Mainspring, query: str) -> None:
    async with browse(app) as found:
        response = await found.get(f"/job?{query}")
    assert response.status_code in {404, 422}
    assert "</html>" in response.text


async def test_numbers_of_an_address_are_brought_within_their_bounds(app: Mainspring) -> None:
    async with browse(app) as found:
        for number in range(3):
            await app.enqueue("mail.send", str(number))
        for limit, rows in {"0": 1, "-5": 1, "2": 2, "999999": 3, "1e9": 3, "x": 3, "9" * 5000: 3, "": 3}.items():
            text = (await found.get("/jobs", params={"limit": limit, "part": "rows"})).text
            assert text.count("<tr>") == rows, limit


async def test_what_an_address_says_beside_that_is_left_out(app: Mainspring) -> None:
    async with browse(app) as found:
        assert (await found.get("/jobs?colour=red&self=1&record=2&path=x&part=rows")).status_code == 200
        assert (await found.get("/?colour=red&values=1")).status_code == 200


@pytest.mark.parametrize("query", ["state=asleep", "since=soon", "task=a b", "parent=7", "queue=" + "q" * 5000])
async def test_a_search_that_cannot_be_is_told_beside_the_form(app: Mainspring, query: str) -> None:
    async with browse(app) as found:
        response = await found.get(f"/jobs?{query}")
        assert (await found.get(f"/jobs?{query}&part=rows")).status_code == 422
    assert response.status_code == 200
    assert 'class="problem"' in response.text
    assert "<form" in response.text


async def test_states_can_be_ticked_one_by_one(app: Mainspring) -> None:
    async with browse(app) as found:
        await failed_job(app)
        await app.enqueue("mail.send", "anna")
        both = (await found.get("/jobs?state=failed&state=ready&part=rows")).text
        one = (await found.get("/jobs?state=failed&part=rows")).text
    assert (both.count("<tr>"), one.count("<tr>")) == (2, 1)


# What is done.


async def posted(found: httpx.AsyncClient, action: str, form: dict[str, str], **headers: str) -> httpx.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return await found.post(f"/do/{action}", data=form, headers={"hx-request": "true", **names})


async def test_a_form_does_what_the_route_of_its_name_does(app: Mainspring) -> None:
    async with browse(app) as found:
        id_ = await failed_job(app)
        response = await posted(found, "jobs.retry", {"id": id_})
        assert response.status_code == 200
        assert 'class="toast is-done"' in response.text
        assert response.headers["hx-retarget"] == "#toasts"
        assert "changed" in response.headers["hx-trigger"]
        assert await app.job(id_).state() is State.READY
        assert (await posted(found, "jobs.cancel", {"id": id_})).status_code == 200
        assert await app.job(id_).state() is State.CANCELLED
        assert (await posted(found, "jobs.delete", {"id": id_})).status_code == 200
        assert (await found.get(f"/job?id={id_}")).status_code == 404


async def test_what_cannot_be_done_is_told_in_the_same_place(app: Mainspring) -> None:
    async with browse(app) as found:
        job = await app.enqueue("mail.send", "anna")
        response = await posted(found, "jobs.retry", {"id": str(job.id)})
        assert response.status_code == 409
        assert 'class="toast is-refused"' in response.text
        for form in ({}, {"id": "nonsense"}, {"id": str(job.id), "colour": "red"}):
            assert (await posted(found, "jobs.cancel", form)).status_code == 422
        assert await job.state() is State.READY


@pytest.mark.parametrize("action", ["jobs.look", "jobs.list", "openapi.json", "nothing", "jobs.retry.x"])
async def test_only_what_changes_something_is_done(app: Mainspring, action: str) -> None:
    async with browse(app) as found:
        assert (await posted(found, action, {})).status_code == 404
        assert (await found.get(f"/do/{action}")).status_code == 405


async def test_a_browser_without_scripts_gets_a_page(app: Mainspring) -> None:
    async with browse(app) as found:
        response = await found.post("/do/jobs.retry", data={"id": await failed_job(app)})
    assert response.status_code == 200
    assert "The job will run again." in response.text
    assert 'href="../' in response.text


async def test_a_form_that_is_nested_too_deeply_is_refused(app: Mainspring) -> None:
    async with browse(app) as found:
        deep = '{"a":' * 20_000 + "1" + "}" * 20_000
        answer = await found.post("/do/jobs.enqueue", data={"task": "mail.send", "args": deep})
    assert answer.status_code == 422


async def test_a_body_that_is_no_form_is_refused(app: Mainspring) -> None:
    async with browse(app) as found:
        job = await app.enqueue("mail.send", "anna")
        assert (await found.post("/do/jobs.cancel", json={"id": str(job.id)})).status_code == 415
        many = "&".join(f"f{number}=x" for number in range(2000))
        headers = {"content-type": "application/x-www-form-urlencoded"}
        assert (await found.post("/do/jobs.cancel", content=many, headers=headers)).status_code == 422
        assert (await found.post("/do/jobs.cancel", content=b"x" * 1_100_000, headers=headers)).status_code == 413
        assert await job.state() is State.READY


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
    ],
)
async def test_a_page_of_another_site_changes_nothing(app: Mainspring, headers: dict[str, str]) -> None:
    async with browse(app) as found:
        job = await app.enqueue("mail.send", "anna")
        assert (await posted(found, "jobs.cancel", {"id": str(job.id)}, **headers)).status_code == 403
        assert await job.state() is State.READY


@pytest.mark.parametrize(("who", "buttons"), [(VIEWER, set()), (OPERATOR, {"retry"}), (ADMIN, {"retry", "delete"})])
async def test_buttons_are_shown_to_those_who_may_press_them(app: Mainspring, who: Identity, buttons: set[str]) -> None:
    async with browse(app, lambda _: who, host="203.0.113.7") as found:
        id_ = await failed_job(app)
        page = (await found.get(f"/job?id={id_}")).text
        assert set(re.findall(r'hx-post="do/jobs\.(\w+)"', page)) - {"clone"} == buttons
        for path in ("/jobs", "/jobs?part=rows"):
            assert ('name="ids"' in (await found.get(path)).text) is bool(buttons)
        bulk = set(re.findall(r'data-bulk="(\w+)"', (await found.get("/jobs")).text))
        assert bulk >= buttons
        assert bool(bulk) is bool(buttons)
        for action in ("retry", "delete"):
            if action not in buttons:
                assert (await posted(found, f"jobs.{action}", {"id": id_})).status_code == 403
        assert await app.job(id_).state() is State.FAILED


async def test_a_name_that_no_page_can_carry_is_spelt_out(app: Mainspring) -> None:
    """As a directory has it whose names are not UTF-8."""
    who = Identity("ann\udcff", ADMIN.permissions)
    async with browse(app, lambda _: who) as found:
        page = await found.get("/jobs")
        assert (page.status_code, "ann\\udcff" in page.text) == (200, True)
        refused = await found.get(f"/api/v1/jobs/show?id={'0' * 8}-0000-0000-0000-{'0' * 12}")
        assert refused.status_code == 404


async def test_a_page_that_somebody_may_not_see_is_not_in_the_menu(app: Mainspring) -> None:
    who = Identity("bob", frozenset({one for one in VIEWER.permissions if one == "jobs.look"}))
    async with browse(app, lambda _: who) as found:
        assert (await found.get("/")).status_code == 403
        page = await found.get("/jobs")
    assert page.status_code == 200
    assert re.findall(r'data-key="(\w)"', page.text) == ["j"]


# Who asks.


@pytest.mark.parametrize("path", [*PAGES, "job?id=x", "events"])
async def test_without_auth_only_this_machine_is_answered(app: Mainspring, path: str) -> None:
    async with browse(app, host="203.0.113.7") as found:
        response = await found.get(f"/{path}")
    assert response.status_code == 403
    assert "own machine only" in response.text


@pytest.mark.parametrize("path", [*PAGES, "events"])
async def test_a_browser_is_asked_for_the_password(app: Mainspring, path: str) -> None:
    async with browse(app, Password("correct horse"), host="203.0.113.7") as found:
        response = await found.get(f"/{path}")
        assert response.status_code == 401
        assert response.headers["www-authenticate"].startswith("Basic ")
        found.auth = httpx.BasicAuth("admin", "correct horse")
        assert (await found.get("/jobs")).status_code == 200
        assert (await found.get("/login")).status_code == 404


TOKEN = "0123456789-abcdefghij-xyz"  # noqa: S105 - of nobody


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"anna admin {TOKEN}\nvic viewer {TOKEN[::-1]}\n")
    path.chmod(0o600)
    return path


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)


async def test_who_has_a_token_signs_in_and_out(app: Mainspring, tokens: Path) -> None:
    async with browse(app, TokenFile(tokens), host="203.0.113.7") as found:
        asked = await found.get("/jobs?state=failed")
        assert asked.status_code == 401
        assert 'value="jobs?state=failed"' in asked.text
        refused = await found.post("/login", data={"token": "something else"})
        assert refused.status_code == 401
        assert not found.cookies
        done = await found.post("/login", data={"token": f" {TOKEN} ", "next": "jobs?state=failed"})
        assert (done.status_code, done.headers["location"]) == (303, "jobs?state=failed")
        cookie = done.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        assert "path=" not in cookie
        assert "secure" not in cookie
        assert done.headers["cache-control"] == "no-store"
        assert (await found.get("/jobs")).status_code == 200
        assert (await found.get("/api/v1/jobs/list")).status_code == 200
        job = await app.enqueue("mail.send", "anna")
        assert (await posted(found, "jobs.cancel", {"id": str(job.id)})).status_code == 200
        assert (await posted(found, "jobs.cancel", {"id": str(job.id)}, sec_fetch_site="cross-site")).status_code == 403
        rewrite(tokens, f"vic viewer {TOKEN[::-1]}\n")  # anna is taken out
        assert (await found.get("/jobs")).status_code == 401
        rewrite(tokens, f"anna viewer {TOKEN}\n")
        assert (await found.get("/jobs")).status_code == 200
        await found.post("/logout")
        assert (await found.get("/jobs")).status_code == 401


async def test_dashboards_on_several_ports_of_a_machine_sign_in_and_out_separately(app: Mainspring) -> None:
    boards = {f"http://localhost:{port}": StartupToken() for port in (8321, 8322)}
    mounts = {at: httpx.ASGITransport(dashboard(app, auth=token), client=(LOCAL, 1)) for at, token in boards.items()}
    async with app, httpx.AsyncClient(mounts=mounts) as browser:  # whose cookies are those of all ports, as in browsers

        async def statuses() -> list[int]:
            return [(await browser.get(f"{at}/jobs")).status_code for at in boards]

        for at, token in boards.items():
            assert (await browser.get(f"{at}/login?token={token.token}")).status_code == 303
        assert await statuses() == [200, 200]
        await browser.post("http://localhost:8321/logout")
        assert await statuses() == [401, 200]


async def test_who_signs_in_and_who_tries_to_is_in_the_log(
    app: Mainspring, tokens: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mainspring.audit")
    async with browse(app, TokenFile(tokens), host="203.0.113.7") as found:
        await found.post("/login", data={"token": "something else"})
        await found.post("/login", data={"token": ""})
        await found.post("/login", data={"token": TOKEN})
    assert [one.getMessage() for one in caplog.records] == [
        "unknown login 203.0.113.7: 401",
        "unknown login 203.0.113.7: 401",
        "anna login 203.0.113.7: 303",
    ]


async def test_behind_tls_the_cookie_stays_within(app: Mainspring, tokens: Path) -> None:
    async with browse(app, TokenFile(tokens), host="203.0.113.7") as found:
        headers = {"origin": "https://localhost", "host": "localhost"}
        done = await found.post("/login", data={"token": TOKEN}, headers=headers)
    assert "secure" in done.headers["set-cookie"].lower()


@pytest.mark.parametrize(
    "there", ["//evil.example", "https://evil.example", "/\\evil.example", "../x", "jobs\nx", "javascript:alert(1)", ""]
)
async def test_nobody_is_led_elsewhere_after_signing_in(app: Mainspring, tokens: Path, there: str) -> None:
    async with browse(app, TokenFile(tokens)) as found:
        done = await found.post("/login", data={"token": TOKEN, "next": there})
    assert done.headers["location"] == "."


async def test_another_site_signs_nobody_in_or_out(app: Mainspring, tokens: Path) -> None:
    async with browse(app, TokenFile(tokens)) as found:
        for path in ("login", "logout"):
            answer = await found.post(f"/{path}", data={"token": TOKEN}, headers={"sec-fetch-site": "cross-site"})
            assert answer.status_code == 403
            assert "set-cookie" not in answer.headers


async def test_a_token_in_the_header_counts_alone(app: Mainspring, tokens: Path) -> None:
    async with browse(app, TokenFile(tokens)) as found:
        found.cookies.set("mainspring_token", TOKEN)
        assert (await found.get("/jobs")).status_code == 200
        for header in ("Bearer nonsense", "bearer", f"BEARER {TOKEN}x"):
            assert (await found.get("/jobs", headers={"authorization": header})).status_code == 401


async def test_what_a_proxy_in_front_asks_for_itself_does_not_hide_the_cookie(app: Mainspring, tokens: Path) -> None:
    """As nginx with auth_basic hands it on."""
    async with browse(app, TokenFile(tokens)) as found:
        found.headers["authorization"] = "Basic b3R0bzpnZWhlaW0="
        assert (await found.get("/jobs")).status_code == 401
        assert (await found.post("/login", data={"token": TOKEN})).status_code == 303
        assert (await found.get("/jobs")).status_code == 200


@pytest.mark.parametrize("cookie", ["mainspring_token=", "mainspring_token", 'x="', "mainspring_token=\xe9", "=;=;"])
async def test_a_broken_cookie_lets_nobody_in(app: Mainspring, tokens: Path, cookie: str) -> None:
    async with browse(app, TokenFile(tokens)) as found:
        response = await found.get("/jobs", headers={b"cookie": cookie.encode("latin-1")})
    assert response.status_code == 401


@pytest.mark.parametrize("other", ["a=b c", 'json={"x": [1, 2]}', "odd[1]=2", "a@b=c"])
async def test_the_odd_cookie_of_another_program_hides_nothing(app: Mainspring, tokens: Path, other: str) -> None:
    async with browse(app, TokenFile(tokens)) as found:
        for cookie in (f"{other}; mainspring_token={TOKEN}", f"mainspring_token={TOKEN}; {other}"):
            assert (await found.get("/jobs", headers={"cookie": cookie})).status_code == 200


@pytest.mark.parametrize("host", ["[", "a b", "localhost/jobs?x#", "localhost:x", ""])
async def test_whatever_the_header_host_says_strangers_are_asked_who_they_are(
    app: Mainspring, tokens: Path, host: str
) -> None:
    async with browse(app, TokenFile(tokens)) as found:
        answer = await found.get("/jobs?task=a", headers={"host": host})
        assert answer.status_code == 401
        assert 'name="next" value="jobs?task=a"' in answer.text
        done = await found.post("/login", data={"token": TOKEN}, headers={"host": host})
        assert done.status_code == 303


async def test_a_form_of_too_many_fields_signs_nobody_in(app: Mainspring, tokens: Path) -> None:
    async with browse(app, TokenFile(tokens)) as found:
        answer = await found.post("/login", data={f"a{number}": "" for number in range(1000)} | {"token": TOKEN})
    assert answer.status_code == 422


# What goes wrong.


async def test_who_is_known_can_go_on_from_an_error(app: Mainspring) -> None:
    async with browse(app) as found:
        text = (await found.get("/job?id=01a1e2c4-e3e1-762d-bc6d-d8e60860967d")).text
    assert 'href="jobs" data-key="j"' in text


async def test_a_page_that_is_not_there(app: Mainspring) -> None:
    async with browse(app) as found:
        for path, up in {"/nowhere": "", "/a/b/c": "../../"}.items():
            response = await found.get(path)
            assert response.status_code == 404
            assert f'href="{up}static/app.css' in response.text
        assert (await found.get("/api/v1/nowhere")).json()["error"]["code"] == "not_found"
        assert (await found.post("/jobs")).status_code == 405


async def test_an_error_is_told_by_its_id(app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    def auth(_: object) -> Identity:
        raise RuntimeError("a secret of the inside")

    async with browse(app, auth) as found:
        response = await found.get("/jobs")
    assert response.status_code == 500
    assert "secret" not in response.text
    (id_,) = re.findall(r"the log has it as (\w+)", response.text)
    assert id_ in caplog.text


async def test_while_the_store_is_away_the_page_is_tried_again(
    app: Mainspring, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browse(app) as found:

        async def away(*_: object, **__: object) -> None:
            raise StoreUnavailable("memory", "it is away")

        monkeypatch.setattr(app.store, "search", away)
        response = await found.get("/jobs")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "5"
    assert 'data-again="5"' in response.text


def test_it_is_made_of_an_app_and_an_auth() -> None:
    app = Mainspring(MemoryStore())
    with pytest.raises(DeclarationError, match="made of a Mainspring"):
        dashboard(object())  # type: ignore[arg-type]  # it is wrong
    with pytest.raises(DeclarationError, match="auth is"):
        dashboard(app, auth=Password)  # type: ignore[arg-type]  # it is wrong
    with pytest.raises(DeclarationError, match=r"https://admin\.example\.com"):
        dashboard(app, origins=["admin.example.com"])


# Static files.


async def test_static_files_are_kept_for_good_under_their_version(app: Mainspring) -> None:
    async with browse(app, lambda _: None, host="203.0.113.7") as found:
        page = (await found.get("/jobs")).text
        for name in FILES:
            response = await found.get(f"/static/{name}?v={VERSIONS[name]}")
            assert response.content == FILES[name]
            assert "immutable" in response.headers["cache-control"]
            assert response.headers["x-content-type-options"] == "nosniff"
            assert (await found.get(f"/static/{name}")).headers["cache-control"] == "no-cache"
        named = re.findall(r"static/([\w./]+)\?v=(\w+)", page)
        assert {name: VERSIONS[name] for name, _ in named} == dict(named)
        assert set(FILES) == set(dict(named))


@pytest.mark.parametrize("name", ["../dashboard.py", "..%2fauth.py", "vendor/README.md", "nothing.css", "/etc/passwd"])
async def test_nothing_else_is_a_static_file(app: Mainspring, name: str) -> None:
    async with browse(app) as found:
        assert (await found.get(f"/static/{name}")).status_code == 404


# Under a prefix.


def dispatched(board: ASGIApp, *, sets_root: bool, strips: bool) -> ASGIApp:
    """Hand over what is below /admin by hand, as an ASGI app of Django's would have it."""

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/admin"):
            path = scope["path"].removeprefix("/admin") if strips else scope["path"]
            root = "/admin" if sets_root else scope.get("root_path", "")
            await board({**scope, "path": path, "root_path": root}, receive, send)
        else:
            await PlainTextResponse("the program's own")(scope, receive, send)

    return dispatch


def mounted(board: ASGIApp) -> ASGIApp:
    return Starlette(routes=[Route("/", lambda _: PlainTextResponse("own")), Mount("/admin", board)])


def in_fastapi(board: ASGIApp) -> ASGIApp:
    site = FastAPI()
    site.mount("/admin", board)
    return site


PLACES: dict[str, tuple[Callable[[ASGIApp], ASGIApp], str, str]] = {
    "mounted": (mounted, "/admin/", ""),
    "mounted in FastAPI": (in_fastapi, "/admin/", ""),
    "mounted, behind a proxy that strips and says so": (mounted, "/admin/", "/proxy"),
    "dispatched by hand": (lambda board: dispatched(board, sets_root=True, strips=False), "/admin/", ""),
    "dispatched by hand, the old way": (lambda board: dispatched(board, sets_root=True, strips=True), "/admin/", ""),
    "behind a proxy that strips": (lambda board: dispatched(board, sets_root=False, strips=True), "/admin/", ""),
}


@pytest.mark.parametrize("place", PLACES)
async def test_it_works_under_a_prefix(app: Mainspring, place: str) -> None:
    within, base, root = PLACES[place]
    async with app, client(within(dashboard(app)), root_path=root) as found:
        for page in ALL:
            if page.path in PAGES:
                text = (await found.get(f"{base}{page.path}")).text
                assert "</html>" in text, page.path
                for link in re.findall(r'(?:href|src)="(static/[^"]*|jobs[^"]*|[.])"', text):
                    there = httpx.URL(f"http://localhost{base}{page.path}").join(unescape(link))
                    assert (await found.get(there)).is_success, link
        job = await app.enqueue("mail.send", "anna")
        done = await found.post(f"{base}do/jobs.cancel", data={"id": str(job.id)}, headers={"hx-request": "true"})
        assert done.status_code == 200
        assert (await found.get(f"{base}api/v1/jobs/list")).is_success
        assert (await found.get(f"{base}nowhere")).status_code == 404


@pytest.mark.parametrize("root", ["/admin", "/a/b", "/proxy/admin", "/jobs", "/admin/jobs"])
async def test_a_prefix_without_its_slash_leads_there(app: Mainspring, root: str) -> None:
    async with app, client(dashboard(app), root_path=root) as found:
        answer = await found.get(root)
    assert answer.status_code == 307
    assert answer.headers["location"] == f"./{root.rpartition('/')[2]}/"


@pytest.mark.parametrize(
    "tenant",
    ["javascript:alert(1)", "https:", "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "a\r\nset-cookie: b=c", "\N{BULLET}"],
)
async def test_a_prefix_that_somebody_chose_leads_nowhere_else(app: Mainspring, tenant: str) -> None:
    """As of `Mount("/{tenant}", …)`: what stands there is what was asked for."""
    async with app, client(Starlette(routes=[Mount("/{tenant}", dashboard(app))])) as found:
        answer = await found.get(f"/{quote(tenant, safe='')}", follow_redirects=False)
        assert answer.status_code in {307, 404}
        there = answer.headers.get("location", "./")
        assert there.isascii()
        assert there.startswith(("./", "http://localhost/"))
        assert "set-cookie" not in answer.headers


async def test_a_page_with_a_slash_too_many_leads_to_the_page(app: Mainspring) -> None:
    async with browse(app) as found:
        answer = await found.get("/jobs/")
    assert (answer.status_code, answer.headers["location"]) == (307, "../jobs")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
async def test_requests_other_than_get_are_not_redirected(app: Mainspring, method: str) -> None:
    async with app, client(mounted(dashboard(app))) as found:
        for path in ("/admin/", "/admin/jobs/", "/admin/jobs"):
            answer = await found.request(method, path, content=b"x", follow_redirects=False)
            assert answer.status_code in {404, 405}, path


@pytest.mark.parametrize("word", ["_Context__self", "_Context__obj", "part", "path", "words", "self", "query"])
async def test_pages_accept_any_name_of_a_query_parameter(app: Mainspring, word: str) -> None:
    async with browse(app) as found:
        for path in ("/jobs", "/", "/queues", "/audit", "/schedules"):
            answer = await found.get(path, params={f"{word}": "" if word == "part" else "1", "after_": "2"})
            assert answer.status_code == 200, answer.text


async def test_mounted_it_opens_the_store_by_itself(app: Mainspring) -> None:
    async with client(mounted(dashboard(app))) as found:  # no lifespan is run
        assert (await found.get("/admin/jobs")).status_code == 200
        assert (await found.get("/admin/api/v1/jobs/list")).status_code == 200
    await app.close()
