"""The command line: `mainspring --help` tells what there is. One file a command group."""

from typing import Final

import click

from mainspring.cli.lazy import Later
from mainspring.cli.root import Root

COMMANDS: Final = {
    "demo": Later("mainspring.cli.demo.command:demo", "Show jobs of every fate at work, and a dashboard."),
    "worker": Later("mainspring.cli.worker:worker", "Run the jobs of an app until told to stop."),
    "dashboard": Later("mainspring.cli.dashboard:dashboard", "Show an app's jobs in a browser, until Ctrl-C."),
    "top": Later("mainspring.cli.top:top", "Watch nodes, queues, tasks, running jobs and errors, live."),
    "jobs": Later("mainspring.cli.jobs:jobs", "List, show, retry, cancel, delete and enqueue jobs."),
    "schedules": Later(
        "mainspring.cli.schedules:schedules", "List, add, change, pause, reset, run, backfill and remove schedules."
    ),
    "queues": Later("mainspring.cli.queues:queues", "List, pause and resume queues."),
    "outbox": Later("mainspring.cli.outbox:outbox", "List outboxes, and replay or discard dead letters."),
    "breakers": Later("mainspring.cli.breakers:breakers", "List, open, close and reset the breakers of tasks."),
    "nodes": Later("mainspring.cli.nodes:nodes", "List nodes and give them orders."),
    "plugins": Later("mainspring.cli.plugins:plugins", "List plugins, and check one before it is installed."),
    "control": Later(
        "mainspring.cli.control:control", "Steer schedules and statements by plain words, and flush the store."
    ),
    "migrate": Later("mainspring.cli.migrate:migrate", "Bring a store's tables up to this version."),
    "doctor": Later("mainspring.cli.doctor.command:doctor", "Look for what is wrong here, and say what to do."),
}


@click.group(cls=Root, later=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mainspring")
@click.option("--debug", is_flag=True, envvar="MAINSPRING_DEBUG", help="Show tracebacks of errors. [$MAINSPRING_DEBUG]")
def main(*, debug: bool) -> None:
    """Background work that must not be lost."""
    # `Root` reads `debug`.
