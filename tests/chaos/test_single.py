"""Singletons among real processes on one SQLite file, which are killed, stopped and cut off from their store."""

import random
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.chaos.fleet import PATIENCE, Fleet, Program, write_lock, write_lock_is_free
from tests.chaos.ledger import Line, lines_of
from tests.tier import SEED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
SECOND = 1_000_000_000
CHANGES = 6
BUSY = 4
"""Seconds that a machine may take on top, which is busy with other things."""


class Singles(Fleet):
    """Workers of the singleton `sweep`."""

    def start(self, kind: str = "single", **options: object) -> Program:
        name = f"s{len(self._programs)}"
        command = [sys.executable, "-m", "tests.chaos.single_worker", str(self.folder), name, "--url", self.url]
        for option, value in options.items():
            command += [f"--{option}", str(value)]
        with (self.folder / f"{name}.err").open("wb") as errors:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors, cwd=ROOT)
        program = Program(name, kind, process)
        self._programs.append(program)
        return program

    def steps(self, program: Program | None = None) -> list[Line]:
        found = [line for line in lines_of(self.folder) if line.event == "step"]
        return [line for line in found if program is None or line.program == program.name]

    def elected(self, *programs: Program, since: int = 0) -> Program:
        """Wait until one of these runs the singleton; returns which."""
        names = {program.name: program for program in programs}
        found: list[Line] = []

        def one_runs() -> bool:
            found[:] = [line for line in self.steps() if line.program in names and line.at > since]
            return bool(found)

        self.wait_for(one_runs, f"one of {', '.join(names)} to run the singleton")
        return names[found[-1].program]

    def holder_and_standby(self, **options: object) -> tuple[Program, Program]:
        programs = self.start_ready(2, **options)
        holder = self.elected(*programs)
        (standby,) = [program for program in programs if program is not holder]
        return holder, standby


def terms_never_fall(lines: list[Line]) -> bool:
    by_time = sorted(lines, key=lambda line: line.at)
    return all(one.lease <= following.lease for one, following in pairwise(by_time))


def overlaps(fleet: Fleet) -> list[tuple[Line, Line]]:
    """Find steps that began while another program was in the middle of one that it went on with."""
    lines = sorted(lines_of(fleet.folder), key=lambda line: line.at)
    open_steps: dict[str, Line] = {}
    found = []
    for line in lines:
        if line.event == "end":
            open_steps.pop(line.program, None)
        elif line.event == "step":
            killed = {name for name, at in fleet.killed.items() if at < line.at}
            found += [(one, line) for name, one in open_steps.items() if name not in killed]
            open_steps[line.program] = line
    return found


@pytest.mark.parametrize("apart", [False, True], ids=["one machine", "two machines"])
def test_after_kill_9_a_standby_runs_it_within_the_ttl_and_two_seconds(tmp_path: Path, apart: bool) -> None:
    ttl = 8.0  # longer than it takes to notice a death, and shorter than the node's own lease
    with Singles(tmp_path) as fleet:
        programs = [
            fleet.start(ttl=f"{ttl}s", **({"host": f"machine-{number}"} if apart else {})) for number in range(3)
        ]
        fleet.wait_for(lambda: len(fleet.lines("ready")) == 3, "the workers to be ready")
        holder = fleet.elected(*programs)
        time.sleep(1)
        fleet.kill(holder)
        killed = fleet.killed[holder.name]
        others = [program for program in programs if program is not holder]
        fleet.elected(*others, since=killed)
        first = min(line.at for line in fleet.steps() if line.program != holder.name)

        assert first - killed <= (ttl + 2 + BUSY) * SECOND
        assert len({line.program for line in fleet.steps() if line.at > killed}) == 1
        assert terms_never_fall(fleet.steps())


