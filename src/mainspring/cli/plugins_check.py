"""`mainspring plugins install-check`: what a plugin asks for and brings, before any program lets it in.

It is loaded in a process of its own: what ends or blocks that one harms nobody, and is told.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from mainspring.cli.codes import Code
from mainspring.cli.echo import echo
from mainspring.cli.plain import print_json
from mainspring.cli.reach import as_json
from mainspring.cli.root import Refusal
from mainspring.plugins.capability import (
    BackgroundJobs,
    Capability,
    EnqueueTasks,
    HostWrite,
    Schedules,
    Services,
)

PATIENCE: Final = 30.0  # seconds that a plugin may take to be loaded
KINDS: Final = {kind.__name__: kind for kind in (BackgroundJobs, Schedules, Services, HostWrite, EnqueueTasks)}


class GrantType(click.ParamType):  # type: ignore[type-arg]  # generic in the newest click only
    """Reads a capability as it is written on a command line: BackgroundJobs, BackgroundJobs=4, EnqueueTasks=mail."""

    name = "grant"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Capability:
        if isinstance(value, Capability):
            return value
        kind, equals, detail = str(value).partition("=")
        try:
            match KINDS[kind]():
                case granted if not equals:
                    return granted
                case BackgroundJobs():
                    return BackgroundJobs(int(detail))
                case EnqueueTasks():
                    return EnqueueTasks(tuple(detail.split(",")))
                case _:
                    self.fail(f"{kind} has nothing to set", param, ctx)
        except KeyError:
            self.fail(f"{kind!r} is no capability; there are {', '.join(KINDS)}", param, ctx)
        except ValueError as error:
            self.fail(f"{value}: {error}", param, ctx)


@click.command("install-check")
@click.argument("target", metavar="NAME|MODULE:PLUGIN")
@click.option("--grant", "grants", type=GrantType(), multiple=True, help="Repeatable. [default: all that it requires]")
@as_json
def install_check(*, target: str, grants: tuple[Capability, ...], as_json: bool) -> None:
    """Load a plugin apart, and say whether it can be installed.

    By the name of its entry point, or by where it is. Says what it requires and declares, and what is missing. Exits
    with 1 if it could not be installed with what is granted.
    """
    found = loaded_apart(target, grants)
    problems: list[str] = found["problems"]
    if as_json:
        print_json(found)
    else:
        for title in ("plugin", "version", "about", "requires", "declares", "tasks", "schedules", "services"):
            if text := _text(found.get(title)):
                echo(f"{title:<10} {text}")
        for problem in problems:
            echo(f"mainspring: {problem}", err=True)
        if not problems:
            echo(f"{'result':<10} it can be installed")
    click.get_current_context().exit(Code.FAILED if problems else Code.DONE)


def loaded_apart(target: str, grants: tuple[Capability, ...], patience: float = PATIENCE) -> dict[str, Any]:
    """Have another process load a plugin and install it in an app of no consequence."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        words = [_written(one) for one in grants]
        command = [sys.executable, "-m", "mainspring.cli.plugins_apart", target, str(report), *words]
        try:
            done = subprocess.run(  # noqa: S603 - our own interpreter, and a target that is only ever looked up
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=patience, check=False
            )
        except subprocess.TimeoutExpired:
            return _unloaded(target, f"it was still being loaded after {patience:g} s; what it does there blocks")
        if not report.exists():
            problem = f"it ended the process that loaded it, with exit code {done.returncode}"
            last = _last_line(done.stderr)
            return _unloaded(target, f"{problem}: a program that installs it would end, too{last}")
        found: dict[str, Any] = msgspec.json.decode(report.read_bytes())
    if usage := found.get("usage"):
        raise Refusal(usage, Code.USAGE)
    return found


def _unloaded(target: str, problem: str) -> dict[str, Any]:
    return {"plugin": None, "target": target, "problems": [f"plugin {target}: {problem}"]}


def _last_line(said: bytes) -> str:
    lines = said.decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f". The last that it said: {last}" if last else ""


def _written(granted: Capability) -> str:
    match granted:
        case BackgroundJobs(max_concurrent=int(most)):
            return f"{granted}={most}"
        case EnqueueTasks(namespaces=tuple(names)):
            return f"{granted}={','.join(names)}"
        case _:
            return str(granted)


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value or "")
