"""Claiming: giving jobs to a node, each under a new lease.

A claim looks, chooses, and takes what it chose, in two statements that each stand alone: what another node was faster
with is left to it. Where jobs have to pass a gate, the same happens in one transaction that holds the gates, so that no
two claims count the same place.
"""

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from mainspring.core.job import WAITING, Claim, Job, JobId, NodeId, State
from mainspring.core.limits import Gate
from mainspring.core.names import Name
from mainspring.stores.passage import Passage
from mainspring.stores.postgres import gates
from mainspring.stores.postgres.lanes import Lane
from mainspring.stores.postgres.lines import Lines, Marks, asked_of
from mainspring.stores.postgres.pick import Picked, next_due, pick
from mainspring.stores.postgres.rows import error, facts, key_text, policy
from mainspring.stores.postgres.sight import Line, Sight, look
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Row, Verb
from mainspring.stores.records import Claimed, ClaimRequest, Delivery

_TAKE: Final = statement("take")
_GRAB: Final = statement("grab")
_TRACES: Final = statement("traces_of")
_NOW: Final = statement("now")
_WAITING: Final = {str(state): state for state in WAITING}
_TRIES: Final = 4
"""How often a claim begins anew because others were faster with all that it had chosen."""
FEW: Final = 8
MANY: Final = 1000
"""How many jobs of a lane are looked at where some may be blocked: each that is, is parked."""


HINDERING: Final = 20
"""So many blocked jobs in front cost every claim more than parking them does once."""
ROUNDS: Final = 10
"""How often that is done before others may have the gates."""

Keys: TypeAlias = "dict[tuple[Name, str], Passage]"
"""The gates of keys, as they stand."""


class Passes(NamedTuple):
    """What a plain claim found out: the jobs, or the gates that have to be held for them."""

    claimed: Claimed | None
    gates: Sequence[Gate] = ()


def grab(at: datetime | None, request: ClaimRequest, lines: Lines) -> Verb[Claimed | None]:
    """Claim in one statement, where something is expected and order is all there is to choose by; None: it is not.

    It does not look for what is left; the claim after it does.
    """
    wanted = request.room + request.ahead
    asked = asked_of(lines, request)
    if (
        not asked
        or not wanted
        or not lines.expects
        or not _is_plain(lines, request, [lane for _, lane in asked], wanted)
    ):
        return None
    marks = lines.marks()
    if any(number not in marks.by_lane for number, _ in asked):  # to be looked at as a whole, and the result remembered
        return None
    gaps = lines.gaps(whole=False)
    positions = [marks.of(number) for number, _ in asked]
    began = time.monotonic()
    rows = yield Ask(
        _GRAB,
        (
            at,
            request.node,
            request.term,
            lines.rules.version,
            *gaps,
            [number for number, _ in asked],
            [lane.priority for _, lane in asked],
            [mark_at for mark_at, _ in positions],
            [mark_id for _, mark_id in positions],
            wanted,
        ),
    )
    lines.expects = len(rows) == wanted
    if not rows:
        return None
    if gaps[0]:
        lines.looked_into_gaps(time.monotonic() - began)
    rows = sorted(rows, key=lambda row: (-lines.lanes[row[19]].priority, row[2], row[0]))
    now: datetime = rows[0][20]
    lines.advance(marks, {row[19]: (row[2], row[0]) for row in rows}, now, time.monotonic() - began)
    traces = yield from _traces(rows)
    deliveries = tuple(_delivery(request.node, lines.lanes[row[19]], row[:19], traces.get(row[0])) for row in rows)
    return Claimed(deliveries=deliveries, next_due=now)


def _is_plain(lines: Lines, request: ClaimRequest, lanes: Sequence[Lane], wanted: int) -> bool:
    if len(lanes) > FEW or request.due_by is not None or any(lane.suspect for lane in lanes):
        return False
    if any(request.room_in(lane.queue) < wanted for lane in lanes):
        return False
    rules = lines.rules
    return not rules.gates or not any(rules.whole(lane) or rules.keyed(lane.task) for lane in lanes)


def claim(at: datetime | None, request: ClaimRequest, lines: Lines) -> Verb[Passes]:
    """Claim what has no gate to pass. Statements that stand alone."""
    marks = lines.marks()
    tries = 0
    while True:
        sight, picked = yield from _choose(at, request, lines, marks)
        if not picked.jobs and marks.skips and not lines.hears():
            marks = lines.whole()  # that there is nothing must be true
            continue
        held = _gates_to_hold(sight, picked)
        if held:
            return Passes(None, held)
        deliveries = yield from _take(at, request, sight, picked)
        lines.advance(marks, picked.marks, sight.now, sight.took)
        tries += 1
        lines.expects = bool(deliveries) and not request.room + request.ahead > len(deliveries)
        if deliveries or not picked.jobs or tries == _TRIES:
            missed = len(deliveries) < len(picked.jobs)
            return Passes(Claimed(deliveries=deliveries, next_due=sight.now if missed else next_due(sight, picked, {})))
        marks = lines.marks()


