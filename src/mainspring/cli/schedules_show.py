"""`mainspring schedules show` and `runs`: everything that is kept of a schedule, and what became of its slots."""

import json
import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import click

from mainspring.app import Mainspring
from mainspring.cli.echo import echo
from mainspring.cli.plain import plain, print_json
from mainspring.cli.reach import as_json, reaches_store
from mainspring.cli.schedules_words import run_fields, schedule_fields
from mainspring.cli.table import Column, lines, print_table
from mainspring.client.clocks import have_seconds, is_zone
from mainspring.client.planned_words import at, instant, next_text, owed, paused_text, rule_text, run_text, standing
from mainspring.client.words import ago, count, length
from mainspring.core.job import JobId, State
from mainspring.core.missed import Missed, Policy
from mainspring.core.names import Name
from mainspring.core.schedule import Run, Schedule
from mainspring.runtime.planned import look_at
from mainspring.stores.records import Look, RunFilter

PAGE: Final = 500
OF_LATE: Final = 10

RUN_COLUMNS: Final = (
    Column("DECIDED", right=True),
    Column("SLOT"),
    Column("STATE"),
    Column("COUNT", right=True, optional=True),
    Column("LATE", right=True, optional=True),
    Column("JOB"),
    Column("NOTE", shrinks=True, optional=True),
)


@click.command()
@click.argument("name")
@as_json
@reaches_store
async def show(app: Mainspring, *, name: str, as_json: bool) -> None:
    """Show everything that is kept of a schedule."""
    look, now = await look_at(app.store, Name.parse(name))
    of_late = (await app.store.runs(RunFilter(schedule=look.schedule.name), limit=OF_LATE)).runs
    if as_json:
        print_json({**schedule_fields(look), "last_runs": [run_fields(one) for one in of_late]})
        return
    states = await _states(app, of_late)
    for line in page(look, of_late, states, now):
        echo(line)


@click.command()
@click.argument("name", required=False)
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(min=1), help="At most so many.")
@click.option("--after", metavar="ID", type=click.UUID, help="Go on after the last run of the page before.")
@as_json
@reaches_store
async def runs(app: Mainspring, *, name: str | None, limit: int, after: UUID | None, as_json: bool) -> None:
    """List what became of slots, the last decided first.

    Of one schedule, or of all. Several slots in a row that made no job are
    one run, and LATE is how late the first of them was decided.
    """
    found: list[Run] = []
    more = after
    while len(found) < limit:
        part = await app.schedules.runs(name, limit=min(PAGE, limit - len(found)), after=more)
        found += part.runs
        more = part.after
        if more is None:
            break
    if name is not None and not found:
        await app.schedules.get(name)  # one that was removed may have left runs; of one that never was, that is said
    if as_json:
        print_json(*map(run_fields, found))
        return
    if not found:
        echo("No such runs.")
        return
    columns, rows = run_table(found, await _states(app, found), app.store.now(), named=name is None)
    print_table(columns, rows)
    if more is not None:
        echo(f"There are more: --after {more}")


async def _states(app: Mainspring, found: Sequence[Run]) -> dict[UUID, State]:
    """Ask where the jobs of open runs stand."""
    open_ = [JobId(run.id) for run in found if run.is_open]
    views = [view for start in range(0, len(open_), PAGE) for view in await app.store.get(open_[start : start + PAGE])]
    return {view.job.id: view.job.state for view in views if view}


def run_table(
    found: Sequence[Run], states: dict[UUID, State], now: datetime, *, named: bool
) -> tuple[list[Column], list[list[str]]]:
    """Lay runs out; `named` by their schedules, if they are of several."""
    columns = [Column("SCHEDULE"), *RUN_COLUMNS] if named else list(RUN_COLUMNS)
    seconds = have_seconds(slot for run in found for slot in (run.slot, run.last))
    rows = [
        [
            *([str(run.schedule)] if named else []),
            ago(run.decided_at, now, shortly=True),
            _slot(run, seconds=seconds),
            run_text(run, states.get(run.id)),
            f"{run.count:,}" if run.count > 1 else "",
            _lateness(run),
            str(run.job or ""),
            _note(run),
        ]
        for run in found
    ]
    return columns, rows


