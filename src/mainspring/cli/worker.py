"""`mainspring worker`: a node, or several under a supervisor, until told to stop."""

import asyncio
import logging
import os
import sys
from contextlib import AsyncExitStack, nullcontext, suppress
from datetime import timedelta
from typing import Final

import click

from mainspring.app import Mainspring
from mainspring.cli.answering import ADDRESS, Address, answering
from mainspring.cli.codes import Code
from mainspring.cli.durations import DURATION
from mainspring.cli.lifeline import lifeline
from mainspring.cli.logs import LEVELS, set_up_logging
from mainspring.cli.reach import app_argument, source_of_app, wants_debug
from mainspring.cli.root import Refusal
from mainspring.cli.supervisor import Supervisor
from mainspring.cli.target import load_app
from mainspring.client.nodes import node_settings
from mainspring.client.upkeep import ID as UPKEEP
from mainspring.client.words import count
from mainspring.duration import seconds
from mainspring.runtime.node import Node, NodeReport
from mainspring.runtime.signals import obeyed
from mainspring.settings import NodeSettings

log: Final = logging.getLogger("mainspring.worker")

MOST_NAMED: Final = 12  # tasks that the first line names
LAST_WISH: Final = 2.0  # seconds for what would be good to have, once the process is to end


@click.command()
@app_argument
@click.option("--concurrency", default=20, show_default=True, type=click.IntRange(min=1), help="Jobs at a time.")
@click.option("--processes", default=1, show_default=True, type=click.IntRange(1, 512), help="Node processes.")
@click.option("--slots", default=2, show_default=True, type=click.IntRange(min=1), help="Process slots of each node.")
@click.option("--queue", "queues", multiple=True, help="Only this queue; repeatable. [default: all]")
@click.option("--grace", default="30s", show_default=True, type=DURATION, help="Time for jobs to finish at the end.")
@click.option("--lease", default="15s", show_default=True, type=DURATION, help="Silence after which a node is dead.")
@click.option("--tick", type=DURATION, help="Look for due slots at this interval. [default: when one is due]")
@click.option(
    "--health",
    metavar="[HOST:]PORT",
    help="Answer healthz, readyz and metrics over HTTP. [HOST: 127.0.0.1]",
    type=ADDRESS,
)
@click.option("--log-level", default="info", show_default=True, type=click.Choice(LEVELS), help="What to log.")
@click.option("--log-json", is_flag=True, help="Log JSON, one object a line.")
@click.option("--supervised", is_flag=True, hidden=True)
def worker(
    *,
    target: str,
    concurrency: int,
    processes: int,
    slots: int,
    queues: tuple[str, ...],
    grace: timedelta,
    lease: timedelta,
    tick: timedelta | None,
    health: Address | None,
    log_level: str,
    log_json: bool,
    supervised: bool,
) -> None:
    """Run the jobs of an app until told to stop.

    Without MODULE:APP, the app is that of $MAINSPRING_APP.

    SIGTERM or Ctrl-C lets running jobs finish for the grace time; once more cancels them at once. Exits with 0 when
    everything was finished or given back, with 4 when something would not stop.
    """
    set_up_logging(log_level, as_json=log_json, with_process=supervised or processes > 1)
    settings = node_settings(
        {
            "concurrency": concurrency,
            "queues": queues or None,
            "processes": slots,
            "grace": grace,
            "lease": lease,
            "tick": tick,
        }
    )
    if processes > 1:
        if health:
            raise click.UsageError("--health is the address of one node; without --processes, each worker has its own")
        options = [f"--{name}={value}" for name, value in (("concurrency", concurrency), ("slots", slots))]
        options += [f"--{name}={span.total_seconds()}" for name, span in (("grace", grace), ("lease", lease))]
        options += [f"--tick={tick.total_seconds()}"] if tick else []
        options += [f"--queue={queue}" for queue in queues]
        options += [f"--log-level={log_level}", *(["--log-json"] if log_json else [])]
        command = [sys.executable, "-m", "mainspring", *(["--debug"] if wants_debug() else [])]
        supervisor = Supervisor(
            [*command, "worker", target, *options, "--supervised"],
            processes,
            patience=seconds(settings.grace) + seconds(settings.stop_grace) + 20,
        )
        code = asyncio.run(supervise(supervisor, supervised=supervised))
    else:
        app = load_app(target, debug=wants_debug())
        code = asyncio.run(work(app, settings, supervised=supervised, health=health))
    click.get_current_context().exit(code)


async def supervise(supervisor: Supervisor, *, supervised: bool) -> Code:
    with lifeline(supervisor.end) if supervised else nullcontext():
        return await supervisor.run()


async def work(app: Mainspring, settings: NodeSettings, *, supervised: bool, health: Address | None = None) -> Code:
    """Run one node to its end. Does not return if something would not stop."""
    source = source_of_app(app)
    if supervised and not source.again:
        raise Refusal(f"{source.name}: processes cannot share it; leave out --processes", Code.USAGE)
    async with app:
        node = app.make_node(settings, upkeep=True)
        async with AsyncExitStack() as stack:
            stack.enter_context(obeyed(node))
            if supervised:
                stack.enter_context(lifeline(node.end))
            if health:
                await stack.enter_async_context(answering(health, app, node))
            if not await started(node):
                log.warning("told to stop before it could begin")
                await leave(app, Code.DONE)
            log.info("%s", first_line(node, app, source.name))
            await node.stop.wait()
            report = await node.shutdown(exiting=True)
        log.info("%s", last_line(report))
        if not report.drained:
            await leave(app, Code.ABANDONED)
    return Code.DONE


async def started(node: Node) -> bool:
    """Start a node; False if it was told to stop before that came to an end, as where the store does not answer."""
    starting, stopping = asyncio.ensure_future(node.start()), asyncio.ensure_future(node.stop.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        await asyncio.wait([starting], timeout=LAST_WISH)
    if starting.done():
        starting.result()
    return starting.done()


def first_line(node: Node, app: Mainspring, store: str) -> str:
    """Say who begins to work, where, and at what."""
    settings = node.settings
    names = sorted(str(one.name) for one in app.registry if one.name.namespace != UPKEEP)
    named = ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
    queues = ", ".join(settings.queues) if settings.queues else "all"
    return (
        f"node {node.id} on {store}; queues: {queues}; {count(len(names), 'task')}: {named or 'none'}; "
        f"{'upkeep; ' if UPKEEP in app.plugins else ''}{count(settings.concurrency, 'job')} at a time"
    )


def last_line(report: NodeReport) -> str:
    """Say how it ended."""
    parts = []
    if report.interrupted:
        parts.append(f"{count(report.interrupted, 'attempt')} cut short and given back")
    if report.abandoned:
        parts.append(f"{count(len(report.abandoned), 'job')} would not stop: {', '.join(map(str, report.abandoned))}")
    if report.services:
        parts.append(f"{count(len(report.services), 'service')} would not stop: {', '.join(report.services)}")
    if report.unwritten:
        parts.append(f"the ends of {count(report.unwritten, 'attempt')} could not be written")
    return "ended: " + ("; ".join(parts) or "everything was finished")


async def leave(app: Mainspring, code: Code) -> None:
    """End the process as it is: what would not stop must not keep it."""
    with suppress(Exception):
        await asyncio.wait_for(app.close(), LAST_WISH)
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)
