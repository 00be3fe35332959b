"""Payloads of the maximum length do not block the event loop, and an answer stays within its budget."""

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring import Context, Mainspring
from mainspring.client.preview import PREVIEW_BYTES, completed
from mainspring.client.redact import ANSWER_BYTES, HIDDEN, Redactor
from mainspring.core.job import JobId
from mainspring.core.names import Name
from mainspring.ids import new_id
from mainspring.stores.memory import MemoryStore
from mainspring.stores.outbox import Letter, LetterState
from mainspring.stores.port import Store
from mainspring.stores.records import NewJob
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime, drain
from mainspring.web import dashboard
from mainspring.web.pages.render import Templates
from tests.web.conftest import BASE, client
from tests.web.test_description import MESSAGE, NOON
from tests.web.world import ADMIN

ZEROS = [0] * 130_000
LONG_NAMES = {f"{number:05}" + "a1" * 497: 0 for number in range(258)}
LISTS = ("/jobs?part=rows", "/jobs?limit=200", f"{BASE}/jobs/list?limit=200")


@dataclass
class Work:
    """What was decoded, and the threads that decoded or rendered."""

    sizes: list[int] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)

    def clear(self) -> None:
        self.sizes.clear()
        self.threads.clear()


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """Record decoding, which `redact` and `plain` do through the module, and rendering."""
    seen = Work()
    decode, page, part = msgspec.json.decode, Templates.page, Templates.part

    def decoded(stored: Any, **how: Any) -> Any:  # noqa: ANN401 - as msgspec has it
        seen.sizes.append(len(stored))
        seen.threads.add(threading.get_ident())
        return decode(stored, **how)

    def rendered(self: Templates, *given: Any) -> str:  # noqa: ANN401 - as above
        seen.threads.add(threading.get_ident())
        return (page if len(given) == 2 else part)(self, *given)

    monkeypatch.setattr(msgspec.json, "decode", decoded)
    monkeypatch.setattr(Templates, "page", rendered)
    monkeypatch.setattr(Templates, "part", rendered)
    return seen


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, virtual_time: VirtualTime, tmp_path: Path) -> Store:
    clock = virtual_time.clock
    return MemoryStore(clock=clock) if request.param == "memory" else SqliteStore(tmp_path / "jobs.db", clock=clock)


def declared(store: Store, virtual_time: VirtualTime) -> Mainspring:
    app = Mainspring(store, clock=virtual_time.clock)

    @app.task(name="take")
    async def take(value: Any, secret: str = "") -> None: ...  # noqa: ANN401 - any JSON

    @app.task(name="keep")
    async def keep(ctx: Context, value: Any) -> Any:  # noqa: ANN401 - as above
        await ctx.save("value", value)
        return value

    return app


@pytest.mark.slow
@pytest.mark.parametrize("value", [ZEROS, LONG_NAMES], ids=["numbers", "names"])
async def test_a_list_of_the_longest_payloads_decodes_a_preview_of_each_beside_the_event_loop(
    store: Store, virtual_time: VirtualTime, work: Work, value: object
) -> None:
    app = declared(store, virtual_time)
    async with app, client(dashboard(app, auth=lambda _: ADMIN)) as found:
        await app.enqueue_many([app.find("take").call(value) for _ in range(200)])
        for address in LISTS:
            work.clear()
            response = await found.get(address)
            assert response.status_code == 200, response.text
            assert len(response.content) < ANSWER_BYTES
            assert sum(work.sizes) < 200 * 3 * PREVIEW_BYTES  # once to hide, once to show
            assert threading.get_ident() not in work.threads
        for job in (await found.get(LISTS[-1])).json()["jobs"]:
            assert job["cut"]["payload"] > 250_000
            assert set(job["payload"]) == {"v", "args"}