def _slot(run: Run, *, seconds: bool) -> str:
    if run.slot is None:
        return "by hand"
    tz = run.zone if is_zone(run.zone) else "UTC"  # another machine may know more zones
    first = at(run.slot, tz, seconds=seconds)
    return first if run.last is None or run.last == run.slot else f"{first} to {at(run.last, tz, seconds=seconds)}"


def _lateness(run: Run) -> str:
    late = timedelta(0) if run.slot is None else run.decided_at - run.slot
    return length(late, shortly=True) if late >= timedelta(seconds=1) else ""


def _note(run: Run) -> str:
    words = [] if run.origin == "slot" else [str(run.origin)]
    if run.is_catch_up and run.origin == "slot":
        words.append("catch-up")
    return ", ".join(words + ([run.error.splitlines()[0]] if run.error else []))


def page(look: Look, of_late: Sequence[Run], states: dict[UUID, State], now: datetime) -> Iterator[str]:
    """Lay a schedule out for a person, line by line."""
    for title, text in _facts(look, now):
        if text:
            yield f"{title:<10} {textwrap.indent(text, ' ' * 11).lstrip(' ')}"
    if of_late:
        yield ""
        yield "Recent runs"
        yield from (f"  {line}" for line in lines(*run_table(of_late, states, now, named=False)))


def _facts(look: Look, now: datetime) -> Iterator[tuple[str, str]]:
    schedule, plan = look.schedule, look.schedule.plan
    template = plan.template
    yield "schedule", str(schedule.name)
    yield "about", plan.description
    yield "rule", rule_text(plan.rule)
    yield "", plan.rule.explain()
    yield "state", standing(look, now)
    yield "paused", paused_text(schedule.paused, now) if schedule.paused else ""
    yield "next", next_text(schedule, now)
    yield "owed", _owed(schedule, now)
    yield "held", f"the slot of {at(schedule.held.at, plan.zone)}, until its run ends" if schedule.held else ""
    yield "open", ", ".join(str(job) for job in look.open)
    yield "task", str(template.task)
    yield "arguments", _arguments(template.payload)
    yield "queue", f"{template.queue}, priority {template.priority}"
    yield "tries", str(template.max_attempts)
    yield "timeout", length(template.timeout) if template.timeout else ""
    yield "expires", f"{length(template.expires)} after it is due" if template.expires else ""
    yield "limit key", template.key or ""
    yield "unique", template.unique.key if template.unique else ""
    yield "tags", ", ".join(template.tags)
    yield "missed", _missed(plan.missed)
    yield "overlap", str(plan.overlap)
    yield "jitter", f"up to {length(plan.jitter)}" if plan.jitter else ""
    yield "until", instant(plan.until, now, plan.zone) if plan.until else ""
    yield "fired", _fired(schedule)
    yield "kept", f"runs for {length(plan.keep_runs)}"
    yield "owner", _owner(schedule)
    yield "created", instant(schedule.created_at, now)
    yield "decided", f"up to {instant(schedule.cursor, now)}"


def _owed(schedule: Schedule, now: datetime) -> str:
    number = owed(schedule, now)
    return (
        f"{count(number, 'slot')} not decided since {ago(schedule.cursor, now)}; is a worker there?" if number else ""
    )


def _arguments(payload: bytes) -> str:
    content = plain(payload)
    args = content["args"] if isinstance(content, dict) and "args" in content else content
    short = json.dumps(args, ensure_ascii=False)
    return short if len(short) <= 100 else json.dumps(args, ensure_ascii=False, indent=2)


def _missed(missed: Missed) -> str:
    match missed.policy:
        case Policy.SKIP:
            return f"skip what is more than {length(missed.grace)} late"
        case Policy.LATEST:
            return f"latest, if it is not more than {length(missed.grace)} late"
        case Policy.ALL:
            return f"all, {missed.limit} at most, {missed.per_tick} a tick, none more than {length(missed.grace)} late"


def _fired(schedule: Schedule) -> str:
    most = schedule.plan.max_runs
    return f"{schedule.runs:,} of {most:,} slots" if most is not None else count(schedule.runs, "slot")


def _owner(schedule: Schedule) -> str:
    if schedule.owner is None:
        return "nobody: added at run time"
    return f"{schedule.owner}, release {schedule.release}" if schedule.release else schedule.owner
