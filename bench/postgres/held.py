"""What a forgotten open transaction costs: ten rounds of 6,000 jobs, with a snapshot held from before the first.

While it is held, no row that was deleted or changed since can be cleaned away, so the head of every index fills with
dead entries. One transaction in REPEATABLE READ that has read something holds it. The same process lives through all
rounds, and through one before, which warms it up; each round's jobs are committed at once and counted from the first
start to the last settle. Speeds are held against the same subject's first round.

The target is 0.9 in the tenth round.
"""

import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from bench.postgres.kit.report import Check, Figure, Report, at_least, options
from bench.postgres.kit.server import database, durable_server
from bench.postgres.kit.subjects import OURS, Subject, find
from tests.servers.postgres import Server


def measure(server: Server, subject: Subject, jobs: int, rounds: int) -> list[float]:
    """Return the speeds of all rounds, in jobs/s."""
    with database(server) as name:
        dsn = server.dsn(name)
        subject.ask("install", dsn=dsn)
        with subject.begin("rounds", dsn=dsn, jobs=jobs, rounds=rounds) as child:
            child.until_ready()
            with held(dsn):
                child.go_on()
                return [jobs / seconds for seconds in child.answer()]


@contextmanager
def held(dsn: str) -> Iterator[None]:
    """Hold a snapshot of the database."""
    with psycopg.connect(dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM pg_class")
        yield
        held_back = "SELECT backend_xmin IS NOT NULL FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        if connection.execute(held_back).fetchone() != (True,):
            sys.exit("The snapshot was not held to the end.")


def main() -> int:
    args = options(__doc__, jobs=(6_000, 1_000), stretch=(10, 3), rounds=(3, 1))
    subjects = find(["raw", "pgqueuer", OURS], only=args.only)
    title = f"Held transaction: {args.stretch} times {args.jobs:,} jobs while a snapshot is held"
    report = Report("held", title, args, subjects)
    speeds: dict[str, list[list[float]]] = {subject.name: [] for subject in subjects}
    with durable_server() as server:
        report.look_around(server)
        for _ in range(args.rounds):
            for subject in subjects:
                speeds[subject.name].append(measure(server, subject, args.jobs, args.stretch))
    for which, group in ((0, "first"), (-1, "last")):
        report.figures += [Figure(n, "jobs/s", [one[which] for one in all_], group) for n, all_ in speeds.items()]
    for name, all_ in speeds.items():
        shares = [[speed / one[0] for speed in one] for one in all_]
        medians = [statistics.median(together) for together in zip(*shares, strict=True)]
        report.lines.append(Figure(name, "speed, of the first round's", medians))
        what, last = f"{name}: round {args.stretch} / round 1", [one[-1] for one in shares]
        report.checks.append(at_least(0.9, what, last) if name == OURS else Check(what, last))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
