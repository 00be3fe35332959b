"""Claiming through gates and breakers: in one transaction that holds them, so that no two count the same place."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from mainspring.core.limits import Gate, Scope
from mainspring.core.names import Name
from mainspring.stores.circuits import Kept
from mainspring.stores.passage import Passage, Trial
from mainspring.stores.postgres import breakers, gates
from mainspring.stores.postgres.claim import widen
from mainspring.stores.postgres.claim_cache import ClaimCache
from mainspring.stores.postgres.deliver import take
from mainspring.stores.postgres.pick import Picked, next_due, pick
from mainspring.stores.postgres.sight import Sight, first_read_limits, look
from mainspring.stores.postgres.verb import Verb
from mainspring.stores.records import Claimed, ClaimRequest

MANY: Final = 1000
"""Jobs of each source that are read where many are blocked; all blocked ones are parked."""
HINDERING: Final = 20
"""So many blocked jobs in front cost every claim more than parking them does once."""
SPARE: Final = 4
"""A quarter more than is wanted is looked at first: each that is looked at costs as much as counting its key's places."""
ROUNDS: Final = 10
"""How often that is done before others may have the gates."""


class Held(NamedTuple):
    """The breakers that a claim may give out the probe of."""

    asked: Sequence[Name]
    """Which it wanted to hold."""
    breakers: Mapping[Name, Kept]
    """Which it does: the others are in somebody else's hands."""


class Chosen(NamedTuple):
    """What a claim through gates has come to."""

    sight: Sight
    picked: Picked
    keys: dict[tuple[Name, str], Passage]
    behind: set[tuple[Name, str]]
    """Keys that only something chosen has filled, and behind which others were parked."""
    obstructed: bool = False
    """There were so many blocked jobs that it is better to let others have the gates for a moment."""


class GatedClaim(NamedTuple):
    """The result of a claim through gates."""

    claimed: Claimed
    again: bool
    """Whether to claim again at once: because of gates that were not held, or many jobs that were parked."""
    counted: Sequence[Gate]
    """Gates in which every running job that needs a place has one."""
    unparked: datetime | None
    """The earliest due time of jobs that were made claimable. Claims that were made at once may have passed them."""


def claim_through_gates(
    at: datetime | None, request: ClaimRequest, cache: ClaimCache, held: Sequence[Gate], tried: Sequence[Name] = ()
) -> Verb[GatedClaim]:
    """Claim what has gates or breakers to pass, these at most, and what has none. One transaction.

    A claim that gave nothing, and has parked many blocked jobs, lets others have the gates before it is repeated.
    """
    held = (yield from gates.hold(held)) if held else []
    left = yield from gates.count_again(cache.uncounted(held))
    counted = [gate for gate in held if gate not in left]
    waiting, unparked = yield from _reopen(at, request, cache, held)
    probing = (yield from breakers.hold_for_a_probe(at, tried)) if tried else {}
    chosen = yield from _choose_through(at, request, cache, held, Held(tried, probing))
    if chosen is None:
        cache.gated = True  # so that all gates and breakers are held next time
        yield from gates.free(waiting)
        return GatedClaim(Claimed(deliveries=()), again=True, counted=counted, unparked=unparked)
    sight, picked, keys, behind, obstructed = chosen
    deliveries = yield from take(at, request, sight, picked)
    yield from gates.pass_through(request.node, sight, keys, deliveries)
    deliveries, changes = yield from breakers.let_through(sight.trials, deliveries, sight.now)
    later = yield from gates.look_later(sight, waiting, keys)
    missed = len(deliveries) < len(picked.jobs) or _is_due_behind(sight, probing)
    # Behind one that was chosen others may have been parked; if another was faster with it, nobody will free its key.
    given = {delivery.claim.job.id for delivery in deliveries}
    lost = {(job.task, picked.keys[job.id]) for job in picked.jobs if job.id in picked.keys and job.id not in given}
    served = {(delivery.claim.job.task, delivery.key) for delivery in deliveries}
    yield from gates.free(lost | (behind - served))
    cut_short = cache.positions.advance(sight.began, picked.ends, sight.now)
    cache.gated = any(sight.gates_of(job) for job in picked.jobs)
    found = [sight.now] if obstructed or missed or cut_short else [next_due(sight, picked, keys)]
    due = min((instant for instant in (*found, *later) if instant is not None), default=None)
    claimed = Claimed(deliveries=deliveries, next_due=due, changes=changes)
    return GatedClaim(claimed, again=obstructed and not deliveries, counted=counted, unparked=unparked)


