"""What limits and unique jobs cost a drain, each held against the same drain without.

- keyed: a limit of one at a time for each of 10,000 keys, which come in turns.
- task: a limit of 1,000 at a time for the task, more than the node has places, so that it only has to be counted.
- unique: every job has a unique key of its own, which its end frees.

The target is half of the speed without, each.
"""

import sys

from bench.postgres.kit.child import Took
from bench.postgres.kit.report import Figure, Report, at_least, options, ratios
from bench.postgres.kit.server import database, durable_server
from bench.postgres.kit.subjects import OURS, find

PLAIN = "plain"
KINDS = (PLAIN, "keyed", "task", "unique")


def main() -> int:
    args = options(__doc__, jobs=(50_000, 2_000), rounds=(3, 1))
    subjects = find([OURS], only=args.only)
    report = Report("limits", f"Limits: {args.jobs:,} jobs that do nothing, one node process", args, subjects)
    speeds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with durable_server() as server:
        report.look_around(server)
        for _ in range(args.rounds):
            for kind in KINDS if subjects else ():
                with database(server) as name:
                    dsn = server.dsn(name)
                    subjects[0].ask("install", dsn=dsn, kind=kind)
                    subjects[0].ask("fill", dsn=dsn, jobs=args.jobs, kind=kind)
                    took = Took(*subjects[0].ask("drain", dsn=dsn, jobs=args.jobs, kind=kind))
                speeds[kind].append(args.jobs / took.clock)
    if subjects:
        report.figures = [Figure(f"{OURS}, {kind}", "jobs/s", values) for kind, values in speeds.items()]
        report.checks = [
            at_least(0.5, f"{kind} / plain", ratios(values, speeds[PLAIN]))
            for kind, values in speeds.items()
            if kind != PLAIN
        ]
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
