"""Three nodes on a server that is restarted, killed and replaced by its standby, over a network that loses connections,
while the nodes are killed themselves.

With MAINSPRING_TESTS=full it runs for minutes, with 50,000 jobs. MAINSPRING_SEED, which a failure prints, decides what
happens when; the rest depends on the machine.
"""

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias, get_args

import pytest

from mainspring.core.job import State
from tests.chaos.fleet import Fleet, Program
from tests.chaos.ledger import Ledger, most_at_once
from tests.chaos.postgres.cluster import Cluster, How
from tests.chaos.worker import AT_ONCE, KEYS
from tests.servers.postgres import Server
from tests.tier import FULL, SEED

SECONDS = 180.0 if FULL else 12.0
JOBS = 50_000 if FULL else 1_500
LEASE = "15s" if FULL else "6s"
ROUNDS = 4 if FULL else 1
"""How often each kind of trouble with the server comes before the failover; two more come after it."""
BETWEEN_KILLS = 3.0 if FULL else 2.0
BETWEEN_CUTS = 2.0
NODES = 3
PRODUCERS = 2
TWICE = """
    SELECT id FROM (SELECT id FROM mainspring.jobs UNION ALL SELECT id FROM mainspring.history) AS every
    GROUP BY id HAVING count(*) > 1
"""
Happening: TypeAlias = Callable[[], object]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900 if FULL else 240)]


