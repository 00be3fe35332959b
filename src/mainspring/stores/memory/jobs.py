"""The role `Jobs`."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from mainspring.core import machine
from mainspring.core.breaker import Attempt, PhaseChange
from mainspring.core.job import JobId, NodeId, State
from mainspring.core.limits import Gate, Scope
from mainspring.stores.memory.claiming import choose, next_due
from mainspring.stores.memory.enqueuing import Plan
from mainspring.stores.memory.guard import Guarded
from mainspring.stores.memory.lanes import Lane
from mainspring.stores.memory.settling import settle
from mainspring.stores.records import (
    Claimed,
    ClaimRequest,
    Delivery,
    Enqueued,
    NewJob,
    Note,
    Place,
    Settled,
    Settlement,
    Verdict,
)

LINES_KEPT: Final = 1000


class JobsRole(Guarded):
    """The way of a job through the store."""

    async def enqueue(self, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        with self._locked() as now:
            plan = Plan(self._tables, new, now)
            plan.write()
        if plan.insertions:
            self._ring()
        return plan.answers

    async def claim(self, request: ClaimRequest) -> Claimed:
        with self._locked() as now:
            self._tables.living(request.node, request.term)
            self._tables.follow_clock(now)
            asked, gates, circuits = self._asked(request), self._tables.gates, self._tables.circuits
            changes: list[PhaseChange] = []
            chosen = choose(asked, gates, circuits, request, now)
            deliveries = tuple(self._deliver(job, request, now, changes) for job in chosen)
            due = next_due(asked, gates, circuits, request, now)
            claimed = Claimed(deliveries=deliveries, next_due=due, changes=tuple(changes))
        if deliveries:  # one that got nothing must not wake itself
            self._ring()
        return claimed

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[Settled, ...]:
        with self._locked() as now:
            answers = tuple(settle(self._tables, one, now) for one in settlements)
        if any(one.verdict is Verdict.ACCEPTED for one in answers):
            self._ring()
        return answers

    async def note(self, notes: Sequence[Note]) -> tuple[bool, ...]:
        with self._locked():
            answers = tuple(self._note(one) for one in notes)
        if any(answers):
            self._ring()
        return answers

    async def release(self, node: NodeId, places: Sequence[Place]) -> None:
        with self._locked() as now:
            found = [taken for place in set(places) if (taken := self._tables.gates.find(place))]
            kept = [taken for taken in found if taken.node == node and not self._tables.still_runs(taken)]
            for taken in kept:
                self._tables.give_up(taken, now)
        if kept:
            self._ring()

    async def declare(self, gates: Sequence[Gate]) -> None:
        with self._locked():
            changed = [gate for gate in gates if self._tables.gates.declare(gate)]
            for gate in changed:
                if gate.scope is Scope.KEY:
                    self._tables.lanes.reconsider_all(gate.name)
        if changed:
            self._ring()

    def _asked(self, request: ClaimRequest) -> list[Lane]:
        """Find the lanes that the node asks for, from queues that are not paused."""
        paused = self._tables.paused
        return [
            lane
            for lane in self._tables.lanes
            if lane.kind.task in request.tasks
            and request.room_in(lane.kind.queue) > 0
            and lane.kind.queue not in paused
        ]

    def _deliver(self, id_: JobId, request: ClaimRequest, now: datetime, changes: list[PhaseChange]) -> Delivery:
        row = self._tables.rows[id_]
        source = row.job.state
        claim = machine.claim(row.job, request.node, request.number)
        view = replace(row.view, job=claim.job, node=claim.node, started_at=now)
        self._tables.write(row, view, now)
        self._tables.take_place(claim.job, view.key, claim.node, now)
        term, change = self._tables.circuits.admit(claim.job.task, Attempt(id_, claim.job.lease), now)
        if change:
            changes.append(change)
        return Delivery(
            claim=claim,
            source=source,
            payload=view.payload,
            enqueued_at=view.enqueued_at,
            timeout=view.timeout,
            key=view.key,
            saved=view.saved,
            previous_error=view.error,
            facts=view.facts,
            term=term,
        )

    def _note(self, note: Note) -> bool:
        row = self._tables.rows.get(note.job)
        holds = row and (row.job.state, row.job.lease, row.view.node) == (State.RUNNING, note.lease, note.node)
        if not row or not holds or not self._tables.is_alive(note.node):
            return False
        saved = row.view.saved if note.saved is None else note.saved
        progress = row.view.progress if note.progress is None else note.progress
        row.view = replace(row.view, saved=saved, progress=progress)
        row.lines += (replace(line, at=line.at.astimezone(UTC)) for line in note.lines)
        del row.lines[:-LINES_KEPT]
        return True