async def test_a_list_has_sizes_instead_of_results_and_saved_values(
    store: Store, virtual_time: VirtualTime, work: Work
) -> None:
    app = declared(store, virtual_time)
    async with app, client(dashboard(app, auth=lambda _: ADMIN)) as found:
        job = await app.enqueue("keep", ZEROS[:10_000])
        await drain(app)
        work.clear()
        (listed,) = (await found.get(f"{BASE}/jobs/list")).json()["jobs"]
        assert (listed["result"], listed["saved"]) == (None, None)
        assert listed["cut"].keys() == {"payload", "saved", "result"}
        assert all(size > 20_000 for size in listed["cut"].values())
        assert sum(work.sizes) < 4 * PREVIEW_BYTES
        shown = (await found.get(f"{BASE}/jobs/show", params={"id": str(job.id)})).json()["job"]
        assert shown["result"]["value"] == shown["saved"]["value"] == ZEROS[:10_000]
        assert shown["cut"] is None


async def test_a_job_that_exceeds_the_budget_of_an_answer_is_shortened_and_has_its_sizes(
    store: Store, virtual_time: VirtualTime, work: Work
) -> None:
    app = declared(store, virtual_time)
    async with app, client(dashboard(app, auth=lambda _: ADMIN)) as found:
        id_ = JobId(new_id(app.store.now()))
        payload = b'{"v":1,"args":{"user":"anna","password":"s3cret","value":"' + b"x" * ANSWER_BYTES + b'"}}'
        retry = app.find("take").definition.retry
        new = NewJob(id=id_, task=Name("", "take"), payload=payload, backoff=retry.backoff, max_attempts=1)
        await app.store.enqueue([new])
        work.clear()
        shown = (await found.get(f"{BASE}/jobs/show", params={"id": str(id_)})).json()["job"]
        assert shown["cut"] == {"payload": len(payload), "saved": 0, "result": 0}
        args = shown["payload"]["args"]
        assert (args["user"], args["password"], set(args["value"])) == ("anna", HIDDEN, {"x"})
        page = (await found.get(f"/job?id={id_}")).text
        assert "the beginning of 2.0 MB" in page
        assert max(work.sizes) <= 3 * PREVIEW_BYTES
        assert threading.get_ident() not in work.threads


async def test_the_last_log_lines_are_shown_and_the_earlier_ones_counted(
    store: Store, virtual_time: VirtualTime
) -> None:
    app = declared(store, virtual_time)

    @app.task(name="talk")
    async def talk(ctx: Context) -> None:
        for number in range(150):
            ctx.log(f"{number:04}" + "x" * 9_996)

    async with app, client(dashboard(app, auth=lambda _: ADMIN)) as found:
        job = await app.enqueue("talk")
        await drain(app)
        shown = (await found.get(f"{BASE}/jobs/show", params={"id": str(job.id)})).json()
        assert [int(line["message"][:4]) for line in shown["lines"]] == list(range(50, 150))
        assert shown["lines_cut"] == 50
        assert "after 50 earlier" in (await found.get(f"/job?id={job.id}")).text


def test_values_beyond_the_budget_of_an_answer_are_replaced_by_their_size() -> None:
    payload = msgspec.json.encode({"v": 1, "value": "x" * 600_000})
    letter = Letter(
        id=1, message=msgspec.structs.replace(MESSAGE, payload=payload), state=LetterState.PENDING, attempts=1,
        error="", failed_at=NOON,
    )  # fmt: skip
    shown = [one.message.payload for one in Redactor(show_unknown=True).whole([letter] * 5)]
    assert shown == [payload] * 3 + [msgspec.json.encode({"cut": len(payload)})] * 2


def test_values_under_a_name_that_is_too_long_to_be_looked_at_are_hidden() -> None:
    rule = Redactor().rule(None)
    assert rule.hides("a" * 201)
    assert not rule.hides("a" * 200)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(JSON, st.integers(0, 10_000), st.booleans())
def test_the_beginning_of_any_document_is_completed_to_one_that_can_be_decoded(
    value: object, at: int, is_ascii: bool
) -> None:
    whole = json.dumps({"v": 1, "args": value}, ensure_ascii=is_ascii).encode("utf-8", "backslashreplace")
    beginning = completed(whole[: at % (len(whole) + 1)])
    if beginning is None:
        assert at % (len(whole) + 1) == 0
    else:
        assert json.loads(beginning.text).get("v", 1) == 1
        msgspec.json.decode(beginning.text)


@pytest.mark.parametrize("wrong", [b"", b"]", b"7", b'"text', b"\xff{", b",", b":"])
def test_the_beginning_of_an_invalid_document_is_not_completed(wrong: bytes) -> None:
    assert completed(wrong) is None
