"""What is measured can be read by Prometheus, whatever names there are, and costs no count."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from mainspring import Every, Mainspring
from mainspring.client.lags import Lag
from mainspring.client.measuring import Measured
from mainspring.client.metrics import EVERY, FAMILIES, LEFT_OUT, Family, bounded, escaped, text, written
from mainspring.core.tally import Count, Counted, Line
from mainspring.stores.memory import MemoryStore
from mainspring.stores.overview import Tally
from mainspring.testing import VirtualTime
from mainspring.web import Auth, Identity, TokenFile, api
from tests.web.conftest import LOCAL, client, error_of

NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)
A_MINUTE = timedelta(minutes=1)

names = st.text(min_size=1, max_size=20)
numbers = st.integers(0, 10_000)


def read(written: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Read a text as Prometheus does: families, and their series by the values of their labels."""
    families = {}
    for family in text_string_to_metric_families(written):
        series = [(tuple(one.labels.values()), one.value) for one in family.samples]
        assert len(series) == len(dict(series)), "a series is there twice"
        assert family.type == "gauge"
        assert family.documentation
        families[family.name] = dict(series)
    return families


# The text.


@given(st.text(st.characters(exclude_categories=["Cs"])), st.floats(allow_nan=False))
def test_any_label_and_any_number_is_read_back_as_it_was(label: str, value: float) -> None:
    family = Family("x", "Help with a \\ and a\nline.", ("a", "b"), lambda _: ())
    lines = "".join(f"{line}\n" for line in written(family, [((label, "b"), value)]))
    assert read(lines) == {"x": {(label, "b"): value}}


@given(st.text(st.characters()))
def test_what_has_no_place_in_utf_8_does_not_hinder_the_rest(label: str) -> None:
    measured = Measured(now=NOW, letters=((label, 1), ("other", 2)))
    assert sum(read(text(measured).encode().decode())["mainspring_dead_letters"].values()) == 3


@given(st.lists(st.tuples(names, names, numbers, numbers), max_size=60), st.integers(1, 40))
def test_series_are_bounded_and_nothing_is_lost_of_their_sum(rows: list[Any], most: int) -> None:
    counts = tuple(Count(queue=queue, task=task, due=due, running=running) for queue, task, due, running in rows)
    found = read(text(Measured(now=NOW, counts=counts), most))
    jobs = found.get("mainspring_jobs", {})
    assert len(jobs) <= most + 3  # `others`, in each of three states
    for state, total in (("due", sum(row[2] for row in rows)), ("running", sum(row[3] for row in rows))):
        assert sum(value for labels, value in jobs.items() if labels[2] == state) == total
    left_out = found.get(LEFT_OUT, {}).get(("mainspring_jobs",), 0)
    assert left_out == max(0, 3 * len({row[:2] for row in rows}) - most)


def test_ages_are_not_added_up_but_the_highest_counts() -> None:
    counts = tuple(
        Count(queue=f"q{number}", task="t", due=1, oldest=NOW - timedelta(seconds=number)) for number in range(10)
    )
    ages = read(text(Measured(now=NOW, counts=counts), 3))["mainspring_oldest_due_age_seconds"]
    assert ages == {("q0",): 0, ("q1",): 1, ("q2",): 2, ("others",): 9}


def test_which_series_are_kept_does_not_depend_on_their_values() -> None:
    (family, *_) = FAMILIES
    kept = [
        set(
            bounded(family, 2, [(("q", name, "due"), value * sign) for name, value in (("a", 1), ("b", 2), ("c", 3))])[
                0
            ]
        )
        for sign in (1.0, -1.0)
    ]
    assert kept[0] == kept[1]


def test_what_nobody_knows_is_left_out_and_no_zero() -> None:
    found = read(text(Measured(now=NOW)))
    assert {"mainspring_jobs", "mainspring_census_age_seconds", "mainspring_attempts_last_minute"}.isdisjoint(found)
    assert found["mainspring_nodes"] == {("alive",): 0, ("dead",): 0}


def test_every_family_has_a_name_that_prometheus_takes() -> None:
    for family in EVERY:
        assert family.name.startswith("mainspring_")
        assert family.help.endswith(".")
        assert set(family.few) <= set(family.labels)
    assert len({family.name for family in EVERY}) == len(EVERY)


@pytest.mark.parametrize(("plain", "safe"), [("a\\b", "a\\\\b"), ('a"b', 'a\\"b'), ("a\nb", "a\\nb"), ("a\rb", "a\rb")])
def test_three_characters_are_escaped(plain: str, safe: str) -> None:
    assert escaped(plain) == safe


