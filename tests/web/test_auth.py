"""Who may do what: for every route, for every role, and by every way to say who one is."""

import asyncio
import base64
import hashlib
import os
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from mainspring import Mainspring
from mainspring.client.operate import Action
from mainspring.errors import DeclarationError
from mainspring.web import ROLES, Identity, Password, Permission, TokenFile, api
from mainspring.web.application import described
from mainspring.web.auth import Key
from mainspring.web.groups import ALL as ROUTES
from mainspring.web.groups.jobs import Bulk, permission_of
from tests.web.conftest import Ask, error_of

TOKEN = "0123456789abcdefghij"  # noqa: S105 - it opens nothing
OTHER = "another-token-of-24-chars"

JOB = "0190f000-0000-7000-8000-000000000001"
ALL = frozenset({"viewer", "operator", "admin"})
MOST = frozenset({"operator", "admin"})
FEW = frozenset({"admin"})
SPAN: dict[str, object] = {"name": "x", "since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"}

# For each action: what is asked for, and who may. What there is not is not found by those who may.
TABLE: list[tuple[str, dict[str, object] | None, frozenset[str]]] = [
    ("overview", None, ALL | {"metrics"}),
    ("services/list", None, ALL),
    ("jobs/list", None, ALL),
    (f"jobs/show?id={JOB}", None, ALL),
    ("jobs/retry", {"id": JOB}, MOST),
    ("jobs/cancel", {"id": JOB}, MOST),
    ("jobs/run_now", {"id": JOB}, MOST),
    ("jobs/delete", {"id": JOB}, FEW),
    ("jobs/clone", {"id": JOB}, FEW),
    ("jobs/enqueue", {"task": "photos:sweep"}, FEW),
    ("jobs/bulk", {"action": "retry", "which": {}}, MOST),
    ("jobs/bulk", {"action": "cancel", "ids": [JOB]}, MOST),
    ("jobs/bulk", {"action": "run_now", "which": {}}, MOST),
    ("jobs/bulk", {"action": "delete", "which": {}}, FEW),
    ("jobs/bulk", {"action": "delete", "which": {}, "dry_run": True}, FEW),
    ("queues/list", None, ALL),
    ("queues/look", None, ALL),
    ("queues/pause", {"name": "default"}, MOST),
    ("queues/resume", {"name": "default"}, MOST),
    ("queues/limit", {"name": "default", "concurrency": 3}, MOST),
    ("schedules/list", None, ALL),
    ("schedules/show?name=x", None, ALL),
    ("schedules/run", {"name": "x"}, MOST),
    ("schedules/pause", {"name": "x"}, MOST),
    ("schedules/resume", {"name": "x"}, MOST),
    ("schedules/backfill", SPAN, MOST),
    ("nodes/list", None, ALL),
    ("nodes/show?id=x", None, ALL),
    ("nodes/quiet", {"id": "x"}, MOST),
    ("nodes/resume", {"id": "x"}, MOST),
    ("nodes/stop", {"id": "x"}, MOST),
    ("nodes/concurrency", {"id": "x", "places": 2}, MOST),
    ("nodes/stacks", {"id": "x"}, MOST),
    ("outboxes/list", None, ALL),
    ("outboxes/letters", None, ALL),
    ("outboxes/replay", {"ids": [1]}, MOST),
    ("outboxes/discard", {"ids": [1]}, FEW),
    ("breakers/list", None, ALL),
    ("breakers/show?task=x", None, ALL),
    ("breakers/open", {"task": "x"}, MOST),
    ("breakers/close", {"task": "x"}, MOST),
    ("breakers/reset", {"task": "x"}, MOST),
    ("plugins/list", None, ALL),
    ("audit/list", None, MOST),
    ("control/list", None, ALL),
    ("control/add", {"qname": "photos:sweep", "kind": "manual"}, FEW),
    ("control/cancel", {"qname": "photos:sweep"}, FEW),
    ("control/run", {"qname": "photos:sweep"}, MOST),
    ("control/submit", {"statement": "SET"}, FEW),
    ("control/iterate", {"driving_query": "READ", "mutation": "WRITE"}, FEW),
    ("control/flush", {}, MOST),
    ("openapi.json", None, ALL | {"nothing", "metrics"}),
]
RULES = [pytest.param(*row, id=f"{row[0].partition('?')[0]}-{(row[1] or {}).get('action', '')}") for row in TABLE]


def test_the_table_names_every_route() -> None:
    assert {route.path.strip("/") for route in described(ROUTES)} == {row[0].partition("?")[0] for row in TABLE}


