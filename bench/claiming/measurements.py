"""Measurements of the claim benchmark on one kind of database, in interleaved rounds."""

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bench.claiming.databases import Content, Databases, PostgresDatabases
from bench.claiming.processor import Spent
from bench.postgres.held import held
from bench.postgres.idle import EXECUTED
from bench.postgres.kit.subjects import Subject

NOOP, FOREIGN, LIMITED, BACKLOG = "noop", "foreign", "limited", "backlog"
CLAIM_SIZE = 100
CONTENDED_SIZE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Numbers of jobs and the like; those of `--quick` show that the benchmark works."""

    jobs: int = 20_000
    drains: int = 3
    """Passes through all drains in a round: a drain takes half a second, and other programs disturb it."""
    queues: tuple[int, int] = (100, 1_000)
    claim_jobs: int = 10_000
    claims: int = 10
    claimers: int = 48
    contended_jobs: int = 5_000
    held_jobs: int = 6_000
    held_rounds: int = 10
    backlog: int = 300_000
    limited: int = 100_000
    idle_jobs: int = 9_000
    idle_s: float = 10.0
    quiet_jobs: int = 200


QUICK = Sizes(
    jobs=2_000,
    drains=1,
    queues=(20, 200),
    claim_jobs=2_000,
    claims=4,
    contended_jobs=1_000,
    held_jobs=600,
    held_rounds=3,
    backlog=20_000,
    limited=5_000,
    idle_jobs=500,
    idle_s=2.0,
    quiet_jobs=30,
)


@dataclass(frozen=True, slots=True)
class Figure:
    """Cost of so many jobs (idle: of so many seconds) in one round."""

    count: float
    spent: Spent
    statements: int = 0
    claims: int = 0
    expected: float = 0
    """Jobs that a drain should have ended."""

    @property
    def speed(self) -> float:
        return self.count / self.spent.clock

    @property
    def cpu(self) -> float:
        return (self.spent.node + self.spent.server) / self.count

    @property
    def statements_for_jobs(self) -> float:
        return self.statements / self.count * CONTENDED_SIZE

    @property
    def jobs_per_claim(self) -> float:
        return self.count / self.claims


Measure: TypeAlias = Callable[[], Mapping[str, Figure]]


@dataclass(slots=True)
class Bench:
    """Measurements of one kind of database; each answers with figures by name."""

    databases: Databases
    subject: Subject
    other: Subject | None
    sizes: Sizes
    longest: float
    found: dict[str, list[Figure | None]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def run(self, rounds: int, wanted: set[str]) -> None:
        """Measure the figures of these names."""
        drains, others = (
            [(names, measure) for names, measure in measures.items() if wanted & set(names)]
            for measures in (self.drains(), self.others())
        )
        for turn in range(rounds * self.sizes.drains):
            chosen = drains if turn % self.sizes.drains else drains + others
            for names, measure in chosen if turn % 2 == 0 else reversed(chosen):
                began = time.monotonic()
                figures = self._try(measure)
                for name in names:
                    self.found.setdefault(name, []).append(figures.get(name))
                print(f"  pass {turn + 1}: {', '.join(names)} ({time.monotonic() - began:.0f} s)", file=sys.stderr)

    def _try(self, measure: Measure) -> Mapping[str, Figure]:
        """Measure, and go on with the others if a child process fails."""
        try:
            return measure()
        except SystemExit as failure:
            if not isinstance(failure.code, str):
                raise
            self.failures.append(failure.code)
            return {}

    def drains(self) -> dict[tuple[str, ...], Measure]:
        few, many = self.sizes.queues
        backlog, noop = self.sizes.backlog, (NOOP,)
        tasks = tuple(f"task{number}" for number in range(20))
        one = self.content("one queue")
        measures: dict[tuple[str, ...], Measure] = {
            ("one queue",): lambda: self.drain("one queue", one),
            ("few queues",): lambda: self.drain("few queues", self.content("few queues", queues=names(few))),
            ("many queues",): lambda: self.drain("many queues", self.content("many queues", queues=names(many))),
            ("tasks",): lambda: self.drain("tasks", self.content("tasks", tasks=tasks, queues=names(5))),
            ("priorities",): lambda: self.drain("priorities", self.content("priorities", priorities=101)),
            ("other checkout",): lambda: self.drain("other checkout", one, subject=self.other),
            ("alone",): lambda: self.drain("alone", one),
            ("future",): lambda: self.drain("future", self.beside("future", jobs=backlog, delay="365d")),
            ("foreign",): lambda: self.drain("foreign", self.beside("foreign", FOREIGN, jobs=backlog), tasks=noop),
            ("paused",): lambda: self.drain("paused", self.beside_queue(), pause=BACKLOG),
            ("limited",): lambda: self.drain("limited", self.beside("limited", LIMITED, jobs=self.sizes.limited)),
        }
        if isinstance(self.databases, PostgresDatabases):
            databases = self.databases
            measures["held, first", "held, last"] = lambda: self.held(databases)
        return measures

    def others(self) -> dict[tuple[str, ...], Measure]:
        empty = Content(name="empty", tasks=(NOOP,), parts=())
        measures: dict[tuple[str, ...], Measure] = {
            ("claim, one queue", "first claim, one queue"): lambda: self.claim("one queue", ("default",)),
            ("claim, many queues", "first claim, many queues"): lambda: self.claim(
                "many queues", names(self.sizes.claim_jobs)
            ),
            ("idle, one queue",): lambda: self.idle("idle, one queue", ("default",)),
            ("idle, many queues",): lambda: self.idle("idle, many queues", names(self.sizes.idle_jobs)),
            ("quiet, alone",): lambda: self.quiet("quiet, alone", empty),
            ("quiet, beside",): lambda: self.quiet("quiet, beside", self.beside_queue()),
        }
        if isinstance(self.databases, PostgresDatabases):
            databases = self.databases
            measures["contended",] = lambda: self.contended(databases)
        return measures

    def content(self, name: str, *, tasks: tuple[str, ...] = (NOOP,), **part: Any) -> Content:  # noqa: ANN401 - see Content
        return Content(name=name, tasks=tasks, parts=({"jobs": self.sizes.jobs, "tasks": tasks, **part},))

    def beside(self, name: str, task: str = NOOP, **older: Any) -> Content:  # noqa: ANN401 - as above
        parts = ({"tasks": (task,), **older}, {"jobs": self.sizes.jobs})
        return Content(name=name, tasks=tuple(dict.fromkeys((NOOP, task))), parts=parts)

    def beside_queue(self) -> Content:
        return self.beside("another queue", jobs=self.sizes.backlog, queues=(BACKLOG,))

    def drain(
        self,
        name: str,
        content: Content,
        *,
        subject: Subject | None = None,
        tasks: tuple[str, ...] | None = None,
        pause: str | None = None,
    ) -> Mapping[str, Figure]:
        subject, jobs = subject or self.subject, self.sizes.jobs
        with self.databases.copy(subject, content) as url:
            options = {"jobs": jobs, "longest": self.longest, "postmaster": self.databases.postmaster, "pause": pause}
            ended, spent = subject.ask("drain", url=url, tasks=tasks or content.tasks, **options)
        if not ended:
            sys.exit(f"{name}: no job ended within {self.longest:g} s")
        return {name: Figure(ended, Spent(*spent), expected=jobs)}

    def claim(self, name: str, queues: Sequence[str]) -> Mapping[str, Figure]:
        """Return the median claim, and the first one, which finds no cache."""
        parts = ({"jobs": self.sizes.claim_jobs, "queues": queues},)
        with self.databases.copy(self.subject, Content(name=f"claim, {name}", tasks=(NOOP,), parts=parts)) as url:
            options = {"size": CLAIM_SIZE, "claims": self.sizes.claims, "postmaster": self.databases.postmaster}
            ((first, *rest),) = self.subject.ask("claim", url=url, **options)
        if short := [count for count, _ in (first, *rest) if count != CLAIM_SIZE]:
            sys.exit(f"claim, {name}: claims returned {short} jobs, not {CLAIM_SIZE}")
        median = Spent(*map(statistics.median, zip(*(spent for _, spent in rest), strict=True)))
        return {
            f"claim, {name}": Figure(CLAIM_SIZE, median),
            f"first claim, {name}": Figure(CLAIM_SIZE, Spent(*first[1])),
        }

    def contended(self, databases: PostgresDatabases) -> Mapping[str, Figure]:
        sizes, server = self.sizes, databases.server
        # Twice as many as are claimed, and those of the warm-up: no claim is short of jobs.
        jobs = 2 * (sizes.contended_jobs + sizes.claimers * CONTENDED_SIZE)
        content = Content(name="contended", tasks=(NOOP,), parts=({"jobs": jobs},))
        with databases.copy(self.subject, content) as url:
            name = url.rpartition("/")[2]
            server.sql(f"ALTER DATABASE {name} SET log_statement = 'all'")
            options = {"claimers": sizes.claimers, "size": CONTENDED_SIZE, "jobs": sizes.contended_jobs}
            claimed, spent, claims, began, ended = self.subject.ask("contend", url=url, longest=self.longest, **options)
        lines = server.log.replace("\n\t", " ").splitlines()  # a statement of several lines is one
        matches = [match for match in map(EXECUTED.match, lines) if match and match["database"] == name]
        statements = sum(began <= float(match["time"]) <= ended for match in matches)
        if not claimed or not statements:
            sys.exit(f"contended: {claimed} jobs claimed, {statements} statements logged")
        return {"contended": Figure(claimed, Spent(*spent), statements, claims=claims)}

    def held(self, databases: PostgresDatabases) -> Mapping[str, Figure]:
        jobs = self.sizes.held_jobs
        content = Content(name="empty", tasks=(NOOP,), parts=())
        with databases.copy(self.subject, content) as url:
            options = {"jobs": jobs, "rounds": self.sizes.held_rounds, "postmaster": databases.postmaster}
            with self.subject.begin("rounds", url=url, longest=self.longest, **options) as child:
                child.until_ready()
                with held(url):
                    child.go_on()
                    figures = [Figure(jobs, Spent(*spent)) for spent in child.answer()]
        return {"held, first": figures[0], "held, last": figures[-1]}

    def idle(self, name: str, queues: Sequence[str]) -> Mapping[str, Figure]:
        jobs, longest = self.sizes.idle_jobs, self.longest * 2
        content = Content(name=name, tasks=(NOOP,), parts=({"jobs": jobs, "queues": queues},))
        with self.databases.copy(self.subject, content) as url:
            options = {"jobs": jobs, "longest": longest, "seconds": self.sizes.idle_s}
            seconds, spent = self.subject.ask(
                "idle", url=url, tasks=(NOOP,), postmaster=self.databases.postmaster, **options
            )
        return {name: Figure(seconds, Spent(*spent))}

    def quiet(self, name: str, content: Content) -> Mapping[str, Figure]:
        jobs, subject = self.sizes.quiet_jobs, self.subject
        with self.databases.copy(subject, content) as url:
            options = {"jobs": jobs, "longest": self.longest, "postmaster": self.databases.postmaster}
            with subject.begin("quiet", url=url, **options) as node, subject.begin("feed", url=url, jobs=jobs) as feed:
                node.until_ready()
                feed.until_ready()
                node.go_on()
                feed.go_on()
                feed.answer()
                ended, spent = node.answer()
        if not ended:
            sys.exit(f"{name}: no job ended within {self.longest:g} s")
        return {name: Figure(ended, Spent(*spent), expected=jobs)}


def names(count: int) -> tuple[str, ...]:
    return tuple(f"queue{number}" for number in range(count))
