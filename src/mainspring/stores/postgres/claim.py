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
    MAX_ENTRIES,
    MORE,
    Came,
    Kind,
    Line,
    Lines,
    Positions,
    Source,
    lines_of,
)
from mainspring.stores.postgres.pick import Picked, next_due, pick
from mainspring.stores.postgres.rows import Care, instant
from mainspring.stores.postgres.rules import Rules
from mainspring.stores.postgres.sight import Scan, Sight, first_scan, look, names
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Row, Verb
from mainspring.stores.records import Claimed, ClaimRequest, Delivery

_GRAB: Final = {Kind.ALL: statement("grab"), Kind.TASK: statement("grab_task"), Kind.QUEUE: statement("grab_queue")}
_ORDER: Final = itemgetter(2, 0)  # run_at and id
_PRIORITY: Final = 21
_CARE: Final = 22
_NOW: Final = 23
_LOCKED: Final = 25
_LATER: Final = 26
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


class Grabbed(NamedTuple):
    """The result of a claim by one statement."""

    deliveries: tuple[Delivery, ...]
    came: dict[Source, Came]
    """Where each source begins after this."""
    now: datetime
    next_due: datetime | None


def grab(at: datetime | None, request: ClaimRequest, lines: Lines) -> Verb[Claimed | None]:
    """Claim in one statement, if jobs are expected and no limit, suspect or room of a queue restricts the choice; None: no.

    If it gets as many jobs as it wanted, it does not look for others; the claim after it does.
    """
    rules = lines.rules
    line = _only_line(lines, rules, request) if lines.expects else None
    if line is None:
        return None
    sources = lines.sources([line])
    began = lines.positions()
    if not sources or any(source not in began.by_source for source in sources):
        return None  # to be read from the start, and the result remembered
    grabbed = yield from _grab(at, request, lines, rules, sources, began)
    if grabbed is None:
        return None
    lines.advance(began, grabbed.came, grabbed.now)
    return Claimed(deliveries=grabbed.deliveries, next_due=grabbed.next_due)


