# ruff: noqa: S101 -- a suite of tests is built on assert
"""Named locks."""

import asyncio
from datetime import timedelta

from msgspec.structs import replace

from mainspring.core.limits import MOMENT
from mainspring.stores.records import Lock
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import DAY, World

TTL = timedelta(seconds=30)


class LocksContract(Contract):
    """The role Locks."""

    @obligation("acquire")
    async def test_a_lock_is_had_by_one_holder_until_it_expires(self, world: World) -> None:
        lock = await taken(world, "ticker", "a")
        assert lock == Lock(name="ticker", holder="a", term=lock.term, expires_at=world.now + TTL)

        assert await world.store.acquire("ticker", "b", TTL) is None
        world.clock.advance(TTL - MOMENT)
        assert await world.store.acquire("ticker", "b", TTL) is None
        world.clock.advance(MOMENT + MOMENT)
        assert (await taken(world, "ticker", "b")).holder == "b"
        assert await world.store.acquire("ticker", "a", TTL) is None

    @obligation("acquire")
    async def test_locks_of_other_names_are_other_locks(self, world: World) -> None:
        await taken(world, "ticker", "a")

        assert (await taken(world, "pruner", "b")).holder == "b"

    @obligation("acquire")
    async def test_one_of_many_gets_a_free_lock(self, world: World) -> None:
        handles = [world.store, await world.open(), await world.open()]
        got = await asyncio.gather(*(handles[at % 3].acquire("ticker", f"holder-{at}", TTL) for at in range(9)))

        assert len([lock for lock in got if lock]) == 1

    @obligation("acquire", 1)
    async def test_its_holder_gets_a_lock_again_under_the_same_term_and_later(self, world: World) -> None:
        first = await taken(world, "ticker", "a")
        world.clock.advance("10s")
        again = await taken(world, "ticker", "a")

        assert again == replace(first, expires_at=world.now + TTL)

    @obligation("acquire", 1)
    async def test_its_holder_gets_an_expired_lock_again_under_the_same_term(self, world: World) -> None:
        first = await taken(world, "ticker", "a")
        world.clock.advance("1h")
        again = await taken(world, "ticker", "a")

        assert again == replace(first, expires_at=world.now + TTL)

    @obligation("acquire", 2)
    async def test_the_term_grows_with_every_change_of_holder(self, world: World) -> None:
        terms = []
        for holder in ("a", "b", "a"):
            terms.append((await taken(world, "ticker", holder)).term)
            world.clock.advance("1h")

        assert terms == sorted(set(terms))

    @obligation("acquire", 2)
    async def test_the_term_grows_after_a_lock_was_resigned(self, world: World) -> None:
        terms = []
        for holder in ("a", "a", "b"):
            lock = await taken(world, "ticker", holder)
            terms.append(lock.term)
            assert await world.store.resign(lock)

        assert terms == sorted(set(terms))

    @obligation("acquire", 3)
    async def test_a_lock_granted_while_the_clock_was_ahead_is_free_one_ttl_after_the_correction(
        self, world: World
    ) -> None:
        world.clock.jump(DAY)
        lock = await taken(world, "ticker", "a")
        world.clock.jump(-DAY)

        for _ in range(2):
            assert await world.store.acquire("ticker", "b", 10 * TTL) is None
            world.clock.advance(TTL / 2)
        assert (await taken(world, "ticker", "b")).term > lock.term
        assert await world.store.extend(lock, TTL) is None

    @obligation("acquire", 3)
    async def test_the_holder_keeps_a_lock_that_was_granted_while_the_clock_was_ahead(self, world: World) -> None:
        world.clock.jump(DAY)
        extended, again = await taken(world, "ticker", "a"), await taken(world, "pruner", "a")
        world.clock.jump(-DAY)
        for lock in (extended, again):
            assert await world.store.acquire(lock.name, "b", TTL) is None
        world.clock.advance(TTL / 2)

        assert await world.store.extend(extended, TTL) == replace(extended, expires_at=world.now + TTL)
        assert await taken(world, "pruner", "a") == replace(again, expires_at=world.now + TTL)
        world.clock.advance(TTL / 2)
        for lock in (extended, again):
            assert await world.store.acquire(lock.name, "b", TTL) is None

    @obligation("acquire", 3)
    async def test_the_holder_gets_a_lock_of_a_clock_that_was_ahead_again_from_now_on(self, world: World) -> None:
        world.clock.jump(DAY)
        first = await taken(world, "ticker", "a")
        world.clock.jump(-DAY)

        assert await taken(world, "ticker", "a") == replace(first, expires_at=world.now + TTL)

    @obligation("acquire", 3)
    async def test_a_lock_that_was_resigned_while_the_clock_was_ahead_is_free(self, world: World) -> None:
        world.clock.jump(DAY)
        assert await world.store.resign(await taken(world, "ticker", "a"))
        world.clock.jump(-DAY)

        assert (await taken(world, "ticker", "b")).holder == "b"

    @obligation("acquire", 3)
    async def test_a_lock_outlives_a_clock_that_is_set_back_by_less_than_a_minute(self, world: World) -> None:
        lock = await taken(world, "ticker", "a")
        world.clock.jump(timedelta(seconds=-50))

        assert await world.store.acquire("ticker", "b", TTL) is None
        world.clock.advance(TTL + timedelta(seconds=50) - MOMENT)
        assert await world.store.acquire("ticker", "b", TTL) is None
        world.clock.advance(MOMENT + MOMENT)
        assert (await taken(world, "ticker", "b")).term > lock.term

    @obligation("extend")
    async def test_a_lock_is_extended_from_now_on(self, world: World) -> None:
        lock = await taken(world, "ticker", "a")
        world.clock.advance("20s")
        extended = await world.store.extend(lock, TTL)

        assert extended == replace(lock, expires_at=world.now + TTL)
        world.clock.advance("20s")
        assert await world.store.acquire("ticker", "b", TTL) is None

    @obligation("extend")
    async def test_a_lock_that_is_not_held_under_this_term_is_not_extended(self, world: World) -> None:
        lock = await taken(world, "ticker", "a")
        for other in (replace(lock, term=lock.term + 1), replace(lock, holder="b"), replace(lock, name="pruner")):
            assert await world.store.extend(other, 2 * TTL) is None
        world.clock.advance("31s")
        await taken(world, "ticker", "b")

        assert await world.store.extend(lock, TTL) is None

    @obligation("extend", 1)
    async def test_a_lock_that_has_expired_and_that_nobody_has_taken_is_still_held(self, world: World) -> None:
        lock = await taken(world, "ticker", "a")
        world.clock.advance("1h")

        assert await world.store.extend(lock, TTL) == replace(lock, expires_at=world.now + TTL)
        assert await world.store.acquire("ticker", "b", TTL) is None

    @obligation("resign")
    async def test_a_resigned_lock_is_free_at_once_and_held_no_more(self, world: World) -> None:
        lock = await taken(world, "ticker", "a")

        assert await world.store.resign(lock)
        assert not await world.store.resign(lock)
        assert await world.store.extend(lock, TTL) is None
        await taken(world, "ticker", "b")

    @obligation("resign")
    async def test_a_lock_that_is_not_held_under_this_term_is_not_resigned(self, world: World) -> None:
        lock = await taken(world, "ticker", "a")
        for other in (replace(lock, term=lock.term + 1), replace(lock, holder="b"), replace(lock, name="pruner")):
            assert not await world.store.resign(other)

        assert await world.store.acquire("ticker", "b", TTL) is None


async def taken(world: World, name: str, holder: str) -> Lock:
    lock = await world.store.acquire(name, holder, TTL)
    assert lock is not None
    return lock
