"""What is secret by its name, or by its task's word, leaves by no route, and cannot be asked for either."""

import tracemalloc
from contextlib import nullcontext
from typing import Any
from uuid import UUID

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from starlette.types import ASGIApp

from mainspring import Limit, Mainspring, Manual
from mainspring.client.redact import (
    HIDDEN,
    HIDDEN_UNHANDLED,
    HIDDEN_UNKNOWN,
    NAMES,
    Redactor,
    Rule,
    _beginning,
    _content,
    parts,
)
from mainspring.core.backoff import Backoff
from mainspring.core.job import JobId, State
from mainspring.core.names import Name
from mainspring.errors import DeclarationError
from mainspring.ids import new_id
from mainspring.outbox.message import Message as OutboxMessage
from mainspring.stores.memory import MemoryStore
from mainspring.stores.outbox import Letter, LetterState
from mainspring.stores.overview import Argument, Search
from mainspring.stores.records import NewJob
from mainspring.testing import VirtualTime
from mainspring.web import api, dashboard
from mainspring.web.groups import ALL
from tests.web.conftest import BASE, client
from tests.web.test_description import MESSAGE, NOON
from tests.web.world import ADMIN, Asks, World, declare, in_world

RULE = Redactor().rule(None)
WORDS = st.sampled_from(["user", "old", "x", "db", "2", "the"])


def snake(words: list[str]) -> str:
    return "_".join(words)


def camel(words: list[str]) -> str:
    return words[0] + "".join(word.title() for word in words[1:])


def pascal(words: list[str]) -> str:
    return "".join(word.title() for word in words)


def dashed(words: list[str]) -> str:
    return "-".join(word.title() for word in words)


def loud(words: list[str]) -> str:
    return "_".join(words).upper()


@given(st.lists(WORDS, max_size=3), st.sampled_from(NAMES), st.lists(WORDS, max_size=3), st.data())
def test_a_name_is_hidden_in_whatever_case_and_among_other_words(
    before: list[str], name: str, after: list[str], data: st.DataObject
) -> None:
    written = data.draw(st.sampled_from([snake, camel, pascal, dashed, loud]))
    assert RULE.hides(written([*before, *name.split("_"), *after]))


@pytest.mark.parametrize(
    "name",
    [
        *(
            "apikey",
            "APIKey",
            "HTTPAuthorization",
            "passWord",
            "PASSWORD2",
            "user.password",
            "x-api-key",
            "Kennwort_pwd",
        ),
        *("dbpassword", "authtoken", "accesstoken", "clientsecret", "secretkey", "userpwd", "apikeys", "api_keys"),
        *(
            "pass",
            "db_pass",
            "auth",
            "bearer",
            "jwt",
            "otp",
            "user_pin2",
            "sessionid",
            "session_id",
            "csrf",
            "signature",
        ),
    ],
)
def test_some_that_are_easily_overlooked_are_hidden(name: str) -> None:
    assert RULE.hides(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "max_tokens",
        "tokenizer",
        "secretary",
        "passwordless_",
        "pass_count",
        "compass",
        "bypass_wait",
        "session_count",
        "pin_color",
        "spinning",
        "secretion",
        "key",
        "cardinal",
        "cookiecutter",
        "id",
        "\U0001f511",
    ],
)
def test_words_that_only_begin_alike_are_shown(name: str) -> None:
    assert not RULE.hides(name)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "token", "apiKey"]), inner, max_size=3)
    ),
    max_leaves=20,
)


@given(JSON)
def test_what_is_hidden_is_hidden_at_any_depth_and_the_rest_is_as_it_was(value: Any) -> None:  # noqa: ANN401 - JSON
    def check(before: Any, after: Any) -> None:  # noqa: ANN401 - JSON
        match before:
            case dict():
                assert before.keys() == after.keys()
                for key in before:
                    if key in {"token", "apiKey"}:
                        assert after[key] == HIDDEN
                    else:
                        check(before[key], after[key])
            case list():
                assert len(before) == len(after)
                for one, other in zip(before, after, strict=True):
                    check(one, other)
            case _:
                assert after == before

    check(value, RULE.applied(value))


