"""A real process that writes, killed with -9 at any moment: what it said was answered is there, once."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from uuid import UUID

import pytest

from mainspring.stores.records import JobFilter, RunFilter
from mainspring.testing import VirtualTime
from tests.sidecar.opened import Place

ROUNDS = 6


@pytest.mark.slow
def test_whatever_was_answered_outlives_a_kill(tmp_path: Path, virtual_time: VirtualTime) -> None:
    dice = random.Random(11)  # noqa: S311 -- no secret
    answered: set[str] = set()
    for number in range(ROUNDS):
        command = [sys.executable, "-m", "tests.sidecar.writing_worker", str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as worker:
            assert worker.stdout
            said = [worker.stdout.readline().strip()]
            time.sleep(dice.uniform(0.01, 0.4))
            worker.kill()
            said += worker.stdout.read().split()
        answered.update(one for one in said if len(one) == 36)
        content = json.loads((tmp_path / "_system" / "background_jobs.json").read_bytes())
        there = {entry["id"] for entry in content["runs"]}
        assert answered <= there
        assert len(there) <= len(answered) + number + 1  # of each round, one more may have been written

    async def look() -> None:
        place = Place(tmp_path)
        async with place.world() as world:  # the lock has gone with the process
            runs = (await world.store.runs(RunFilter(), limit=100_000)).runs
            jobs = (await world.store.list_jobs(JobFilter(), limit=100_000)).jobs
            assert {UUID(one) for one in answered} <= {run.id for run in runs}
            assert sorted(run.id for run in runs) == sorted(view.job.id for view in jobs)

    virtual_time.run(look())
