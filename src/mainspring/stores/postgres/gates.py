"""Gates: how many jobs of a task, queue or key may run, and how many may start in a while.

A claim through a gate holds its row, so that what it counts is exact. A job whose key is full is skipped; if such jobs
hide others, they are parked, out of the indexes that claims read. The statement that frees a place of a key inserts a row
into `freed`, which waits for no lock; the next claim that holds the gate makes the first parked jobs of the key claimable
again. None is forgotten: the claim that parks a job holds the gate and has read that the place is taken, so the statement
that frees the place commits after this read, and a later claim reads its row in `freed`.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from mainspring.core.job import NodeId
from mainspring.core.limits import Gate, Rate, Scope
from mainspring.core.names import Name
from mainspring.stores.passage import Passage
from mainspring.stores.postgres import runs
from mainspring.stores.postgres.pick import Picked
from mainspring.stores.postgres.rows import columns, key_bytes, shown_key
from mainspring.stores.postgres.sight import Sight
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Row, Verb
from mainspring.stores.records import Delivery, Place

_LOCK: Final = statement("gates_lock")
_FIND: Final = statement("gates_find")
_SET: Final = statement("gates_set")
_DROP: Final = statement("gates_drop")
_LIMIT: Final = statement("gates_limit")
_FORGET: Final = statement("gates_forget")
_SPEND: Final = statement("gates_spend")
_CHANGE: Final = statement("rules_change")
_OCCUPY_RUNNING: Final = statement("places_of_running")
_OCCUPY: Final = statement("places_add")
_RELEASE: Final = statement("places_release")
_MEND: Final = statement("places_mend")
_WAKE_PARKED: Final = statement("parked_wake")
_DUE: Final = statement("keys_due")
_STATES: Final = statement("keys_state")
_SPEND_KEYS: Final = statement("keys_spend")
_UNPARK: Final = statement("unpark")
_UNPARK_ALL: Final = statement("unpark_all")
_PARK: Final = statement("park")
_FREE: Final = statement("keys_free")
_LOOK_LATER: Final = statement("keys_look_later")
_A_WHILE: Final = timedelta(seconds=1)
_AT_ONCE: Final = 100
"""How many parked jobs of a key are let back in at most: those that cannot pass are only parked again."""


def hold(gates: Sequence[Gate]) -> Verb[list[Gate]]:
    """Hold gates until the transaction ends; returns those that are still there."""
    rows = yield Ask(_LOCK, ([str(gate.scope) for gate in gates], [gate.name for gate in gates]))
    there = {(scope, name) for scope, name in rows}
    return [gate for gate in gates if (str(gate.scope), gate.name) in there]


class Reopened(NamedTuple):
    """What was let back in."""

    least: datetime | None
    """Since when the first of it is due."""
    more: list[tuple[Name, str]]
    """Keys behind which others are still parked, though there was room: nobody else would think of them."""


def reopen(at: datetime | None, task: Name, gate: Gate) -> Verb[Reopened]:
    """Let parked jobs back in whose keys were freed or have opened, as far as there is room now."""
    rows = yield Ask(_DUE, (at, str(task), gate.longest_wait))
    due = [key for key, _ in rows if key is not None]
    if not due:
        return Reopened(None, [])
    states = yield from _states(task, gate, due, rows[0][1])
    shut = [(key, passage.opens_at) for key, passage in states if passage.room <= 0 and not passage.is_full]
    if shut:
        yield Ask(_LOOK_LATER, (str(task), *columns(shut)))
    free = [key for key, passage in states if passage.room > 0]
    most = min(_AT_ONCE, gate.concurrency or _AT_ONCE, gate.rate.burst if gate.rate else _AT_ONCE)
    back = (yield Ask(_UNPARK, (str(task), free, most))) if free else ()
    return Reopened(
        min((least for _, least, _ in back if least is not None), default=None),
        [(task, shown_key(key) or "") for key, _, more in back if more],
    )


def look_later(
    sight: Sight, waiting: Sequence[tuple[Name, str]], keys: dict[tuple[Name, str], Passage]
) -> Verb[list[datetime]]:
    """Have keys looked at again behind which others are parked: what was let back in may not take the place.

    When its rate opens; else in a second. If the place is taken by then, whoever gives it up will say so. Returns when.
    """
    instants: list[datetime] = []
    by_task: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
    for task, key in waiting:
        passage = keys.get((task, key))
        opens_at = None if passage is None else passage.opens_at
        instants.append(opens_at or sight.now + _A_WHILE)
        by_task[str(task)].append((key_bytes(key), instants[-1]))
    for name, rows in by_task.items():
        yield Ask(_LOOK_LATER, (name, *columns(rows)))
    return instants


def keys_in(sight: Sight) -> Verb[dict[tuple[Name, str], Passage]]:
    """How the gates of all keys stand that are in sight."""
    wanted: defaultdict[Name, set[str]] = defaultdict(set)
    for read in sight.reads:
        for job in read.jobs:
            if job.key is not None:
                wanted[job.task].add(job.key)
    passages: dict[tuple[Name, str], Passage] = {}
    for task, keys in wanted.items():
        gate = sight.rules.keyed(task)
        if gate is None or not keys:
            continue
        found = yield from _states(task, gate, [key_bytes(key) for key in keys], sight.now)
        passages |= {(task, passage.key): passage for _, passage in found}
    return passages


def _states(task: Name, gate: Gate, keys: Sequence[bytes | None], now: datetime) -> Verb[list[tuple[bytes, Passage]]]:
    """Return how the gates of keys stand, each with the key as it is stored: one that is no text is shown differently."""
    rows = yield Ask(_STATES, (str(task), list(keys)))
    return [
        (key, Passage(gate=gate, key=shown_key(key) or "", taken=taken, spent_until=spent_until, now=now))
        for key, taken, spent_until in rows
    ]


def pass_through(
    node: NodeId, sight: Sight, keys: dict[tuple[Name, str], Passage], deliveries: Sequence[Delivery]
) -> Verb[None]:
    """Take places for those that were given out, and write down what the rates have spent."""
    places: list[tuple[object, ...]] = []
    passed = [*sight.passages.values(), *keys.values()]
    for passage in passed:
        passage.passed = 0  # of those that were chosen some may have been lost to others: they are counted anew
    for delivery in deliveries:
        job = delivery.claim.job
        whole = ((Scope.TASK, str(job.task)), (Scope.QUEUE, job.queue))
        through = [found for subject in whole if (found := sight.passages.get(subject)) is not None]
        if delivery.key is not None and (keyed := keys.get((job.task, delivery.key))) is not None:
            through.append(keyed)
        for passage in through:
            passage.passed += 1
            if passage.gate.concurrency is not None:
                key = key_bytes(passage.key) or b""
                places.append((str(passage.gate.scope), passage.gate.name, key, job.id, job.lease))
    if places:
        yield Ask(_OCCUPY, (*columns(places), node))
    yield from _spend([passage for passage in passed if passage.passed and passage.gate.rate is not None])


def _spend(passages: Sequence[Passage]) -> Verb[None]:
    whole = [(str(one.gate.scope), one.gate.name, one.spent) for one in passages if not one.is_keyed]
    if whole:
        yield Ask(_SPEND, columns(whole))
    by_task: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
    for one in passages:
        if one.is_keyed:
            by_task[one.gate.name].append((key_bytes(one.key), one.spent))
    for task, rows in by_task.items():
        yield Ask(_SPEND_KEYS, (task, *columns(rows)))


def park(picked: Picked, keys: dict[tuple[Name, str], Passage]) -> Verb[set[tuple[Name, str]]]:
    """Park blocked jobs. One that waits for a rate is looked at when that opens.

    Returns the keys that are full only because of what was chosen just now.
    """
    if not picked.blocked:
        return set()
    by_task: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
    for task, key in set(picked.blocked.values()):
        passage = keys[task, key]
        if passage.opens_at is not None:  # what it has spent is written when that is certain (`pass_through`)
            by_task[str(task)].append((key_bytes(key), passage.opens_at))
    for task_name, rows in by_task.items():
        yield Ask(_LOOK_LATER, (task_name, *columns(rows)))
    yield Ask(_PARK, (sorted(picked.blocked),))
    return {(task, key) for task, key in set(picked.blocked.values()) if keys[task, key].passed}


def count_again(gates: Sequence[Gate]) -> Verb[list[Gate]]:
    """Take places for jobs that run without one: they were being claimed when the gate was put up.

    Returns the gates behind which such a job was left out, because another transaction holds it: to be counted again.
    """
    left: list[Gate] = []
    for gate in gates:
        if gate.concurrency is not None:
            ((held,),) = yield Ask(_OCCUPY_RUNNING, (str(gate.scope), gate.name))
            left += [gate] if held else []
    return left


def free(keys: Collection[tuple[Name, str]]) -> Verb[None]:
    """Have keys looked at by the next claim that holds their gate."""
    if keys:
        yield Ask(_FREE, ([str(task) for task, _ in keys], [key_bytes(key) for _, key in keys]))


def release(at: datetime | None, node: NodeId, places: Sequence[Place]) -> Verb[bool]:
    """Give up places that a node kept; says whether there were any. Several statements."""
    ((count,),) = yield Ask(_RELEASE, (node, [place.job for place in places], [place.lease for place in places]))
    if count:
        yield from runs.let_go(at)
    return bool(count)


FIRST_KEY: Final = ("", b"")


def mend(at: datetime | None, limit: int, after: tuple[str, bytes]) -> Verb[tuple[int, tuple[str, bytes]]]:
    """Free leaked places, and wake keys with parked jobs. Several statements.

    It begins behind the task and key `after`. Returns the number of places, and where the next call is to begin.
    """
    ((count,),) = yield Ask(_MEND, (limit,))
    woken = yield Ask(_WAKE_PARKED, (limit, *after))
    yield from runs.let_go(at)
    return int(count), (woken[-1][0], bytes(woken[-1][1])) if len(woken) == limit > 0 else FIRST_KEY


def declare(gates: Sequence[Gate]) -> Verb[bool]:
    """Set gates: the newest word on each holds. Says whether anything has changed. Several statements."""
    changed = False
    for gate in sorted(gates, key=lambda one: (str(one.scope), one.name)):
        known = yield from _find(gate.scope, gate.name)
        if known.gate != gate:
            yield from _replace(known, gate)
            changed = True
    if changed:
        yield Ask(_CHANGE)
    return changed


def limit_queue(queue: str, concurrency: int | None, by: str) -> Verb[bool]:
    """Set an operator's limit, or take it away; False: it was so. Several statements."""
    known = yield from _find(Scope.QUEUE, queue)
    if known.limited == concurrency:
        return False
    if concurrency is None and known.gate.concurrency is None and known.gate.rate is None:
        yield Ask(_DROP, (str(Scope.QUEUE), queue))
    else:
        yield Ask(_LIMIT, (queue, concurrency, None if concurrency is None else key_bytes(by)))
    if known.concurrency is None:
        yield Ask(_OCCUPY_RUNNING, (str(Scope.QUEUE), queue))
    yield Ask(_CHANGE)
    return True