@given(JSON, st.sampled_from(["args", "value"]))
def test_nothing_of_a_task_that_hides_everything_is_shown(value: Any, name: str) -> None:  # noqa: ANN401 - JSON
    def leaves(value: Any) -> set[object]:  # noqa: ANN401 - JSON
        match value:
            case dict():
                return set().union(*(leaves(one) for one in value.values()))
            case list():
                return set().union(*(leaves(one) for one in value))
            case _:
                return {value}

    del name
    assert leaves(Rule(frozenset(), everything=True).applied(value)) <= {HIDDEN}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("postgresql://app:S3cret@db:5432/jobs", f"postgresql://app:{HIDDEN}@db:5432/jobs"),
        ("see amqp://:S3@cret@mq and https://x.y:8080/a@b", f"see amqp://:{HIDDEN}@mq and https://x.y:8080/a@b"),
        ("https://example.com/a:b@c", "https://example.com/a:b@c"),
        ([["Authorization", "S3cret"], ["Accept", "text/html"]], [["Authorization", HIDDEN], ["Accept", "text/html"]]),
        ({"name": "Authorization", "value": "S3cret"}, {"name": "Authorization", "value": HIDDEN}),
        ({"name": "color", "value": "red"}, {"name": "color", "value": "red"}),
        (["token", None], ["token", None]),
    ],
)
def test_passwords_of_urls_and_values_of_pairs_are_hidden(value: Any, shown: Any) -> None:  # noqa: ANN401 - JSON
    assert RULE.applied(value) == shown


def test_a_value_cut_before_its_name_or_within_a_password_is_hidden() -> None:
    for payload in (
        b'{"v":1,"args":{"headers":[{"value":"S3cret","x":"' + b"x" * 50,
        b'{"v":1,"args":{"url":"postgresql://app:S3cret',
        b'{"v":1,"args":{"pair":["Authorization","S3cret',
        b'{"v":1,"args":{"password":"S3cret',
    ):
        assert b"S3c" not in _beginning(RULE, payload, "args")
    assert b"S3c" in _beginning(RULE, b'{"v":1,"args":{"value":"S3cret', "args")


def test_a_url_with_a_password_is_not_searched_for() -> None:
    for value, refused in (("postgresql://a:b@c/d", True), ("postgresql://c/d", False)):
        search = Search(argument=Argument(path=("url",), value=msgspec.json.encode(value)))
        with pytest.raises(DeclarationError, match="not shown") if refused else nullcontext():
            Redactor().check(search)


def test_names_that_are_none_are_refused() -> None:
    for wrong in ([""], ["_"], [7], [None]):
        with pytest.raises(DeclarationError, match="redact"):
            Redactor(names=wrong)  # type: ignore[arg-type]  # what is shown
    with pytest.raises(DeclarationError, match="redact"):
        api(Mainspring("memory://"), redact=["-"])


def test_a_single_name_is_no_list_of_letters() -> None:
    rule = Redactor(names="iban").rule(None)
    assert rule.hides("iban")
    assert not rule.hides("i")


def test_what_is_too_deep_to_look_into_is_not_shown() -> None:
    deep = b'{"v":1,"args":' + b'{"a":' * 5000 + b'"s3cret"' + b"}" * 5001
    app = Mainspring("memory://")

    async def none(x: int) -> None: ...

    definition = app.task(name="none", redact=True)(none).definition
    assert definition.redact is True
    assert b"s3cret" not in _content(Rule(frozenset(), everything=True), deep, "args")


# By every way out.


@in_world
async def test_no_route_shows_what_is_secret(world: World, ask: Asks) -> None:
    """Everything that can be looked at is looked at, and searched for what must not be in it."""
    jobs = (await ask("jobs/list", limit="200"))["jobs"]
    asked = {
        "jobs.show": [{"id": job["id"]} for job in jobs],
        "schedules.show": [{"name": name} for name in ("nightly", "often", "by-hand")],
        "nodes.show": [{"id": world.node.id}],
        "breakers.show": [{"task": "fail"}],
    }
    for route in ALL:
        if not route.changes:
            for query in asked.get(route.name, [{}]):
                response = await ask.response(route.path.strip("/"), **query)
                if response.status_code == 409 and route.name == "audit.list":
                    continue
                assert response.status_code == 200, response.text
                for secret in ("s3cret", "geheim", "DE1", "4111", "nobody hears"):
                    assert secret not in response.text, route.name
    for action, body in [("jobs/clone", {"id": world.hidden}), ("jobs/cancel", {"id": world.hidden})]:
        assert "s3cret" not in (await ask.response(action, body)).text


