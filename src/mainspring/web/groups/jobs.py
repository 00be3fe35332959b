"""Jobs over HTTP: searched for, looked at, and changed, one at a time or many."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import accumulate, takewhile
from typing import Annotated, Any, Final
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType, field

from mainspring.client.arguments import payload_from
from mainspring.client.audit import named
from mainspring.client.clones import clone as clone_job
from mainspring.client.operate import TOLD, Action, Trouble, act, makes_sense
from mainspring.client.options import Using
from mainspring.client.preview import PREVIEW_BYTES
from mainspring.client.searching import search, search_of
from mainspring.client.standing import is_well
from mainspring.client.timeline import MessagePlace, Moment, message_of, timeline
from mainspring.client.unknown import unknown_in
from mainspring.core.job import WAITING, Cause, JobId, NodeId, State
from mainspring.errors import JobGone
from mainspring.runtime.report import read as read_report
from mainspring.stores.overview import EntryFilter, EntryPage, Overview, Search
from mainspring.stores.port import Store
from mainspring.stores.records import AttemptView, JobView, LogLine
from mainspring.web.auth import Permission
from mainspring.web.groups.common import Made, Page, QName, Text
from mainspring.web.problems import Problem
from mainspring.web.routes import AnyRoute, Asked, Route

CHILDREN: Final = 50
ENTRIES: Final = 100
LINES_SIZE: Final = 1_000_000
"""Characters of log lines in one answer."""
SHORTLY: Final = timedelta(seconds=0.25)
"""For children, beside all else that a page shows."""

Instant = Annotated[
    str, Meta(min_length=1, max_length=64, description="2026-01-31T09:00:00Z, or how long ago it was, as 2h")
]


class Which(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs; all that is said must hold."""

    state: Annotated[str, Meta(max_length=100, description="states with commas between them")] | UnsetType = UNSET
    queue: Text | UnsetType = UNSET
    task: QName | UnsetType = UNSET
    key: Text | UnsetType = UNSET
    tag: Text | UnsetType = UNSET
    cause: Cause | UnsetType = UNSET
    error: Annotated[Text, Meta(description="a text within its last error")] | UnsetType = UNSET
    since: Annotated[Instant, Meta(description="enqueued then or later")] | UnsetType = UNSET
    until: Annotated[Instant, Meta(description="enqueued before")] | UnsetType = UNSET
    argument: Annotated[Text, Meta(description="path.to=JSON, name=Ada, or only where it is")] | UnsetType = UNSET
    node: Annotated[Text, Meta(description="that holds its lease, or held it last")] | UnsetType = UNSET
    parent: UUID | UnsetType = UNSET

    @property
    def about(self) -> str:
        """Say which are meant, without what may be secret."""
        given = {name: getattr(self, name) for name in Which.__struct_fields__ if getattr(self, name) is not UNSET}
        if "argument" in given:
            given["argument"] = given["argument"].partition("=")[0]
        words = " ".join(f"{name}={value}" for name, value in given.items())
        return f"those with {words}" if words else "all of them"


