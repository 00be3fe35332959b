"""A new job of what is kept of an old one."""

from contextlib import suppress

from mainspring.core.job import JobId
from mainspring.errors import JobGone, UnknownTask
from mainspring.ids import new_id
from mainspring.runtime.definition import Registry
from mainspring.stores.port import Store
from mainspring.stores.records import Enqueued, Facts, NewJob


async def clone(store: Store, registry: Registry, job: JobId) -> Enqueued:
    """Enqueue a job like this one, due at once, whose parent this one is; raises `JobGone` if it is not there.

    It is made from what is stored. If its task is known here, its arguments must still fit, or it raises `PayloadError`.
    If it is unique and the old one is not over, the old one is the answer.
    """
    (view,) = await store.get([job])
    if view is None:
        raise JobGone(str(job))
    old = view.job
    with suppress(UnknownTask):
        registry.find(old.task).arguments.decode(view.payload)
    new = NewJob(
        id=JobId(new_id(store.now())),
        task=old.task,
        payload=view.payload,
        backoff=old.backoff,
        max_attempts=old.max_attempts,
        queue=old.queue,
        priority=old.priority,
        loss_limit=old.loss_limit,
        retention=old.retention,
        timeout=view.timeout,
        key=view.key,
        unique=view.unique,
        facts=Facts(tags=view.facts.tags, parent=old.id, owner=view.facts.owner, redact=view.facts.redact),
        is_new=True,
    )
    (answer,) = await store.enqueue([new])
    return answer