def claim_through_gates(
    at: datetime | None, request: ClaimRequest, lines: Lines, held: Sequence[Gate]
) -> Verb[tuple[Claimed, bool]]:
    """Claim what has gates to pass, these at most, and what has none. One transaction.

    Says also whether to do it again at once: it gave nothing, and has parked so many blocked jobs that it is better to
    let others have the gates for a moment.
    """
    held = yield from gates.hold(held)
    yield from gates.count_again(lines.uncounted(held))
    waiting = yield from _reopen(at, request, lines, held)
    chosen = yield from _choose_through(at, request, lines, held)
    if chosen is None:
        lines.gated = True  # so that all gates are held next time
        yield from gates.free(waiting)
        return Claimed(deliveries=()), True
    sight, picked, keys, marks, obstructed, behind = chosen
    deliveries = yield from _take(at, request, sight, picked)
    yield from gates.pass_through(request.node, sight, keys, deliveries)
    later = yield from gates.look_later(sight, waiting, keys)
    missed = len(deliveries) < len(picked.jobs)
    # Behind one that was chosen others may have been parked; if another was faster with it, nobody will free its key.
    given = {delivery.claim.job.id for delivery in deliveries}
    lost = {(line.lane.task, picked.keys[id_]) for id_, line in picked.jobs if id_ in picked.keys and id_ not in given}
    served = {(delivery.claim.job.task, delivery.key) for delivery in deliveries}
    yield from gates.free(lost | (behind - served))
    lines.advance(marks, picked.marks, sight.now, sight.took)
    lines.gated = bool(deliveries)
    found = [sight.now] if obstructed or missed else [next_due(sight, picked, keys)]
    due = min((instant for instant in (*found, *later) if instant is not None), default=None)
    return Claimed(deliveries=deliveries, next_due=due), obstructed and not deliveries


def _reopen(
    at: datetime | None, request: ClaimRequest, lines: Lines, held: Sequence[Gate]
) -> Verb[list[tuple[Name, str]]]:
    """Let jobs back into their lanes that were parked behind a key which was freed or has opened.

    Returns the keys behind which others are still parked.
    """
    names = {(gate.scope, gate.name) for gate in held}
    waiting: list[tuple[Name, str]] = []
    ((now,),) = yield Ask(_NOW, (at,))
    for task in sorted(request.tasks, key=str):
        gate = lines.rules.keyed(task)
        if gate is not None and (gate.scope, gate.name) in names:
            back = yield from gates.reopen(at, task, gate, now)
            if back.least is not None:
                lines.pull(back.least)
            waiting += back.more
    return waiting


def _choose_through(
    at: datetime | None, request: ClaimRequest, lines: Lines, held: Sequence[Gate]
) -> Verb[tuple[Sight, Picked, Keys, Marks, bool, set[tuple[Name, str]]] | None]:
    """Choose, as far as the gates let jobs pass; says also whether there were too many blocked ones, and behind which
    keys jobs were parked that only something chosen had filled.

    None: a gate has to be passed that is not held. What is blocked is left where it is, unless so much of it is in
    front that what lies behind was not seen.
    """
    names = {(gate.scope, gate.name) for gate in held}
    marks, most, rounds = lines.marks(), MANY, 0
    behind: set[tuple[Name, str]] = set()
    while True:
        sight = yield from look(at, request, lines, marks, most)
        if any((gate.scope, gate.name) not in names for gate in _gates_in(sight)):
            return None
        keys = yield from gates.keys_in(sight)
        picked = pick(sight, request, keys)
        if not picked.jobs and marks.skips and not lines.hears():
            marks = lines.whole()  # that there is nothing must be true
        elif not picked.cut_short:
            if len(picked.blocked) > HINDERING:
                behind |= yield from gates.park(picked, keys)
            return sight, picked, keys, marks, False, behind
        elif not picked.blocked:
            most *= 4
        else:
            behind |= yield from gates.park(picked, keys)
            rounds += 1
            if rounds == ROUNDS:
                return sight, picked, keys, marks, True, behind


