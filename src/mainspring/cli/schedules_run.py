"""`mainspring schedules run` and `backfill`: jobs that somebody asked for, now or for slots of the past."""

import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import Final

import click

from mainspring.app import Mainspring
from mainspring.cli.acting import acting
from mainspring.cli.codes import Code
from mainspring.cli.durations import DURATION
from mainspring.cli.echo import echo
from mainspring.cli.plain import print_json
from mainspring.cli.reach import as_json, reaches_store
from mainspring.cli.root import Refusal
from mainspring.cli.schedules_words import INSTANT, placed
from mainspring.cli.waiting import must_be_shared, tell_result
from mainspring.client.backfill import Part, next_part, past_slots
from mainspring.client.planned_words import at
from mainspring.client.words import count
from mainspring.core.names import Name
from mainspring.core.schedule import Overlap, Schedule
from mainspring.errors import ScheduleError
from mainspring.runtime.planned import look_at

ASKS_ABOVE: Final = 1000
"""Jobs: so many are rarely meant."""


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
    if wait:
        must_be_shared(app)
    async with acting(app, "schedules.run", name) as deed:
        try:
            job = await app.schedules.run(name)
        except ScheduleError as error:  # what was asked for is in order; the schedule cannot do it
            raise Refusal(str(error)) from error
        deed.job = job.id
    if not wait:
        if as_json:
            print_json({"id": job.id, "task": job.task, "schedule": name})
        else:
            echo(job.id)
        return
    await tell_result(app, job, timeout, as_json=as_json)


@click.command()
@click.argument("name")
@click.option("--from", "start", required=True, type=INSTANT, help="The first slot, or any instant before it.")
@click.option("--to", "end", required=True, type=INSTANT, help="The last slot, or any instant after it.")
@click.option("--priority", metavar="0-100", type=click.IntRange(0, 100), help="Of these jobs; 0 is behind all others.")
@click.option("--dry-run", is_flag=True, help="Only say how many there are.")
@click.option("--yes", is_flag=True, help="Do not ask, however many they are.")
@as_json
@reaches_store
async def backfill(
    app: Mainspring,
    *,
    name: str,
    start: datetime,
    end: datetime,
    priority: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Make jobs for slots of the past that have none.

    A time without an offset is meant in the zone of the schedule; a day
    without a time is its beginning. The jobs are all due at once: above a
    thousand it asks first.
    """
    async with acting(app, "schedules.backfill", name, dry_run=dry_run) as deed:
        look, now = await look_at(app.store, Name.parse(name))
        schedule = look.schedule
        start, end = placed(start, schedule.plan.zone), placed(end, schedule.plan.zone)
        parts = [part async for part in _parts(app, schedule, past_slots(schedule, start, end, now))]
        slots, missing = sum(part.count for part in parts), sum(part.missing for part in parts)
        if not as_json:
            span = f"from {at(start, schedule.plan.zone)} to {at(end, schedule.plan.zone)}"
            echo(f"{count(slots, 'slot')} {span}, {missing:,} of them without a job")
        for line in _remarks(schedule, end, missing):
            echo(line, err=True)
        if missing > ASKS_ABOVE and not yes and not dry_run and not deed.confirmed(f"Make {missing:,} jobs?"):
            return Code.FAILED
        deed.count = made = 0
        progress = Progress(missing)
        for part in parts:
            if dry_run or not part.missing:
                continue
            made += len(await app.schedules.backfill(name, part.first, part.last, priority=priority))
            deed.count = made
            if not as_json:
                progress.tell(made)
    if as_json:
        print_json({"name": name, "from": start, "to": end, "slots": slots, "missing": missing, "made": made})
    elif not dry_run:
        echo(f"{count(made, 'job')} made")
    return Code.DONE


class Progress:
    """Tells how far it is, now and then: more often where somebody watches."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._every = 1.0 if sys.stderr.isatty() else 5.0
        self._told = time.monotonic()

    def tell(self, done: int) -> None:
        now = time.monotonic()
        if now - self._told >= self._every and done < self._total:
            self._told = now
            echo(f"{done:,} of {self._total:,}", err=True)


def _remarks(schedule: Schedule, end: datetime, missing: int) -> Iterator[str]:
    rule, cursor = schedule.plan.rule, schedule.cursor
    undecided = 0 if schedule.is_over or schedule.paused else rule.count(cursor, end) if end > cursor else 0
    if undecided:
        is_ = "is" if undecided == 1 else "are"
        yield f"{count(undecided, 'slot')} of that time {is_} not decided yet, and left to the schedule itself"
    if missing > 1 and schedule.plan.overlap is not Overlap.ALLOW:
        side = "they may run side by side; a limit on the task prevents that"
        yield f"overlap={schedule.plan.overlap} does not hold for jobs of a backfill: {side}"


async def _parts(app: Mainspring, schedule: Schedule, slots: Iterator[datetime]) -> AsyncIterator[Part]:
    while part := await next_part(app.store, schedule, slots):
        yield part
