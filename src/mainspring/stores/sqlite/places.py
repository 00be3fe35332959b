"""Places: one row for each gate that a running job has passed.

Nothing is counted beside them: how many more may pass is the gate's concurrency less the places that are taken. They go
in the transaction that ends the lease, or stay if the body goes on, until its node says that it has stopped.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from mainspring.core.job import Job, NodeId
from mainspring.core.limits import Scope
from mainspring.stores.records import Place
from mainspring.stores.sqlite import gates, runs
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_ADD: Final = statement("place_add")
_ANY: Final = statement("places_any")
_ALL: Final = statement("places_all")
_OF_LEASE: Final = statement("places_of_lease")
_OF_JOB: Final = statement("places_of_job")
_KEEP: Final = statement("places_keep")
_FREE: Final = statement("places_free")
_KEPT: Final = statement("places_kept")
_LEAKED: Final = statement("places_leaked")


def occupy(session: Session, places: Iterable[tuple[Scope, str, str, bytes, int, NodeId]]) -> None:
    session.run_many(_ADD, places)


def any_taken(session: Session) -> bool:
    """Say whether there are places at all. Mostly not, and then nobody has to look for those of each job."""
    return bool(session.rows(_ANY))


def keep(session: Session, job: Job, key: str | None, node: NodeId) -> None:
    """Let an ended attempt have its places for as long as its body goes on, at gates that are yet to come too."""
    task, id_ = str(job.task), job.id.bytes
    subjects = [(Scope.TASK, task, ""), (Scope.QUEUE, job.queue, "")]
    if key is not None:
        subjects.append((Scope.KEY, task, key))
    session.run_many(_KEEP, [(*subject, id_, job.lease, node) for subject in subjects])


def vacate(session: Session, leases: Iterable[tuple[bytes, int]]) -> None:
    """Give up the places of these (job, lease)."""
    ended = set(leases)
    places = session.rows(_ALL, (len(ended) + 1,))
    if len(places) <= len(ended):  # a job that has none costs nothing then
        freed = [place for place in places if place[3:] in ended]
    else:
        freed = [(*place, job, lease) for job, lease in ended for place in session.rows(_OF_LEASE, (job, lease))]
    _free(session, freed)


def vacate_job(session: Session, job: bytes) -> None:
    """Give up all places of a job that is being deleted."""
    _free(session, [(scope, name, key, job, lease) for scope, name, key, lease in session.rows(_OF_JOB, (job,))])
    runs.let_go(session, [job])


def release(session: Session, node: NodeId, places: Sequence[Place]) -> None:
    """Give up places that this node kept; others are left as they are."""
    for place in places:
        job, lease = place.job.bytes, place.lease
        _free(session, [(*row, job, lease) for row in session.rows(_KEPT, (job, lease, node))])
    runs.let_go(session, [place.job.bytes for place in places])


def mend(session: Session, limit: int) -> int:
    """Give up the places of attempts that have ended and that no live node keeps; returns how many attempts."""
    leaked = session.rows(_LEAKED, (limit,))
    vacate(session, leaked)
    runs.let_go(session, [job for job, _ in leaked])
    return len(leaked)


def _free(session: Session, places: Sequence[tuple[object, ...]]) -> None:
    if not places:
        return
    session.run_many(_FREE, places)
    gates.unpark(session, {(str(name), str(key)) for scope, name, key, *_ in places if scope == Scope.KEY})
    session.woke = True
