"""What a benchmark has found: printed as tables, kept as a line of JSON in bench/results, drawn from that line.

A figure is the median of its rounds, with the least and the most as its spread; a ratio is made within each round, of
measurements that took turns, so that a machine that gets slower meanwhile does so for both sides. Quick runs are kept
apart, in bench/results/quick: they show that a benchmark works and nothing else.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.postgres.kit import plot
from bench.postgres.kit.environments import CHECKOUT
from bench.postgres.kit.server import sync_time
from bench.postgres.kit.subjects import OURS, Subject
from tests.servers.postgres import Server

RESULTS = CHECKOUT / "bench" / "results"


def options(text: str | None, **defaults: tuple[float, float]) -> argparse.Namespace:
    """Read the command line; each option has a default for a whole run and one for `--quick`."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few jobs and one round: to see that it works")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="measure no others than these")
    for name, (whole, quick) in defaults.items():
        parser.add_argument(f"--{name}", type=type(whole), help=f"{whole:,}, quick {quick:,}")
    args = parser.parse_args()
    for name, (whole, quick) in defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, quick if args.quick else whole)
    return args


@dataclass(frozen=True, slots=True)
class Figure:
    """Something measured, once in each round. Figures of a group are drawn together."""

    name: str
    unit: str
    values: Sequence[float]
    group: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclass(frozen=True, slots=True)
class Check:
    """Something that was aimed at: `target` in words, and whether it was met; None where nothing was."""

    what: str
    values: Sequence[float]
    target: str = ""
    met: bool | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)


def at_least(bound: float, what: str, values: Sequence[float]) -> Check:
    return Check(what, values, f"≥ {bound:g}", statistics.median(values) >= bound)


def at_most(bound: float, what: str, values: Sequence[float]) -> Check:
    return Check(what, values, f"≤ {bound:g}", statistics.median(values) <= bound)


def between(low: float, high: float, what: str, values: Sequence[float]) -> Check:
    return Check(what, values, f"{low:g} to {high:g}", low <= statistics.median(values) <= high)


def ratios(these: Sequence[float], those: Sequence[float]) -> list[float]:
    """Divide round by round."""
    return [one / other for one, other in zip(these, those, strict=True)]


@dataclass(slots=True)
class Report:
    """What a benchmark has found."""

    bench: str
    title: str
    args: argparse.Namespace
    subjects: Sequence[Subject]
    figures: list[Figure] = field(default_factory=list)
    lines: list[Figure] = field(default_factory=list)
    """Figures whose values follow each other, drawn as a line."""
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Lines that are printed and kept, but not drawn."""
    about: dict[str, Any] = field(default_factory=dict)

    def look_around(self, server: Server) -> None:
        """Take down on what this was measured; before, because afterwards the load is our own."""
        ((version,),) = server.sql("SHOW server_version")
        versions = {"python": platform.python_version(), "postgresql": version.split()[0]}
        for subject in self.subjects:
            versions |= {f"{subject.name}: {name}": number for name, number in subject.versions.items()}
        self.about = {
            "versions": versions,
            "commit": commit(),
            "machine": {
                "system": f"{platform.system()} {platform.machine()}",
                "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
                "load": round(os.getloadavg()[0], 2),
                "sync_ms": round(sync_time(server.folder), 3),
            },
        }

    def finish(self) -> int:
        """Print, keep and draw it; returns what the program ends with: 1 where we ourselves were not measured."""
        self._print()
        folder = RESULTS / "quick" if self.args.quick else RESULTS
        record = self._record()
        keep(folder, record)
        plot.draw(record, folder / f"postgres-{self.bench}.svg")
        print(f"\nKept in {(folder / 'postgres.jsonl').relative_to(CHECKOUT)}, drawn in postgres-{self.bench}.svg")
        wanted = not self.args.only or OURS in self.args.only
        return int(wanted and not any(subject.name == OURS for subject in self.subjects))

    def _record(self) -> dict[str, Any]:
        return {
            "bench": self.bench,
            "title": self.title,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            **self.about,
            "options": {name: value for name, value in vars(self.args).items() if value != []},
            "figures": [described(one) for one in self.figures],
            "lines": [described(one) for one in self.lines],
            "checks": [described(one) for one in self.checks],
            "notes": self.notes,
        }

    def _print(self) -> None:
        machine, versions = self.about["machine"], self.about["versions"]
        print(
            f"{self.title}\nPython {versions['python']}, PostgreSQL {versions['postgresql']}, {machine['cores']} cores, "
            f"load {machine['load']} before, {machine['sync_ms']} ms to sync a page\n"
        )
        for (group, unit), those in groupby(self.figures, key=lambda one: (one.group, one.unit)):
            heading = f"{unit}, {group}" if group else unit
            table(
                (heading, "", "spread", ""), ((one.name, number(one.median), spread(one.values), "") for one in those)
            )
            print()
        for line in self.lines:
            print(f"{line.name:<20}{' '.join(f'{value:5.2f}' for value in line.values)}  {line.unit}")
        rows = ((one.what, number(one.median), spread(one.values), verdict(one)) for one in self.checks)
        table(("ratios and targets", "", "spread", "target"), rows)
        for note in self.notes:
            print(note)


def table(head: tuple[str, str, str, str], rows: Iterable[tuple[str, str, str, str]]) -> None:
    for what, median, between_, rest in (head, *rows):
        print(f"{what:<48}{median:>12}{between_:>20}  {rest}".rstrip())


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def spread(values: Sequence[float]) -> str:
    return f"{number(min(values))}-{number(max(values))}"


def verdict(check: Check) -> str:
    if check.met is None:
        return ""
    return f"{check.target:<18} {'met' if check.met else 'MISSED'}"


def described(one: Figure | Check) -> dict[str, Any]:
    values = [float(f"{value:.6g}") for value in one.values]
    middle = {"median": statistics.median(values), "low": min(values), "high": max(values)}
    return asdict(one) | {"values": values} | middle


def keep(folder: Path, record: dict[str, Any], name: str = "postgres") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def commit(checkout: Path = CHECKOUT) -> str | None:
    """Return the commit of a checkout; None where there is no git."""
    try:
        done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=checkout, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.decode().strip()
