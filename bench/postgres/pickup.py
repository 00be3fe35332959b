"""How long a job waits on an idle node: from the call of enqueue in one process to the start of its handler in another.

Both processes read one clock, the system's monotonic one. Jobs come some tens of milliseconds apart, so that the node
is idle again before the next. Beside: a raw loop that inserts and notifies in one statement, listens, claims one row
and calls that a start; pgqueuer; procrastinate. One after the other, in rounds.

The targets are 1.5 ms for p50 and 4 ms for p99, over all rounds.
"""

import sys
import time

from bench.postgres.kit.report import Check, Figure, Report, at_most, options, ratios
from bench.postgres.kit.server import database, durable_server
from bench.postgres.kit.subjects import OURS, Subject, find
from tests.servers.postgres import Server

SPACING = (0.02, 0.04)  # seconds between two jobs
WARM_UP = 10  # jobs that do not count: statements are prepared, plans made


def measure(server: Server, subject: Subject, count: int) -> list[float]:
    """Return the milliseconds that each job waited."""
    with database(server) as name:
        dsn = server.dsn(name)
        subject.ask("install", dsn=dsn)
        with subject.begin("wait", dsn=dsn) as node:
            node.until_ready()
            given = subject.ask("give", dsn=dsn, count=count + WARM_UP, spacing=SPACING)
            time.sleep(0.5)  # for the last one
            started = dict(node.answer())  # it ends because its input does
    lost = [number for number, _ in given if number not in started]
    if lost:
        sys.exit(f"{subject.name} never started {len(lost)} of {len(given)} jobs")
    return [(started[number] - called) / 1e6 for number, called in given[WARM_UP:]]


def main() -> int:
    args = options(__doc__, count=(300, 60), rounds=(3, 1))
    subjects = find(["raw", "pgqueuer", "procrastinate", OURS], only=args.only)
    report = Report("pickup", f"Pick-up: {args.count:,} jobs one by one on an idle node", args, subjects)
    times: dict[str, list[list[float]]] = {subject.name: [] for subject in subjects}
    with durable_server() as server:
        report.look_around(server)
        for _ in range(args.rounds):
            for subject in subjects:
                times[subject.name].append(measure(server, subject, args.count))
    for part, group in ((0.5, "p50"), (0.99, "p99")):
        report.figures += [Figure(n, "ms", [share(one, part) for one in all_], group) for n, all_ in times.items()]
    if OURS in times:
        together = [wait for one in times[OURS] for wait in one]
        report.checks = [at_most(1.5, "p50 of all, ms", [share(together, 0.5)])]
        report.checks += [at_most(4, "p99 of all, ms", [share(together, 0.99)])]
        for name, found in times.items():
            if name != OURS:
                medians = ([share(one, 0.5) for one in times[OURS]], [share(one, 0.5) for one in found])
                report.checks.append(Check(f"p50, mainspring / {name}", ratios(*medians)))
    return report.finish()


def share(waits: list[float], part: float) -> float:
    ordered = sorted(waits)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


if __name__ == "__main__":
    sys.exit(main())
