"""`mainspring schedules run` and `backfill`: jobs that somebody asked for, now or for slots of the past."""

from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

import click
from msgspec import Struct

from mainspring.app import Mainspring
from mainspring.cli.durations import DURATION
from mainspring.cli.plain import plain, print_json
from mainspring.cli.reach import as_json, reaches_store
from mainspring.cli.root import Refusal
from mainspring.cli.schedules_words import INSTANT, at, placed
from mainspring.cli.words import count
from mainspring.client.schedules import MOST_BACKFILLED
from mainspring.core.missed import MOMENT
from mainspring.core.names import Name
from mainspring.core.schedule import Schedule
from mainspring.errors import ScheduleError
from mainspring.runtime.planned import look_at
from mainspring.stores.records import RunFilter

PAGE: Final = 500


@click.command()
@click.argument("name")
@click.option("--wait", is_flag=True, help="Wait until it has finished, and print its result.")
@click.option("--timeout", type=DURATION, help="Wait no longer than this, as in 30s.")
@as_json
@reaches_store
async def run(
    app: Mainspring,
    *,
    name: str,
    wait: bool,
    timeout: timedelta | None,  # noqa: ASYNC109 - an option
    as_json: bool,
) -> None:
    """Make a job of a schedule now, whatever its rule says."""
    if timeout is not None and not wait:
        raise click.UsageError("--timeout limits --wait, which was not given")
    try:
        job = await app.schedules.run(name)
    except ScheduleError as error:  # what was asked for is in order; the schedule cannot do it
        raise Refusal(str(error)) from error
    if not wait:
        if as_json:
            print_json({"id": job.id, "task": job.task, "schedule": name})
        else:
            click.echo(job.id)
        return
    await job.result(timeout)
    view = await job.refresh()
    if as_json:
        print_json(view)
        return
    envelope = plain(view.result) if view.result is not None else None
    print_json(envelope["value"] if isinstance(envelope, dict) and "value" in envelope else envelope)


class Part(Struct, frozen=True, kw_only=True):
    """Slots in a row, as many as one backfill takes."""

    first: datetime
    last: datetime
    count: int
    missing: int
    """Of these, so many have no job yet."""


@click.command()
@click.argument("name")
@click.option("--from", "start", required=True, type=INSTANT, help="The first slot, or any instant before it.")
@click.option("--to", "end", required=True, type=INSTANT, help="The last slot, or any instant after it.")
@click.option("--dry-run", is_flag=True, help="Only say how many there are.")
@as_json
@reaches_store
async def backfill(app: Mainspring, *, name: str, start: datetime, end: datetime, dry_run: bool, as_json: bool) -> None:
    """Make jobs for slots of the past that have none.

    A time without an offset is meant in the zone of the schedule; a day
    without a time is its beginning.
    """
    look, now = await look_at(app.store, Name.parse(name))
    schedule = look.schedule
    start, end = placed(start, schedule.plan.zone), placed(end, schedule.plan.zone)
    _check(schedule, start, end, now)
    parts = [part async for part in _parts(app, schedule, start, end)]
    slots, missing = sum(part.count for part in parts), sum(part.missing for part in parts)
    if not as_json:
        span = f"from {at(start, schedule.plan.zone)} to {at(end, schedule.plan.zone)}"
        click.echo(f"{count(slots, 'slot')} {span}, {missing:,} of them without a job")
    made = 0
    for part in parts:
        if dry_run or not part.missing:
            continue
        made += len(await app.schedules.backfill(name, part.first, part.last))
        if not as_json and len(parts) > 1:
            click.echo(f"{made:,} of {missing:,}", err=True)
    if as_json:
        print_json({"name": name, "from": start, "to": end, "slots": slots, "missing": missing, "made": made})
    elif not dry_run:
        click.echo(f"{count(made, 'job')} made")


def _check(schedule: Schedule, start: datetime, end: datetime, now: datetime) -> None:
    """Refuse before the first job what would be refused at some job later."""
    if start > end:
        raise click.UsageError("--from is later than --to")
    if end > now:
        raise click.UsageError("--to has not come yet; backfill what is past")
    if schedule.plan.counts_from_the_end:
        raise click.UsageError(
            f"{schedule.name} counts from the end of a run to the next, and has no slots of the past"
        )
    horizon = now - schedule.plan.keep_runs
    first = next(schedule.plan.rule.between(start - MOMENT, end), None)
    if first is not None and first <= horizon:
        back = f"runs go back to {at(horizon, schedule.plan.zone)}"
        raise click.UsageError(f"--from is too long ago: {back}, and nobody knows what became of earlier slots")


async def _parts(app: Mainspring, schedule: Schedule, start: datetime, end: datetime) -> AsyncIterator[Part]:
    for slots in _chunks(schedule, start, end):
        taken = await _taken(app, schedule, slots[0], slots[-1])
        missing = sum(slot not in taken for slot in slots)
        yield Part(first=slots[0], last=slots[-1], count=len(slots), missing=missing)


def _chunks(schedule: Schedule, start: datetime, end: datetime) -> Iterator[list[datetime]]:
    """Cut the slots that have been decided, or were before the schedule's time, into as many as one backfill takes."""
    slots = schedule.plan.rule.between(start - MOMENT, min(end, schedule.cursor))
    while chunk := list(islice(slots, MOST_BACKFILLED)):
        yield chunk


async def _taken(app: Mainspring, schedule: Schedule, first: datetime, last: datetime) -> set[datetime | None]:
    which = RunFilter(schedule=schedule.name, after_slot=first - MOMENT, until_slot=last, with_job=True)
    page = await app.store.runs(which, limit=PAGE)
    taken = {run.slot for run in page.runs}
    while page.after:
        page = await app.store.runs(which, limit=PAGE, after=page.after)
        taken |= {run.slot for run in page.runs}
    return taken