class ListJobs(Which, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of jobs."""

    limit: Page = 50
    after: UUID | UnsetType = UNSET


class FoundJobs(Struct, frozen=True, kw_only=True):
    """What was found, the newest first."""

    jobs: tuple[JobView, ...]
    after: JobId | None
    """Where to go on; null: there is nothing older."""
    looked: int
    """About how many jobs were looked at; those that an index left out are not."""
    back_to: datetime | None
    """When the last one that was looked at was enqueued; null: nothing was looked at."""
    in_time: bool
    """Whether it ended because its page was full, or everything seen; false: its time was up."""
    hint: str | None
    """Where nothing was found: which name nobody knows, and what was meant perhaps."""


class OneJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job."""

    id: UUID


class Detail(Struct, frozen=True, kw_only=True):
    """All that is kept of a job."""

    job: JobView
    timeline: tuple[Moment, ...]
    attempts: tuple[AttemptView, ...]
    """Those that did not succeed."""
    lines: tuple[LogLine, ...]
    """The last ones, as many as fit into a megabyte."""
    lines_cut: int
    """Earlier lines that are kept, and not shown here."""
    children: tuple[JobView, ...]
    """Jobs that it enqueued, the newest first, or as many as were found in a quarter of a second."""
    message: MessagePlace | None
    """The message of an outbox that it was made of, while that is kept."""
    still_on: tuple[NodeId, ...]
    """Nodes where a body of it goes on whose attempt has ended: it did not stop when told to."""
    may: tuple[Permission, ...]
    """What whoever asks may do to it as it stands."""


class JobChanged(Struct, frozen=True, kw_only=True):
    """What became of it."""

    id: JobId
    changed: bool
    state: State | None
    """As it is now; null: it is gone."""


class Enqueue(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job that is to be."""

    task: QName
    args: dict[str, Any] = field(default_factory=dict)
    queue: Text | UnsetType = UNSET
    priority: Annotated[int, Meta(ge=0, le=100)] | UnsetType = UNSET
    delay: Annotated[str, Meta(min_length=1, max_length=64, description="as in 10m")] | UnsetType = UNSET
    tags: Annotated[list[Text], Meta(max_length=50)] | UnsetType = UNSET


class Bulk(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step of what is done to many jobs: to these, or to all that are found."""

    action: Action
    ids: Annotated[list[UUID], Meta(min_length=1, max_length=500)] | UnsetType = UNSET
    which: Which | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    """Of a search, so many in this step."""
    after: UUID | UnsetType = UNSET
    """Of a search, what the step before has answered."""
    dry_run: bool = False

    @property
    def about(self) -> str:
        return self.which.about if self.which else named(self.ids or ())


class Stepped(Struct, frozen=True, kw_only=True):
    """What came of a step."""

    looked: int
    """About how many jobs were looked at."""
    found: int
    """So many of them are meant."""
    changed: int
    refused: int
    problems: tuple[Trouble, ...]
    """The first five."""
    after: JobId | None
    """Where the next step goes on; null: there is nothing more to do."""


async def list_(asked: Asked[ListJobs]) -> FoundJobs:
    """Look for jobs, the newest first. What no index knows is looked for as far back as a second allows."""
    said = asked.said
    store = await asked.store()
    which = _search(asked, said, store)
    after = JobId(said.after) if said.after else None
    found = await search(
        store, which, limit=said.limit, after=after, preview=PREVIEW_BYTES, accept=asked.redact.accepting(which)
    )
    return FoundJobs(
        jobs=found.jobs,
        after=found.after,
        looked=found.looked,
        back_to=found.back_to,
        in_time=found.in_time,
        hint=None if found.jobs or said.after else await unknown_in(which, store, asked.app.registry),
    )


async def show(asked: Asked[OneJob]) -> Detail:
    """Show all that is kept of a job."""
    store = await asked.store()
    view = await _view(store, asked.said.id)
    attempts = await store.attempts(view.job.id)
    message = await message_of(store, asked.app.outbox.forwarding(), view)
    entries = await _entries(asked, store, view.job.id)
    lines = await store.log_lines(view.job.id)
    last = _last(lines)
    return Detail(
        job=view,
        timeline=timeline(view, attempts, store.now(), entries=entries.entries, message=message),
        attempts=attempts,
        lines=last,
        lines_cut=len(lines) - len(last),
        children=await _children(store, view),
        message=message,
        still_on=await _still_on(store, view.job.id),
        may=_may(asked, view, store),
    )


async def retry(asked: Asked[OneJob]) -> JobChanged:
    """Run a failed or cancelled job again, with one more attempt."""
    job = asked.app.job(asked.said.id)
    await job.retry()
    return JobChanged(id=job.id, changed=True, state=await job.state())


async def cancel(asked: Asked[OneJob]) -> JobChanged:
    """Cancel a job: at once if it waits, as a request if it runs."""
    job = asked.app.job(asked.said.id)
    return JobChanged(id=job.id, changed=True, state=await job.cancel())


async def run_now(asked: Asked[OneJob]) -> JobChanged:
    """Have a job that waits for its time be due now."""
    store = await asked.store()
    job = asked.app.job(asked.said.id)
    view = await job.refresh()
    if view.job.state in WAITING and view.job.run_at <= store.now():
        return JobChanged(id=job.id, changed=False, state=view.job.state)  # it keeps its place in the line
    await job.move(run_at=store.now())
    return JobChanged(id=job.id, changed=True, state=await job.state())


async def delete(asked: Asked[OneJob]) -> JobChanged:
    """Forget a job that does not run, and all that is kept of it."""
    job = asked.app.job(asked.said.id)
    await job.delete()
    return JobChanged(id=job.id, changed=True, state=None)


async def clone(asked: Asked[OneJob]) -> Made:
    """Make a new job of the same task with the same arguments, due at once; the old one is its parent."""
    store = await asked.store()
    made = await clone_job(store, asked.app.registry, JobId(asked.said.id))
    view = await _view(store, made.id)
    return Made(id=made.id, task=view.job.task, fresh=made.fresh)


async def enqueue(asked: Asked[Enqueue]) -> Made:
    """Make a job of a task that this program has; its arguments are checked as the task declares them."""
    said = asked.said
    task = asked.app.find(said.task)
    args, kwargs = task.definition.arguments.decode(payload_from(task.definition, (), said.args))
    options: Using = {
        "queue": said.queue or None,
        "priority": None if said.priority is UNSET else said.priority,
        "delay": said.delay or None,
        "tags": said.tags or None,
    }
    job = await task.using(**options).enqueue(*args, **kwargs)
    return Made(id=job.id, task=job.task, fresh=job.fresh)


async def bulk(asked: Asked[Bulk]) -> Stepped:
    """Do the same to many jobs, one step at a time: who asks goes on with `after` until that is null, or stops."""
    said = asked.said
    if (said.ids is UNSET) == (said.which is UNSET):
        raise Problem(422, "invalid", "say which jobs: either `ids` or `which`")
    store = await asked.store()
    views, looked, after = await _meant(asked, store)
    jobs = [view.job for view in views if view is not None]
    missing = [] if said.ids is UNSET else sorted(set(said.ids) - {job.id for job in jobs})
    if said.dry_run:
        sensible = sum(makes_sense(said.action, job, store.now()) for job in jobs)
        refused = len(jobs) - sensible + len(missing)
        return Stepped(looked=looked, found=len(jobs), changed=0, refused=refused, problems=(), after=after)
    done = await act(store, jobs, said.action)
    troubles = (*done.problems, *(Trouble(id=JobId(one), problem=str(JobGone(str(one)))) for one in missing))
    return Stepped(
        looked=looked,
        found=len(jobs),
        changed=done.changed,
        refused=done.refused + len(missing),
        problems=troubles[:TOLD],
        after=after,
    )


def permission_of(said: Bulk) -> Permission:
    """Name what whoever asks for many needs: what they would need for one."""
    return Permission(f"jobs.{said.action}")


async def _meant(asked: Asked[Bulk], store: Store) -> tuple[tuple[JobView | None, ...], int, JobId | None]:
    said = asked.said
    if said.which is UNSET:
        views = await store.get([JobId(one) for one in dict.fromkeys(said.ids or ())], preview=0)
        return views, len(views), None
    after = JobId(said.after) if said.after else None
    which = _search(asked, said.which, store)
    found = await search(store, which, limit=said.limit, after=after, preview=0, accept=asked.redact.accepting(which))
    return found.jobs, found.looked, found.after


def _search(asked: Asked[Any], said: Which, store: Store) -> Search:
    """Read what is looked for, and see that it may be."""
    words: Any = {name: word for name in Which.__struct_fields__ if (word := getattr(said, name))}
    which = search_of(words, store.now())
    asked.redact.check(which)
    return which


async def _view(store: Store, job: UUID) -> JobView:
    (view,) = await store.get([JobId(job)])
    if view is None:
        raise JobGone(str(job))
    return view


def _last(lines: Sequence[LogLine]) -> tuple[LogLine, ...]:
    """Take the last lines, as many as fit into one answer."""
    sizes = accumulate(len(line.message) for line in reversed(lines))
    return tuple(lines[len(lines) - sum(1 for _ in takewhile(lambda size: size <= LINES_SIZE, sizes)) :])


async def _children(store: Store, view: JobView) -> tuple[JobView, ...]:
    which = Search(parent=view.job.id)
    if not isinstance(store, Overview):
        return (await search(store, which, limit=CHILDREN, preview=PREVIEW_BYTES)).jobs
    return (await store.search(which, limit=CHILDREN, budget=SHORTLY, preview=PREVIEW_BYTES)).jobs


async def _still_on(store: Store, job: JobId) -> tuple[NodeId, ...]:
    """Name the nodes that say so, of those that are well."""
    if not isinstance(store, Overview):
        return ()
    said = {
        node: read_report(one.body) for node, one in (await store.reports()).items() if str(job).encode() in one.body
    }
    nodes = {
        node
        for node, report in said.items()
        if report and any(one.id == job and one.is_abandoned for one in report.running)
    }
    if not nodes:
        return ()
    return tuple(view.node.id for view in await store.nodes() if view.node.id in nodes and is_well(view, store.now()))


async def _entries(asked: Asked[OneJob], store: Store, job: JobId) -> EntryPage:
    """Read what people did to a job, for those who may read the audit log."""
    if Permission.AUDIT_LOOK not in asked.who.permissions or not isinstance(store, Overview):
        return EntryPage(entries=())
    return await store.audit(EntryFilter(about=str(job)), limit=ENTRIES)


def _may(asked: Asked[OneJob], view: JobView, store: Store) -> tuple[Permission, ...]:
    sensible = {Permission(f"jobs.{one}") for one in Action if makes_sense(one, view.job, store.now())}
    sensible.add(Permission.JOBS_ENQUEUE)  # a clone can be made of any
    return tuple(one for one in Permission if one in sensible & asked.who.permissions)


ROUTES: Final[tuple[AnyRoute, ...]] = (
    Route("GET", "/jobs/list", Permission.JOBS_LOOK, ListJobs, FoundJobs, list_, searches=True),
    Route("GET", "/jobs/show", Permission.JOBS_LOOK, OneJob, Detail, show),
    Route("POST", "/jobs/retry", Permission.JOBS_RETRY, OneJob, JobChanged, retry),
    Route("POST", "/jobs/cancel", Permission.JOBS_CANCEL, OneJob, JobChanged, cancel),
    Route("POST", "/jobs/run_now", Permission.JOBS_RUN_NOW, OneJob, JobChanged, run_now),
    Route("POST", "/jobs/delete", Permission.JOBS_DELETE, OneJob, JobChanged, delete),
    Route("POST", "/jobs/clone", Permission.JOBS_ENQUEUE, OneJob, Made, clone),
    Route("POST", "/jobs/enqueue", Permission.JOBS_ENQUEUE, Enqueue, Made, enqueue),
    Route("POST", "/jobs/bulk", Permission.JOBS_LOOK, Bulk, Stepped, bulk, also=permission_of, searches=True),
)
