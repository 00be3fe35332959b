"""What the page about HTTP shows really runs, and what it lists is what there is."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from mainspring.client.error_words import WORDS
from mainspring.client.redact import NAMES
from mainspring.web import ROLES, Permission
from mainspring.web.application import BASE, described
from mainspring.web.described import Described
from mainspring.web.groups import ALL as ROUTES
from mainspring.web.problems import KINDS
from tests.project.test_docs_code import ROOT, blocks, run

PAGE = "docs/how-to/control-over-http.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs/reference/http.md").read_text(encoding="utf-8")

BEGINNING = """
import os

os.environ["ADMIN_PASSWORD"] = "correct horse"
"""
END = """
import asyncio
import httpx
from starlette.authentication import SimpleUser, UnauthenticatedUser

async def main() -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(asgi), base_url="http://example.com") as client:
        print((await client.get("/api/v1/control/list")).status_code)
        client.auth = ("admin", "correct horse")
        said = {"qname": "report", "kind": "periodic", "arg": "soon"}
        print((await client.post("/api/v1/control/add", json=said)).text)
        print((await client.post("/api/v1/control/add", json={**said, "arg": 3600})).status_code)

    async def with_user(scope, receive, send):
        await site({**scope, "user": SimpleUser("anna")}, receive, send)

    async def with_stranger(scope, receive, send):
        await site({**scope, "user": UnauthenticatedUser()}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(with_stranger), base_url="http://example.com") as client:
        print((await client.get("/mainspring/api/v1/control/list")).status_code)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(with_user), base_url="http://example.com") as client:
        print((await client.get("/mainspring/api/v1/control/list")).json()["schedules"][0]["qname"])
        print((await client.post("/mainspring/api/v1/control/flush")).status_code)
    await app.close()

asyncio.run(main())
"""


def section(title: str) -> str:
    return REFERENCE.split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.mark.slow
def test_the_page_works(tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text("\n".join([BEGINNING, *blocks(PAGE), END]), encoding="utf-8")
    unknown, refused, added, stranger, listed, not_allowed = run("page.py", cwd=tmp_path).splitlines()
    assert (unknown, added, stranger, listed, not_allowed) == ("401", "200", "401", "report", "403")
    (shown,) = re.findall(r"^```json\n(.*?)\n```", TEXT, re.DOTALL | re.MULTILINE)
    assert json.loads(refused) == json.loads(shown)


def test_every_route_is_listed_with_what_it_takes_and_gives() -> None:
    rows = [line.strip("|").split("|") for line in section("What can be asked for").splitlines() if " /api/" in line]
    told = {words[0].strip(" `"): set(re.findall(r"`(\w+)`", words[1])) for words in rows}
    there = {
        f"{route.method} {BASE}{route.path}": {one.name for one in msgspec.structs.fields(route.takes)}
        for route in described(ROUTES)
    }
    assert told == there
    for route, words in zip(described(ROUTES), rows, strict=True):
        answer = Described()
        answer.schema(route.gives)
        named = set(re.findall(r"`(\w+)`", words[2]))
        assert not named or named == set(answer.components[route.gives.__name__]["properties"])
        assert re.findall(r"`([\w.]+)`", words[3]) == ([route.permission] if route.permission else [])
        assert ("that of the action" in words[3]) == (route.also is not None)


def test_every_code_is_listed() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/mainspring/web").rglob("*.py"))
    said = set(re.findall(r'Problem\(\s*\d+, "(\w+)"', source)) | {"not_found", "wrong_method", "internal"}
    statuses = {code: str(kind.status) for code, kind in KINDS.items()}
    assert list(statuses) == [code for _, code in WORDS]
    rows = [line.strip("|").split("|") for line in section("Errors").splitlines() if re.match(r"\| \d", line)]
    told = {code: words[0].strip() for words in rows for code in re.findall(r"`(\w+)`", words[1])}
    assert set(told) == said | set(statuses)
    assert {code: told[code] for code in statuses} == statuses


def test_every_permission_and_role_is_listed() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", section("Roles"), re.MULTILINE)
    assert [name for name, _ in rows] == list(ROLES)
    so_far: set[str] = set()
    for name, words in rows:
        so_far |= set(re.findall(r"`([\w.]+)`", words))
        assert so_far == set(ROLES[name])
    assert so_far == set(Permission)


def test_every_name_that_is_not_shown_is_listed() -> None:
    listed = section("What is not shown").split("dead letters: ")[1].split(". They are whole words")[0]
    assert tuple(re.findall(r"`(\w+)`", listed)) == NAMES
