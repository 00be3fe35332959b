"""Cost of claims by the number of queues, tasks and priorities, by the number of claimers, and beside a backlog.

  queues      drain of 20,000 no-op jobs by one node of 200 places: spread over 100 and 1,000 queues, over 20 tasks in 5
              queues (100 pairs) and over 101 priorities, round robin; compared with one queue
  claim       CPU time of one claim of 100 jobs: 10,000 queues of one job, compared with one queue of 10,000 jobs
  statements  statements for 10 claimed jobs while 48 stores claim from one queue at once, BEGIN and COMMIT included
              (PostgreSQL only)
  against     drain of one queue, compared with the checkout of --against
  held        tenth of ten rounds of 6,000 jobs while a snapshot is held, compared with the first (PostgreSQL only)
  beside      drain beside older jobs of the same priority that cannot start: 300,000 due in a year, 300,000 of a task that
              the node does not have, 300,000 in a paused queue, 100,000 behind a limit whose place is taken
  idle        CPU time of a node in 10 s after it has drained 9,000 queues of one job, compared with one queue of 9,000
  quiet       CPU time for a job in a queue of its own that receives 200 jobs, 20 ms apart, beside 300,000 jobs in another
              queue that the node does not serve, compared with none

All measurements of a round follow each other, each in a process of its own on a copy of a database that was filled once.
A round has three passes through all drains, which are short, and one through the rest; the order is reversed each time. A
ratio is that of two measurements of the same pass, a figure is the median of all passes. A drain is measured from the
first start to the last settle, and ends after --longest seconds at the latest; its speed is then that of the jobs that have
ended. CPU times are those of the node's process and of the PostgreSQL backends that serve it, in µs for each job (idle: in
µs for each second). "by CPU" is the same ratio, of CPU time for each job instead of speed: other programs on the machine
affect it less. Goals are about the speed.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from bench.claiming.databases import Databases, PostgresDatabases, SqliteFiles
from bench.claiming.measurements import CONTENDED_SIZE, QUICK, Bench, Figure, Sizes
from bench.postgres.idle import PREFIX
from bench.postgres.kit.environments import CHECKOUT
from bench.postgres.kit.report import RESULTS, commit, keep, number, spread
from bench.postgres.kit.server import durable_server
from bench.postgres.kit.subjects import Subject

SQLITE, POSTGRES = "sqlite", "postgres"

Value: TypeAlias = Literal["speed", "cpu", "statements_for_jobs", "jobs_per_claim"]


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table of goals: a figure, or its ratio to another one of the same round."""

    name: str
    title: str
    value: Value
    of: str
    to: str | None = None
    at_least: float | None = None
    at_most: float | None = None

    def verdict(self, median: float) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:<5g} {'reached' if median >= self.at_least else 'NOT REACHED'}"
        if self.at_most is not None:
            return f"≤ {self.at_most:<5g} {'reached' if median <= self.at_most else 'NOT REACHED'}"
        return ""


def rows_of(sizes: Sizes) -> list[Row]:
    few, many = sizes.queues
    claim = f"{sizes.claim_jobs:,}"
    return [
        Row("queues-few", f"drain, {few:,} queues / one queue", "speed", "few queues", "one queue", 0.85),
        Row("queues-many", f"drain, {many:,} queues / one queue", "speed", "many queues", "one queue", 0.85),
        Row("queues-tasks", "drain, 20 tasks in 5 queues / one queue", "speed", "tasks", "one queue", 0.85),
        Row("queues-priorities", "drain, 101 priorities / one", "speed", "priorities", "one queue", 0.85),
        Row(
            "claim", f"CPU of a claim, {claim} queues / one", "cpu", "claim, many queues", "claim, one queue", at_most=2
        ),
        Row(
            "claim-first",
            f"CPU of a first claim, {claim} queues / one",
            "cpu",
            "first claim, many queues",
            "first claim, one queue",
        ),
        Row(
            "statements",
            f"statements for {CONTENDED_SIZE} jobs, {sizes.claimers} claimers",
            "statements_for_jobs",
            "contended",
            at_most=2,
        ),
        Row(
            "statements-jobs",
            f"jobs in a claim of {CONTENDED_SIZE}, {sizes.claimers} claimers",
            "jobs_per_claim",
            "contended",
        ),
        Row("against", "drain, one queue / other checkout", "speed", "one queue", "other checkout", 1.0),
        Row("held", f"snapshot held, round {sizes.held_rounds} / first", "speed", "held, last", "held, first", 0.95),
        Row("beside-future", f"drain beside {sizes.backlog:,} future jobs / alone", "speed", "future", "alone", 0.9),
        Row(
            "beside-foreign",
            f"drain beside {sizes.backlog:,} of a foreign task / alone",
            "speed",
            "foreign",
            "alone",
            0.9,
        ),
        Row("beside-paused", f"drain beside {sizes.backlog:,} paused / alone", "speed", "paused", "alone", 0.9),
        Row("beside-limited", f"drain beside {sizes.limited:,} limited / alone", "speed", "limited", "alone", 0.9),
        Row("idle", f"idle CPU after {sizes.idle_jobs:,} queues / one", "cpu", "idle, many queues", "idle, one queue"),
        Row("quiet", f"CPU per quiet job beside {sizes.backlog:,} / none", "cpu", "quiet, beside", "quiet, alone"),
    ]


POSTGRES_ONLY = ("statements", "statements-jobs", "held")


def chosen_rows(sizes: Sizes, *, store: str, only: Sequence[str], against: bool) -> list[Row]:
    """Return the rows that are wanted and can be measured on a kind of database."""
    possible = [
        row
        for row in rows_of(sizes)
        if (store == POSTGRES or row.name not in POSTGRES_ONLY) and (against or row.name != "against")
    ]
    return [row for row in possible if not only or any(f"{row.name}-".startswith(f"{word}-") for word in only)]