@in_world
async def test_what_is_not_secret_is_shown(world: World, ask: Asks) -> None:
    shown = (await ask("jobs/show", id=world.hidden))["job"]
    assert shown["payload"]["args"] == {
        "user": "anna",
        "password": HIDDEN,
        "iban": HIDDEN,
        "nested": {"userPassword": HIDDEN, "list": [{"apiKey": HIDDEN, "fine": 2}]},
    }
    assert shown["key"] == HIDDEN
    assert msgspec.json.decode(shown["unique"]["key"])["user"] == "anna"
    assert (await ask("jobs/show", id=world.jobs[State.SUCCEEDED]))["job"]["result"]["value"] == {"sum": 3}
    (quiet,) = (await ask("jobs/list", task="quiet"))["jobs"]
    assert quiet["payload"]["args"] == {"words": HIDDEN}


@in_world
async def test_a_program_names_more(world: World) -> None:
    async with client(api(world.app, auth=lambda _: ADMIN, redact=["user", "sum"])) as found:
        shown = (await found.get(f"{BASE}/jobs/show", params={"id": world.hidden})).json()["job"]
        assert shown["payload"]["args"]["user"] == HIDDEN
        done = (await found.get(f"{BASE}/jobs/show", params={"id": world.jobs[State.SUCCEEDED]})).json()["job"]
        assert done["result"]["value"] == {"sum": HIDDEN}
        refused = await found.get(f"{BASE}/jobs/list", params={"argument": "user"})
        assert refused.status_code == 422


ASKED = [
    ({"argument": 'password="s3cret"'}, True),
    ({"argument": "password"}, True),
    ({"argument": 'nested.userPassword="s3cret"'}, True),
    ({"argument": 'nested={"userPassword": "s3cret"}'}, True),
    ({"argument": 'iban="DE1"', "task": "login"}, True),
    ({"argument": 'iban="DE1"'}, True),
    ({"argument": 'words="nobody hears"'}, True),
    ({"argument": 'words="nobody hears"', "task": "quiet"}, True),
    ({"key": "DE1"}, True),
    ({"key": "DE1", "task": "login"}, True),
    ({"key": "DE1", "task": "add"}, False),
    ({"argument": 'iban="DE1"', "task": "add"}, False),
    ({"argument": 'user="anna"'}, False),
    ({"argument": "a=1"}, False),
]


@in_world
async def test_what_is_hidden_is_not_told_by_asking(ask: Asks) -> None:
    for query, refused in ASKED:
        response = await ask.response("jobs/list", **query)
        body = {"action": "cancel", "which": query, "dry_run": True}
        for one in (response, await ask.response("jobs/bulk", body)):
            assert (one.status_code == 422) == refused, one.text


@in_world
async def test_an_error_does_not_tell_what_a_unique_key_is_made_of(world: World, ask: Asks) -> None:
    await ask("jobs/cancel", {"id": world.hidden})
    other = await world.app.enqueue("login", "anna", "s3cret", iban="DE1")
    await world.app.job(other.id).cancel()
    taken = await world.app.enqueue("login", "anna", "s3cret", iban="DE1")
    error = await ask.fails(409, "jobs/retry", {"id": str(other.id)})
    assert (error["code"], error["message"]) == ("conflict", f"its unique key is taken by job {taken.id}")
    step = await ask("jobs/bulk", {"action": "retry", "ids": [str(other.id)]})
    assert [one["problem"] for one in step["problems"]] == [error["message"]]


class Odd(msgspec.Struct, frozen=True):
    """A record that a route might have one day."""

    jobs: dict[str, Any]


STRANGE = [
    b'{"v":1,"args":{"user":"\xff"}}',
    b"\xff",
    b'"\xed\xa0\x80"',
    b"[" * 5000 + b"]" * 5000,
    b"",
    b"{}",
    b"null",
    b"[7]",
    b'{"args":[7]}',
    b'{"args":7}',
    b'{"v":9,"args":null}',
]


@pytest.mark.parametrize("payload", STRANGE, ids=lambda payload: payload[:30].hex())
async def test_what_another_program_wrote_wrongly_hides_no_other_job(virtual_time: VirtualTime, payload: bytes) -> None:
    """A letter that is not UTF-8, or too many brackets: who enqueues by SQL may write what it likes."""
    app = declare(Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)).app
    async with app, client(dashboard(app, auth=lambda _: ADMIN)) as found:
        for task in ("login", "quiet", "unknown"):
            id_ = JobId(new_id(app.store.now()))
            new = NewJob(id=id_, task=Name("", task), payload=payload, backoff=Backoff.fixed("1s"), max_attempts=1)
            await app.store.enqueue([new])
            for path in ("/jobs", f"/job?id={id_}", f"{BASE}/jobs/show?id={id_}", f"{BASE}/jobs/list"):
                response = await found.get(path)
                assert response.status_code == 200, response.text
            cloned = await found.post(f"{BASE}/jobs/clone", json={"id": str(id_)})
            assert cloned.status_code in {200, 422}, cloned.text
        assert (await found.get(f"{BASE}/jobs/list", params={"argument": "user"})).status_code == 200


