"""What may befall workers beside being killed: standing still, a store that cannot be written, a job that kills them,
and an orderly end in the middle of everything.
"""

import time
from collections import Counter
from pathlib import Path

import pytest

from mainspring.core.job import Cause, State
from tests.chaos.fleet import Fleet, Program, write_lock, write_lock_is_free

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

LEASE = 4.0  # longer than a busy machine may hold a process up


def test_a_worker_that_stood_still_for_longer_than_its_lease_cannot_end_its_jobs(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        sleeper, other = fleet.start_ready(2, lease=f"{LEASE}s", concurrency=4)
        jobs, held = stop_amid_work(fleet, sleeper)
        fleet.killed[sleeper.name] = time.monotonic_ns()  # as good as killed, for what it held
        fleet.wait_for(lambda: held <= jobs_started_by(fleet, other), "the other worker to take over")
        sleeper.go_on()
        awake = time.monotonic_ns()
        jobs += fleet.enqueue("work", [0.1] * 40)
        fleet.wait_until_done()
        assert [fleet.end(program) for program in (sleeper, other)] == [0, 0], fleet.errors()
        ledger = fleet.ledger()
        views = {str(view.job.id): view for view in fleet.jobs()}

    assert {views[job].job.state for job in jobs} == {State.SUCCEEDED}
    assert {job: len(ledger.succeeded[job]) for job in jobs} == dict.fromkeys(jobs, 1)
    assert {ledger.succeeded[job][0].program for job in held} == {other.name}
    assert held <= set(ledger.executed_twice)
    assert not ledger.unexplained(), "taken from a worker that was awake"
    assert any(line.program == sleeper.name and line.at > awake for job in jobs for line in ledger.started[job]), (
        "it did not come back"
    )


def test_what_a_worker_was_about_to_settle_when_it_was_stopped_is_refused_later(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        sleeper, other = fleet.start_ready(2, lease=f"{LEASE}s", concurrency=4)
        jobs = fleet.enqueue("work", [1.0] * 8)
        fleet.wait_for(lambda: len(fleet.lines("started")) == 8, "every place to be taken")
        held = fleet.held_by(sleeper)
        with write_lock(tmp_path):  # nobody can settle
            fleet.wait_for(lambda: len(fleet.lines("returned")) == 8, "all handlers to return")
            time.sleep(0.3)  # from the last line of a handler to the line for the lock is a short way
            sleeper.stop()
        fleet.killed[sleeper.name] = time.monotonic_ns()
        fleet.wait_for(lambda: held <= jobs_started_by(fleet, other), "the other worker to take over")
        sleeper.go_on()
        fleet.wait_until_done()
        assert [fleet.end(program) for program in (sleeper, other)] == [0, 0], fleet.errors()
        ledger = fleet.ledger()

    assert len(held) == 4
    assert set(ledger.executed_twice) == held
    assert {job: len(ledger.succeeded[job]) for job in jobs} == dict.fromkeys(jobs, 1)
    assert {line.program for job in jobs for line in ledger.succeeded[job]} == {other.name}
    assert {line.program: line.lease for line in ledger.lines if line.event == "refused"} == {
        sleeper.name: 4,
        other.name: 0,
    }


def stop_amid_work(fleet: Fleet, program: Program) -> tuple[list[str], set[str]]:
    """Stop a worker that runs something and is not writing; returns all jobs there are, and those that it holds."""
    jobs: list[str] = []
    while True:
        jobs += fleet.enqueue("work", [0.5] * 16)
        fleet.wait_for(lambda: bool(fleet.held_by(program)), f"{program.name} to be at work")
        program.stop()
        # One that was stopped with the write lock in its hands stops all others too: an outage, and no lost worker.
        if write_lock_is_free(fleet.folder) and (held := fleet.held_by(program)):
            return jobs, held
        program.go_on()


def jobs_started_by(fleet: Fleet, program: Program) -> set[str]:
    return {line.job for line in fleet.lines("started") if line.program == program.name}


def test_nobody_loses_a_lease_while_the_store_cannot_be_written(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        workers = fleet.start_ready(2, lease=f"{LEASE}s", concurrency=4)
        jobs = fleet.enqueue("work", [0.5] * 60)
        fleet.wait_for(lambda: len(fleet.lines("started")) >= 16, "the workers to be at work")
        with write_lock(tmp_path):
            time.sleep(3 * LEASE)
        fleet.wait_until_done()
        nodes = fleet.ask(lambda app: app.store.nodes())
        assert [fleet.end(program) for program in workers] == [0, 0], fleet.errors()
        ledger = fleet.ledger()
        views = fleet.jobs()

    assert Counter(view.job.state for view in views) == {State.SUCCEEDED: len(jobs)}
    # One that was claimed ahead and had to wait too long went back untouched: another lease, and no other attempt.
    assert {(view.job.attempt, view.job.losses) for view in views} == {(1, 0)}
    assert {job: len(ledger.started[job]) for job in jobs} == dict.fromkeys(jobs, 1)
    assert {job: len(ledger.succeeded[job]) for job in jobs} == dict.fromkeys(jobs, 1)
    assert [node.alive for node in nodes] == [True, True], "a node was declared dead, or came back under a new id"


def test_a_job_that_kills_its_workers_ends_as_poison_and_none_of_its_neighbours_does(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        fleet.start_ready(2, concurrency=5)
        neighbours = fleet.enqueue("neighbour", [0.5] * 10)
        (poison,) = fleet.enqueue("poison", [0.1])
        neighbours += fleet.enqueue("neighbour", [0.5] * 90)

        def all_done() -> bool:
            while len(fleet.running) < 2:
                fleet.start("work", concurrency=5)
            return not fleet.ask(lambda app: app.store.queues())

        fleet.wait_for(all_done, "everything to come to an end")
        ledger = fleet.ledger()
        views = {str(view.job.id): view for view in fleet.jobs()}

    bad = views[poison].job
    assert (bad.state, bad.cause, bad.losses) == (State.FAILED, Cause.POISON, 3)
    assert len(ledger.started[poison]) == 3
    assert {views[job].job.state for job in neighbours} == {State.SUCCEEDED}
    executions = Counter(len(ledger.started[job]) for job in neighbours)
    assert set(executions) - {1}, "none was lost with it, so that nothing was tested"
    assert max(executions) <= 3, "who was lost twice has its last chance without it"
    assert not ledger.successes_told_twice()


def test_a_worker_that_is_asked_to_end_finishes_what_it_runs_and_leaves_the_rest_to_others(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        first, second = fleet.start_ready(2, concurrency=5)
        jobs = fleet.enqueue("neighbour", [0.02] * 1000)  # so short that many are claimed ahead
        fleet.wait_for(lambda: len(jobs_started_by(fleet, first)) >= 100, "the first worker to be at work")
        assert fleet.end(first) == 0, fleet.errors()
        left = len(jobs) - len(fleet.lines("succeeded"))
        fleet.wait_until_done()
        assert fleet.end(second) == 0, fleet.errors()
        ledger = fleet.ledger()
        views = fleet.jobs()

    assert left > 0, "there was nothing left to leave to others"
    assert Counter(view.job.state for view in views) == {State.SUCCEEDED: len(jobs)}
    assert {job: len(ledger.started[job]) for job in jobs} == dict.fromkeys(jobs, 1)
    assert {job: len(ledger.succeeded[job]) for job in jobs} == dict.fromkeys(jobs, 1)
    assert {(view.job.attempt, view.job.losses) for view in views} == {(1, 0)}


def test_what_takes_longer_than_the_grace_time_is_given_back_unharmed(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        (worker,) = fleet.start_ready(1, concurrency=5, grace="200ms")
        jobs = fleet.enqueue("neighbour", [600] * 8)
        fleet.wait_for(lambda: len(fleet.lines("started")) == 5, "every place to be taken")
        assert fleet.end(worker) == 0, fleet.errors()
        views = fleet.jobs()

    assert len(views) == len(jobs)
    assert {(view.job.state, view.job.attempt, view.job.losses) for view in views} == {(State.READY, 0, 0)}
