"""Four workers on one file, killed with -9 at random moments, and the program that enqueues with them.

With MAINSPRING_TESTS=full it runs for a minute. MAINSPRING_SEED, which a failure prints, decides when processes are
killed; the rest depends on the machine.
"""

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from mainspring.core.job import State
from mainspring.core.machine import Event
from tests.chaos.fleet import Fleet, Program, effects, is_sound, make_effects
from tests.tier import FULL, SEED

SECONDS = 60.0 if FULL else 6.0
JOBS = 40_000 if FULL else 6_000
WORKERS = 4


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_no_job_is_lost_or_ended_twice_while_workers_are_killed_at_random(tmp_path: Path) -> None:
    print(f"MAINSPRING_SEED={SEED}")  # noqa: T201 - pytest shows it with a failure
    make_effects(tmp_path)
    with Fleet(tmp_path) as fleet:
        fleet.enqueue("work", [0.02] * (JOBS // 4))  # a backlog to begin with: more than all places are taken
        torment(fleet, random.Random(SEED))  # noqa: S311 - chance, no secret
        missing = JOBS - JOBS // 4 - len(fleet.lines("enqueued"))
        fleet.enqueue("work", [0.0] * max(0, missing))  # what a busy machine did not come to
        fleet.wait_until_done(limit=150)
        assert [fleet.end(program) for program in fleet.running] == [0] * WORKERS, fleet.errors()
        ledger = fleet.ledger()
        jobs = {str(view.job.id): view for view in fleet.jobs()}

        assert is_sound(tmp_path)
        assert len(jobs) >= JOBS
        assert ledger.enqueued
        assert not ledger.enqueued - set(jobs), "acknowledged, and not there"
        assert Counter(view.job.state for view in jobs.values()) == {State.SUCCEEDED: len(jobs)}

        transactional = {job for job, view in jobs.items() if view.job.task.local == "effect"}
        assert effects(tmp_path) == dict.fromkeys(transactional, 1), "written together with the end: exactly once"

        assert not set(jobs) - set(ledger.started), "succeeded, and never ran"
        assert not ledger.leases_started_twice()
        assert not ledger.successes_told_twice()
        assert not ledger.started_after_success()
        assert not ledger.unexplained(), "taken from a worker that was alive"
        unlike = {job for job, view in jobs.items() if view.job.lease != ledger.started[job][-1].lease}
        assert not unlike, "succeeded under another lease than the one it ran under last"

        again = ledger.executed_twice
        attempts = fleet.attempts([jobs[job].job.id for job in again])
        for job, executions in again.items():
            lost = {one.lease for one in attempts[jobs[job].job.id] if one.event is Event.LOST}
            assert {line.lease for line in executions[:-1]} <= lost, f"{job}: an execution whose end is not recorded"

        # Otherwise the kills have hit nothing, and nothing has been tested.
        assert again


def torment(fleet: Fleet, chance: random.Random) -> None:
    """Keep workers and a producer running, and killing them, until time is up."""
    producing = {"rate": JOBS / SECONDS}
    began = time.monotonic()
    programs = [fleet.start("produce", **producing), *fleet.start_ready(WORKERS)]
    # As often as leaves each of five programs two starts' worth of life on average; a busy machine starts them slowly.
    between = min(2.0, max(0.3, 0.4 * (time.monotonic() - began)))
    fleet.kill_at_work(programs[1])
    programs[1] = restarted(fleet, programs[1], producing)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        time.sleep(chance.expovariate(1 / between))
        everybody = chance.random() < 0.05
        victims = [place for place in range(len(programs)) if everybody] or [chance.randrange(len(programs))]
        for place in victims:
            fleet.kill(programs[place])
        time.sleep(chance.choice([0, 0, 0.2]))
        for place in victims:
            programs[place] = restarted(fleet, programs[place], producing)
    fleet.kill(programs[0])


def restarted(fleet: Fleet, program: Program, producing: dict[str, float]) -> Program:
    return fleet.start("produce", **producing) if program.kind == "produce" else fleet.start("work")
