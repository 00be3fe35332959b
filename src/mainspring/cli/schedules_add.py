"""`mainspring schedules add` and `change`: a schedule from a shell."""

import asyncio
from typing import Any

import click

from mainspring.app import Mainspring
from mainspring.cli.acting import acting
from mainspring.cli.codes import Code
from mainspring.cli.echo import echo
from mainspring.cli.plain import print_json
from mainspring.cli.reach import as_json, named_app, reaches_store, source_of_app
from mainspring.cli.root import Refusal
from mainspring.cli.schedules_options import Said, plan_options
from mainspring.cli.schedules_words import placed_text, schedule_fields
from mainspring.client.planned_words import next_text
from mainspring.client.plans import ScheduleOptions
from mainspring.core.rules import Cron, Rule
from mainspring.core.schedule import Schedule
from mainspring.stores.records import Look


@click.command()
@click.argument("words", metavar="[MODULE:APP] NAME", nargs=-1, required=True)
@click.option("--app", "target", metavar="MODULE:APP", help="Instead of the first word. [$MAINSPRING_APP]")
@click.option("--task", required=True, help="Whose jobs it makes.")
@plan_options
@as_json
def add(*, words: tuple[str, ...], target: str | None, task: str, as_json: bool, **given: Any) -> None:  # noqa: ANN401 - `Said` knows
    """Add a schedule that stays until it is removed.

    It needs the app for the task and the types of its arguments. A time
    without an offset is meant in the zone.
    """
    said = Said(**given)
    if len(words) > 2 or (len(words) == 2 and target is not None):
        raise click.UsageError("it takes the app and one name, as in: add myapp:app nightly")
    name = words[-1]
    rule = said.rule()
    options = said.options(said.tz or "UTC")
    app = named_app(words[0] if len(words) == 2 else target)
    if not source_of_app(app).again:
        raise Refusal("its store lives within one program, so no worker would ever see the schedule", Code.USAGE)
    call = said.call(app, task)

    async def work() -> None:
        async with app:
            async with acting(app, "schedules.add", name):
                added = await app.schedules.add(name, rule, call, **options)
            _tell(app, added, said, "is added", as_json=as_json)

    asyncio.run(work())


@click.command()
@click.argument("name")
@click.option("--task", help="Whose jobs it makes; its arguments and options are said anew then.")
@plan_options
@click.option("--no-until", is_flag=True, help="Take --until back.")
@click.option("--no-max-runs", is_flag=True, help="Take --max-runs back.")
@as_json
@reaches_store
async def change(
    app: Mainspring,
    /,
    *,
    name: str,
    task: str | None,
    no_until: bool,
    no_max_runs: bool,
    as_json: bool,
    **given: Any,  # noqa: ANN401 - `Said` knows
) -> None:
    """Change a schedule from now on; what is not said stays.

    What is said about its jobs (--args, --queue and so on) goes with --task,
    and with the app. One that is declared in code is declared again when its
    program next starts.
    """
    said = Said(**given)
    async with acting(app, "schedules.change", name) as deed:
        changed = await _changed(app, name, task, said, no_until=no_until, no_max_runs=no_max_runs)
        deed.did()
    if changed.owner is not None and not as_json:
        echo(f"{name} is declared by {changed.owner}, and is declared again with its next start", err=True)
    _tell(app, changed, said, "is changed", as_json=as_json)


async def _changed(
    app: Mainspring, name: str, task: str | None, said: Said, *, no_until: bool, no_max_runs: bool
) -> Schedule:
    if (no_until and said.until) or (no_max_runs and said.max_runs):
        raise click.UsageError("it is to be taken back and given at the same time; say one of them")
    if said.has_call and task is None:
        raise click.UsageError("--args, --queue, --priority, --timeout, --max-attempts and --tag go with --task")
    there = await app.schedules.get(name)
    rule = _new_rule(said, there)
    tz = rule.tz if isinstance(rule, Cron) else said.tz or there.plan.zone
    options: ScheduleOptions = {}
    for key, value in said.options(tz).items():
        if value is not None:
            options[key] = value  # type: ignore[literal-required]  # the keys of the same type
    if no_until:
        options["until"] = None
    if no_max_runs:
        options["max_runs"] = None
    if rule is None and task is None and not options:
        raise click.UsageError("say what to change")
    call = None if task is None else said.call(app, task)
    return await app.schedules.change(name, rule, call, **options)


def _new_rule(said: Said, there: Schedule) -> Rule | None:
    """Make the new rule, if one was said: another zone alone is one too."""
    if said.has_rule or said.after_end or said.start:
        return said.rule()
    if said.tz is None:
        return None
    if not isinstance(there.plan.rule, Cron):
        raise click.UsageError("--tz alone changes the zone of a cron expression, and this is none")
    return Cron(there.plan.rule.text, tz=said.tz)


def _tell(app: Mainspring, schedule: Schedule, said: Said, done: str, *, as_json: bool) -> None:
    if as_json:
        print_json(schedule_fields(Look(schedule=schedule)))
        return
    following = next_text(schedule, app.store.now())
    explained = schedule.plan.rule.explain()
    echo(f"{schedule.name} {done}: {explained}" + (f" Next: {following}." if following else ""))
    if said.once and (text := placed_text(said.once, said.tz or "UTC")):
        echo(text)