def _is_due_behind(sight: Sight, but_for: Collection[Name]) -> bool:
    """Say whether something is due behind breakers, other than these, that would let it pass."""
    trials = [(task, trial.kept) for task, trial in sight.trials.items() if task not in but_for]
    ready = {task for task, kept in trials if Trial(kept, sight.now).room > 0}
    return any(job.task in ready for read in sight.reads for job in read.jobs)


def _try(sight: Sight, probing: Mapping[Name, Kept]) -> None:
    """Let nobody pass a breaker that is not held, and one at most that is, as it stands now."""
    for task in sight.trials:
        sight.trials[task] = trial = Trial(probing.get(task, sight.trials[task].kept), sight.now)
        if task not in probing:
            trial.room = 0


def _reopen(
    at: datetime | None, request: ClaimRequest, cache: ClaimCache, held: Sequence[Gate]
) -> Verb[tuple[list[tuple[Name, str]], datetime | None]]:
    """Make jobs claimable that were parked behind a key which was freed or has opened.

    Returns the keys behind which others are still parked, and the earliest due time of these jobs.
    """
    names = {(gate.scope, gate.name) for gate in held}
    waiting: list[tuple[Name, str]] = []
    unparked: datetime | None = None
    for task in sorted(request.tasks, key=str):
        gate = cache.rules.keyed(task)
        if gate is not None and (gate.scope, gate.name) in names:
            back = yield from gates.reopen(at, task, gate)
            if back.least is not None:
                cache.announced(back.least)
                unparked = back.least if unparked is None else min(unparked, back.least)
            waiting += back.more
    return waiting, unparked


def _choose_through(
    at: datetime | None, request: ClaimRequest, cache: ClaimCache, held: Sequence[Gate], tried: Held
) -> Verb[Chosen | None]:
    """Choose, as far as the gates let jobs pass.

    None: a gate or breaker has to be passed that is not held. Blocked jobs are left where they are, unless there are so many in
    front that the jobs behind were not read.
    """
    names = {(gate.scope, gate.name) for gate in held}
    wanted = request.room + request.ahead
    began, rounds = cache.positions.positions(), 0
    most = min(MANY, wanted + wanted // SPARE + HINDERING)
    read_limits = first_read_limits(cache, request)._replace(most=most, of_rest=most)
    behind: set[tuple[Name, str]] = set()
    while True:
        sight = yield from look(at, request, cache, began, read_limits)
        began = sight.began
        if any((gate.scope, gate.name) not in names for gate in sight.gates):
            return None
        if _is_due_behind(sight, tried.asked):
            return None
        _try(sight, tried.breakers)
        keys = yield from gates.keys_in(sight)
        picked = pick(sight, request, keys)
        more = widen(read_limits, sight, picked, max(MANY, wanted))
        if not picked.jobs and began.skip and not cache.hears():
            began = cache.positions.from_start()  # an empty answer must be true
        elif not picked.cut_short:
            if len(picked.blocked) > HINDERING:
                behind |= yield from gates.park(picked, keys)
            return Chosen(sight, picked, keys, behind)
        elif more is not None:
            read_limits = more
        else:
            behind |= yield from gates.park(picked, keys)
            rounds += 1
            if rounds == ROUNDS or not picked.blocked:
                return Chosen(sight, picked, keys, behind, obstructed=True)


def gates_asked(cache: ClaimCache, request: ClaimRequest) -> list[Gate]:
    """All gates that jobs of a request may have to pass."""
    tasks = {str(task) for task in request.tasks}
    return [
        gate
        for (scope, name), gate in cache.rules.gates.items()
        if (request.room_in(name) > 0 if scope is Scope.QUEUE else name in tasks)
    ]


def probes_asked(cache: ClaimCache, request: ClaimRequest) -> list[Name]:
    """All tasks of which a request may be given the probe."""
    rules = cache.rules
    now = cache.now()
    return [task for task in rules.unclosed & request.tasks if rules.refusal(task, now) is None]
