"""`mainspring schedules add`: a schedule from a shell. The arguments of its jobs are checked against the task's types."""

import asyncio
from datetime import datetime, timedelta
from typing import Literal

import click
from msgspec.structs import replace

from mainspring.app import Mainspring
from mainspring.cli.codes import Code
from mainspring.cli.durations import DURATION
from mainspring.cli.enqueue import payload_of
from mainspring.cli.plain import print_json
from mainspring.cli.reach import as_json, source_of_app, wants_debug
from mainspring.cli.root import Refusal
from mainspring.cli.schedules_words import INSTANT, next_text, placed, schedule_fields
from mainspring.cli.target import load_app
from mainspring.client.calls import Call
from mainspring.client.options import Using
from mainspring.client.plans import ScheduleOptions
from mainspring.core.missed import Missed, Policy
from mainspring.core.rules import Cron, Every, Manual, Once, Rule
from mainspring.core.schedule import Overlap
from mainspring.stores.records import Look


@click.command()
@click.argument("target", metavar="MODULE:APP")
@click.argument("name")
@click.option("--task", required=True, help="Whose jobs it makes.")
@click.option("--cron", metavar="RULE", help="At the times of an expression: '0 9 * * MON-FRI'.")
@click.option("--every", type=DURATION, help="At a fixed rate, as in 15m.")
@click.option("--after-end", is_flag=True, help="With --every: counted from the end of a run.")
@click.option("--once", type=INSTANT, help="At one instant, as in 2027-01-31T09:00.")
@click.option("--manual", is_flag=True, help="On demand only.")
@click.option("--tz", default="UTC", show_default=True, help="The zone, by its IANA name: Europe/Berlin.")
@click.option("--args", "named", metavar="JSON", help="Arguments by name: '{\"photo\": 7}'.")
@click.option("--queue", help="Instead of the task's own.")
@click.option("--priority", metavar="0-100", type=click.IntRange(0, 100), help="Higher goes first.")
@click.option("--tag", "tags", multiple=True, help="To find its jobs by; repeatable.")
@click.option("--missed", type=click.Choice([str(one) for one in Policy]), help="What to do about missed slots.")
@click.option("--grace", type=DURATION, help="How late a missed slot may still make a job.")
@click.option("--limit", type=click.IntRange(min=1), help="With --missed all: so many at most.")
@click.option("--overlap", type=click.Choice([str(one) for one in Overlap]), help="While the run before goes on.")
@click.option("--jitter", type=DURATION, help="Put starts off by up to this, as in 30s.")
@click.option("--until", type=INSTANT, help="No slot after this.")
@click.option("--max-runs", type=click.IntRange(min=1), help="No slot after so many have made a job.")
@click.option("--keep-runs", type=DURATION, help="How long runs are kept. [default: 30d]")
@click.option("--description", help="What it is for.")
@as_json
def add(
    *,
    target: str,
    name: str,
    task: str,
    cron: str | None,
    every: timedelta | None,
    after_end: bool,
    once: datetime | None,
    manual: bool,
    tz: str,
    named: str | None,
    queue: str | None,
    priority: int | None,
    tags: tuple[str, ...],
    missed: str | None,
    grace: timedelta | None,
    limit: int | None,
    overlap: Literal["allow", "skip", "queue_one", "cancel_previous"] | None,
    jitter: timedelta | None,
    until: datetime | None,
    max_runs: int | None,
    keep_runs: timedelta | None,
    description: str | None,
    as_json: bool,
) -> None:
    """Add a schedule that stays until it is removed.

    It needs the app for the task and the types of its arguments. A time
    without an offset is meant in the zone.
    """
    rule = _rule(cron=cron, every=every, after_end=after_end, once=once, manual=manual, tz=tz)
    options: ScheduleOptions = {
        "missed": _missed(missed, grace, limit),
        "overlap": overlap,
        "jitter": jitter,
        "until": placed(until, tz) if until else None,
        "max_runs": max_runs,
        "keep_runs": keep_runs,
        "description": description,
    }
    app = load_app(target, debug=wants_debug())
    if not source_of_app(app).again:
        raise Refusal("its store lives within one program, so no worker would ever see the schedule", Code.USAGE)
    call = _call(app, task, named, {"queue": queue, "priority": priority, "tags": tags or None})

    async def work() -> None:
        async with app:
            added = await app.schedules.add(name, rule, call, **options)
            if as_json:
                print_json(schedule_fields(Look(schedule=added)))
                return
            following = next_text(added, app.store.now())
            click.echo(f"{added.name} is added: {rule.explain()}" + (f" Next: {following}." if following else ""))

    asyncio.run(work())


def _rule(
    *, cron: str | None, every: timedelta | None, after_end: bool, once: datetime | None, manual: bool, tz: str
) -> Rule:
    given = [cron is not None, every is not None, once is not None, manual]
    if sum(given) != 1:
        raise click.UsageError("say when by one of --cron, --every, --once or --manual")
    if after_end and every is None:
        raise click.UsageError("--after-end goes with --every, which was not given")
    if cron is not None:
        return Cron(cron, tz=tz)
    if every is not None:
        return Every(every, after_end=after_end)
    return Manual() if once is None else Once(placed(once, tz))


def _missed(policy: str | None, grace: timedelta | None, limit: int | None) -> Missed | None:
    if policy is None and (grace is not None or limit is not None):
        raise click.UsageError("--grace and --limit go with --missed, which was not given")
    if limit is not None and policy != Policy.ALL:
        raise click.UsageError("--limit goes with --missed all")
    match policy:
        case None:
            return None
        case Policy.SKIP:
            chosen = Missed.skip()
        case Policy.LATEST:
            chosen = Missed.latest()
        case _:
            chosen = Missed.all() if limit is None else Missed.all(limit=limit)
    return chosen if grace is None else replace(chosen, grace=grace)


def _call(app: Mainspring, task: str, named: str | None, options: Using) -> "Call[object]":
    found = app.find(task)
    args, kwargs = found.definition.arguments.decode(payload_of(found.definition, (), named))
    return found.using(**options).call(*args, **kwargs)
