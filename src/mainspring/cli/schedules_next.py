"""`mainspring schedules next` and `explain`: when a rule has its slots, and where changes of clocks touch them."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

import click

from mainspring.app import Mainspring
from mainspring.cli.echo import echo
from mainspring.cli.plain import print_json
from mainspring.cli.reach import as_json, reaches_store
from mainspring.cli.schedules_words import INSTANT, placed
from mainspring.cli.table import Column, print_table
from mainspring.client.clocks import ShownSlot, have_seconds, shown_slots, wall
from mainspring.client.planned_words import owed, paused_text
from mainspring.client.views import next_slots as upcoming_slots
from mainspring.client.views import slot_view, slots_after
from mainspring.client.words import ago, count
from mainspring.clock import SystemClock
from mainspring.core.names import Name
from mainspring.core.rules import Cron, Manual
from mainspring.core.schedule import Schedule
from mainspring.runtime.planned import look_at

number_option = click.option(
    "-n", "--limit", "number", default=5, show_default=True, type=click.IntRange(1, 1000), help="So many slots."
)
after_option = click.option("--after", type=INSTANT, help="Those after this instant, and not after now.")

COLUMNS: Final = (
    Column("LOCAL"),
    Column("UTC"),
    Column("WHEN", right=True, optional=True),
    Column("CLOCKS"),
)


@click.command("next")
@click.argument("name")
@number_option
@after_option
@as_json
@reaches_store
async def next_slots(app: Mainspring, *, name: str, number: int, after: datetime | None, as_json: bool) -> None:
    """Show the next slots of a schedule, in its zone and in UTC.

    A time without an offset is meant in the zone of the schedule.
    """
    look, now = await look_at(app.store, Name.parse(name))
    schedule = look.schedule
    start = placed(after, schedule.plan.zone) if after else max(now, schedule.cursor)
    slots = upcoming_slots(schedule, start, number)
    if as_json:
        print_json(*map(slot_view, slots))
        return
    print_slots(slots, now)
    for line in _remarks(schedule, slots, now):
        echo(line)


@click.command()
@click.argument("words", metavar="RULE", nargs=-1, required=True)
@click.option("--tz", default="UTC", show_default=True, help="The zone, by its IANA name: Europe/Berlin.")
@number_option
@after_option
@as_json
def explain(*, words: tuple[str, ...], tz: str, number: int, after: datetime | None, as_json: bool) -> None:
    """Say what a cron expression means, and when its slots are.

    It needs no store. A time without an offset is meant in the zone.
    """
    if len(words) > 1:
        raise click.UsageError("a rule is one word: put it in quotes, as in '0 9 * * MON-FRI'")
    read = Cron(words[0], tz=tz)
    now = SystemClock().now()
    start = placed(after, tz) if after else now
    slots = list(shown_slots(read, tz, islice(slots_after(read, start), number), start))
    if as_json:
        fields = {"rule": read, "explained": read.explain(), "slots": [slot_view(one) for one in slots]}
        print_json(fields)
        return
    echo(read.explain())
    echo("")
    print_slots(slots, now)


def _remarks(schedule: Schedule, slots: Sequence[ShownSlot], now: datetime) -> Iterator[str]:
    plan = schedule.plan
    if isinstance(plan.rule, Manual):
        yield f"It makes jobs on demand only: mainspring schedules run {schedule.name}"
        return
    if plan.counts_from_the_end:
        yield f"{plan.rule.explain()} More is known when that has ended."
    elif not slots:
        yield "There are none: it is over." if schedule.is_over else "There are none."
    if schedule.paused:
        yield f"It is paused {paused_text(schedule.paused, now)}. Until it is resumed, no slot makes a job."
    if late := owed(schedule, now):
        yield f"{count(late, 'slot')} from before now {'is' if late == 1 else 'are'} not decided yet: is a worker there?"


def print_slots(slots: Sequence[ShownSlot], now: datetime) -> None:
    """Print a table of slots, and below it what is to be said of some."""
    if not slots:
        return
    in_utc = slots[0].zone == "UTC"
    marked = any(slot.mark for slot in slots)
    left_out = {*(["LOCAL"] if in_utc else []), *([] if marked else ["CLOCKS"])}
    chosen = [place for place, column in enumerate(COLUMNS) if column.title not in left_out]
    seconds = have_seconds(slot.slot for slot in slots)
    rows = [_row(slot, now, seconds=seconds) for slot in slots]
    print_table([COLUMNS[place] for place in chosen], [[row[place] for place in chosen] for row in rows])
    if marked:
        echo("")
    for slot in slots:
        if slot.mark:
            echo(f"{wall(slot.local, seconds=seconds)}: {'; '.join(slot.explain())}")


def _row(slot: ShownSlot, now: datetime, *, seconds: bool) -> list[str]:
    local = f"{slot.local:%a} {wall(slot.local, seconds=seconds)} {slot.local:%Z}"
    in_utc = f"{slot.slot:%a} {wall(slot.slot, seconds=seconds)}"
    return [local, in_utc, ago(slot.slot, now, shortly=True), slot.mark]
