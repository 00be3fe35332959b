"""How far a lock is trusted by its holder: no further than others are surely kept out."""

import asyncio
from datetime import timedelta

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.runtime.named_lease import NamedLease
from mainspring.stores.memory import MemoryStore
from mainspring.stores.records import Lock
from mainspring.testing import VirtualTime

TTL = timedelta(seconds=10)


class Slow(MemoryStore):
    """A store whose answers take their time; what was asked is done at once."""

    answer_in = 0.0

    async def acquire(self, name: str, holder: str, ttl: timedelta) -> Lock | None:
        lock = await super().acquire(name, holder, ttl)
        await asyncio.sleep(self.answer_in)
        return lock

    async def extend(self, lock: Lock, ttl: timedelta) -> Lock | None:
        kept = await super().extend(lock, ttl)
        await asyncio.sleep(self.answer_in)
        return kept


def lease_of(store: MemoryStore, time: VirtualTime, holder: str = "me") -> NamedLease:
    return NamedLease(store, "import", holder, TTL, clock=time.clock, subject="lock 'import'")


def is_held(lease: NamedLease) -> bool:
    """Ask anew: mypy takes a property for something that stays as it was."""
    return lease.held


async def test_a_lock_is_trusted_for_nine_tenths_of_its_lifetime(virtual_time: VirtualTime) -> None:
    store = Slow(virtual_time.clock)
    await store.open()
    lease = lease_of(store, virtual_time)
    assert not is_held(lease)
    assert await lease.ask()
    await asyncio.sleep(8.99)
    assert is_held(lease)
    await asyncio.sleep(0.02)
    assert not is_held(lease)
    assert not await lease_of(store, virtual_time, "another").ask(), "it is still ours"


@pytest.mark.parametrize("verb", ["ask", "extend"])
async def test_trust_counts_from_the_question_and_not_from_the_answer(virtual_time: VirtualTime, verb: str) -> None:
    store = Slow(virtual_time.clock)
    await store.open()
    lease = lease_of(store, virtual_time)
    if verb == "extend":
        assert await lease.ask()
    store.answer_in = 7
    assert await getattr(lease, verb)()
    assert is_held(lease)
    await asyncio.sleep(2.5)
    assert not is_held(lease)

    store.answer_in = 9.5
    assert await lease.extend()
    assert not is_held(lease), "the answer came too late"


async def test_a_lock_that_ran_out_and_that_nobody_took_is_trusted_again_once_it_is_extended(
    virtual_time: VirtualTime,
) -> None:
    store = Slow(virtual_time.clock)
    await store.open()
    lease = lease_of(store, virtual_time)
    assert await lease.ask()
    await asyncio.sleep(60)
    assert not is_held(lease)
    assert await lease.extend()
    assert is_held(lease)


async def test_a_lock_that_another_has_is_lost_and_still_says_its_term(virtual_time: VirtualTime) -> None:
    store = Slow(virtual_time.clock)
    await store.open()
    mine, theirs = lease_of(store, virtual_time), lease_of(store, virtual_time, "another")
    assert await mine.ask()
    await asyncio.sleep(11)
    assert await theirs.ask()
    assert not await mine.extend()
    assert not is_held(mine)
    assert mine.lock
    assert theirs.lock
    assert mine.lock.term < theirs.lock.term
    await mine.resign()
    assert is_held(theirs)
    assert await theirs.extend(), "giving up what was lost has taken nothing from them"


@pytest.mark.parametrize("jump", ["1h", "11s"])
async def test_a_clock_that_is_set_forward_ends_the_trust_at_once(virtual_time: VirtualTime, jump: str) -> None:
    store = Slow(virtual_time.clock)
    await store.open()
    lease = lease_of(store, virtual_time)
    assert await lease.ask()
    virtual_time.clock.jump(jump)
    assert not is_held(lease)
    assert await lease_of(store, virtual_time, "another").ask(), "others go by that clock"


async def test_a_clock_that_is_set_back_lengthens_no_trust(virtual_time: VirtualTime) -> None:
    store = Slow(virtual_time.clock)
    await store.open()
    lease = lease_of(store, virtual_time)
    assert await lease.ask()
    virtual_time.clock.jump(-3600)
    assert is_held(lease)
    await asyncio.sleep(9.1)
    assert not is_held(lease)


async def test_what_was_never_had_is_neither_extended_nor_given_up(virtual_time: VirtualTime) -> None:
    store = Slow(virtual_time.clock)
    lease = lease_of(store, virtual_time)
    assert not await lease.extend()
    await lease.resign()  # the store is not even open


async def test_a_lock_that_cannot_be_given_up_is_forgotten_with_a_word(
    virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    class Away(MemoryStore):
        async def resign(self, lock: Lock) -> bool:
            raise StoreUnavailable("memory", f"{lock.name} is away")

    store = Away(virtual_time.clock)
    await store.open()
    lease = lease_of(store, virtual_time)
    assert await lease.ask()
    await lease.resign()
    assert not is_held(lease)
    assert "lock 'import' could not be given up: memory: import is away" in caplog.text
