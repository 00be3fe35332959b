"""The control object over HTTP: each action is one call of `app.control`, under the same name."""

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from mainspring.client.control import Row
from mainspring.client.plain import shown
from mainspring.client.statements import BATCH, Iterated
from mainspring.web.auth import Permission
from mainspring.web.gate import allow
from mainspring.web.groups.common import Changed, Made, QName
from mainspring.web.routes import AnyRoute, Asked, Nothing, Route

Statement = Annotated[str, Meta(min_length=1, max_length=100_000)]


class Take(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which schedules."""

    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    after: QName | UnsetType = UNSET


class Listed(Struct, frozen=True, kw_only=True):
    """A page."""

    schedules: tuple[Row, ...]
    after: str | None
    """Where the next page begins; null: there is none."""


class Add(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule in plain words."""

    qname: QName
    kind: Literal["periodic", "cron", "once", "manual"]
    arg: Annotated[str, Meta(max_length=1000)] | int | float | None = None
    task: QName | None = None
    args: dict[str, Any] = field(default_factory=dict)


class Named(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One schedule."""

    qname: QName


class Run(Named, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job that is wanted now."""

    args: dict[str, Any] = field(default_factory=dict)


class Submit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A statement."""

    statement: Statement
    params: dict[str, Any] = field(default_factory=dict)


class Submitted(Struct, frozen=True, kw_only=True):
    """What the program has returned."""

    result: Any


class Iterate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two statements, and how many rows at a time."""

    driving_query: Statement
    mutation: Statement
    batch_size: Annotated[int, Meta(ge=1, le=100_000)] = BATCH
    params: dict[str, Any] = field(default_factory=dict)
    rows_as: Annotated[str, Meta(min_length=1, max_length=255)] = "rows"
    retries: Annotated[int, Meta(ge=0, le=100)] = 0
    dry_run: bool = False
    seconds: Annotated[float, Meta(gt=0, le=300)] = 30
    """It ends after the batch in which these have passed, with `stopped` in the answer."""


class Flushed(Struct, frozen=True, kw_only=True):
    """It is done."""

    flushed: bool = True


async def list_(asked: Asked[Take]) -> Listed:
    """List schedules with how they have been going, by name."""
    rows = await asked.app.control.list(limit=asked.said.limit, after=asked.said.after or None)
    return Listed(schedules=rows, after=rows[-1].qname if len(rows) == asked.said.limit else None)


async def add(asked: Asked[Add]) -> Row:
    """Have a schedule be there, in place of one of that name."""
    control, said = asked.app.control, asked.said
    args, kwargs = control.arguments(said.task or said.qname, said.args) if said.args else ((), {})
    added = await control.add(said.qname, said.kind, said.arg, task=said.task, args=args, kwargs=kwargs)
    return await control.get(str(added.name))


async def cancel(asked: Asked[Named]) -> Changed:
    """Take a schedule away for good, and cancel its jobs."""
    control, qname = asked.app.control, asked.said.qname
    changed = await control.cancel(qname)
    if not changed:
        await control.get(qname)  # raises, and says which is near
    return Changed(name=qname, changed=changed)


async def run(asked: Asked[Run]) -> Made:
    """Make one job now: of the schedule of that name, or of the task; with arguments, of the task."""
    control, said = asked.app.control, asked.said
    if said.args:
        allow(asked.who, Permission.JOBS_ENQUEUE)
    if Permission.JOBS_ENQUEUE not in asked.who.permissions:  # then it has to be one that is scheduled
        job = await asked.app.schedules.run((await control.get(said.qname)).qname)
        return Made(id=job.id, task=job.task, fresh=job.fresh)
    args, kwargs = control.arguments(said.qname, said.args) if said.args else ((), {})
    job = await control.run(said.qname, args=args, kwargs=kwargs)
    return Made(id=job.id, task=job.task, fresh=job.fresh)


async def submit(asked: Asked[Submit]) -> Submitted:
    """Have the program carry out a statement that writes."""
    result = await asked.app.control.submit(asked.said.statement, asked.said.params)
    return Submitted(result=shown(result))


async def iterate(asked: Asked[Iterate]) -> Iterated:
    """Read rows by one statement, and write them by another, in batches."""
    said = asked.said
    clock = asked.app.clock
    until = clock.monotonic() + said.seconds
    return await asked.app.control.iterate(
        said.driving_query,
        said.mutation,
        batch_size=said.batch_size,
        params=said.params,
        rows_as=said.rows_as,
        retries=said.retries,
        dry_run=said.dry_run,
        progress=lambda _: clock.monotonic() < until,
    )


async def flush(asked: Asked[Nothing]) -> Flushed:
    """Bring what is committed to where it stays."""
    await asked.app.control.flush()
    return Flushed()


ROUTES: Final[tuple[AnyRoute, ...]] = (
    Route("GET", "/control/list", Permission.CONTROL_LIST, Take, Listed, list_),
    Route("POST", "/control/add", Permission.CONTROL_ADD, Add, Row, add),
    Route("POST", "/control/cancel", Permission.CONTROL_CANCEL, Named, Changed, cancel),
    Route("POST", "/control/run", Permission.CONTROL_RUN, Run, Made, run),
    Route("POST", "/control/submit", Permission.CONTROL_SUBMIT, Submit, Submitted, submit),
    Route("POST", "/control/iterate", Permission.CONTROL_ITERATE, Iterate, Iterated, iterate, runs_statements=True),
    Route("POST", "/control/flush", Permission.CONTROL_FLUSH, Nothing, Flushed, flush),
)
