"""What a shell may say about a schedule: the options that `add` and `change` share, and what is made of them."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeVar

import click
from msgspec import Struct
from msgspec.structs import replace

from mainspring.app import Mainspring
from mainspring.cli.durations import DURATION
from mainspring.cli.enqueue import payload_of
from mainspring.cli.schedules_words import INSTANT, placed
from mainspring.client.calls import Call
from mainspring.client.options import Using
from mainspring.client.plans import ScheduleOptions
from mainspring.core.missed import Missed, Policy
from mainspring.core.rules import Cron, Every, Manual, Once, Rule
from mainspring.core.schedule import Overlap

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option("--cron", metavar="RULE", help="At the times of an expression: '0 9 * * MON-FRI'."),
    click.option("--every", type=DURATION, help="At a fixed rate, as in 15m."),
    click.option("--after-end", is_flag=True, help="With --every: counted from the end of a run."),
    click.option("--start", type=INSTANT, help="With --every: the first slot."),
    click.option("--once", type=INSTANT, help="At one instant, as in 2027-01-31T09:00."),
    click.option("--manual", is_flag=True, help="On demand only."),
    click.option("--tz", help="The zone of --cron or --once, by its IANA name: Europe/Berlin. [default: UTC]"),
    click.option("--args", "named", metavar="JSON", help="Arguments by name: '{\"photo\": 7}'."),
    click.option("--queue", help="Instead of the task's own."),
    click.option("--priority", metavar="0-100", type=click.IntRange(0, 100), help="Higher goes first."),
    click.option("--timeout", type=DURATION, help="How long an attempt may take, as in 5m."),
    click.option("--max-attempts", type=click.IntRange(min=1), help="Executions of a job in total."),
    click.option("--tag", "tags", multiple=True, help="To find its jobs by; repeatable."),
    click.option("--missed", type=click.Choice([str(one) for one in Policy]), help="What to do about missed slots."),
    click.option("--grace", type=DURATION, help="How late a missed slot may still make a job."),
    click.option("--limit", type=click.IntRange(min=1), help="With --missed all: so many at most."),
    click.option("--per-tick", type=click.IntRange(min=1), help="With --missed all: so many at once."),
    click.option("--overlap", type=click.Choice([str(one) for one in Overlap]), help="While the run before goes on."),
    click.option("--jitter", type=DURATION, help="Put starts off by up to this, as in 30s."),
    click.option("--until", type=INSTANT, help="No slot after this."),
    click.option("--max-runs", type=click.IntRange(min=1), help="No slot after so many have made a job."),
    click.option("--keep-runs", type=DURATION, help="How long runs are kept. [default: 30d]"),
    click.option("--description", help="What it is for."),
)


def plan_options(command: F) -> F:
    """Give a command the options of `Said`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class Said(Struct, frozen=True, kw_only=True):
    """The options, as they were given."""

    cron: str | None
    every: timedelta | None
    after_end: bool
    start: datetime | None
    once: datetime | None
    manual: bool
    tz: str | None
    named: str | None
    queue: str | None
    priority: int | None
    timeout: timedelta | None
    max_attempts: int | None
    tags: tuple[str, ...]
    missed: str | None
    grace: timedelta | None
    limit: int | None
    per_tick: int | None
    overlap: Literal["allow", "skip", "queue_one", "cancel_previous"] | None
    jitter: timedelta | None
    until: datetime | None
    max_runs: int | None
    keep_runs: timedelta | None
    description: str | None

    @property
    def has_rule(self) -> bool:
        return self.cron is not None or self.every is not None or self.once is not None or self.manual

    @property
    def has_call(self) -> bool:
        """Whether something was said about the jobs."""
        others = (self.named, self.queue, self.priority, self.timeout, self.max_attempts)
        return bool(self.tags) or any(one is not None for one in others)

    def rule(self) -> Rule:
        """Make the rule, of one of four."""
        if sum((self.cron is not None, self.every is not None, self.once is not None, self.manual)) != 1:
            raise click.UsageError("say when by one of --cron, --every, --once or --manual")
        if self.every is None and (self.after_end or self.start):
            what = "--after-end" if self.after_end else "--start"
            raise click.UsageError(f"{what} goes with --every, which was not given")
        if self.tz is not None and self.cron is None and self.once is None:
            raise click.UsageError("--tz goes with --cron or --once: an interval is the same in every zone")
        tz = self.tz or "UTC"
        if self.cron is not None:
            return Cron(self.cron, tz=tz)
        if self.every is not None:
            start = placed(self.start, tz) if self.start else None
            return Every(self.every, after_end=self.after_end, start=start)
        return Manual() if self.once is None else Once(placed(self.once, tz))

    def options(self, tz: str) -> ScheduleOptions:
        """Return the options of the schedule; times without an offset are on the clocks of a zone."""
        return {
            "missed": self._missed(),
            "overlap": self.overlap,
            "jitter": self.jitter,
            "until": placed(self.until, tz) if self.until else None,
            "max_runs": self.max_runs,
            "keep_runs": self.keep_runs,
            "description": self.description,
        }

    def call(self, app: Mainspring, task: str) -> "Call[object]":
        """Make the call of each job. Its arguments are checked against the task's types."""
        found = app.find(task)
        args, kwargs = found.definition.arguments.decode(payload_of(found.definition, (), self.named))
        options: Using = {
            "queue": self.queue,
            "priority": self.priority,
            "timeout": self.timeout,
            "max_attempts": self.max_attempts,
            "tags": self.tags or None,
        }
        return found.using(**options).call(*args, **kwargs)

    def _missed(self) -> Missed | None:
        numbers = {"limit": self.limit, "per_tick": self.per_tick}
        given = {name: number for name, number in numbers.items() if number is not None}
        if self.missed is None and (self.grace is not None or given):
            raise click.UsageError("--grace, --limit and --per-tick go with --missed, which was not given")
        if given and self.missed != Policy.ALL:
            raise click.UsageError("--limit and --per-tick go with --missed all")
        match self.missed:
            case None:
                return None
            case Policy.SKIP:
                chosen = Missed.skip()
            case Policy.LATEST:
                chosen = Missed.latest()
            case _:
                chosen = Missed.all(**given)
        return chosen if self.grace is None else replace(chosen, grace=self.grace)