def report(bench: Bench, rows: Sequence[Row], args: argparse.Namespace) -> dict[str, Any]:
    """Print the tables of a database; return them as a record."""
    print(f"\n{bench.databases.title}, Python {sys.version.split()[0]}, {args.rounds} rounds, {bench.subject.name}")
    print(f"\n{'measured':<28}{'jobs/s':>10}{'spread':>18}{'node µs':>11}{'server µs':>11}")
    kept = {}
    for name, all_ in bench.found.items():
        figures = [one for one in all_ if one is not None]
        if not figures:
            print(f"{name:<28}{'failed':>10}")
            continue
        speeds = [one.speed for one in figures]
        node, server = (statistics.median(one.spent[place] / one.count * 1e6 for one in figures) for place in (1, 2))
        shown = ("", "") if name.startswith("idle") else (number(statistics.median(speeds)), spread(speeds))
        cut = " not drained in time" if any(one.count < one.expected for one in figures) else ""
        print(f"{name:<28}{shown[0]:>10}{shown[1]:>18}{node:>11,.1f}{server:>11,.1f}{cut}")
        kept[name] = {"per_second": speeds, "node_us": node, "server_us": server, "whole": not cut}
    print(f"\n{'ratio':<52}{'median':>8}{'spread':>14}{'by CPU':>8}  goal")
    ratios = {}
    for row in rows:
        values = ratios[row.name] = values_of(row, bench.found)
        if values:
            median = statistics.median(values)
            ratio = f"{median:>8.2f}{spread(values):>14}{by_cpu(row, bench.found):>8}"
            print(f"{row.title:<52}{ratio}  {row.verdict(median)}".rstrip())
        else:
            print(f"{row.title:<52}{'failed':>8}")
    for failure in bench.failures:
        print(f"failed: {failure}")
    return {"database": bench.databases.title, "figures": kept, "ratios": ratios, "failures": bench.failures}


def values_of(row: Row, found: Mapping[str, Sequence[Figure | None]]) -> list[float]:
    """Return the value of each round in which all that it needs was measured."""
    if row.to is None:
        return [getattr(one, row.value) for one in found[row.of] if one is not None]
    pairs = zip(found[row.of], found[row.to], strict=True)
    return [getattr(one, row.value) / getattr(other, row.value) for one, other in pairs if one and other]


def by_cpu(row: Row, found: Mapping[str, Sequence[Figure | None]]) -> str:
    """Return a ratio of speeds computed from CPU time for each job, which other programs affect less."""
    if row.to is None or row.value != "speed":
        return ""
    pairs = zip(found[row.of], found[row.to], strict=True)
    values = [other.cpu / one.cpu for one, other in pairs if one and other and one.cpu]
    return f"{statistics.median(values):.2f}" if values else ""


@contextmanager
def opened(store: str) -> Iterator[Databases]:
    if store == SQLITE:
        with tempfile.TemporaryDirectory(prefix="mainspring-bench-") as folder:
            yield SqliteFiles(Path(folder))
    else:
        with durable_server() as server:
            server.sql(f"ALTER SYSTEM SET log_line_prefix = '{PREFIX}'")
            server.sql("SELECT pg_reload_conf()")
            yield PostgresDatabases(server)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=[SQLITE, POSTGRES], help="measure on this database only")
    parser.add_argument("--rounds", type=int, help="3, quick 1")
    parser.add_argument("--only", nargs="+", default=[], metavar="ROW", help="groups (queues) or rows (queues-many)")
    parser.add_argument(
        "--against", type=Path, metavar="CHECKOUT", help="compare the drain of one queue with another checkout"
    )
    parser.add_argument(
        "--checkout", type=Path, default=CHECKOUT, help="measure another checkout instead of the current checkout"
    )
    parser.add_argument("--longest", type=float, help="seconds after which a drain is stopped: 40, quick 15")
    parser.add_argument("--quick", action="store_true", help="smoke test: few jobs, one round")
    args = parser.parse_args()
    args.rounds = args.rounds or (1 if args.quick else 3)
    args.longest = args.longest or (15.0 if args.quick else 40.0)
    known = {row.name for row in rows_of(Sizes())}
    groups = {name.partition("-")[0] for name in known}
    if unknown := set(args.only) - known - groups:
        parser.error(f"unknown rows: {', '.join(sorted(unknown))}; known: {', '.join(sorted(known | groups))}")
    return args


def main() -> int:
    args = options()
    sizes = QUICK if args.quick else Sizes()
    subject = subject_of(args.checkout)
    other = subject_of(args.against) if args.against else None
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.2f} before; {subject.name}", flush=True)
    about = {"bench": "claims", "date": datetime.now(UTC).isoformat(timespec="seconds"), "measured": subject.name}
    records, failed = [], False
    for store in [args.store] if args.store else [SQLITE, POSTGRES]:
        rows = chosen_rows(sizes, store=store, only=args.only, against=other is not None)
        if not rows:
            continue
        with opened(store) as databases:
            bench = Bench(databases, subject, other, sizes, args.longest)
            bench.run(args.rounds, {name for row in rows for name in (row.of, row.to) if name})
            records.append(report(bench, rows, args))
            failed |= bool(bench.failures)
    keep(RESULTS / "quick" if args.quick or args.only else RESULTS, {**about, "databases": records}, name="claims")
    return int(failed)


def subject_of(checkout: Path) -> Subject:
    checkout = checkout.resolve()
    name = f"{checkout.name} ({commit(checkout) or 'no commit'})"
    return Subject(name, Path(sys.executable), "bench.claiming.child", {}, checkout)


if __name__ == "__main__":
    sys.exit(main())
