"""How fast one node process works off a backlog on PostgreSQL: 100,000 jobs that do nothing, enqueued before.

Counted from the first start to the last settle on a durable server, and held against others in the same run:

- raw: a loop over asyncpg that claims 100 rows and moves 100 rows to a history, and does nothing else.
- pgqueuer 1.6 with batches of 100 and the settings that were fastest for it; see peers/pgqueuer.py.

Each once on tables that were never looked at by ANALYZE and once right after it: plans must not hang on statistics.
The targets are 1.5 times pgqueuer, 0.45 of raw, and the same speed either way.
"""

import sys

from bench.postgres.kit.child import Took
from bench.postgres.kit.report import Check, Figure, Report, at_least, between, options, ratios
from bench.postgres.kit.server import database, durable_server, written
from bench.postgres.kit.subjects import OURS, Subject, find
from tests.servers.postgres import Server

WAYS = {"without ANALYZE": False, "after ANALYZE": True}


def measure(server: Server, subject: Subject, jobs: int, *, analyze: bool) -> tuple[Took, float]:
    """Drain a database of its own; returns what it took and the bytes of write-ahead log for each job."""
    with database(server) as name:
        dsn = server.dsn(name)
        subject.ask("install", dsn=dsn)
        subject.ask("fill", dsn=dsn, jobs=jobs)
        if analyze:
            server.sql("ANALYZE", database=name)
        before = written(server)
        took = Took(*subject.ask("drain", dsn=dsn, jobs=jobs))
        return took, (written(server) - before) / jobs


def main() -> int:
    args = options(__doc__, jobs=(100_000, 3_000), rounds=(3, 1))
    subjects = find(["raw", "pgqueuer", OURS], only=args.only)
    report = Report("drain", f"Drain: {args.jobs:,} jobs that do nothing, one node process", args, subjects)
    speeds: dict[tuple[str, str], list[float]] = {(one.name, way): [] for way in WAYS for one in subjects}
    spent: dict[tuple[str, str], list[float]] = {key: [] for key in speeds}
    logged: dict[tuple[str, str], list[float]] = {key: [] for key in speeds}
    with durable_server() as server:
        report.look_around(server)
        for _ in range(args.rounds):
            for way, analyze in WAYS.items():
                for subject in subjects:
                    took, bytes_each = measure(server, subject, args.jobs, analyze=analyze)
                    speeds[subject.name, way].append(args.jobs / took.clock)
                    spent[subject.name, way].append(took.processor / args.jobs * 1e6)
                    logged[subject.name, way].append(bytes_each)
    report.figures = [Figure(name, "jobs/s", values, way) for (name, way), values in speeds.items()]
    first = next(iter(WAYS))
    report.figures += [Figure(n, "µs of the process's CPU a job", v) for (n, way), v in spent.items() if way == first]
    report.figures += [Figure(n, "bytes of WAL a job", v) for (n, way), v in logged.items() if way == first]
    report.checks = checks(speeds)
    return report.finish()


def checks(speeds: dict[tuple[str, str], list[float]]) -> list[Check]:
    found = []
    for name, bound in (("pgqueuer", 1.5), ("raw", 0.45)):
        for way in WAYS:
            if (name, way) in speeds and (OURS, way) in speeds:
                compared = ratios(speeds[OURS, way], speeds[name, way])
                found.append(at_least(bound, f"mainspring / {name}, {way}", compared))
    without, after = WAYS
    for name in dict.fromkeys(name for name, _ in speeds):
        compared = ratios(speeds[name, after], speeds[name, without])
        what = f"{name}: {after} / {without}"
        found.append(between(0.9, 1.1, what, compared) if name == OURS else Check(what, compared))
    return found


if __name__ == "__main__":
    sys.exit(main())
