"""Named locks: one holder at a time, kept while they are held, lost when they are not, and told apart by their terms."""

import asyncio
from datetime import timedelta

import pytest

from mainspring import Mainspring
from mainspring.client.lock import NamedLock
from mainspring.errors import DeclarationError, StoreUnavailable
from mainspring.stores.memory import MemoryStore
from mainspring.stores.records import Lock
from mainspring.testing import VirtualTime
from mainspring.testing.faults import FaultyStore
from tests.app.conftest import MakeStore


def is_held(lock: NamedLock) -> bool:
    """Ask anew: mypy takes a property for something that stays as it was."""
    return lock.held


async def test_a_lock_has_one_holder_and_its_term_grows(app: Mainspring, virtual_time: VirtualTime) -> None:
    order: list[str] = []

    async def work(name: str, seconds: float) -> int:
        async with app.lock("import") as lock:
            assert is_held(lock)
            order.append(f"{name} in")
            await asyncio.sleep(seconds)
            order.append(f"{name} out")
            return lock.term

    async with app:
        first = asyncio.create_task(work("first", 100))  # for longer than its ttl of 30 s
        await asyncio.sleep(1)
        second = asyncio.create_task(work("second", 1))

        assert await second > await first
        assert order == ["first in", "first out", "second in", "second out"]
        assert 101 <= virtual_time.elapsed <= 102.5


async def test_two_apps_share_a_lock_by_its_name(make_store: MakeStore, virtual_time: VirtualTime) -> None:
    one = Mainspring(make_store(), clock=virtual_time.clock)
    two = Mainspring(make_store(), clock=virtual_time.clock)
    async with one, two, one.lock("import"):
        with pytest.raises(TimeoutError, match="the lock 'import' was held by others for 5 s"):
            async with two.lock("import", timeout="5s"):
                pytest.fail("it was not free")
        assert 5 <= virtual_time.elapsed <= 5.1
        async with two.lock("export", timeout=0):
            pass


async def test_no_time_to_wait_means_one_try(app: Mainspring, virtual_time: VirtualTime) -> None:
    async with app, app.lock("import"):
        with pytest.raises(TimeoutError):
            async with app.lock("import", timeout=0):
                pytest.fail("it was not free")
        assert virtual_time.elapsed == 0


def test_a_name_that_is_too_long_for_an_index_is_refused(app: Mainspring) -> None:
    with pytest.raises(DeclarationError, match="length 201 exceeds the limit of 200 bytes"):
        app.lock("x" * 201)
    with pytest.raises(DeclarationError, match=r"owner: .*exceeds the limit"):
        Mainspring("memory://", owner="x" * 201)


async def test_a_lock_is_known_inside_of_its_block_only(app: Mainspring) -> None:
    lock = app.lock("import")
    assert not is_held(lock)
    with pytest.raises(DeclarationError, match="inside of the block"):
        _ = lock.term
    async with app, lock:
        assert is_held(lock)
        with pytest.raises(DeclarationError, match="it is entered already"):
            await lock.__aenter__()
    assert not is_held(lock)
    async with app, lock:
        assert lock.term == 2


async def test_a_lock_whose_store_is_away_for_too_long_is_not_trusted(
    virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    class Away(MemoryStore):
        away = False

        async def extend(self, lock: Lock, ttl: timedelta) -> Lock | None:
            if self.away:
                raise StoreUnavailable("memory", "away")
            return await super().extend(lock, ttl)

    store = Away(virtual_time.clock)
    app = Mainspring(store, clock=virtual_time.clock)
    async with app, app.lock("import", ttl="30s") as lock:
        await asyncio.sleep(60)
        assert is_held(lock)
        store.away = True
        await asyncio.sleep(15)
        assert is_held(lock)
        await asyncio.sleep(15)
        assert not is_held(lock)
        store.away = False
        await asyncio.sleep(5)
        assert is_held(lock)  # nobody took it meanwhile
    assert "lock import failed" in caplog.text


async def test_a_lock_that_another_took_is_lost(virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore(virtual_time.clock)
    app = Mainspring(store, clock=virtual_time.clock)
    async with app, app.lock("import", ttl="30s") as lock:
        virtual_time.clock.jump("1m")  # for the store's clock it has run out, and nobody renewed it
        theirs = await store.acquire("import", "someone else", timedelta(minutes=1))
        await asyncio.sleep(20)

        assert not is_held(lock)
        assert theirs
        assert lock.term < theirs.term
    assert "lock 'import' is lost" in caplog.text
    await store.open()
    assert await store.extend(theirs, timedelta(minutes=1)), "leaving the block has not taken it from them"


async def test_a_lock_that_cannot_be_given_up_runs_out_by_itself(
    virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    class Away(MemoryStore):
        async def resign(self, lock: Lock) -> bool:
            raise StoreUnavailable("memory", f"{lock.name} is away")

    app = Mainspring(Away(virtual_time.clock), clock=virtual_time.clock)
    async with app:
        async with app.lock("import", ttl="5s"):
            pass
        async with app.lock("import", ttl="5s") as lock:
            assert lock.term == 2
        assert 5 <= virtual_time.elapsed <= 6.5
    assert "lock 'import' could not be given up" in caplog.text


async def test_a_lock_whose_answer_was_lost_can_be_entered_again_at_once(virtual_time: VirtualTime) -> None:
    store = FaultyStore(MemoryStore(virtual_time.clock))
    app = Mainspring(store.as_store, clock=virtual_time.clock)
    lock = app.lock("import", ttl="30s", timeout=0)
    async with app:
        store.lose_answer("acquire")
        with pytest.raises(StoreUnavailable):
            await lock.__aenter__()
        assert not is_held(lock)
        async with lock:
            assert is_held(lock)


async def test_what_the_block_raises_comes_out_and_the_lock_is_free(app: Mainspring) -> None:
    async with app:
        with pytest.raises(ZeroDivisionError):
            async with app.lock("import"):
                _ = 1 / 0
        async with app.lock("import", timeout=0):
            pass


@pytest.mark.parametrize(("name", "ttl"), [("", "30s"), ("import", "100ms"), ("import", "soon")])
def test_a_lock_that_could_not_be_kept_is_refused(name: str, ttl: str) -> None:
    with pytest.raises(DeclarationError):
        Mainspring("memory://").lock(name, ttl=ttl)
