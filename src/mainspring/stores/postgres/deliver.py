"""Taking what was chosen: jobs become running, and what a node is given is made of their rows."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from mainspring.core.job import WAITING, Claim, Job, JobId, NodeId, State
from mainspring.core.outcome import AttemptError
from mainspring.stores.postgres.pick import Picked
from mainspring.stores.postgres.rows import error, facts, instant, key_text, name, policy, shown_key
from mainspring.stores.postgres.rules import Rules
from mainspring.stores.postgres.sight import Sight
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Row, Verb
from mainspring.stores.records import ClaimRequest, Delivery
from mainspring.stores.unreadable import POLICY, problem, readable

_TAKE: Final = statement("take")
_TRACES: Final = statement("traces_of")
_RUN_AT: Final = 2
_EARLY: Final = 24
"""Columns of a claimed row: seconds since 1970, and the instant itself if it is before 1900."""
_WAITING: Final = {str(state): state for state in WAITING}


def take(at: datetime | None, request: ClaimRequest, sight: Sight, picked: Picked) -> Verb[tuple[Delivery, ...]]:
    """Take what was chosen, as far as it can still be had; in the order in which it was chosen."""
    if not picked.jobs:
        return ()
    rows = yield Ask(
        _TAKE,
        (
            at,
            request.node,
            sight.rules.version,
            [job.id for job in picked.jobs],
            [job.queue for job in picked.jobs],
            [job.care for job in picked.jobs],
            request.term,
            request.number,
        ),
    )
    traces = yield from traces_of(rows)
    taken = {row[0]: row for row in rows}
    deliveries = tuple(
        delivery(request.node, row, traces.get(job.id)) for job in picked.jobs if (row := taken.get(job.id)) is not None
    )
    return with_terms(sight.rules, deliveries)


def run_at_of(row: Row) -> datetime:
    """Return the `run_at` of a claimed row."""
    early: datetime | None = row[_EARLY]
    return instant(row[_RUN_AT]) if early is None else early


def with_terms(rules: Rules, deliveries: tuple[Delivery, ...]) -> tuple[Delivery, ...]:
    """Name the terms of breakers, which are those of the rules that were still true when the jobs were taken."""
    if not rules.breakers:
        return deliveries
    kept = [rules.breakers.get(one.claim.job.task) for one in deliveries]
    return tuple(
        one if known is None else replace(one, term=known.circuit.term)
        for one, known in zip(deliveries, kept, strict=True)
    )


def traces_of(rows: Sequence[Row]) -> Verb[dict[JobId, list[Any]]]:
    """What earlier attempts have left behind, of those jobs that have any."""
    traced = [row[0] for row in rows if row[13]]
    return {job: kept for job, *kept in (yield Ask(_TRACES, (traced,)))} if traced else {}


def delivery(node: NodeId, row: Row, traces: Sequence[Any] | None) -> Delivery:
    """Return the delivery of a row; for a row that cannot be decoded, a delivery that can only be ended."""
    try:
        return _decoded(node, row, traces)
    except Exception as error:  # noqa: BLE001 -- any row can be claimed, whatever it contains
        return _undecoded(node, row, problem(error))


def _undecoded(node: NodeId, row: Row, error: AttemptError) -> Delivery:
    (
        id_, state, _run_at, attempt, granted, losses, loss_limit, lease, revision, max_attempts, stored_policy,
        enqueued_at, payload, _traced, _expires_at, _timeout, key, _parent, _facts, queue, task, priority, *_,
    ) = row  # fmt: skip
    backoff, retention, of_schedule = readable(policy, stored_policy, POLICY)
    job = Job(
        id=id_,
        task=name(task),
        state=State.RUNNING,
        run_at=run_at_of(row),
        backoff=backoff,
        max_attempts=max_attempts,
        queue=queue,
        priority=priority,
        attempt=attempt,
        granted=granted,
        losses=losses,
        loss_limit=loss_limit,
        lease=lease,
        revision=revision,
        retention=retention,
        of_schedule=of_schedule,
    )
    return Delivery(
        claim=Claim(job=job, node=node),
        source=_WAITING.get(state, State.READY),
        payload=payload,
        enqueued_at=instant(enqueued_at),
        key=shown_key(key),
        unreadable=error,
    )


def _decoded(node: NodeId, row: Row, traces: Sequence[Any] | None) -> Delivery:
    """Make what a node is given, with only those fields named that say something: it takes a third of the time."""
    (
        id_, state, run_at, attempt, granted, losses, loss_limit, lease, revision, max_attempts, stored_policy,
        enqueued_at, payload, _traced, expires_at, timeout, key, parent, stored_facts, queue, task, priority, _care,
        _now, early, *_,
    ) = row  # fmt: skip
    backoff, retention, of_schedule = policy(stored_policy)
    job = Job(
        id=id_,
        task=name(task),
        state=State.RUNNING,
        run_at=instant(run_at) if early is None else early,
        backoff=backoff,
        max_attempts=max_attempts,
        queue=queue,
        priority=priority,
        attempt=attempt,
        losses=losses,
        loss_limit=loss_limit,
        lease=lease,
        revision=revision,
        retention=retention,
    )
    if granted or expires_at is not None or of_schedule:
        job = replace(job, granted=granted, expires_at=expires_at, of_schedule=of_schedule)
    made = Delivery(
        claim=Claim(job=job, node=node), source=_WAITING[state], payload=payload, enqueued_at=instant(enqueued_at)
    )
    if timeout is None and key is None and parent is None and stored_facts is None and traces is None:
        return made
    saved, last_error = traces or (None, None)
    return replace(
        made,
        timeout=timeout,
        key=key_text(key),
        saved=saved,
        previous_error=error(last_error),
        facts=facts(stored_facts, parent),
    )
