"""What is sent is read as what it should be, and nothing that is sent does harm."""

from collections.abc import AsyncIterator

import pytest

from mainspring import Mainspring
from mainspring.web.application import MOST, api
from tests.web.conftest import BASE, Ask, client, error_of

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 422, "invalid"),
        (b"{", 400, "bad_json"),
        (b"\xff\xfe", 400, "bad_json"),
        (b'{"qname": "\xff"}', 400, "bad_json"),
        (b'{"qname": "\\ud800"}', 400, "bad_json"),
        (b'{"qname": "a"} {}', 400, "bad_json"),
        (b"[" * 100_000, 422, "invalid"),
        (b'{"qname": "a", "args": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001, 400, "bad_json"),
        (b"null", 422, "invalid"),
        (b"[]", 422, "invalid"),
        (b"{}", 422, "invalid"),
        (b'{"qname": 7}', 422, "invalid"),
        (b'{"qname": null}', 422, "invalid"),
        (b'{"qname": ""}', 422, "invalid"),
        (b'{"qname": "' + b"a" * 512 + b'"}', 422, "invalid"),
        (b'{"qname": "a", "quname": "b"}', 422, "invalid"),
        (b'{"qname": "a", "args": []}', 422, "invalid"),
        (b'{"qname": "a\\u0000b"}', 422, "invalid"),
        (b'{"qname": "photos:sweep", "args": {"width": 1' + b"0" * 5000 + b"}}", 422, None),
        (b'{"qname": "photos:sweep", "args": {"name": {"a": ' + b"[" * 200 + b"]" * 200 + b"}}}", 422, "bad_arguments"),
        (b'{"qname": "photos:sweep", "args": {"height": 1}}', 422, "bad_arguments"),
    ],
)
async def test_a_body_that_is_none_is_refused(ask: Ask, content: bytes, status: int, code: str | None) -> None:
    found = error_of(await ask("control/run", content=content, headers=JSON), status)
    assert found["code"] == (code or found["code"])
    assert len(found["message"]) <= 2000


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=501", "limit=-1", "limit=x", "limit=1e3", "limit=", "after=", "limits=1", f"limit={'9' * 5000}"],
)
async def test_a_query_that_is_none_is_refused(ask: Ask, query: str) -> None:
    assert error_of(await ask(f"control/list?{query}"), 422)["code"] == "invalid"


@pytest.mark.parametrize(
    "query",
    [
        "schedules/list?after=a%00",
        "schedules/list?owner=%00",
        "schedules/list?name=%00",
        "schedules/show?name=%00",
        "breakers/list?after=a%00b",
        "breakers/show?task=a%00b",
        "control/list?after=%00",
        "jobs/list?task=%00",
        "outboxes/letters?after=%00",
        "nodes/show?id=%00",
        "audit/list?about=%00",
    ],
)
async def test_zero_bytes_are_refused_whatever_the_store_thinks_of_them(ask: Ask, query: str) -> None:
    assert error_of(await ask(query), 422)["code"] == "invalid"


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("batch_size", [0, -1, 100_001, 10**30, 1.5, True, "10"]),
        ("retries", [-1, 101, None]),
        ("seconds", [0, -1, 300.5, "1"]),
        ("rows_as", ["", 7, "a" * 256]),
        ("dry_run", [1, "yes"]),
    ],
)
async def test_every_number_has_its_bounds(ask: Ask, field: str, values: list[object]) -> None:
    for value in values:
        said = {"driving_query": "READ", "mutation": "WRITE", field: value}
        assert error_of(await ask("control/iterate", said), 422)["code"] == "invalid"


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "multipart/x"]
)
async def test_a_form_is_no_request(ask: Ask, kind: str) -> None:
    response = await ask("control/flush", content=b"{}", headers={"content-type": kind})
    assert error_of(response, 415)["code"] == "not_json"


async def test_a_type_may_say_its_charset(ask: Ask) -> None:
    response = await ask("control/flush", content=b"{}", headers={"content-type": "Application/JSON; charset=utf-8"})
    assert response.status_code == 200


async def test_a_body_is_read_up_to_its_limit_and_no_further(app: Mainspring) -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 1
            yield b" " * 10_000

    async with client(api(app)) as found:
        response = await found.post(f"{BASE}/control/flush", content=endless(), headers=JSON)
    assert error_of(response, 413)["code"] == "too_large"
    assert read == MOST // 10_000 + 1


async def test_a_body_that_breaks_off_ends_the_request(app: Mainspring) -> None:
    sent: list[dict[str, object]] = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": f"{BASE}/control/flush",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-length", b"nonsense")],
        "client": ("127.0.0.1", 1),
    }

    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        assert isinstance(message, dict)
        sent.append(message)

    await api(app)(scope, receive, send)
    assert sent[0]["status"] == 400


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_other_methods_are_refused_in_the_same_shape(app: Mainspring, method: str) -> None:
    async with client(api(app)) as found:
        response = await found.request(method, f"{BASE}/control/flush")
    error = error_of(response, 405)
    assert (error["code"], error["message"]) == ("wrong_method", "this is asked for with POST")
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("depth", [99, 200, 500, 800, 900, 950, 990, 1000, 5000])
async def test_what_is_nested_deeply_is_carried_or_refused(app: Mainspring, ask: Ask, depth: int) -> None:
    async def echo(_: str, params: object) -> object:
        return params

    app.host.offer(execute_write=echo)
    deep = b"[" * depth + b"]" * depth
    submitted = await ask("control/submit", content=b'{"statement": "x", "params": {"a": ' + deep + b"}}", headers=JSON)
    assert submitted.status_code in {200, 400}
    run = await ask("control/run", content=b'{"qname": "photos:sweep", "args": {"a": ' + deep + b"}}", headers=JSON)
    assert run.status_code in {400, 422}


async def test_what_is_not_there_or_does_not_fit_is_told_with_where_to_look(ask: Ask) -> None:
    missing, misfit = await ask("control/lst"), await ask("control/add", {"qname": "photos:sweep", "kind": "daily"})
    for error in (error_of(missing, 404), error_of(misfit, 422)):
        assert error["hint"].startswith("…/api/v1/openapi.json says what can be asked for")
