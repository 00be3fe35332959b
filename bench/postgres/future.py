"""Whether jobs that wait for their time slow down the others: a drain with 300,000 jobs due in a year, and without.

Both start from a database that was vacuumed and analyzed after the future jobs had come, as one is that has lived with
them for a while. raw and pgqueuer stand beside; pgqueuer gets a fifth of the jobs, so as not to take minutes.

The target is 0.85 of the speed without them.
"""

import sys
from contextlib import ExitStack

from bench.postgres.kit.child import Took
from bench.postgres.kit.report import Check, Figure, Report, at_least, options, ratios
from bench.postgres.kit.server import database, durable_server
from bench.postgres.kit.subjects import OURS, Subject, find
from tests.servers.postgres import Server

FEWER = {"pgqueuer": 5}  # times fewer jobs to drain


def measure(server: Server, subject: Subject, template: str, jobs: int) -> float:
    """Return the speed on a copy of a database, in jobs/s."""
    with database(server, template) as name:
        dsn = server.dsn(name)
        subject.ask("fill", dsn=dsn, jobs=jobs)
        return jobs / Took(*subject.ask("drain", dsn=dsn, jobs=jobs)).clock


def main() -> int:
    args = options(__doc__, jobs=(50_000, 2_000), future=(300_000, 20_000), rounds=(3, 1))
    subjects = find(["raw", "pgqueuer", OURS], only=args.only)
    title = f"Future jobs: {args.jobs:,} jobs, with {args.future:,} that are due in a year"
    report = Report("future", title, args, subjects)
    with durable_server() as server, ExitStack() as stack:
        report.look_around(server)
        templates = {}
        for subject in subjects:
            for future in (0, args.future):
                name = templates[subject.name, future] = stack.enter_context(database(server))
                subject.ask("install", dsn=server.dsn(name))
                subject.ask("fill", dsn=server.dsn(name), jobs=future, later=True)
                server.sql("VACUUM ANALYZE", database=name)
        speeds: dict[tuple[str, int], list[float]] = {key: [] for key in templates}
        for _ in range(args.rounds):
            for subject in subjects:
                for future in (0, args.future):
                    jobs = args.jobs // FEWER.get(subject.name, 1)
                    template = templates[subject.name, future]
                    speeds[subject.name, future].append(measure(server, subject, template, jobs))
    for future, group in ((0, "without"), (args.future, f"{args.future:,} future jobs")):
        report.figures += [Figure(s.name, "jobs/s", speeds[s.name, future], group) for s in subjects]
    for subject in subjects:
        compared = ratios(speeds[subject.name, args.future], speeds[subject.name, 0])
        what = f"{subject.name}: with / without"
        report.checks.append(at_least(0.85, what, compared) if subject.name == OURS else Check(what, compared))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