def gates_asked(lines: Lines, request: ClaimRequest) -> list[Gate]:
    """All gates that a request may have to do with."""
    rules = lines.rules
    lanes = {lane for _, lane in asked_of(lines, request)}
    found = [gate for lane in lanes for gate in rules.whole(lane)]
    found += [gate for task in request.tasks if (gate := rules.keyed(task)) is not None]
    return list({(gate.scope, gate.name): gate for gate in found}.values())


def _choose(at: datetime | None, request: ClaimRequest, lines: Lines, marks: Marks) -> Verb[tuple[Sight, Picked]]:
    """Look at as much as is needed to choose, which of many lanes is a little of each."""
    wanted = request.room + request.ahead
    lanes = max(1, len(asked_of(lines, request)))
    most = wanted if lanes == 1 else min(wanted, FEW + 2 * wanted // lanes)
    sight = yield from look(at, request, lines, marks, max(1, most))
    picked = pick(sight, request, {})
    if picked.cut_short and most < wanted:
        sight = yield from look(at, request, lines, marks, wanted)
        picked = pick(sight, request, {})
    return sight, picked


def _gates_to_hold(sight: Sight, picked: Picked) -> list[Gate]:
    """The gates that a claim has to hold: none, if nothing that it chose has one to pass, and no key is to be looked at."""
    if not sight.rules.gates:
        return []
    due = [keyed.gate for keyed in sight.keyed.values() if sight.is_due(keyed)]
    taken = {line.number: line for _, line in picked.jobs}.values()
    if not due and not any(_gates_of(sight, line) for line in taken):
        return []
    return list({(gate.scope, gate.name): gate for gate in (*due, *_gates_in(sight))}.values())


def _gates_in(sight: Sight) -> list[Gate]:
    """The gates of all lanes in which something is due and may pass."""
    if not sight.rules.gates:
        return []
    lines = (line for line in sight.lines if line.ids and line.number not in sight.shut)
    return [gate for line in lines for gate in _gates_of(sight, line)]


def _gates_of(sight: Sight, line: Line) -> list[Gate]:
    """The gates that jobs of a line have to pass."""
    found = sight.rules.whole(line.lane)
    keyed = sight.rules.keyed(line.lane.task)
    if keyed is not None and any(key is not None for key in line.keys or ()):
        found.append(keyed)
    return found


def _take(at: datetime | None, request: ClaimRequest, sight: Sight, picked: Picked) -> Verb[tuple[Delivery, ...]]:
    if not picked.jobs:
        return ()
    lanes = {id_: line.lane for id_, line in picked.jobs}
    numbers = [line.number for _, line in picked.jobs]
    rows = yield Ask(_TAKE, (at, request.node, sight.rules.version, list(lanes), numbers, request.term))
    traces = yield from _traces(rows)
    taken = {row[0]: row for row in rows}
    return tuple(
        _delivery(request.node, lanes[id_], row, traces.get(id_))
        for id_ in lanes
        if (row := taken.get(id_)) is not None
    )


def _traces(rows: Sequence[Row]) -> Verb[dict[JobId, list[Any]]]:
    """What earlier attempts have left behind, of those jobs that have any."""
    traced = [row[0] for row in rows if row[13]]
    return {job: kept for job, *kept in (yield Ask(_TRACES, (traced,)))} if traced else {}


def _delivery(node: NodeId, lane: Lane, row: Row, traces: Sequence[Any] | None) -> Delivery:
    """Make what a node is given, with only those fields named that say something: it takes a third of the time."""
    (
        id_, state, run_at, attempt, granted, losses, loss_limit, lease, revision, max_attempts, stored_policy,
        enqueued_at, payload, _traced, expires_at, timeout, key, parent, stored_facts,
    ) = row  # fmt: skip
    backoff, retention = policy(stored_policy)
    job = Job(
        id=id_,
        task=lane.task,
        state=State.RUNNING,
        run_at=run_at,
        backoff=backoff,
        max_attempts=max_attempts,
        queue=lane.queue,
        priority=lane.priority,
        attempt=attempt,
        losses=losses,
        loss_limit=loss_limit,
        lease=lease,
        revision=revision,
        retention=retention,
    )
    if granted or expires_at is not None:
        job = replace(job, granted=granted, expires_at=expires_at)
    delivery = Delivery(
        claim=Claim(job=job, node=node), source=_WAITING[state], payload=payload, enqueued_at=enqueued_at
    )
    if timeout is None and key is None and parent is None and stored_facts is None and traces is None:
        return delivery
    saved, last_error = traces or (None, None)
    return replace(
        delivery,
        timeout=timeout,
        key=key_text(key),
        saved=saved,
        previous_error=error(last_error),
        facts=facts(stored_facts, parent),
    )