def test_no_job_is_lost_or_ended_twice_while_nodes_die_and_servers_come_and_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print(f"MAINSPRING_SEED={SEED}")  # noqa: T201 - pytest shows it with a failure
    began = time.monotonic()
    with Cluster() as cluster, Fleet(tmp_path, cluster.url) as fleet:
        cluster.primary.sql("CREATE TABLE effects (job text NOT NULL)")
        fleet.start_ready(1, lease=LEASE)  # makes the tables
        producers = [
            fleet.start("mix", count=JOBS // PRODUCERS, rate=JOBS / SECONDS / PRODUCERS) for _ in range(PRODUCERS)
        ]
        Torment(fleet, cluster, random.Random(SEED)).run()  # noqa: S311 - chance, no secret
        fleet.wait_for(lambda: not any(one.runs for one in producers), "everything to be enqueued", limit=120, every=1)
        fleet.wait_for(lambda: not waiting(cluster.primary), "the jobs to be done", limit=120, every=0.2)
        seconds = time.monotonic() - began
        assert [one.process.returncode for one in producers] == [0] * PRODUCERS, fleet.errors()
        assert [fleet.end(one) for one in fleet.running] == [0] * NODES, fleet.errors()
        ledger = fleet.ledger()
        jobs = {str(view.job.id): view for view in fleet.jobs()}

        assert cluster.faults["failover"] == 1
        assert len(ledger.enqueued) == JOBS
        assert set(jobs) == ledger.enqueued, "acknowledged, and not there"
        assert Counter(view.job.state for view in jobs.values()) == {State.SUCCEEDED: JOBS}
        assert not set(jobs) - set(ledger.started), "succeeded, and never ran"
        assert not ledger.leases_started_twice()
        assert not ledger.successes_told_twice()
        assert not ledger.ends_told_twice()
        assert not ledger.started_after_success()
        assert not ledger.running_twice()
        assert not ledger.unexplained(), "taken from a node that was alive"
        unlike = {job for job, view in jobs.items() if view.job.lease != ledger.started[job][-1].lease}
        assert not unlike, "succeeded under another lease than the one it ran under last"

        assert not cluster.primary.sql(TWICE), "a job that is there twice"
        assert not cluster.primary.sql("SELECT * FROM mainspring.places"), "places that nobody has given up"

        transactional = {job for job, view in jobs.items() if view.job.task.local == "effect"}
        assert effects(cluster.primary) == dict.fromkeys(transactional, 1), "written with the end: exactly once"

        bodies = ledger.bodies()
        crowds = {key: most_at_once(body for body in bodies if body.key == key) for key in KEYS}
        assert max(crowds.values()) <= AT_ONCE, crowds
        # Otherwise the kills have hit nothing, and nothing has been tested.
        assert ledger.count("lost")
        assert len(fleet.killed) > NODES
        with capsys.disabled():
            print(figures(fleet, cluster, ledger, seconds))  # noqa: T201 - what `make chaos` is run for


def waiting(server: Server) -> bool:
    return bool(server.sql("SELECT 1 FROM mainspring.jobs LIMIT 1"))


def effects(server: Server) -> Counter[str]:
    return Counter(job for (job,) in server.sql("SELECT job FROM effects"))


def figures(fleet: Fleet, cluster: Cluster, ledger: Ledger, seconds: float) -> str:
    attempts = sum(len(executions) for executions in ledger.started.values())
    faults = ", ".join(f"{count} × {fault}" for fault, count in sorted(cluster.faults.items()))
    return (
        f"\n{JOBS:,} jobs in {seconds:.0f} s, {attempts:,} attempts; {len(fleet.killed)} nodes killed; of the server: "
        f"{faults}; {ledger.count('lost')} attempts lost, {ledger.count('given_back')} given back, "
        f"{ledger.count('will_retry')} raised (seed {SEED})"
    )


@dataclass
class Torment:
    """What happens to the nodes and to their server, in the order of a plan that chance has made."""

    fleet: Fleet
    cluster: Cluster
    chance: random.Random
    nodes: list[Program] = field(default_factory=list)
    started: int = 0

    def run(self) -> None:
        self.nodes = self.fleet.running[:1]
        while len(self.nodes) < NODES:
            self.nodes.append(self.new_node())
        self.kill_one_at_work()
        began = time.monotonic()
        for at, happens in self.plan():
            time.sleep(max(0.0, began + at - time.monotonic()))
            happens()

    def plan(self) -> list[tuple[float, Happening]]:
        """Spread the faults of the server evenly, the failover in the middle; kills and cuts come at any time."""
        ways: list[How] = [how for _ in range(ROUNDS) for how in get_args(How)]
        before = self.chance.sample(ways, len(ways))
        after = self.chance.choices(ways, k=2)
        faults: list[Happening] = [partial(self.trouble, how) for how in (*before, *after)]
        faults.insert(len(before), self.cluster.fail_over)
        step = SECONDS / (len(faults) + 1)
        plan = [(step * (number + self.chance.uniform(0.7, 1.3)), fault) for number, fault in enumerate(faults)]
        plan += self.at_any_time(self.kill, BETWEEN_KILLS)
        plan += self.at_any_time(self.cut, BETWEEN_CUTS)
        return sorted(plan, key=lambda one: one[0])

    def at_any_time(self, happening: Happening, between: float) -> list[tuple[float, Happening]]:
        """Choose instants that are so many seconds apart on average."""
        found = []
        at = 0.0
        while (at := at + self.chance.expovariate(1 / between)) < SECONDS:
            found.append((at, happening))
        return found

    def cut(self) -> None:
        """Cut all connections, with answers on their way or without."""
        self.cluster.cut(after=self.chance.choice([0.0, 0.01, 0.1]))

    def trouble(self, how: How) -> None:
        """Have the server away for a while, longer than a statement may take or not; now and then a node dies then."""
        with self.cluster.away(how):
            time.sleep(self.chance.uniform(0.0, 3.0 if how in {"freeze", "stall"} else 1.0))
            if self.chance.random() < 0.3:
                self.kill()

    def kill(self) -> None:
        """Kill a node, or all at once, and start others in their place."""
        everybody = self.chance.random() < 0.05
        victims = [place for place in range(NODES) if everybody] or [self.chance.randrange(NODES)]
        for place in victims:
            self.fleet.kill(self.nodes[place])
        time.sleep(self.chance.choice([0.0, 0.0, 0.3]))
        for place in victims:
            self.nodes[place] = self.new_node()

    def kill_one_at_work(self) -> None:
        """Have one kill at least hit something."""
        node, *others = self.nodes
        self.fleet.kill_at_work(node)
        self.nodes = [self.new_node(), *others]

    def new_node(self) -> Program:
        """Start one, on this machine or as if it were on another: then nobody sees that it has died."""
        self.started += 1
        elsewhere = {"host": f"machine-{self.started}"} if self.chance.random() < 0.5 else {}
        return self.fleet.start("work", lease=LEASE, **elsewhere)