class _Known(NamedTuple):
    """A gate as it is declared, and an operator's limit."""

    gate: Gate
    limited: int | None = None

    @property
    def concurrency(self) -> int | None:
        """What holds."""
        return self.gate.concurrency if self.limited is None else self.limited


def _find(scope: Scope, name: str) -> Verb[_Known]:
    """Read a gate and hold it; one that limits nothing, if there is none."""
    rows = yield Ask(_FIND, (str(scope), name))
    return _Known(_gate(rows[0][:6]), rows[0][6]) if rows else _Known(Gate(scope=scope, name=name))


def _replace(known: _Known, gate: Gate) -> Verb[None]:
    named = (str(gate.scope), gate.name)
    if gate.concurrency is None and gate.rate is None and known.limited is None:
        yield Ask(_DROP, named)
    else:
        yield Ask(_SET, (*named, gate.concurrency, *_rate_columns(gate.rate)))
    if known.gate.rate != gate.rate:
        yield Ask(_FORGET, named)
    if known.concurrency is None and gate.concurrency is not None:
        # What runs already has passed no gate; from now on it counts like everything else.
        yield Ask(_OCCUPY_RUNNING, named)
    if gate.scope is Scope.KEY:
        yield Ask(_UNPARK_ALL, (gate.name,))


def _rate_columns(rate: Rate | None) -> tuple[object, object, object]:
    return (None, None, None) if rate is None else (rate.count, rate.period, rate.burst)


def _gate(row: Row) -> Gate:
    scope, name, concurrency, count, period, burst = row
    rate = None if count is None else Rate(count=count, period=period, burst=burst)
    return Gate(scope=Scope(scope), name=name, concurrency=concurrency, rate=rate)