def test_every_permission_is_needed_somewhere() -> None:
    needed = {route.permission for route in ROUTES} | {permission_of(Bulk(action=one)) for one in Action}
    assert needed == set(Permission)


def test_roles_are_as_they_are_written_down() -> None:
    """What somebody may do is not to change by the way: a name that ends in another word would be enough."""
    look = {
        f"{one}.look"
        for one in ["overview", "jobs", "queues", "schedules", "nodes", "services", "outboxes", "breakers", "plugins"]
    }
    assert ROLES["viewer"] == look | {"control.list"}
    few = {"jobs.delete", "jobs.enqueue", "outboxes.discard", "control.add", "control.cancel"}
    few |= {"control.submit", "control.iterate"}
    assert ROLES["metrics"] == {"overview.look"}
    assert ROLES["operator"] == set(Permission) - few
    assert ROLES["admin"] == set(Permission)


@pytest.mark.parametrize("role", [*ROLES, "nothing", "nobody"])
@pytest.mark.parametrize(("action", "said", "may"), RULES)
async def test_only_who_may_does(
    ask: Ask, action: str, said: dict[str, object] | None, may: frozenset[str], role: str
) -> None:
    await ask("control/add", {"qname": "photos:sweep", "kind": "manual"})
    permissions = ROLES.get(role, frozenset())
    response = await ask(action, said, auth=lambda _: None if role == "nobody" else Identity(role, permissions))
    if role in may:
        assert response.status_code in {200, 404}, response.text
    elif role == "nobody":
        assert error_of(response, 401)["code"] == "unknown"
        assert response.headers["www-authenticate"] == "Bearer"
    else:
        assert error_of(response, 403)["code"] == "not_allowed"


@pytest.mark.parametrize(("action", "said"), [pytest.param(*one.values[:2], id=one.id) for one in RULES])
async def test_one_permission_is_what_an_action_takes(ask: Ask, action: str, said: dict[str, object] | None) -> None:
    """Without it, all others do not help; with it, none is needed but the one to look of those who do many at once."""
    path = action.partition("?")[0]
    route = next(one for one in described(ROUTES) if one.path.strip("/") == path)
    if route.permission is None:
        return
    needed = {route.permission}
    if route.also is not None:
        needed.add(Permission(f"jobs.{(said or {})['action']}"))
    for one in needed:
        others = frozenset(Permission) - {one}
        response = await ask(action, said, auth=lambda _, given=others: Identity("anna", given))
        assert error_of(response, 403)["message"] == f"anna may not do {one}"
    response = await ask(action, said, auth=lambda _: Identity("anna", frozenset(needed)))
    assert response.status_code in {200, 404}, response.text


async def test_what_is_not_allowed_is_not_even_read(ask: Ask) -> None:
    response = await ask("control/add", content=b"{", auth=lambda _: Identity.of("otto", "viewer"))
    assert error_of(response, 403)["code"] == "not_allowed"


def test_a_role_has_to_be_known() -> None:
    with pytest.raises(DeclarationError, match="metrics, viewer, operator, admin, not king"):
        Identity.of("anna", "king")
    with pytest.raises(DeclarationError, match="name is needed"):
        Identity.of(" ", "admin")


# A password.


def basic(text: str) -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (basic("admin:geheim, geheim"), 200),
        ({"authorization": basic("admin:geheim, geheim")["authorization"].replace("Basic", "bAsIc")}, 200),
        (basic("admin:geheim, gehein"), 401),
        (basic("root:geheim, geheim"), 401),
        (basic("admin:"), 401),
        (basic(""), 401),
        ({"authorization": "Basic ****"}, 401),
        ({"authorization": "Basic /w=="}, 401),
        ({"authorization": "Basic"}, 401),
        ({"authorization": "Bearer geheim, geheim"}, 401),
        ({}, 401),
    ],
)
async def test_a_password_lets_one_name_in(ask: Ask, headers: dict[str, str], status: int) -> None:
    response = await ask("control/list", auth=Password("geheim, geheim"), headers=headers)
    assert response.status_code == status, response.text
    if status == 401:
        assert response.headers["www-authenticate"].startswith("Basic ")


async def test_with_auth_others_than_this_machine_are_let_in(ask: Ask) -> None:
    password = Password("geheim, geheim", name="anna", role="viewer")
    answers = [
        await ask("control/list", auth=password, headers=basic(f"{name}:geheim, geheim"), host="203.0.113.7")
        for name in ("anna", "admin")
    ]
    assert [one.status_code for one in answers] == [200, 401]