def _grab(  # noqa: PLR0917 -- a claim, and what it goes by
    at: datetime | None, request: ClaimRequest, lines: Lines, rules: Rules, sources: Sequence[Source], began: Positions
) -> Verb[Grabbed | None]:
    # No more last chances than can start. This limits other jobs too, so only if the claim before met last chances.
    wanted = request.room if lines.last_chances and request.ahead else request.room + request.ahead
    if not wanted:
        return None
    line = sources[0].line
    gaps = lines.gaps(whole=False)
    positions = [began.of(source) for source in sources]
    lines.expect(began, expects=False)  # a statement that fails is not repeated as it was
    rows = yield Ask(
        _GRAB[line.kind],
        (
            at,
            request.node,
            request.term,
            rules.version,
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
    if not rows:
        lines.last_chances = False
        return None
    # As many as were wanted were locked, or one on its last chance ended the list: there may be more.
    expects = rows[0][_LOCKED] == wanted or len(rows) < rows[0][_LOCKED]
    lines.last_chances = len(rows) < rows[0][_LOCKED] or any(row[_CARE] == Care.LAST_CHANCE for row in rows)
    lines.expect(began, expects=expects or lines.last_chances)
    if gaps[0]:
        lines.looked_into_gaps(began, 0)
    now = instant(rows[0][_NOW])
    rows = sorted(rows, key=_ORDER)
    if len(sources) > 1:
        rows.sort(key=lambda row: -row[_PRIORITY])
    last = {row[_PRIORITY]: row for row in rows}
    came = {Source(line, priority): Came((run_at_of(row), row[0])) for priority, row in last.items()}
    traces = yield from traces_of(rows)
    deliveries = with_terms(rules, tuple(delivery(request.node, row, traces.get(row[0])) for row in rows))
    due = now if expects or lines.last_chances or _has_others(lines, rules, request) else _later(rows[0])
    return Grabbed(deliveries, came, now, due)


def _later(row: Row) -> datetime | None:
    """When the next job is due that is not due yet."""
    epoch = row[_LATER]
    if epoch is None:
        return None
    return instant(epoch) if epoch < _LATEST else _EXACT


def _has_others(lines: Lines, rules: Rules, request: ClaimRequest) -> bool:
    """Return whether a request has lines that were not read, or that open at some time."""
    return bool(rules.unclosed & request.tasks) or len(_but_suspects(lines_of(rules, request, lines.now()).lines)) > 1


def _but_suspects(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if line.kind is not Kind.SUSPECT]


def _only_line(lines: Lines, rules: Rules, request: ClaimRequest) -> Line | None:
    """Return the only line that a claim has to read, if every job in it may be taken; None: it has to read several."""
    if request.due_by is not None or (lines.suspects and request.suspects > 0):
        return None
    asked = _but_suspects(lines_of(rules, request, lines.now()).lines)
    if not asked or (len(asked) > 1 and not lines.are_empty(asked[:-1])):
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
        if not picked.jobs and sight.began.skip and not lines.hears():
            began = lines.from_start()  # that there is nothing must be true
            continue
        held = _gates_to_hold(sight, picked)
        probes = {job.task for job in picked.jobs} & sight.trials.keys() if sight.trials else ()
        if held or probes:
            return Passes(None, held, tuple(probes))
        began = sight.began
        deliveries, came = yield from _take(at, request, lines, sight, picked)
        lines.advance(began, came, sight.now)
        tries += 1
        lines.last_chances = picked.last_chances
        is_full = len(deliveries) >= request.room + request.ahead
        lines.expect(began, expects=bool(deliveries) and (lines.last_chances or is_full))
        if deliveries or not picked.jobs or tries == _TRIES:
            missed = len(deliveries) < len(picked.jobs) or picked.cut_short
            return Passes(Claimed(deliveries=deliveries, next_due=sight.now if missed else next_due(sight, picked, {})))
        began = lines.positions()


def _take(
    at: datetime | None, request: ClaimRequest, lines: Lines, sight: Sight, picked: Picked
) -> Verb[tuple[tuple[Delivery, ...], dict[Source, Came]]]:
    """Take the chosen jobs, or, if only the order restricts the choice, others instead of those that are gone meanwhile.

    Returns also where each source begins after this.
    """
    others = replace(sight, reads=[read for read in sight.reads if not read.source.line.rest])
    if _is_empty(others, picked):
        restricted = list(dict.fromkeys(read.source.line for read in others.reads))
        lines.found_empty(sight.began, _but_suspects(restricted), next_due(others, Picked(), {}))
    else:
        lines.found_job()
    line = _only_line(lines, sight.rules, request) if picked.jobs else None
    first = {Source(line, job.priority): job.position for job in reversed(picked.jobs)} if line is not None else {}
    sources = [read.source for read in sight.reads if read.source in first]
    if not sources:
        return (yield from take(at, request, sight, picked)), picked.came
    began = sight.began._replace(by_source=first)
    grabbed = yield from _grab(at, request, lines, sight.rules, sources, began)
    deliveries = () if grabbed is None else grabbed.deliveries
    given = {one.claim.job.id for one in deliveries}
    left = {Source(sources[0].line, job.priority): job.position for job in reversed(picked.jobs) if job.id not in given}
    return deliveries, picked.came | {source: picked.came[source]._replace(position=at) for source, at in left.items()}


def _is_empty(others: Sight, picked: Picked) -> bool:
    """Return whether no job can be taken that was read of other lines than that of the rest."""
    if any(job.task in others.trials for job in picked.jobs):
        return False
    return not any(
        (Scope.TASK, str(job.task)) not in others.full and (Scope.QUEUE, job.queue) not in others.full
        for read in others.reads
        for job in read.jobs
    )


def _choose(at: datetime | None, request: ClaimRequest, lines: Lines, began: Positions) -> Verb[tuple[Sight, Picked]]:
    """Read as much as is needed to choose."""
    most = max(1, request.room + request.ahead)
    scan: Scan | None = first_scan(lines, request)
    while True:
        assert scan is not None  # noqa: S101 -- the loop ends before
        sight = yield from look(at, request, lines, began, scan)
        picked = pick(sight, request, {})
        scan, began = wider(scan, picked, most), sight.began
        if scan is None:
            return sight, picked


def wider(scan: Scan, picked: Picked, most: int) -> Scan | None:
    """Return what to read instead, if a claim had to stop in front of jobs that were not read; None: more would not help."""
    if not picked.cut:
        return None
    if in_front := picked.in_front - scan.full:
        return scan._replace(full=scan.full | in_front)
    if any(len(read.jobs) >= read.most < most for read in picked.cut):
        return scan._replace(most=most, suspects=most)
    deep = scan.deep.union(read.source for read in picked.cut if read.reached is not None)
    entries = min(max(scan.first, scan.entries) * MORE, MAX_ENTRIES // max(1, len(deep)))
    if deep == scan.deep and entries <= scan.entries:
        return None
    return scan._replace(deep=deep, entries=entries) if deep else None


def _gates_to_hold(sight: Sight, picked: Picked) -> list[Gate]:
    """The gates that a claim has to hold: none, if no chosen job has one to pass, and no key is to be looked at."""
    if not sight.rules.gates:
        return []
    due = [keyed.gate for keyed in sight.keyed.values() if sight.is_due(keyed)]
    if not due and not any(sight.gates_of(job) for job in picked.jobs):
        return []
    return list({(gate.scope, gate.name): gate for gate in (*due, *sight.gates)}.values())