@in_world
async def test_no_record_is_too_odd_to_be_looked_through(world: World) -> None:
    (view,) = await world.app.store.get([JobId(UUID(world.hidden))])
    redactor = Redactor(world.app.registry)
    for record in ([view], (view,), {"a": view}, {"a": [{"b": (view,)}]}, Odd(jobs={"a": (view,)})):
        assert "s3cret" in str(record)
        assert "s3cret" not in str(redactor.whole(record))


def test_an_argument_that_a_task_once_had_is_not_searched_for_either() -> None:
    app = Mainspring("memory://")

    @app.task(name="pay", redact=["iban"])
    async def pay(user: str) -> None: ...

    with pytest.raises(DeclarationError, match="say of which task: pay"):
        Redactor(app.registry).check(Search(argument=Argument(path=("iban",))))


def test_of_a_task_that_hides_everything_not_even_the_keys_of_its_result_are_shown() -> None:
    everything = Rule(frozenset(), everything=True)
    for hidden in ({"anna@example.com": 7}, ["anna"], "anna", 7):
        stored = msgspec.json.encode({"v": 1, "value": hidden})
        assert msgspec.json.decode(_content(everything, stored, "value")) == {"v": 1, "value": HIDDEN}


def test_a_task_says_what_is_hidden_of_it() -> None:
    app = Mainspring("memory://")

    @app.task(name="pay", redact="iban", limit=Limit(concurrency=1, key="user"), aliases="old")
    async def pay(iban: str, user: str) -> None: ...

    redactor = Redactor(app.registry)
    assert redactor.rule(Name("", "pay")).hides("the_iban")
    assert redactor.rule(Name("", "old")).hides("iban")
    assert redactor.rule(Name("", "other")).everything
    redactor.check(Search(key="anna", task=Name("", "pay")))
    redactor.check(Search(argument=Argument(path=("user",), value=b'"anna"')))
    with pytest.raises(DeclarationError, match="say of which task: pay"):
        redactor.check(Search(argument=Argument(path=("iban",))))
    assert pay.definition.redact == ("iban",)


# Where the program of the dashboard does not have the task.


def other_program(world: World, **options: Any) -> ASGIApp:  # noqa: ANN401 - of `dashboard`
    """Make the dashboard of another program on the same store."""
    other = Mainspring(world.app.store, clock=world.app.clock)
    return dashboard(other, auth=lambda _: ADMIN, **options)


@in_world
async def test_the_rule_of_a_task_is_stored_with_its_jobs_and_holds_where_the_task_is_not_known(world: World) -> None:
    async with client(other_program(world)) as found:
        shown = (await found.get(f"{BASE}/jobs/show", params={"id": world.hidden})).json()["job"]
        args = shown["payload"]["args"]
        assert (args["user"], args["iban"], args["password"]) == ("anna", HIDDEN, HIDDEN)
        assert shown["key"] == HIDDEN  # its arguments cannot be determined here
        (quiet,) = (await found.get(f"{BASE}/jobs/list", params={"task": "quiet"})).json()["jobs"]
        assert quiet["payload"]["args"] == {"words": HIDDEN}
        schedule = (await found.get(f"{BASE}/schedules/show", params={"name": "often"})).text
        assert "geheim" not in schedule


@in_world
async def test_values_of_an_unknown_task_are_hidden_unless_a_rule_is_stored_or_the_program_shows_them(
    world: World,
) -> None:
    done = {"id": world.jobs[State.SUCCEEDED]}
    for show, args, result in (
        (False, {"a": HIDDEN_UNKNOWN, "b": HIDDEN_UNKNOWN}, HIDDEN_UNKNOWN),
        (True, {"a": 1, "b": 2}, {"sum": 3}),
    ):
        async with client(other_program(world, show_unknown=show)) as found:
            shown = (await found.get(f"{BASE}/jobs/show", params=done)).json()["job"]
            assert (shown["payload"]["args"], shown["result"]["value"]) == (args, result)
            page = (await found.get("/job", params=done)).text
            assert ("the task is not known here" in page) is not show


