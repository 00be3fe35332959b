"""Five nodes that tick for one every-second schedule, killed with -9 at random moments, now and then all at once.

Every slot must come to exactly one run and one job, and none may be missing, whoever was down when it came up. Beside it
goes a schedule that counts from the end of each run: if such an end were not noticed, it would stand still for good.

With MAINSPRING_TESTS=full it runs for a minute. MAINSPRING_SEED, which a failure prints, decides when processes are
killed; the rest depends on the machine.
"""

import random
import time
from collections import Counter
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from mainspring import Every, Mainspring, Missed
from mainspring.core.job import State
from mainspring.core.names import Name
from mainspring.core.schedule import Run, Schedule
from mainspring.stores.records import RunFilter
from tests.chaos.fleet import Fleet, is_sound
from tests.tier import FULL, SEED

SECONDS = 60.0 if FULL else 8.0
NODES = 5
SECOND = timedelta(seconds=1)
OFTEN, AFTER = "often", "after-the-end"
BREAK = timedelta(milliseconds=200)
"""From the end of a run of the second schedule to the next."""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_slot_makes_one_job_while_nodes_are_killed_at_random(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Fleet(tmp_path) as fleet:
        story = every_slot_makes_one_job(fleet)
        assert is_sound(tmp_path)
    with capsys.disabled():
        print(story)  # noqa: T201 - what `make chaos` is run for


def every_slot_makes_one_job(fleet: Fleet) -> str:
    """Have it all happen, and look; returns what there is to tell."""
    print(f"MAINSPRING_SEED={SEED}")  # noqa: T201 - pytest shows it with a failure
    began = time.monotonic()
    fleet.start_ready(NODES)
    # As often as leaves each node two starts' worth of life on average; a busy machine starts them slowly.
    between = min(2.0, max(0.3, 0.4 * (time.monotonic() - began)))
    fleet.ask(add)
    torment(fleet, random.Random(SEED), between)  # noqa: S311 - chance, no secret
    before = fleet.ask(lambda app: runs_of(app, AFTER))
    fleet.wait_for(
        lambda: len(fleet.ask(lambda app: runs_of(app, AFTER))) > len(before) + 5, "runs after the last kill", every=0.5
    )
    schedules = fleet.ask(pause)
    fleet.wait_until_done(limit=120)
    assert [fleet.end(program) for program in fleet.running] == [0] * NODES, fleet.errors()
    often = fleet.ask(lambda app: runs_of(app, OFTEN))
    after = fleet.ask(lambda app: runs_of(app, AFTER))

    check_slots(schedules[OFTEN], often)
    check_breaks(after)
    check_jobs(fleet, [*often, *after])
    # Otherwise the kills have hit nothing, and nothing has been tested.
    assert len(fleet.killed) >= NODES
    late = [run for run in often if run.slot and run.decided_at - run.slot > SECOND]
    assert late, "somebody was there for every slot"
    return (
        f"\n{len(often)} slots and {len(after)} runs after the end of others, {len(fleet.killed)} nodes killed; "
        f"{len(late)} slots were decided late, by {max(run.decided_at - run.slot for run in late if run.slot)} at most "
        f"(seed {SEED})"
    )


async def add(app: Mainspring) -> None:
    work = app.find("work")
    all_of_them = Missed.all(limit=100_000, per_tick=100_000, grace="1d")
    await app.schedules.add(OFTEN, Every(SECOND), work.call(0.02), missed=all_of_them)
    await app.schedules.add(AFTER, Every(BREAK, after_end=True), work.call(0.05))


async def pause(app: Mainspring) -> dict[str, Schedule]:
    return {name: await app.schedules.pause(name) for name in (OFTEN, AFTER)}


def torment(fleet: Fleet, chance: random.Random, between: float) -> None:
    """Kill nodes and start others in their place until time is up; once nobody is there for some slots."""
    began = time.monotonic()
    nodes = list(fleet.running)
    blackout = SECONDS * chance.uniform(0.3, 0.7)
    while (passed := time.monotonic() - began) < SECONDS or blackout < SECONDS:
        time.sleep(chance.expovariate(1 / between))
        everybody = passed > blackout or chance.random() < 0.05
        victims = list(range(NODES)) if everybody else [chance.randrange(NODES)]
        for place in victims:
            fleet.kill(nodes[place])
        if passed > blackout:
            blackout = SECONDS
            time.sleep(3.0)
        for place in victims:
            nodes[place] = fleet.start("work")


async def runs_of(app: Mainspring, name: str) -> list[Run]:
    """Read all runs of a schedule, by their slots."""
    which = RunFilter(schedule=Name.parse(name))
    page = await app.store.runs(which, limit=1000)
    found = list(page.runs)
    while page.after is not None:
        page = await app.store.runs(which, limit=1000, after=page.after)
        found += page.runs
    return sorted(found, key=lambda run: run.slot or run.decided_at)


def check_slots(schedule: Schedule, runs: list[Run]) -> None:
    """Hold the runs against the seconds that there were."""
    decided = (schedule.cursor - schedule.created_at) // SECOND
    assert decided >= SECONDS, "it stood still"
    assert [run.slot for run in runs] == [schedule.created_at + n * SECOND for n in range(1, decided + 1)]
    assert Counter(run.reason for run in runs) == {None: decided}
    assert schedule.runs == decided


def check_breaks(runs: list[Run]) -> None:
    """Each began so long after the one before it had ended, and not before."""
    assert len(runs) > SECONDS / 4, "it stood still"
    made = [run for run in runs if run.job]
    for one, following in pairwise(made):
        assert one.finished_at
        assert following.slot
        assert following.slot - one.finished_at >= BREAK
    assert {run.slot is None for run in made} == {False}


def check_jobs(fleet: Fleet, runs: list[Run]) -> None:
    """Hold the runs against their jobs, and against what the nodes have written down."""
    jobs = {view.job.id: view for view in fleet.jobs()}
    made = {run.job: run for run in runs if run.job}
    assert set(jobs) == set(made)
    assert Counter(view.job.state for view in jobs.values()) == {State.SUCCEEDED: len(jobs)}
    for job, run in made.items():
        assert (run.state, run.finished_at) == (State.SUCCEEDED, jobs[job].job.finished_at)
        slot = jobs[job].facts.slot
        assert slot
        assert (slot.schedule, slot.slot) == (str(run.schedule), run.slot)
    ledger = fleet.ledger()
    assert not {str(job) for job in jobs} - set(ledger.started), "succeeded, and never ran"
    assert not ledger.leases_started_twice()
    assert not ledger.successes_told_twice()
    assert not ledger.unexplained(), "taken from a node that was alive"
