"""How fast jobs get into PostgreSQL: one by one, from fifty coroutines at a time, in bulk.

Held against asyncpg alone on the same durable server, with rows of about the same size and an index for claims: one
INSERT for each commit, `unnest` of thousands of rows, COPY of as many. Each is a fresh process on a database of its
own, opened and warmed up before it counts; all take turns. pgqueuer stands beside. No node runs.

The targets are 0.85 of raw one by one; in bulk 0.6 of raw (of the faster of its two ways), or 100,000 jobs/s.
"""

import statistics
import sys

from bench.postgres.kit.child import Took
from bench.postgres.kit.report import Check, Figure, Report, at_least, options, ratios
from bench.postgres.kit.server import database, durable_server
from bench.postgres.kit.subjects import OURS, find

BY_ONE, TOGETHER, BULK, COPY = "one by one", "50 together", "bulk", "COPY"
TIMES = {BY_ONE: 1, TOGETHER: 5, BULK: 50, COPY: 50}  # as many jobs: about equally long
ENOUGH = 100_000.0

Speeds = dict[tuple[str, str], list[float]]


def main() -> int:
    args = options(__doc__, count=(2_000, 200), bulk=(5_000, 1_000), rounds=(5, 1))
    subjects = find(["raw", "pgqueuer", OURS], only=args.only)
    title = f"Enqueue: {args.count:,} jobs one by one, {args.count * TIMES[BULK]:,} in bulks of {args.bulk:,}"
    report = Report("enqueue", title, args, subjects)
    speeds: Speeds = {(way, one.name): [] for way in TIMES for one in subjects if way != COPY or one.name == "raw"}
    with durable_server() as server:
        report.look_around(server)
        for _ in range(args.rounds):
            for way, count in TIMES.items():
                for subject in subjects:
                    if (way, subject.name) in speeds:
                        with database(server) as name:
                            dsn, jobs = server.dsn(name), count * args.count
                            subject.ask("install", dsn=dsn)
                            took = Took(*subject.ask("enqueue", dsn=dsn, way=way, count=jobs, bulk=args.bulk))
                        speeds[way, subject.name].append(jobs / took.clock)
    for (way, name), values in speeds.items():
        is_copy = way == COPY
        report.figures.append(Figure("raw, COPY" if is_copy else name, "jobs/s", values, BULK if is_copy else way))
    report.checks = checks(speeds)
    return report.finish()


def checks(speeds: Speeds) -> list[Check]:
    found = []
    if (BY_ONE, OURS) in speeds and (BY_ONE, "raw") in speeds:
        found.append(
            at_least(0.85, "one by one, mainspring / raw", ratios(speeds[BY_ONE, OURS], speeds[BY_ONE, "raw"]))
        )
        together = ratios(speeds[TOGETHER, OURS], speeds[TOGETHER, "raw"])
        found.append(Check("50 together, mainspring / raw", together))
        fastest = [max(two) for two in zip(speeds[BULK, "raw"], speeds[COPY, "raw"], strict=True)]
        in_bulk = ratios(speeds[BULK, OURS], fastest)
        met = statistics.median(in_bulk) >= 0.6 or statistics.median(speeds[BULK, OURS]) >= ENOUGH
        found.append(Check("bulk, mainspring / the faster raw", in_bulk, "≥ 0.6, or 100 k/s", met))
        found.append(Check("bulk, mainspring / raw unnest", ratios(speeds[BULK, OURS], speeds[BULK, "raw"])))
    return found


if __name__ == "__main__":
    sys.exit(main())