@in_world
async def test_hidden_values_of_an_unknown_task_cannot_be_searched_for(world: World) -> None:
    async def jobs(found: httpx.AsyncClient, **query: str) -> list[str]:
        response = await found.get(f"{BASE}/jobs/list", params=query)
        assert response.status_code == 200, response.text
        assert response.json()["after"] is None
        return [job["id"] for job in response.json()["jobs"]]

    async with client(other_program(world)) as found:
        for query in (
            {"argument": 'iban="DE1"'},
            {"argument": 'words="nobody hears"'},
            {"argument": "a=1"},
            {"key": "DE1"},
        ):
            assert await jobs(found, **query) == []
            refused = await found.get(f"{BASE}/jobs/list", params={**query, "task": "login"})
            assert refused.status_code == 422
        assert await jobs(found, argument='user="anna"') == [world.hidden]  # its stored rule shows that
    async with client(other_program(world, show_unknown=True)) as found:
        assert await jobs(found, argument='iban="DE1"') == []
        assert world.jobs[State.SUCCEEDED] in await jobs(found, argument="a=1", task="add")


def test_the_stored_rule_and_the_rule_of_the_task_both_apply() -> None:
    app = Mainspring("memory://")

    @app.task(name="pay", redact="iban")
    async def pay(iban: str, user: str) -> None: ...

    redactor = Redactor(app.registry)
    both = redactor.rule(Name("", "pay"), ("user",))
    assert both.hides("iban")
    assert both.hides("user")
    assert redactor.rule(Name("", "pay"), stored=True).everything


async def test_a_clone_and_the_job_of_a_schedule_have_the_rule_too(virtual_time: VirtualTime) -> None:
    app = declare(Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)).app
    async with app, client(api(app, auth=lambda _: ADMIN)) as found:
        first = await app.enqueue("login", "anna", iban="DE1")
        cloned = await found.post(f"{BASE}/jobs/clone", json={"id": str(first.id)})
        await app.schedules.add("pays", Manual(), app.find("login").call("otto", iban="DE2"))
        ran = await found.post(f"{BASE}/schedules/run", json={"name": "pays"})
        for response in (cloned, ran):
            assert response.status_code == 200, response.text
            (view,) = await app.store.get([JobId(UUID(response.json()["id"]))])
            assert view is not None
            assert view.facts.redact == ("iban",)


def test_names_are_taken_apart_once_and_no_longer_than_they_need() -> None:
    assert len(parts("a_" * 100_000)) <= 4
    assert "apikey" in parts("myApiKey")


def test_long_keys_of_what_strangers_sent_are_not_remembered() -> None:
    words = [f"{number:x}" for number in range(4096)]
    tracemalloc.start()
    try:
        for begin in range(0, 4000, 16):
            assert RULE.hides("_".join([*words[begin : begin + 200], "password"]))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000


def test_messages_that_become_jobs_are_hidden_as_those_are() -> None:
    app = Mainspring("memory://")

    @app.task(name="pay", redact=True)
    async def pay(order: dict[str, str]) -> None: ...

    app.outbox("orders").to(pay)
    app.outbox("published_only")

    @app.outbox("others").handler
    async def take(message: OutboxMessage[Any]) -> None: ...

    redactor = Redactor(app.registry, handled=app.outbox.handled)
    payload = msgspec.json.encode({"v": 1, "value": {"iban": "DE1"}})
    # Where the handler is not known, the messages may become jobs whose task hides them.
    for outbox, shown in [("orders", False), ("others", True), ("published_only", False), ("elsewhere", False)]:
        letter = Letter(
            id=1,
            message=replace(MESSAGE, outbox=outbox, payload=payload),
            state=LetterState.PENDING,
            attempts=1,
            error="",
            failed_at=NOON,
        )
        assert (b"DE1" in redactor.whole(letter).message.payload) == shown
    raw = replace(MESSAGE, payload=b"\xff\xfe")
    assert redactor.whole(raw).payload == msgspec.json.encode(HIDDEN)
    assert redactor.whole(replace(raw, outbox="others")).payload == b"\xff\xfe"
    assert redactor.whole(replace(raw, outbox="elsewhere")).payload == msgspec.json.encode(HIDDEN_UNHANDLED)
    open_ = Redactor(app.registry, handled=app.outbox.handled, show_unknown=True)
    assert open_.whole(replace(MESSAGE, outbox="elsewhere", payload=payload)).payload == payload