@pytest.mark.parametrize(("password", "name"), [("", "admin"), ("short", "admin"), ("long enough", "a:b")])
def test_a_password_that_is_none_is_refused(password: str, name: str) -> None:
    with pytest.raises(DeclarationError):
        Password(password, name=name)


# Tokens.


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    digest = hashlib.sha256(OTHER.encode()).hexdigest()
    path.write_text(
        f"# who may\n\nanna admin {TOKEN}\notto viewer,operator sha256:{digest.upper()}\n", encoding="utf-8"
    )
    path.chmod(0o600)
    return path


def write(path: Path, text: str | None) -> None:
    if text is None:
        path.unlink()
    else:
        path.write_text(text, encoding="utf-8")


def with_mode(path: Path, mode: int) -> TokenFile:
    path.chmod(mode)
    return TokenFile(path)


async def shown(ask: Ask, auth: TokenFile, token: str, action: str = "control/list", said: object = None) -> int:
    response: httpx.Response = await ask(action, said, auth=auth, headers={"authorization": f"Bearer {token}"})
    return response.status_code


async def test_a_token_lets_its_name_in(ask: Ask, tokens: Path) -> None:
    auth = TokenFile(tokens)
    assert [await shown(ask, auth, one) for one in (TOKEN, OTHER, TOKEN[:-1], "", f"{TOKEN} x")] == [
        200,
        200,
        *[401] * 3,
    ]
    add = {"qname": "photos:sweep", "kind": "manual"}
    assert [await shown(ask, auth, one, "control/add", add) for one in (TOKEN, OTHER)] == [200, 403]
    assert [await shown(ask, auth, one, "control/flush", {}) for one in (TOKEN, OTHER)] == [200, 200]


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer ", "bearer  ", "Basic Og==", ""])
async def test_who_gives_no_token_is_nobody_whatever_the_file_says(
    ask: Ask, tokens: Path, monkeypatch: pytest.MonkeyPatch, header: str | None
) -> None:
    """A script that writes the digest of a variable that is not set would open the door to all."""
    auth = TokenFile(tokens)
    monkeypatch.setattr(auth, "_keys", (Key(hashlib.sha256().digest(), Identity.of("all", "admin")),))
    headers = {} if header is None else {"authorization": header}
    assert (await ask("control/list", auth=auth, headers=headers)).status_code == 401


async def test_a_digest_is_no_token(ask: Ask, tokens: Path) -> None:
    digest = hashlib.sha256(OTHER.encode()).hexdigest()
    assert await shown(ask, TokenFile(tokens), f"sha256:{digest}") == 401


async def test_a_file_that_has_changed_is_read_again(ask: Ask, tokens: Path, caplog: pytest.LogCaptureFixture) -> None:
    auth = TokenFile(tokens)
    write(tokens, f"otto viewer {OTHER}")
    assert [await shown(ask, auth, one) for one in (TOKEN, OTHER)] == [401, 200]
    write(tokens, "otto king")
    assert [await shown(ask, auth, one) for one in (OTHER, OTHER)] == [401, 401]
    write(tokens, None)
    assert await shown(ask, auth, OTHER) == 401
    told = [one.getMessage() for one in caplog.records if one.name == "mainspring.web"]
    assert [one for one in told if "credentials" not in one] == [
        f"nobody is let in by tokens: TokenFile {tokens}: line 1: it takes three words, NAME ROLE TOKEN"
    ]
    write(tokens, f"anna viewer {TOKEN}")
    assert await shown(ask, auth, TOKEN) == 200


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "there is no token in it"),
        ("# nobody", "there is no token in it"),
        ("anna admin short", "line 1: a token has 20 characters or more"),
        (f"anna king {TOKEN}", "line 1: identity 'anna': a role is one of metrics, viewer, operator, admin, not king"),
        (f"{TOKEN}\nanna {TOKEN}", "line 1: it takes three words, NAME ROLE TOKEN; line 2:"),
        ("anna admin sha256:abc", "line 1: after sha256: there are 64 hexadecimal digits"),
        ("anna admin sha256:" + "g" * 64, "64 hexadecimal digits"),
        (f"anna admin sha256:{hashlib.sha256().hexdigest()}", "line 1: it is the digest of nothing at all"),
        ("anna admin " + "\u00fc" * 30, "line 1: a token has no letters but those of ASCII"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_without_its_secrets(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DeclarationError) as raised:
        TokenFile(path)
    assert says in str(raised.value)
    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize("mode", [0o646, 0o660])
def test_a_file_that_others_may_write_is_refused(tokens: Path, mode: int) -> None:
    tokens.chmod(mode)
    with pytest.raises(DeclarationError, match="chmod go-w"):
        TokenFile(tokens)


@pytest.mark.parametrize(
    ("mode", "who"), [(0o644, "everyone on this machine"), (0o640, "its group"), (0o600, ""), (0o400, "")]
)
async def test_tokens_that_others_can_read_are_taken_with_a_warning(
    ask: Ask, tokens: Path, caplog: pytest.LogCaptureFixture, mode: int, who: str
) -> None:
    auth = with_mode(tokens, mode)
    assert await shown(ask, auth, TOKEN) == 200
    write(tokens, f"anna viewer {OTHER}")  # it is read again, and told of once
    assert await shown(ask, auth, OTHER) == 200
    advice = "chmod 600 it, or write sha256: and the digest in place of each token"
    said = [f"{who} can read the tokens in {tokens}, mode {mode:o}: {advice}"] if who else []
    assert [one.getMessage() for one in caplog.records if one.name == "mainspring.web"] == said
    with_mode(tokens, 0o604)
    caplog.clear()
    assert await shown(ask, auth, OTHER) == 200  # it is another mode, and the file is read again
    assert caplog.records[-1].getMessage().startswith("everyone on this machine can read the tokens")


def test_digests_may_be_read_by_everyone(tokens: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tokens, f"otto viewer sha256:{hashlib.sha256(OTHER.encode()).hexdigest()}")
    tokens.chmod(0o644)
    TokenFile(tokens)
    assert [one for one in caplog.records if one.name == "mainspring.web"] == []


def test_a_file_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="No such file"):
        TokenFile(os.fspath(tmp_path / "tokens"))


