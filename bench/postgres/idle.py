"""What a node costs while there is nothing to do: statements each second, and processor time of its process.

Statements are read from the server's own log, for which it writes down everything that is executed in that database,
BEGIN and COMMIT included. One node with all its duties, some seconds after its start; peers beside.

The targets are 2 statements/s and 0.5 % of one processor.
"""

import re
import sys
from collections import Counter

from bench.postgres.kit.report import Figure, Report, at_most, options
from bench.postgres.kit.server import database, durable_server
from bench.postgres.kit.subjects import OURS, Subject, find
from tests.servers.postgres import Server

PREFIX = "%n|%d|"  # seconds since 1970, database
EXECUTED = re.compile(r"(?P<time>\d+\.\d+)\|(?P<database>\w+)\|LOG:  (?:statement|execute [^:]+): (?P<text>.*)")
SHOWN = 12  # statements of our own that are listed


def measure(server: Server, subject: Subject, warm: float, seconds: float) -> tuple[float, Counter[str]]:
    """Return the percentage of a processor, and how often each statement was executed."""
    with database(server) as name:
        dsn = server.dsn(name)
        subject.ask("install", dsn=dsn)
        server.sql(f"ALTER DATABASE {name} SET log_statement = 'all'")
        found = subject.ask("idle", dsn=dsn, warm=warm, seconds=seconds)
    lines = server.log.replace("\n\t", " ").splitlines()  # a statement of several lines is one
    during = (
        " ".join(match["text"].split())
        for match in map(EXECUTED.match, lines)
        if match and match["database"] == name and found["began"] <= float(match["time"]) <= found["ended"]
    )
    return found["cpu"], Counter(during)


def main() -> int:
    args = options(__doc__, warm=(5.0, 1.0), seconds=(30.0, 3.0), rounds=(2, 1))
    subjects = find(["raw", "pgqueuer", "procrastinate", OURS], only=args.only)
    report = Report("idle", f"Idle: one node for {args.seconds:g} seconds without work", args, subjects)
    spent: dict[str, list[float]] = {subject.name: [] for subject in subjects}
    rates: dict[str, list[float]] = {subject.name: [] for subject in subjects}
    with durable_server() as server:
        report.look_around(server)
        server.sql(f"ALTER SYSTEM SET log_line_prefix = '{PREFIX}'")
        server.sql("SELECT pg_reload_conf()")
        for _ in range(args.rounds):
            for subject in subjects:
                cpu, statements = measure(server, subject, args.warm, args.seconds)
                spent[subject.name].append(cpu)
                rates[subject.name].append(statements.total() / args.seconds)
                if subject.name == OURS:
                    report.notes = [
                        f"{count / args.seconds:>6.2f}/s  {text[:90]}" for text, count in statements.most_common(SHOWN)
                    ]
    report.figures = [Figure(name, "statements/s", values) for name, values in rates.items()]
    report.figures += [Figure(name, "% of a processor", values) for name, values in spent.items()]
    if OURS in rates:
        report.checks = [at_most(2, "statements/s", rates[OURS]), at_most(0.5, "% of a processor", spent[OURS])]
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