def test_when_the_holder_ends_in_good_order_a_standby_runs_it_at_once(tmp_path: Path) -> None:
    with Singles(tmp_path) as fleet:
        holder, standby = fleet.holder_and_standby(ttl="1h")  # it asks every 20 min if nobody tells it
        time.sleep(1.5)
        assert not fleet.steps(standby)
        told = time.monotonic_ns()
        assert fleet.end(holder) == 0, fleet.errors()
        fleet.elected(standby)

        took = fleet.steps(standby)[0].at - told
        assert took <= 60 * SECOND
        assert fleet.steps(standby)[0].lease > fleet.steps(holder)[-1].lease
        assert not overlaps(fleet)


def test_a_holder_that_stood_still_for_longer_than_the_ttl_runs_no_step_before_it_has_noticed(tmp_path: Path) -> None:
    with Singles(tmp_path) as fleet:
        holder, standby = fleet.holder_and_standby(ttl="5s")
        holder = stop_between_writes(fleet, holder)
        fleet.elected(standby)
        theirs = fleet.steps(standby)[0]
        time.sleep(1)
        holder.go_on()
        awake = time.monotonic_ns()
        time.sleep(3)

        assert not [line for line in fleet.steps(holder) if line.at > theirs.at]
        assert terms_never_fall(fleet.steps())
        assert fleet.end(standby) == 0, fleet.errors()
        assert fleet.elected(holder, since=awake) is holder, "it stands for election again"
        assert terms_never_fall(fleet.steps())
        assert len({line.lease for line in fleet.steps()}) == 3


def stop_between_writes(fleet: Singles, program: Program) -> Program:
    """Stop a program that is not writing: with the write lock in its hands it would stop all the others too."""
    while True:
        program.stop()
        if write_lock_is_free(fleet.folder):
            return program
        program.go_on()
        time.sleep(0.05)


def test_while_the_store_cannot_be_written_nobody_runs_it_and_one_does_afterwards(tmp_path: Path) -> None:
    ttl = 4.0
    with Singles(tmp_path) as fleet:
        fleet.holder_and_standby(ttl=f"{ttl}s")
        with write_lock(tmp_path):
            locked = time.monotonic_ns()
            time.sleep(3 * ttl)
            freed = time.monotonic_ns()
        fleet.wait_for(lambda: any(line.at > freed for line in fleet.steps()), "it to be run again")
        time.sleep(1)

        during = [line for line in fleet.steps() if locked < line.at < freed]
        assert max((line.at for line in during), default=0) - locked <= ttl * SECOND
        assert len({line.program for line in fleet.steps() if line.at > freed}) == 1
        assert terms_never_fall(fleet.steps())
        assert not overlaps(fleet)


def test_whoever_is_killed_stopped_or_ended_terms_never_fall(tmp_path: Path) -> None:
    chance = random.Random(SEED)  # noqa: S311 - chance, no secret
    with Singles(tmp_path) as fleet:
        programs = fleet.start_ready(3, ttl="1s")
        until = time.monotonic() + PATIENCE
        while len({line.lease for line in fleet.steps()}) < CHANGES and time.monotonic() < until:
            time.sleep(chance.uniform(0.1, 0.5))
            torment(fleet, programs, chance)
        fleet.elected(*programs, since=time.monotonic_ns())
        steps = fleet.steps()

    assert terms_never_fall(steps)
    assert len({line.lease for line in steps}) >= CHANGES
    assert len({(line.lease, line.program) for line in steps}) == len({line.lease for line in steps}), (
        "two programs under one term"
    )


def torment(fleet: Singles, programs: list[Program], chance: random.Random) -> None:
    """Do something to the holder, as a rule, or to somebody else."""
    holder = fleet.steps()[-1].program
    place = next((at for at, one in enumerate(programs) if one.name == holder), 0)
    if chance.random() < 0.2:
        place = chance.randrange(len(programs))
    match chance.randrange(3):
        case 0:
            fleet.kill(programs[place])
        case 1:
            assert fleet.end(programs[place]) == 0, fleet.errors()
        case _:
            stop_between_writes(fleet, programs[place])
            time.sleep(chance.uniform(0.5, 2))
            programs[place].go_on()
            return
    (programs[place],) = fleet.start_ready(1, ttl="1s")
