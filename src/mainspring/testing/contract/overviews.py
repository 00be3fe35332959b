# ruff: noqa: S101 -- a suite of tests is built on assert
"""Short words for what the tests of the contract do with a store as a whole: search, and go on until the end."""

from datetime import timedelta
from typing import Final

from mainspring.core.job import JobId
from mainspring.stores.overview import A_SECOND, Found, Overview, Search
from mainspring.stores.port import Store
from mainspring.testing.contract.world import World

LOOKS: Final = 2000
"""So often a search of the few jobs of a test may have to go on; more, and it does not get anywhere."""
EVERYTHING: Final = Search()


def on(world: World, store: Store | None = None) -> Overview:
    """Return the store in the role that is under test."""
    store = store or world.store
    assert isinstance(store, Overview)
    return store


async def answers(
    world: World, which: Search, *, limit: int = 50, after: JobId | None = None, budget: timedelta = A_SECOND
) -> list[Found]:
    """Search until there is nothing older, and check what holds for every answer."""
    gone_through: list[Found] = []
    for _ in range(LOOKS):
        found = await on(world).search(which, limit=limit, after=after, budget=budget)
        ids = [view.job.id for view in found.jobs]
        assert len(ids) <= limit
        assert ids == sorted(ids, reverse=True)
        assert after is None or all(id_ < after for id_ in ids)
        gone_through.append(found)
        if found.after is None:
            return gone_through
        assert after is None or found.after <= after, "it leads back"
        assert all(found.after <= id_ for id_ in ids), "it skips what was not brought"
        after = found.after
    raise AssertionError("it never ends")


async def ids_of(world: World, which: Search, *, limit: int = 50, budget: timedelta = A_SECOND) -> list[JobId]:
    """Name all jobs that a search finds, in its order."""
    every = await answers(world, which, limit=limit, budget=budget)
    return [view.job.id for found in every for view in found.jobs]
