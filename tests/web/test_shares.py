"""Limits per identity on searches, streams and lines of the audit log."""

import asyncio

import pytest

from mainspring import Mainspring
from mainspring.stores.memory import MemoryStore
from mainspring.stores.overview import EntryFilter, Overview
from mainspring.stores.port import Store
from mainspring.testing import VirtualTime
from mainspring.web import Identity, dashboard
from mainspring.web.problems import Problem
from mainspring.web.shares import MINUTE_S, REFUSALS, SEARCHES, WAITING_SEARCHES, Refusals, Searches, Strangers
from mainspring.web.ticks import FIRST, MAX_STREAMS_PER_IDENTITY, Ticks
from tests.web.conftest import BASE, client

VIEWER = Identity.of("vera", "viewer")


async def never() -> bool:
    return False


@pytest.mark.usefixtures("virtual_time")
async def test_of_one_identity_two_searches_run_at_a_time_and_others_are_not_held_up() -> None:
    searches, running, most = Searches(), 0, 0
    go_on = asyncio.Event()

    async def search(identity: str) -> None:
        nonlocal running, most
        async with searches.turn(identity, never):
            running += 1
            most = max(most, running)
            await go_on.wait()
            running -= 1

    tasks = [asyncio.create_task(search("vera")) for _ in range(SEARCHES + WAITING_SEARCHES)]
    await asyncio.sleep(0)
    assert running == SEARCHES
    other = asyncio.create_task(search("anna"))
    await asyncio.sleep(0)
    assert running == SEARCHES + 1
    with pytest.raises(Problem) as refused:
        await search("vera")
    assert refused.value.status == 429
    go_on.set()
    await asyncio.gather(*tasks, other)
    assert most == SEARCHES + 1
    await search("vera")  # and nothing is left of what it had


@pytest.mark.usefixtures("virtual_time")
async def test_a_search_whose_client_has_gone_while_it_waited_is_not_run() -> None:
    searches, go_on, ran = Searches(), asyncio.Event(), []

    async def gone() -> bool:
        return True

    async def search(name: str) -> None:
        async with searches.turn("vera", gone):
            ran.append(name)
            await go_on.wait()

    tasks = [asyncio.create_task(search(name)) for name in ("first", "second", "third")]
    await asyncio.sleep(0)
    go_on.set()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert ran == ["first", "second"]  # those had not to wait
    assert isinstance(done[2], Problem)


async def test_one_identity_cannot_take_all_streams(virtual_time: VirtualTime) -> None:
    app = Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)
    async with app:
        ticks = Ticks(app)
        streams = [ticks.stream("vera") for _ in range(MAX_STREAMS_PER_IDENTITY + 1)]
        assert [await anext(one, None) for one in streams] == [FIRST] * MAX_STREAMS_PER_IDENTITY + [None]
        other = ticks.stream("anna")
        assert await anext(other) == FIRST
        await streams[0].aclose()  # type: ignore[attr-defined]  # it is a generator
        assert not ticks.is_full("vera")
        for one in (*streams, other):
            await one.aclose()  # type: ignore[attr-defined]  # as above


def test_refusals_beyond_so_many_a_minute_are_counted() -> None:
    now = [0.0]
    refusals = Refusals(lambda: now[0])
    assert [refusals.add("vera") for _ in range(REFUSALS + 5)] == [True] * REFUSALS + [False] * 5
    assert refusals.add("anna")
    assert refusals.over() == []
    now[0] = MINUTE_S
    assert refusals.over() == [("vera", 5)]
    assert refusals.add("vera")


@pytest.mark.parametrize(
    ("action", "said"),
    [("queues/pause", {"name": "mail"}), ("jobs/bulk", {"action": "retry", "which": {}})],
    ids=["one", "many"],
)
async def test_refused_changes_do_not_fill_the_audit_log(
    virtual_time: VirtualTime, action: str, said: dict[str, object]
) -> None:
    store: Store = MemoryStore(clock=virtual_time.clock)
    app = Mainspring(store, clock=virtual_time.clock)
    async with app, client(dashboard(app, auth=lambda _: VIEWER)) as found:
        for _ in range(REFUSALS + 10):
            assert (await found.post(f"{BASE}/{action}", json=said)).status_code == 403
        assert isinstance(store, Overview)
        assert len((await store.audit(EntryFilter(), limit=1000)).entries) == REFUSALS


def test_requests_without_credentials_are_one_log_line_for_each_address_and_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    strangers = Strangers(lambda: now[0])
    for _ in range(5):
        strangers.came("192.0.2.1")
    strangers.came("192.0.2.2")
    now[0] = MINUTE_S
    strangers.came("192.0.2.1")
    assert [record.getMessage() for record in caplog.records] == [
        "request without valid credentials from 192.0.2.1",
        "request without valid credentials from 192.0.2.2",
        "request without valid credentials from 192.0.2.1, 4 more since the last such line",
    ]


async def test_a_read_without_credentials_is_logged(
    virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    app = Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)
    async with app, client(dashboard(app, auth=lambda _: None)) as found:
        for _ in range(3):
            assert (await found.get(f"{BASE}/jobs/list")).status_code == 401
    assert [text for one in caplog.records if "credentials" in (text := one.getMessage())] == [
        "request without valid credentials from 127.0.0.1"
    ]
