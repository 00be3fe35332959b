"""Gates: how many jobs of a task, queue or key may run, and how many may start in a while."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from mainspring.core.limits import Gate, Rate, Scope
from mainspring.stores.passage import ENDLESS, Passage
from mainspring.stores.sqlite import parking
from mainspring.stores.sqlite.rows import Row, instant, optional_instant, optional_micros, span_micros, to_span
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_FIND: Final = statement("gate_find")
_SET: Final = statement("gate_set")
_DROP: Final = statement("gate_drop")
_SPEND: Final = statement("gate_spend")
_TAKEN: Final = statement("places_count")
_SPENT: Final = statement("spent_find")
_SPEND_KEY: Final = statement("spent_set")
_FORGET_KEYS: Final = statement("spent_drop")
_OCCUPY_RUNNING: Final = {
    Scope.TASK: statement("places_of_running_task"),
    Scope.QUEUE: statement("places_of_running_queue"),
    Scope.KEY: statement("places_of_running_keys"),
}
_MAX_UNPARKED: Final = 20
"""Jobs of a lane and key that are unparked when places are free, at most. A claim that takes them unparks more."""


def with_account(row: Row) -> tuple[Gate, datetime | None]:
    """Read a gate and its account; those of a keyed one are kept by key."""
    return _gate(row), optional_instant(row[6])


def approach(session: Session, gate: Gate, spent_until: datetime | None) -> Passage:
    return _approach(session, gate, "", spent_until)


def approach_with_key(session: Session, gate: Gate, key: str) -> Passage:
    account = None if gate.rate is None else session.row(_SPENT, (gate.name, key))
    return _approach(session, gate, key, None if account is None else instant(account[0]))


def _approach(session: Session, gate: Gate, key: str, spent_until: datetime | None) -> Passage:
    taken = 0 if gate.concurrency is None else session.rows(_TAKEN, (gate.scope, gate.name, key))[0][0]
    return Passage(gate=gate, key=key, taken=taken, spent_until=spent_until, now=instant(session.now))


def unpark(session: Session, keys: Iterable[tuple[str, str]], most: int | None = None) -> bool:
    """Unpark the first jobs of each (task, key) that has free places, and write when the rates of the others open.

    Returns whether keys were left as they are, because `most` jobs or more were unparked.
    """
    if not parking.has_parked_keys(session):
        return False
    count = 0
    known: dict[str, Gate | None] = {}
    for task, key in keys:
        if most is not None and count >= most:
            return True
        lanes = parking.lanes_of(session, task, key)
        if not lanes:
            continue
        if task not in known:
            row = session.row(_FIND, (Scope.KEY, task))
            known[task] = None if row is None else _gate(row)
        gate = known[task]
        passage = None if gate is None else approach_with_key(session, gate, key)
        if passage is None or passage.room > 0:
            room = ENDLESS if passage is None else passage.room
            count += parking.unpark(session, task, key, lanes, min(room, _MAX_UNPARKED))
        else:
            opens_at = None if passage.is_full else optional_micros(passage.opens_at)
            parking.set_opening(session, task, key, lanes, opens_at)
    return False


def spend(session: Session, passages: Iterable[Passage]) -> None:
    """Write down what the rates have spent on those who passed."""
    for passage in passages:
        if not passage.passed or passage.gate.rate is None:
            continue
        spent = optional_micros(passage.spent)
        if passage.is_keyed:
            session.run(_SPEND_KEY, (passage.gate.name, passage.key, spent))
        else:
            session.run(_SPEND, (spent, passage.gate.scope, passage.gate.name))


def declare(session: Session, gates: Sequence[Gate]) -> None:
    """Set gates: the newest word on each holds."""
    for gate in gates:
        row = session.row(_FIND, (gate.scope, gate.name))
        known = Gate(scope=gate.scope, name=gate.name) if row is None else _gate(row)
        if known != gate:
            _replace(session, known, gate)
            session.woke = True


def _replace(session: Session, known: Gate, gate: Gate) -> None:
    if gate.concurrency is None and gate.rate is None:
        session.run(_DROP, (gate.scope, gate.name))
    else:
        session.run(_SET, (gate.scope, gate.name, gate.concurrency, *_rate_columns(gate.rate)))
    if known.rate != gate.rate:
        session.run(_SPEND, (None, gate.scope, gate.name))
    if known.rate != gate.rate and gate.scope is Scope.KEY:
        session.run(_FORGET_KEYS, (gate.name,))
    if known.concurrency is None and gate.concurrency is not None:
        # What runs already has passed no gate; from now on it counts like everything else.
        session.run(_OCCUPY_RUNNING[gate.scope], (gate.name,))
    if gate.scope is Scope.KEY:
        parking.open_all(session, gate.name)


def _rate_columns(rate: Rate | None) -> tuple[int | None, int | None, int | None]:
    return (None, None, None) if rate is None else (rate.count, span_micros(rate.period), rate.burst)


def _gate(row: Row) -> Gate:
    scope, name, concurrency, count, period, burst = row[:6]
    rate = None if count is None else Rate(count=count, period=to_span(period), burst=burst)
    return Gate(scope=Scope(scope), name=name, concurrency=concurrency, rate=rate)
