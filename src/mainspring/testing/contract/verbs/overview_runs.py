# ruff: noqa: S101 -- a suite of tests is built on assert
"""The last runs of several schedules."""

from mainspring.core.names import Name
from mainspring.stores.records import RunFilter
from mainspring.testing.contract import plans
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.overviews import on
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import World

NAMES = [Name("", "often"), Name("mail", "often"), Name("", "Élan")]


class LastRunsContract(Contract):
    """`last_runs`. Needs the role Schedules too."""

    @obligation("last_runs")
    async def test_the_last_runs_of_each_are_those_that_are_listed_first(self, world: World) -> None:
        for count, name in enumerate(NAMES, start=3):
            there = await plans.add(world, name)
            for _ in range(count):
                await plans.written_run(world, there)
                there = await plans.schedule(world, name)
        await plans.add(world)

        for limit in (1, 4, 100):
            listed = {
                name: (await world.store.runs(RunFilter(schedule=name), limit=limit)).runs for name in reversed(NAMES)
            }
            asked = [*reversed(NAMES), plans.HOURLY, Name("", "nobody")]
            assert await on(world).last_runs(asked, limit=limit) == listed
            assert await on(world).last_runs(NAMES[:1], limit=limit) == {NAMES[0]: listed[NAMES[0]]}
        assert await on(world).last_runs([]) == {}
