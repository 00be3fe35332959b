"""Claiming: giving jobs to a node, each under a new lease.

A claim reads, chooses, and takes the jobs that it chose, in two statements that each stand alone; a job that another node
has taken meanwhile is left to it. Where the order is all there is to choose by, both are one. Jobs that have gates to pass
are claimed in `through.py`.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import itemgetter
from typing import Final, NamedTuple

from mainspring.core.limits import Gate, Scope
from mainspring.core.names import Name
from mainspring.stores.postgres.deliver import delivery, run_at_of, take, traces_of, with_terms
from mainspring.stores.postgres.lines import (
    ENTRIES,
    MAX_ENTRIES,
    MORE,
    Kind,
    Line,
    Lines,
    Position,
    Positions,
    Source,
    lines_of,
)
from mainspring.stores.postgres.pick import Picked, next_due, pick
from mainspring.stores.postgres.rows import Care, instant
from mainspring.stores.postgres.sight import Scan, Sight, look, names
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Row, Verb
from mainspring.stores.records import Claimed, ClaimRequest, Delivery

_GRAB: Final = {Kind.ALL: statement("grab"), Kind.TASK: statement("grab_task"), Kind.QUEUE: statement("grab_queue")}
_ORDER: Final = itemgetter(2, 0)  # run_at and id
_PRIORITY: Final = 21
_CARE: Final = 22
_NOW: Final = 23
_LATER: Final = 25
_EXACT: Final = datetime(2200, 1, 1, tzinfo=UTC)
_LATEST: Final = _EXACT.timestamp()
"""Up to then, an instant in seconds is exact to the microsecond."""
_TRIES: Final = 4
"""How often a claim begins anew because others have taken all that it had chosen."""


class Passes(NamedTuple):
    """The result of a plain claim: the jobs, or the gates and breakers that have to be held for them."""

    claimed: Claimed | None
    gates: Sequence[Gate] = ()
    breakers: Sequence[Name] = ()


def grab(at: datetime | None, request: ClaimRequest, lines: Lines) -> Verb[Claimed | None]:
    """Claim in one statement, where a job is expected and order is all there is to choose by; None: it is not.

    If it gets as many jobs as it wanted, it does not look for others; the claim after it does.
    """
    line = _only_line(lines, request) if lines.expects else None
    if line is None:
        return None
    sources = lines.sources([line])
    began = lines.positions()
    if not sources or any(source not in began.by_source for source in sources):
        return None  # to be read from the start, and the result remembered
    return (yield from _grab(at, request, lines, sources, began))


def _grab(
    at: datetime | None, request: ClaimRequest, lines: Lines, sources: Sequence[Source], began: Positions
) -> Verb[Claimed | None]:
    # No more last chances than can start. This limits other jobs too, so only if the claim before met last chances.
    wanted = request.room if lines.last_chances and request.ahead else request.room + request.ahead
    if not wanted:
        return None
    line = sources[0].line
    gaps = lines.gaps(whole=False)
    positions = [began.of(source) for source in sources]
    lines.expects = False  # a statement that fails is not repeated as it was
    rows = yield Ask(
        _GRAB[line.kind],
        (
            at,
            request.node,
            request.term,
            lines.rules.version,
            *gaps,
            [source.priority for source in sources],
            [position_at for position_at, _ in positions],
            [position_id for _, position_id in positions],
            wanted,
            request.room,
            request.number,
            line.name if line.kind is Kind.TASK else names(line.tasks),
            line.name if line.kind is Kind.QUEUE else list(line.without),
        ),
    )
    lines.last_chances = any(row[_CARE] == Care.LAST_CHANCE for row in rows)
    lines.expects = len(rows) == wanted or (lines.last_chances and bool(rows))
    if not rows:
        return None
    if gaps[0]:
        lines.looked_into_gaps(0)
    now = instant(rows[0][_NOW])
    rows = sorted(rows, key=_ORDER)
    if len(sources) > 1:
        rows.sort(key=lambda row: -row[_PRIORITY])
    last = {row[_PRIORITY]: row for row in rows}
    lines.advance(began, {Source(line, priority): (run_at_of(row), row[0]) for priority, row in last.items()}, now, 0)
    traces = yield from traces_of(rows)
    deliveries = tuple(delivery(request.node, row, traces.get(row[0])) for row in rows)
    due = now if lines.expects or _has_others(lines, request) else _later(rows[0])
    return Claimed(deliveries=with_terms(lines.rules, deliveries), next_due=due)


def _later(row: Row) -> datetime | None:
    """When the next job is due that is not due yet."""
    epoch = row[_LATER]
    if epoch is None:
        return None
    return instant(epoch) if epoch < _LATEST else _EXACT


def _has_others(lines: Lines, request: ClaimRequest) -> bool:
    """Return whether a request has lines that were not read, or that open at some time."""
    rules = lines.rules
    return bool(rules.unclosed & request.tasks) or len(lines_of(rules, request, lines.now())) > 1


def _only_line(lines: Lines, request: ClaimRequest) -> Line | None:
    """The line of a request in which every job may be taken, if there is nothing in its other lines; None: there may be."""
    rules = lines.rules
    if request.due_by is not None or (lines.suspects and request.suspects > 0):
        return None
    asked = lines_of(rules, request, lines.now())
    if not asked or (len(asked) > 1 and not lines.others_are_empty):
        return None
    line = asked[-1]
    if line.rest:
        return line
    if len(asked) > 1 or line.kind is not Kind.QUEUE or request.room_in(line.name) < request.room + request.ahead:
        return None
    return None if (Scope.QUEUE, line.name) in rules.gates else line


def claim(at: datetime | None, request: ClaimRequest, lines: Lines) -> Verb[Passes]:
    """Claim jobs that have no gate to pass. Statements that stand alone."""
    began = lines.positions()
    tries = 0
    while True:
        sight, picked = yield from _choose(at, request, lines, began)
        if not picked.jobs and began.skip and not lines.hears() and lines.may_read_all:
            began = lines.from_start()  # that there is nothing must be true
            continue
        held = _gates_to_hold(sight, picked)
        probes = {job.task for job in picked.jobs} & sight.trials.keys() if sight.trials else ()
        if held or probes:
            return Passes(None, held, tuple(probes))
        deliveries, positions = yield from _take(at, request, lines, sight, picked)
        lines.advance(began, positions, sight.now, sight.took)
        tries += 1
        lines.last_chances = picked.last_chances
        lines.expects = bool(deliveries) and (lines.last_chances or not request.room + request.ahead > len(deliveries))
        if deliveries or not picked.jobs or tries == _TRIES:
            missed = len(deliveries) < len(picked.jobs) or picked.cut_short
            return Passes(Claimed(deliveries=deliveries, next_due=sight.now if missed else next_due(sight, picked, {})))
        began = lines.positions()


def _take(
    at: datetime | None, request: ClaimRequest, lines: Lines, sight: Sight, picked: Picked
) -> Verb[tuple[tuple[Delivery, ...], dict[Source, Position]]]:
    """Take the chosen jobs; where the order is all there is to choose by, others instead of those that are gone meanwhile.

    Returns also where each source begins after this.
    """
    others = replace(sight, reads=[read for read in sight.reads if read.source is None or not read.source.line.rest])
    lines.read_others(is_empty=_is_empty(others, picked), due=next_due(others, Picked(), {}))
    line = _only_line(lines, request) if picked.jobs else None
    if line is None:
        return (yield from take(at, request, sight, picked)), picked.positions
    first = {Source(line, job.priority): job.position for job in reversed(picked.jobs)}
    sources = [read.source for read in sight.reads if read.source in first]
    grabbed = yield from _grab(at, request, lines, sources, Positions(first, lines.pulls))
    deliveries = () if grabbed is None else grabbed.deliveries
    given = {one.claim.job.id for one in deliveries}
    left = {Source(line, job.priority): job.position for job in reversed(picked.jobs) if job.id not in given}
    return deliveries, picked.positions | left


def _is_empty(others: Sight, picked: Picked) -> bool:
    """Return whether gates let no job pass that was read of other lines than that of the rest."""
    if any(job.task in others.trials for job in picked.jobs):
        return False
    return not any(
        (Scope.TASK, str(job.task)) not in others.full and (Scope.QUEUE, job.queue) not in others.full
        for read in others.reads
        for job in read.jobs
    )


def _choose(at: datetime | None, request: ClaimRequest, lines: Lines, began: Positions) -> Verb[tuple[Sight, Picked]]:
    """Read as much as is needed to choose, which of many sources is a little of each."""
    wanted = max(1, request.room + request.ahead)
    count = len(lines.sources(lines_of(lines.rules, request, lines.now())))
    most = wanted if count <= 1 else min(wanted, 8 + 2 * wanted // count)
    scan = Scan(most, ENTRIES + 4 * wanted)
    took = 0.0
    while True:
        sight = yield from look(at, request, lines, began, scan)
        took += sight.took
        picked = pick(sight, request, {})
        if not picked.cut_short or scan.entries >= MAX_ENTRIES:
            return replace(sight, took=took), picked
        # Many entries are of jobs that the request may not have, or most of the due jobs are in one source.
        scan = Scan(wanted, min(scan.entries * MORE, MAX_ENTRIES))


def _gates_to_hold(sight: Sight, picked: Picked) -> list[Gate]:
    """The gates that a claim has to hold: none, if no chosen job has one to pass, and no key is to be looked at."""
    if not sight.rules.gates:
        return []
    due = [keyed.gate for keyed in sight.keyed.values() if sight.is_due(keyed)]
    if not due and not any(sight.gates_of(job) for job in picked.jobs):
        return []
    return list({(gate.scope, gate.name): gate for gate in (*due, *sight.gates)}.values())
