"""A sidecar store for tests that enqueue: there a job has to come from a schedule's move, as every one does here."""

from collections.abc import Sequence

from msgspec.structs import replace

from mainspring.core.names import Name
from mainspring.core.rules import Manual
from mainspring.core.schedule import Origin, Plan, Run, Template
from mainspring.core.steps import create
from mainspring.stores.records import Enqueued, Move, NewJob, SlotFacts
from mainspring.stores.sidecar import SidecarStore
from mainspring.stores.sidecar.commit import finished

BY_HAND = Name("", "enqueued-by-hand")


class FromMoves(SidecarStore):
    """Has one schedule more, of which every job is a run that somebody asked for."""

    async def enqueue(self, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        there = await self.get([one.id for one in new])
        fresh = [one for one, view in zip(new, there, strict=True) if view is None]
        while fresh and not all(await self.move([await self._move_of(fresh)])):
            pass  # somebody else was faster
        return tuple(Enqueued(id=one.id, fresh=view is None) for one, view in zip(new, there, strict=True))

    async def _move_of(self, new: Sequence[NewJob]) -> Move:
        looked = await self.look([BY_HAND])
        before = looked.looks[0].schedule if looked.looks else None
        template = Template(task=new[0].task, payload=b"{}", backoff=new[0].backoff, max_attempts=new[0].max_attempts)
        first = create(BY_HAND, Plan(rule=Manual(), template=template), looked.now).after
        after = replace(before, revision=before.revision + 1) if before else first
        runs = [Run(id=one.id, schedule=BY_HAND, decided_at=looked.now, origin=Origin.MANUAL) for one in new]
        slot = SlotFacts(schedule=str(BY_HAND), origin=Origin.MANUAL)
        jobs = [replace(one, facts=replace(one.facts, slot=slot)) for one in new]
        return Move(before=before, after=after, runs=tuple(runs), jobs=tuple(jobs))


class WithJobsOfNobodys(SidecarStore):
    """Takes jobs in that no schedule has made, and has them in memory alone: for what the suite asks about enqueueing."""

    async def enqueue(self, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        return await self._write(lambda inner: finished(inner.enqueue(new)))