# The program's own.


async def test_a_program_may_tell_by_itself_and_take_its_time(ask: Ask) -> None:
    async def session(connection: HTTPConnection) -> Identity | None:
        await asyncio.sleep(1)
        return Identity.of("anna", "viewer") if connection.cookies.get("session") == "7" else None

    assert (await ask("control/list", auth=session, headers={"cookie": "session=7"})).status_code == 200
    assert error_of(await ask("control/list", auth=session, headers={"cookie": "session=8"}), 401)


async def test_a_program_may_refuse_in_its_own_words(ask: Ask) -> None:
    def teapot(_: HTTPConnection) -> None:
        raise HTTPException(418, "not by me", {"x-why": "because"})

    response = await ask("control/list", auth=teapot)
    assert error_of(response, 418) == {"code": "refused", "message": "not by me"}
    assert response.headers["x-why"] == "because"


@pytest.mark.parametrize("answer", [True, "anna", {"name": "anna"}])
async def test_an_answer_that_is_no_identity_lets_nobody_in(ask: Ask, answer: object) -> None:
    response = await ask("control/list", auth=lambda _: answer)
    assert error_of(response, 500)["code"] == "internal"


async def test_a_way_that_fails_lets_nobody_in(ask: Ask) -> None:
    def broken(_: HTTPConnection) -> Identity:
        raise RuntimeError("the directory is away")

    response = await ask("control/list", auth=broken)
    assert error_of(response, 500)["code"] == "internal"
    assert "directory" not in response.text


@pytest.mark.parametrize(
    ("headers", "message"), [({}, "say who you are"), (basic("admin:wrong one"), "nobody is known by that")]
)
async def test_whoever_is_not_known_is_told_how_to_be(ask: Ask, headers: dict[str, str], message: str) -> None:
    error = error_of(await ask("control/list", auth=Password("geheim, geheim"), headers=headers), 401)
    assert (error["message"], error["hint"]) == (message, "by HTTP Basic: curl -u NAME:PASSWORD")


async def test_on_this_machine_it_is_said_which_function_knows_nobody(ask: Ask) -> None:
    def nobody(_: HTTPConnection) -> None:
        return None

    error = error_of(await ask("control/list", auth=nobody), 401)
    assert "nobody' of the program returned None; sign in to the program first" in error["hint"]
    assert "hint" not in error_of(await ask("control/list", auth=nobody, host="192.0.2.1"), 401)


@pytest.mark.parametrize("auth", ["geheim, geheim", Password])
def test_what_cannot_know_anybody_is_refused_and_not_repeated(app: Mainspring, auth: Any) -> None:  # noqa: ANN401 - a mistake
    with pytest.raises(DeclarationError, match=r"api: auth is a Password\(…\)") as refused:
        api(app, auth=auth)
    assert "geheim" not in str(refused.value)


def test_an_api_is_that_of_an_app() -> None:
    with pytest.raises(DeclarationError, match=r"it is made of a Mainspring, and not of a str"):
        api("sqlite:///jobs.db")  # type: ignore[arg-type]  # the mistake
