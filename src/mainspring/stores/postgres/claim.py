"""Claiming: giving jobs to a node, each under a new lease.

A claim looks, chooses, and takes what it chose, in two statements that each stand alone: what another node was faster
with is left to it. Where the order is all there is to choose by, both are one. What has gates to pass is claimed in
`through.py`.
"""

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from typing import Final, NamedTuple

from mainspring.core.limits import Gate
from mainspring.core.names import Name
from mainspring.stores.postgres.deliver import delivery, take, traces_of, with_terms
from mainspring.stores.postgres.lanes import Lane
from mainspring.stores.postgres.lines import Lines, Marks, asked_of
from mainspring.stores.postgres.pick import Picked, next_due, pick
from mainspring.stores.postgres.sight import Sight, look
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Verb
from mainspring.stores.records import Claimed, ClaimRequest

_GRAB: Final = statement("grab")
_TURN: Final = itemgetter(2, 0)  # run_at and id
_TRIES: Final = 4
"""How often a claim begins anew because others were faster with all that it had chosen."""
FEW: Final = 8
"""How many jobs of each lane are looked at at least, and how many lanes a grab may ask."""


class Passes(NamedTuple):
    """What a plain claim found out: the jobs, or the gates and breakers that have to be held for them."""

    claimed: Claimed | None
    gates: Sequence[Gate] = ()
    breakers: Sequence[Name] = ()


def grab(at: datetime | None, request: ClaimRequest, lines: Lines) -> Verb[Claimed | None]:
    """Claim in one statement, where something is expected and order is all there is to choose by; None: it is not.

    It does not look for what is left; the claim after it does.
    """
    asked = asked_of(lines, request)
    wanted = request.room + request.ahead
    if request.ahead and any(lane.last for _, lane in asked):
        # No more last chances than can start. This limits other jobs too, so only if the claim before met last chances.
        wanted = request.room if lines.last_chances else 0
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
            request.number,
        ),
    )
    lines.expects = len(rows) == wanted
    lines.last_chances = any(lines.lanes[row[19]].last for row in rows)
    if not rows:
        return None
    if gaps[0]:
        lines.looked_into_gaps(0)
    now: datetime = rows[0][20]
    rows = sorted(rows, key=_TURN)
    if len(asked) > 1:
        rows.sort(key=lambda row: -lines.lanes[row[19]].priority)
    lines.advance(marks, {row[19]: (row[2], row[0]) for row in rows}, now, 0)
    traces = yield from traces_of(rows)
    deliveries = tuple(delivery(request.node, lines.lanes[row[19]], row, traces.get(row[0])) for row in rows)
    return Claimed(deliveries=with_terms(lines.rules, deliveries), next_due=now)


def _is_plain(lines: Lines, request: ClaimRequest, lanes: Sequence[Lane], wanted: int) -> bool:
    if len(lanes) > FEW or request.due_by is not None or any(lane.suspect for lane in lanes):
        return False
    if any(request.room_in(lane.queue) < wanted for lane in lanes):
        return False
    rules = lines.rules
    if rules.unclosed and any(lane.task in rules.unclosed for lane in lanes):
        return False
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
        probes = {line.lane.task for _, line in picked.jobs} & sight.trials.keys() if sight.trials else ()
        if held or probes:
            return Passes(None, held, tuple(probes))
        deliveries = yield from take(at, request, sight, picked)
        lines.advance(marks, picked.marks, sight.now, sight.took)
        tries += 1
        lines.last_chances = any(line.lane.last for line in sight.lines if line.number in picked.last)
        lines.expects = bool(deliveries) and (lines.last_chances or not request.room + request.ahead > len(deliveries))
        if deliveries or not picked.jobs or tries == _TRIES:
            missed = len(deliveries) < len(picked.jobs)
            return Passes(Claimed(deliveries=deliveries, next_due=sight.now if missed else next_due(sight, picked, {})))
        marks = lines.marks()


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
    if not due and not any(sight.gates_of(line) for line in taken):
        return []
    return list({(gate.scope, gate.name): gate for gate in (*due, *sight.gates)}.values())
