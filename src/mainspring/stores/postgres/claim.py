"""Claiming: giving jobs to a node, each under a new lease.

A claim reads, chooses, and takes the jobs that it chose, in two statements that each stand alone; a job that another
node has taken meanwhile is left to it. Where only the order restricts the choice, one statement does both. Jobs that
have gates to pass are claimed in `through.py`.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime
from operator import itemgetter
from typing import Final, NamedTuple

from msgspec import structs

from mainspring.core.limits import Gate, Scope
from mainspring.core.names import Name
from mainspring.stores.postgres.claim_cache import ClaimCache
from mainspring.stores.postgres.deliver import delivery, run_at_of, take, traces_of, with_terms
from mainspring.stores.postgres.lines import Line, LineIndex, RequestLines, Source, Subject, lines_of
from mainspring.stores.postgres.pick import Picked, next_due, pick
from mainspring.stores.postgres.positions import Position, Positions, ReadEnd
from mainspring.stores.postgres.rows import Care, instant
from mainspring.stores.postgres.rules import Rules
from mainspring.stores.postgres.sight import (
    ENTRIES_FACTOR,
    MAX_ENTRIES,
    ReadLimits,
    Sight,
    SourceRead,
    first_read_limits,
    look,
    names,
)
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Row, Verb
from mainspring.stores.records import Claimed, ClaimRequest, Delivery

_GRAB: Final = {
    LineIndex.ALL: statement("grab"),
    LineIndex.TASK: statement("grab_task"),
    LineIndex.QUEUE: statement("grab_queue"),
}
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


class TakeResult(NamedTuple):
    """Jobs that a claim took of those that it has read."""

    deliveries: tuple[Delivery, ...]
    ends: dict[Source, ReadEnd]
    """Where the next claim begins to read each source."""
    next_due: datetime | None


class GrabResult(NamedTuple):
    """The result of a claim by one statement."""

    deliveries: tuple[Delivery, ...]
    ends: dict[Source, ReadEnd]
    now: datetime
    next_due: datetime | None


def grab(at: datetime | None, request: ClaimRequest, cache: ClaimCache) -> Verb[Claimed | None]:
    """Claim without reading first; None if no job is expected, or a limit, suspect or room of a queue restricts the choice.

    A full claim does not check whether more jobs are due; the next claim does. The statement reads any number of entries that
    the request may not claim, so it is not used where a read stopped at its bound of entries. Where they are behind the
    jobs that filled the claim before, they are read once, 0.2 to 0.4 µs each, and the next claim begins with peek.sql.
    """
    rules = cache.rules
    request_lines = lines_of(rules, request, cache.now()) if cache.expects else None
    line = None if request_lines is None else _only_line(cache, rules, request, request_lines)
    if request_lines is None or line is None or len(_but_suspects(request_lines.lines)) > 1:
        return None
    sources = cache.sources([line])
    began = cache.positions.positions()
    if not all(map(began.is_close, sources)) or (cache.gaps_are_slow and cache.gaps([line], whole=False)):
        return None
    positions = {source: began.of(source) for source in sources}
    grabbed = yield from _grab(at, request, cache, positions, began)
    if grabbed is None:
        return None
    cut_short = cache.positions.advance(began, grabbed.ends, grabbed.now)
    return Claimed(deliveries=grabbed.deliveries, next_due=grabbed.now if cut_short else grabbed.next_due)


def _grab(
    at: datetime | None,
    request: ClaimRequest,
    cache: ClaimCache,
    positions: Mapping[Source, Position],
    began: Positions,
) -> Verb[GrabResult | None]:
    """Claim from one line, each source from its position on.

    No more jobs on their last chance are taken than can start, and one more ends the list. So if the claim before met some,
    one job more than can start is wanted at first. Only if that is not on its last chance, others are claimed ahead by a
    second statement. With one statement that locks all, a drain of jobs with one attempt was slower by a fifth.
    """
    most = request.room + request.ahead
    if not most or (cache.last_chances and not request.room):
        return None
    wanted = min(most, request.room + 1) if cache.last_chances else most
    first = yield from _grab_once(at, request, cache, positions, began, wanted=wanted)
    if first is None or len(first.deliveries) < wanted or wanted == most:
        return first
    ahead = structs.replace(request, room=0, ahead=most - wanted)
    reached = {source: end.position for source, end in first.ends.items()}
    positions = {source: reached.get(source, place) for source, place in positions.items()}
    second = yield from _grab_once(at, ahead, cache, positions, began, wanted=ahead.ahead)
    if second is None:
        return first
    return second._replace(deliveries=first.deliveries + second.deliveries, ends=first.ends | second.ends)


def _grab_once(
    at: datetime | None,
    request: ClaimRequest,
    cache: ClaimCache,
    positions: Mapping[Source, Position],
    began: Positions,
    *,
    wanted: int,
) -> Verb[GrabResult | None]:
    rules = cache.rules
    line = next(iter(positions)).line
    gaps = cache.gaps([line], whole=False)
    cache.expect(began, expects=False)  # if this statement fails, the next claim starts with peek.sql
    rows = yield Ask(
        _GRAB[line.kind],
        (
            at,
            request.node,
            request.term,
            rules.version,
            [gap.above for gap in gaps],
            [gap.below for gap in gaps],
            [source.priority for source in positions],
            [position_at for position_at, _ in positions.values()],
            [position_id for _, position_id in positions.values()],
            wanted,
            request.room,
            request.number,
            line.name if line.kind is LineIndex.TASK else names(line.tasks),
            line.name if line.kind is LineIndex.QUEUE else list(line.not_in_rest),
        ),
    )
    if not rows:
        cache.last_chances = False
        return None
    # As many as were wanted were locked, or one on its last chance ended the list: there may be more.
    expects = rows[0][_LOCKED] == wanted or len(rows) < rows[0][_LOCKED]
    cache.last_chances = len(rows) < rows[0][_LOCKED] or any(row[_CARE] == Care.LAST_CHANCE for row in rows)
    cache.expect(began, expects=expects or cache.last_chances)
    cache.looked_into_gaps(began, gaps)
    now = instant(rows[0][_NOW])
    rows = sorted(rows, key=_ORDER)
    if len(positions) > 1:
        rows.sort(key=lambda row: -row[_PRIORITY])
    last = {row[_PRIORITY]: row for row in rows}
    ends = {Source(line, priority): ReadEnd((run_at_of(row), row[0])) for priority, row in last.items()}
    traces = yield from traces_of(rows)
    deliveries = with_terms(rules, tuple(delivery(request.node, row, traces.get(row[0])) for row in rows))
    # A breaker that is not closed will let a job pass at some time.
    due = now if expects or cache.last_chances or rules.unclosed & request.tasks else _later(rows[0])
    return GrabResult(deliveries, ends, now, due)


def _later(row: Row) -> datetime | None:
    """When the next job is due that is not due yet."""
    epoch = row[_LATER]
    if epoch is None:
        return None
    return instant(epoch) if epoch < _LATEST else _EXACT


def _but_suspects(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if line.kind is not LineIndex.SUSPECT]


def _only_line(cache: ClaimCache, rules: Rules, request: ClaimRequest, request_lines: RequestLines) -> Line | None:
    """Return the last line that a claim has to read, if every job in it may be taken."""
    lines = _but_suspects(request_lines.lines)
    if request.due_by is not None or (cache.suspects and request.suspects > 0) or not lines:
        return None
    line = lines[-1]
    if line.rest:
        return line
    if len(lines) > 1 or line.kind is not LineIndex.QUEUE or request.room_in(line.name) < request.room + request.ahead:
        return None
    return None if (Scope.QUEUE, line.name) in rules.gates else line


def claim(at: datetime | None, request: ClaimRequest, cache: ClaimCache) -> Verb[Passes]:
    """Claim jobs that have no gate to pass. Statements that stand alone."""
    began = cache.positions.positions()
    tries = 0
    while True:
        sight, picked = yield from _choose(at, request, cache, began)
        if not picked.jobs and sight.began.skip and not cache.hears():
            began = cache.positions.from_start()  # an empty answer must be true
            continue
        held = _gates_to_hold(sight, picked)
        probes = {job.task for job in picked.jobs} & sight.trials.keys() if sight.trials else ()
        if held or probes:
            return Passes(None, held, tuple(probes))
        began = sight.began
        taken = yield from _take(at, request, cache, sight, picked)
        cut_short = cache.positions.advance(began, taken.ends, sight.now)
        tries += 1
        is_full = len(taken.deliveries) >= request.room + request.ahead
        cache.expect(began, expects=cut_short or (bool(taken.deliveries) and (cache.last_chances or is_full)))
        if taken.deliveries or not picked.jobs or tries == _TRIES:
            return Passes(Claimed(deliveries=taken.deliveries, next_due=sight.now if cut_short else taken.next_due))
        began = cache.positions.positions()


def _take(
    at: datetime | None, request: ClaimRequest, cache: ClaimCache, sight: Sight, picked: Picked
) -> Verb[TakeResult]:
    """Take the chosen jobs, or all that are wanted of one line, if only the order restricts the choice.

    The latter takes others in place of jobs that are gone by then.
    """
    line = _only_line(cache, sight.rules, request, sight.request_lines)
    own = [read for read in sight.reads if read.source.line == line]
    others = [read for read in sight.reads if read.source.line != line]
    cache.only_rest = line is not None and _are_empty(others, sight.full)
    cache.last_chances = picked.last_chances
    if not picked.jobs or not cache.only_rest or any(read.reached is not None for read in own):
        deliveries = yield from take(at, request, sight, picked)
        missed = len(deliveries) < len(picked.jobs) or picked.cut_short
        return TakeResult(deliveries, picked.ends, sight.now if missed else next_due(sight, picked, {}))
    positions = {read.source: read.jobs[0].position for read in own if read.jobs}
    grabbed = yield from _grab(at, request, cache, positions, sight.began)
    left = {source: ReadEnd(position) for source, position in positions.items()}
    if grabbed is None:
        return TakeResult((), _updated(picked.ends, left), sight.now)
    empty = [read for read in sight.reads if read.source not in positions]
    due = [grabbed.next_due, next_due(replace(sight, reads=empty), Picked(), {})]
    soonest = min((instant for instant in due if instant is not None), default=None)
    return TakeResult(grabbed.deliveries, _updated(picked.ends, left | grabbed.ends), soonest)


def _updated(reads: Mapping[Source, ReadEnd], later: Mapping[Source, ReadEnd]) -> dict[Source, ReadEnd]:
    """Return the ends of reads with the positions of a later statement; durations remain those of the reads."""
    return {**reads, **{source: end._replace(took=reads[source].took) for source, end in later.items()}}


def _are_empty(reads: Sequence[SourceRead], full: AbstractSet[Subject]) -> bool:
    """Return whether these lines have no claimable job, neither among the jobs read nor behind them."""
    return all(
        read.source.line.gate in full
        or (
            not read.is_cut
            and all((Scope.TASK, str(job.task)) in full or (Scope.QUEUE, job.queue) in full for job in read.jobs)
        )
        for read in reads
    )


def _choose(
    at: datetime | None, request: ClaimRequest, cache: ClaimCache, began: Positions
) -> Verb[tuple[Sight, Picked]]:
    """Read as much as is needed to choose: of the line of the rest one job, if all others are probably empty."""
    most = max(1, request.room + request.ahead)
    read_limits = first_read_limits(cache, request)
    request_lines = lines_of(cache.rules, request, cache.now())
    line = _only_line(cache, cache.rules, request, request_lines) if cache.only_rest else None
    if line is not None and all(map(began.is_close, cache.sources([line]))):
        read_limits = read_limits._replace(of_rest=1)
    while True:
        sight = yield from look(at, request, cache, began, read_limits)
        picked = pick(sight, request, {})
        others = [read for read in sight.reads if not read.source.line.rest]
        is_enough = read_limits.of_rest == 1 and bool(picked.jobs) and _are_empty(others, sight.full)
        more = None if is_enough else widen(read_limits, sight, picked, most)
        if more is None:
            return sight, picked
        read_limits, began = more, sight.began


def widen(read_limits: ReadLimits, sight: Sight, picked: Picked, most: int) -> ReadLimits | None:
    """Return wider limits if a claim had to stop in front of jobs that were not read; None: reading more would not help.

    All sources that were not read to their end are read again at once. One at a time, each statement would read all the
    others again too: with 50 limited tasks, 50 statements of 110,000 index entries each.
    """
    if not picked.cut:
        return None
    if full_in_front := picked.full_in_front - read_limits.full:
        return read_limits._replace(full=read_limits.full | full_in_front)
    if any(len(read.jobs) >= read.most < most for read in picked.cut):
        return read_limits._replace(most=most, of_rest=most, suspects=most)
    if read_limits.spent >= MAX_ENTRIES or all(read.reached is None for read in picked.cut):
        return None
    reread = read_limits.reread.union(read.source for read in sight.reads if read.reached is not None)
    bound = MAX_ENTRIES // len(reread)
    read = max(read_limits.first_entries, read_limits.reread_entries)
    entries = min(read * ENTRIES_FACTOR, bound)
    if entries <= read:
        return None
    spent = read_limits.spent + entries * len(reread)
    return read_limits._replace(
        reread=reread,
        reread_entries=entries,
        is_at_limit=entries == bound or spent >= MAX_ENTRIES,
        spent=spent,
        took={source: end.took for source, end in picked.ends.items()},
    )


def _gates_to_hold(sight: Sight, picked: Picked) -> list[Gate]:
    """The gates that a claim has to hold: none, if no chosen job has one to pass, and no key is to be looked at."""
    if not sight.rules.gates:
        return []
    due = [keyed.gate for keyed in sight.keyed.values() if sight.is_due(keyed)]
    if not due and not any(sight.gates_of(job) for job in picked.jobs):
        return []
    return list({(gate.scope, gate.name): gate for gate in (*due, *sight.gates)}.values())
