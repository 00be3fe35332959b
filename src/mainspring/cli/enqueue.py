"""`mainspring jobs enqueue`: a job from a shell. Its arguments are JSON, and are checked against the task's types."""

import asyncio
import os
from collections.abc import Sequence
from datetime import timedelta

import click
import msgspec

from mainspring.app import Mainspring
from mainspring.cli.acting import acting
from mainspring.cli.durations import DURATION
from mainspring.cli.echo import echo
from mainspring.cli.plain import print_json
from mainspring.cli.reach import VARIABLE, as_json, named_app
from mainspring.cli.target import NoApp
from mainspring.cli.waiting import must_be_shared, tell_result
from mainspring.client.arguments import payload_from
from mainspring.client.options import Using
from mainspring.handle import JobHandle
from mainspring.runtime.definition import Definition


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", metavar="[MODULE:APP] TASK [JSON]...", nargs=-1, required=True)
@click.option("--app", "target", metavar="MODULE:APP", help="Instead of the first word. [$MAINSPRING_APP]")
@click.option("--args", "named", metavar="JSON", help="Arguments by name: '{\"photo\": 7}'.")
@click.option("--delay", type=DURATION, help="Not before this time has passed, as in 10m.")
@click.option("--priority", metavar="0-100", type=click.IntRange(0, 100), help="Higher goes first.")
@click.option("--queue", help="Instead of the task's own.")
@click.option("--tag", "tags", multiple=True, help="To find it by; repeatable.")
@click.option("--wait", is_flag=True, help="Wait until it has finished, and print its result.")
@click.option("--timeout", type=DURATION, help="Wait no longer than this, as in 30s.")
@as_json
def enqueue(
    *,
    words: tuple[str, ...],
    target: str | None,
    named: str | None,
    delay: timedelta | None,
    priority: int | None,
    queue: str | None,
    tags: tuple[str, ...],
    wait: bool,
    timeout: timedelta | None,
    as_json: bool,
) -> None:
    """Enqueue a job of TASK, with arguments as JSON.

    A text needs its quotes: '"hello"'. The job runs when a worker is there.
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout limits --wait, which was not given")
    target, (task, *values) = _split(words, target)
    app = _loaded(target, words[0])
    if wait:
        must_be_shared(app)
    found = app.find(task)
    args, kwargs = found.definition.arguments.decode(payload_of(found.definition, tuple(values), named))
    options: Using = {"delay": delay, "priority": priority, "queue": queue, "tags": tags or None}
    enqueuer = found.using(**options)

    async def work() -> None:
        async with app:
            async with acting(app, "jobs.enqueue", task) as deed:
                job = await enqueuer.enqueue(*args, **kwargs)
                deed.job = job.id
            if not wait:
                _told(job, as_json=as_json)
                return
            await tell_result(app, job, timeout, as_json=as_json)

    asyncio.run(work())


def _split(words: Sequence[str], target: str | None) -> tuple[str | None, Sequence[str]]:
    """Tell the app from the task. With $MAINSPRING_APP, a first word without a colon is a task."""
    if target is not None or (os.environ.get(VARIABLE) and ":" not in words[0]):
        return target, words
    if len(words) < 2:
        raise click.UsageError("Missing argument 'TASK'.")
    return words[0], words[1:]


def _loaded(target: str | None, first: str) -> Mainspring:
    variable = os.environ.get(VARIABLE)
    try:
        return named_app(target)
    except NoApp as error:
        if variable and target == first:
            raise NoApp(f"{error}; if {first} is the task, say --app {variable} too") from error
        raise


def payload_of(definition: Definition, values: tuple[str, ...], named: str | None) -> bytes:
    """Write the arguments as they are stored."""
    by_name = json_object(named, "--args") if named is not None else {}
    return payload_from(definition, [_json(one, "argument") for one in values], by_name)


def json_object(text: str, option: str) -> dict[str, object]:
    """Read what was given to an option that takes values by name."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        found = None
    if not isinstance(found, dict):
        raise click.UsageError(f"{option} takes an object of JSON, as in '{{\"photo\": 7}}', not {text}")
    return found


def _json(text: str, what: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        if text.startswith("--"):  # taken for an argument, so that -5 can be one
            raise click.UsageError(f"No such option: {text}") from None
        quoted = msgspec.json.encode(text).decode()
        raise click.UsageError(f"{what} {text} is no JSON; if it is meant as text, write '{quoted}'") from None


def _told(job: "JobHandle[object]", *, as_json: bool) -> None:
    if as_json:
        print_json({"id": job.id, "task": job.task, "fresh": job.fresh})
    elif job.fresh:
        echo(job.id)
    else:
        echo(job.id)
        echo("It was there before: its unique key is taken.", err=True)
