"""How soon the jobs of a killed node run elsewhere, at the default settings."""

import time
from pathlib import Path

import pytest

from mainspring.core.job import claim_count
from mainspring.core.liveness import beat_of
from mainspring.duration import seconds
from mainspring.settings import NodeSettings
from tests.chaos.fleet import Fleet
from tests.servers.postgres import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

LEASE = seconds(NodeSettings().lease)
BEAT = beat_of(LEASE)
JOBS = 12
BUSY = 6.0
"""Seconds that a machine may take on top, which is busy with other things; tests/jobs/test_promises.py gives it none."""


def test_on_the_same_host_a_killed_node_is_noticed_at_once(
    own_postgres: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with own_postgres.schema() as schema, Fleet(tmp_path, f"{own_postgres.dsn()}?schema={schema}") as fleet:
        took = rescued_after(fleet, victim={}, rescuer={})

    told(capsys, "on the same host", took)
    assert max(took) < LEASE - BEAT - BUSY  # nobody has waited for its lease to end


def test_on_another_host_a_killed_node_is_noticed_within_the_lease_time_and_two_seconds(
    own_postgres: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with own_postgres.schema() as schema, Fleet(tmp_path, f"{own_postgres.dsn()}?schema={schema}") as fleet:
        took = rescued_after(fleet, victim={"host": "another-machine"}, rescuer={})

    told(capsys, "on another host", took)
    assert max(took) < LEASE + 2.0 + BUSY
    # It is the silence that was noticed, and its last renewal may be as old as a beat.
    assert min(took) > LEASE - BEAT


def rescued_after(fleet: Fleet, *, victim: dict[str, str], rescuer: dict[str, str]) -> list[float]:
    """Kill a node amid its jobs; returns how many seconds later each began elsewhere."""
    (doomed,) = fleet.start_ready(1, concurrency=JOBS, **victim)
    jobs = set(fleet.enqueue("work", [120.0] * JOBS))
    fleet.wait_for(lambda: len(fleet.lines("started")) == JOBS, "every place to be taken")
    (other,) = fleet.start_ready(1, **rescuer)
    time.sleep(2 * BEAT)  # until it has seen the one that is to die
    fleet.kill(doomed)
    fleet.wait_for(lambda: len(fleet.lines("started")) == 2 * JOBS, "all to begin elsewhere")
    again = [line for line in fleet.lines("started") if line.program == other.name]
    assert {line.job for line in again} == jobs
    assert {claim_count(line.lease) for line in again} == {2}
    return sorted((line.at - fleet.killed[doomed.name]) / 1e9 for line in again)


def told(capsys: pytest.CaptureFixture[str], where: str, took: list[float]) -> None:
    with capsys.disabled():
        print(f"\n{len(took)} jobs of a killed node {where}: elsewhere after {took[0]:.2f} to {took[-1]:.2f} s")  # noqa: T201