# What is gathered.


class Counting(MemoryStore):
    """A store that says what it was asked."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - the store's own
        super().__init__(**options)
        self.asked: list[str] = []

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - as above
        if name in {"census", "search", "list_jobs", "queues", "audit"}:
            self.asked.append(name)
        return super().__getattribute__(name)


@pytest.fixture
def store(virtual_time: VirtualTime) -> Counting:
    return Counting(clock=virtual_time.clock)


@pytest.fixture
def app(virtual_time: VirtualTime, store: Counting) -> Mainspring:
    return Mainspring(store, clock=virtual_time.clock)


async def test_a_minute_is_told_when_nodes_have_written_all_of_it(app: Mainspring) -> None:
    @app.task(name="work")
    async def work() -> None: ...

    async def at_work() -> None:
        while True:
            await work.enqueue()
            await asyncio.sleep(1)

    async with app, app.node():
        await asyncio.sleep(5)  # so that nodes do not write when a minute ends
        working = asyncio.create_task(at_work())
        await asyncio.sleep(130)
        told = []
        for _ in range(30):
            told.append(read(text(await app.measure()))["mainspring_attempts_last_minute"])
            await asyncio.sleep(2)
        working.cancel()
    numbers = [one["default", "work", "succeeded"] for one in told]
    assert min(numbers) >= 59
    assert max(numbers) <= 61


async def test_all_of_it_is_gathered_from_what_was_written_down(app: Mainspring, store: Counting) -> None:
    orders = app.outbox("orders", partitions=2)

    @app.task(breaker=True, name="flaky")
    async def flaky() -> None: ...

    @app.schedule(Every("1h"))
    @app.task(name="hourly")
    async def hourly() -> None: ...

    async with app:
        async with app.node(concurrency=7):
            await app.breakers.open("flaky")
            await orders.publish(None, {"n": 1}, partition=1)
            await asyncio.sleep(20)
            this_minute = store.now().replace(second=0, microsecond=0)
            line = Line(queue="mail", task="send", ends={"succeeded": 5, "failed": 2}, errors={"OSError": 2})
            now = store.now()
            count = Count(queue="mail", task="send", due=3, later=2, running=1, oldest=now - timedelta(seconds=40))
            await store.write_tallies(
                [
                    tally(this_minute - A_MINUTE, "one", Counted(lines=(line,))),
                    tally(this_minute - A_MINUTE, "two", Counted(lines=(line,), enqueued=9)),
                    tally(this_minute - 2 * A_MINUTE, "one", Counted(lines=(line,))),
                    tally(this_minute, "", Counted(counted_at=now, counts=(count,), nodes=1, places=7)),
                    Tally(at=this_minute, span=A_MINUTE, by="newer", body=b'{"lines": 7}'),
                ]
            )
            store.asked.clear()
            found = read(text(await app.measure()))
            assert store.asked == []
        assert found["mainspring_jobs"] == {
            ("mail", "send", "due"): 3,
            ("mail", "send", "later"): 2,
            ("mail", "send", "running"): 1,
        }
        assert found["mainspring_oldest_due_age_seconds"] == {("mail",): 40}
        assert found["mainspring_attempts_last_minute"] == {
            ("mail", "send", "succeeded"): 10,
            ("mail", "send", "failed"): 4,
        }
        assert found["mainspring_errors_last_minute"] == {("mail", "send", "OSError"): 4}
        assert found["mainspring_enqueued_last_minute"] == {(): 9}
        assert 0 <= found["mainspring_census_age_seconds"][()] <= 60
        assert found["mainspring_nodes"] == {("alive",): 1, ("dead",): 0}
        assert found["mainspring_places"] == {(): 7}
        assert found["mainspring_breaker_open"] == {("flaky",): 1}
        assert found["mainspring_schedules_late"] == {(): 0}
        assert found["mainspring_outbox_lag_messages"] == {("orders", "0"): 0, ("orders", "1"): 1}
        assert found["mainspring_outbox_lag_seconds"] == {("orders", "0"): 0, ("orders", "1"): 20}
        assert found["mainspring_dead_letters"] == {("orders",): 0}

        await asyncio.sleep(2 * 3600)  # nobody ticks
        found = read(text(await app.measure()))
        assert found["mainspring_schedules_late"] == {(): 1}
        assert found["mainspring_nodes"] == {("alive",): 0, ("dead",): 1}
        assert "mainspring_jobs" not in found


@pytest.mark.parametrize("kind", ["sqlite", "sidecar"])
async def test_every_store_can_be_measured_as_far_as_it_goes(
    tmp_path: Path, virtual_time: VirtualTime, kind: str
) -> None:
    app = Mainspring(f"{kind}:///{tmp_path / 'kept'}", clock=virtual_time.clock)

    @app.schedule(Every("1h"))
    @app.task(name="hourly")
    async def hourly() -> None: ...

    async with app, app.node():
        found = read(text(await app.measure()))
    assert found["mainspring_nodes"][("alive",)] == 1
    assert found["mainspring_schedules_late"] == {(): 0}


def tally(at: datetime, by: str, counted: Counted) -> Tally:
    return Tally(at=at, span=A_MINUTE, by=by, body=msgspec.json.encode(counted))


def test_partitions_that_are_behind_are_told_also_if_they_are_many() -> None:
    nothing: dict[str, Any] = dict.fromkeys(Lag.__struct_fields__)
    lags = tuple(Lag(**{**nothing, "outbox": "o", "partition": one, "backlog": one}) for one in range(3))
    found = read(text(Measured(now=NOW, lags=lags)))
    assert len(found["mainspring_outbox_lag_messages"]) == 3
    assert list(found["mainspring_outbox_lag_seconds"].values()) == [0]


# Over HTTP.


async def scraped(
    app: Mainspring,
    auth: Auth | None = None,
    *,
    path: str = "/metrics",
    host: str = LOCAL,
    root_path: str = "",
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    async with client(api(app, auth=auth), host=host, root_path=root_path) as found:
        return await found.get(path, headers=headers)


async def test_this_machine_may_scrape(app: Mainspring) -> None:
    response = await scraped(app)
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert response.headers["cache-control"] == "no-store"
    assert read(response.text)["mainspring_running"] == {(): 0}


async def test_others_may_not_without_auth(app: Mainspring) -> None:
    assert error_of(await scraped(app, host="203.0.113.7"), 403)["code"] == "closed"


async def test_a_scraper_is_known_by_its_token(app: Mainspring, tmp_path: Any) -> None:  # noqa: ANN401 - a path
    (tmp_path / "tokens").write_text("prometheus viewer R0mHq2pYdQe1J5cW8uZk3vXb7nLs9tFg\n", encoding="utf-8")
    auth = TokenFile(tmp_path / "tokens")
    assert error_of(await scraped(app, auth, host="203.0.113.7"), 401)["code"] == "unknown"
    token = {"authorization": "Bearer R0mHq2pYdQe1J5cW8uZk3vXb7nLs9tFg"}
    assert (await scraped(app, auth, host="203.0.113.7", headers=token)).status_code == 200


async def test_a_programs_own_auth_may_refuse_in_its_own_words(app: Mainspring) -> None:
    def refuse(_: HTTPConnection) -> None:
        raise HTTPException(401, "sign in first", {"www-authenticate": "Bearer"})

    response = await scraped(app, refuse)
    assert error_of(response, 401)["message"] == "sign in first"
    assert response.headers["www-authenticate"] == "Bearer"


async def test_what_nobody_has_thought_of_is_told_by_its_id(app: Mainspring, monkeypatch: pytest.MonkeyPatch) -> None:
    async with app:
        monkeypatch.setattr(app.store, "nodes", None)
        assert error_of(await scraped(app), 500)["code"] == "internal"


async def test_who_may_not_look_may_not_scrape(app: Mainspring) -> None:
    nobody = Identity("nobody", frozenset())
    assert error_of(await scraped(app, lambda _: nobody), 403)["code"] == "not_allowed"


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
@pytest.mark.parametrize(("root", "asked"), [("", ""), ("/a/b", "/a/b"), ("/a/b", "/b"), ("/a/b", "")])
async def test_it_is_found_under_any_prefix(app: Mainspring, root: str, asked: str, path: str) -> None:
    assert (await scraped(app, path=asked + path, root_path=root)).status_code == 200


async def test_a_store_that_hangs_is_not_waited_for(app: Mainspring, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(_: Any) -> Any:  # noqa: ANN401 - nothing
        await asyncio.Event().wait()

    async with app:
        monkeypatch.setattr(app.store, "nodes", lambda: hang(None))
        assert error_of(await scraped(app), 503)["code"] == "store_unavailable"
