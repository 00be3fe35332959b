"""`mainspring jobs show`: everything that is kept of one job."""

import json
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import UUID

import click

from mainspring.app import Mainspring
from mainspring.cli.echo import echo
from mainspring.cli.plain import plain, print_json, unfolded
from mainspring.cli.reach import as_json, reaches_store
from mainspring.cli.table import Column, lines
from mainspring.client.causes import why
from mainspring.client.words import ago, length, percent
from mainspring.core.job import claim_count
from mainspring.stores.records import AttemptView, JobView, LogLine, SlotFacts


@click.command()
@click.argument("job", metavar="ID", type=click.UUID)
@as_json
@reaches_store
async def show(app: Mainspring, *, job: UUID, as_json: bool) -> None:
    """Show a job: its arguments, result, attempts, error and log."""
    handle = app.job(job)
    view = await handle.refresh()
    attempts = await app.store.attempts(handle.id)
    log_lines = await app.store.log_lines(handle.id)
    if as_json:
        print_json({**unfolded(view), "attempts": attempts, "log_lines": log_lines})
        return
    for line in page(view, attempts, log_lines, app.store.now()):
        echo(line)


def page(
    view: JobView, attempts: tuple[AttemptView, ...], log_lines: tuple[LogLine, ...], now: datetime
) -> Iterator[str]:
    """Lay a job out for a person, line by line."""
    for title, text in _facts(view, now):
        if text:
            yield f"{title:<10} {textwrap.indent(text, ' ' * 11).lstrip(' ')}"
    if view.error:
        yield ""
        yield "Last error"
        yield textwrap.indent(view.error.traceback.rstrip() or f"{view.error.type}: {view.error.message}", "  ")
    if attempts:
        yield ""
        yield "Attempts that did not succeed"
        yield from (f"  {line}" for line in _attempts(attempts))
    if log_lines:
        yield ""
        yield "Log"
        yield from (f"  {line.at.astimezone(UTC):%H:%M:%S.%f} {line.level:<7} {line.message}" for line in log_lines)


def _facts(view: JobView, now: datetime) -> Iterator[tuple[str, str]]:
    job = view.job
    yield "job", str(job.id)
    yield "task", str(job.task)
    yield "state", f"{job.state} ({job.cause})" if job.cause else str(job.state)
    yield "why", why(job) or ""
    yield "queue", f"{job.queue}, priority {job.priority}"
    yield "tries", _tries(view)
    yield "arguments", _text(_inner(view.payload, "args"))
    yield "result", _text(_inner(view.result, "value")) if view.result else ""
    yield "saved", _text(plain(view.saved)) if view.saved else ""
    yield "progress", f"{percent(view.progress.percent)} {view.progress.message}".rstrip() if view.progress else ""
    yield "enqueued", _instant(view.enqueued_at, now)
    yield "due", "" if job.finished_at else _instant(job.run_at, now)
    yield "started", f"{_instant(view.started_at, now)} on {view.node}" if view.started_at else ""
    yield "asked", f"to stop {_instant(job.cancel_requested_at, now)}" if job.cancel_requested_at else ""
    yield "finished", _instant(job.finished_at, now) if job.finished_at else ""
    yield "took", length(view.seconds) if view.seconds is not None else ""
    yield "expires", _instant(job.expires_at, now) if job.expires_at else ""
    yield "kept", f"until {_instant(job.keep_until, now)}" if job.keep_until else ""
    yield "timeout", length(view.timeout) if view.timeout else ""
    yield "limit key", view.key or ""
    yield "unique", view.unique.key if view.unique else ""
    yield "tags", ", ".join(view.facts.tags)
    yield "schedule", _schedule(view.facts.slot, now) if view.facts.slot else ""
    yield "parent", str(view.facts.parent or "")
    yield "owner", view.facts.owner or ""
    yield "trace", view.facts.traceparent or ""


def _schedule(facts: SlotFacts, now: datetime) -> str:
    if facts.slot is None:
        return f"{facts.schedule}, by hand"
    how = f" ({facts.origin})" if facts.origin != "slot" else " (catch-up)" if facts.is_catch_up else ""
    return f"{facts.schedule}, for the slot of {_instant(facts.slot, now)}{how}"


def _tries(view: JobView) -> str:
    job = view.job
    text = f"{job.attempt} of {job.attempts_allowed}"
    if job.granted:
        text += f", {job.granted} of them granted by operators"
    return f"{text}; lost {job.losses} in a row, {job.loss_limit} are too many" if job.losses else text


def _attempts(attempts: tuple[AttemptView, ...]) -> list[str]:
    columns = (
        Column("CLAIM", right=True),
        Column("TRY", right=True),
        Column("END"),
        Column("TOOK", right=True),
        Column("AT"),
        Column("NODE"),
        Column("WHY"),
    )
    return lines(
        columns,
        [
            (
                str(claim_count(one.lease)),
                str(one.attempt),
                str(one.event),
                length(one.seconds) if one.seconds is not None else "",
                f"{one.ended_at.astimezone(UTC):%H:%M:%S}",
                one.node,
                f"{one.error.type}: {one.error.message}".splitlines()[0] if one.error else one.reason,
            )
            for one in attempts
        ],
    )


def _inner(stored: bytes, name: str) -> object:
    """Take the content out of its envelope; what is no envelope is shown whole."""
    content = plain(stored)
    return content[name] if isinstance(content, dict) and name in content else content


def _text(value: object) -> str:
    short = json.dumps(value, ensure_ascii=False)
    return short if len(short) <= 100 else json.dumps(value, ensure_ascii=False, indent=2)


def _instant(then: datetime, now: datetime) -> str:
    return f"{then.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, {ago(then, now)}"
