"""Nodes that are cut off from the server again and again, for less than their lease time or for more, while others are not.

What was on its way arrives when the network heals: claims, ends and renewals of nodes that have been declared dead
meanwhile. With MAINSPRING_TESTS=full it runs for a minute.
"""

import random
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from mainspring.core.job import State
from tests.chaos.fleet import Fleet
from tests.chaos.ledger import most_at_once
from tests.chaos.worker import AT_ONCE, KEYS
from tests.servers.postgres import Server
from tests.servers.wire import Wire
from tests.tier import FULL, SEED

SECONDS = 60.0 if FULL else 8.0
JOBS = 15_000 if FULL else 1_000
LEASE = 3.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_nodes_that_are_cut_off_for_longer_than_their_lease_lose_no_job_and_run_none_twice_at_a_time(
    own_postgres: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print(f"MAINSPRING_SEED={SEED}")  # noqa: T201 - pytest shows it with a failure
    chance = random.Random(SEED)  # noqa: S311 - no secret
    with ExitStack() as ends:
        options = f"?timeout=1s&schema={ends.enter_context(own_postgres.schema())}"
        own_postgres.sql("CREATE TABLE effects (job text NOT NULL)")
        ends.callback(own_postgres.sql, "DROP TABLE effects")
        fleet = ends.enter_context(Fleet(tmp_path, own_postgres.dsn() + options))
        wires = [ends.enter_context(Wire.to(own_postgres)) for _ in range(2)]
        nodes = fleet.start_ready(1, lease=f"{LEASE}s")
        for wire in wires:
            nodes += fleet.start_ready(1, lease=f"{LEASE}s", url=wire.dsn() + options)
        producer = fleet.start("mix", count=JOBS, rate=JOBS / SECONDS)

        was_long = False  # one cut at least outlasts the lease
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            hung = chance.sample(wires, chance.choice([1, 1, 2]))
            for wire in hung:
                wire.hang(answers_only=chance.random() < 0.3)
            time.sleep(chance.uniform(0.5, 2 * LEASE) if was_long else 2 * LEASE)
            was_long = True
            for wire in hung:
                wire.heal()
            time.sleep(chance.uniform(0.0, 1.0))
        fleet.wait_for(lambda: not producer.runs, "everything to be enqueued", every=0.2)
        # Nothing is left to a sweep that comes twice a minute.
        fleet.wait_until_done(limit=LEASE + 20.0)
        assert [fleet.end(node) for node in nodes] == [0, 0, 0], fleet.errors()
        ledger = fleet.ledger()
        jobs = {str(view.job.id): view for view in fleet.jobs()}
        effects = Counter(job for (job,) in own_postgres.sql("SELECT job FROM effects"))
        died = sum(said.read_text().count("goes on under a new id") for said in tmp_path.glob("*.err"))

    assert set(jobs) == ledger.enqueued
    assert Counter(view.job.state for view in jobs.values()) == {State.SUCCEEDED: JOBS}
    assert not ledger.leases_started_twice()
    assert not ledger.successes_told_twice()
    assert not ledger.ends_told_twice()
    assert not ledger.started_after_success()
    # A machine with too much to do may hold a process up just then: for a moment, not for as long as a body takes.
    overlaps = [
        (min(one.ended, other.ended) - max(one.began, other.began)) / 1e9 for one, other in ledger.running_twice()
    ]
    assert max(overlaps, default=0.0) < 1.0, f"stopped too late: {overlaps}"
    assert effects == dict.fromkeys((job for job, view in jobs.items() if view.job.task.local == "effect"), 1)
    bodies = ledger.bodies()
    crowds = {key: most_at_once(body for body in bodies if body.key == key) for key in KEYS}
    assert max(crowds.values()) <= AT_ONCE, crowds
    assert died, "nobody was cut off for long enough, so that nothing was tested"
    with capsys.disabled():
        print(  # noqa: T201 - what `make chaos` is run for
            f"\n{JOBS:,} jobs, {len(bodies):,} attempts; nodes were declared dead and came back {died} times; "
            f"{ledger.count('lost')} attempts lost, {ledger.count('given_back')} given back (seed {SEED})"
        )
