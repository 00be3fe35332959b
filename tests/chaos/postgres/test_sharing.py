"""What holds over all nodes and all who enqueue, with real processes: limits, and jobs of which there is one at a time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring.core.job import State
from tests.chaos.fleet import Fleet
from tests.chaos.ledger import most_at_once
from tests.chaos.worker import AT_ONCE, KEYS, TOGETHER
from tests.servers.postgres import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

NODES = 3
CLIENTS = 8
CROWD = "SELECT unique_key, count(*) FROM {schema}.jobs GROUP BY unique_key HAVING count(*) > 1"


@pytest.fixture
def fleet(own_postgres: Server, tmp_path: Path) -> Iterator[Fleet]:
    with own_postgres.schema() as schema, Fleet(tmp_path, f"{own_postgres.dsn()}?schema={schema}") as fleet:
        yield fleet


@pytest.mark.full
def test_no_more_jobs_of_a_task_run_than_its_limit_says_over_all_nodes(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = fleet.start_ready(
        NODES, concurrency=2
    )  # so that all are needed: a node with room keeps the places it frees
    jobs = fleet.enqueue("few", [0.02] * 400)
    fleet.wait_until_done()
    assert [fleet.end(node) for node in nodes] == [0] * NODES, fleet.errors()
    bodies = fleet.ledger().bodies()

    assert sorted(body.job for body in bodies) == sorted(jobs), "run once each"
    assert most_at_once(bodies) == TOGETHER
    assert len({body.program for body in bodies}) == NODES, "all of them had a share"
    with capsys.disabled():
        seconds = (max(body.ended for body in bodies) - min(body.began for body in bodies)) / 1e9
        least = 400 * 0.02 / TOGETHER
        print(f"\n400 jobs of 20 ms, {TOGETHER} at a time over {NODES} nodes: {seconds:.2f} s of {least:.2f} s at best")  # noqa: T201


def test_no_more_jobs_of_a_key_run_than_its_limit_says_over_all_nodes(fleet: Fleet) -> None:
    nodes = fleet.start_ready(NODES)
    producers = [fleet.start("keyed", count=50) for _ in range(4)]
    fleet.wait_for(lambda: not any(one.runs for one in producers), "everything to be enqueued")
    fleet.wait_until_done()
    assert [fleet.end(node) for node in nodes] == [0] * NODES, fleet.errors()
    bodies = fleet.ledger().bodies()

    assert len(bodies) == len({body.job for body in bodies}) == 200
    assert {key: most_at_once(body for body in bodies if body.key == key) for key in KEYS} == dict.fromkeys(
        KEYS, AT_ONCE
    )


@pytest.mark.full
def test_of_many_processes_that_enqueue_the_same_unique_job_one_does(fleet: Fleet) -> None:
    fleet.ask(lambda app: app.store.queues())  # makes the tables
    clients = [fleet.start("unique", count=40) for _ in range(CLIENTS)]
    fleet.wait_for(lambda: not any(one.runs for one in clients), "all to have enqueued")
    assert [one.process.returncode for one in clients] == [0] * CLIENTS, fleet.errors()
    fresh, there = fleet.lines("fresh"), fleet.lines("there")
    views = fleet.jobs()

    assert len(views) == len(fresh) == len(KEYS)
    assert len(there) == 40 * CLIENTS - len(KEYS)
    assert {line.job for line in there} == {line.job for line in fresh}, "all were told of the one that is there"


@pytest.mark.full
def test_a_unique_job_is_never_there_twice_while_nodes_work_them_off(fleet: Fleet, own_postgres: Server) -> None:
    schema = fleet.url.rpartition("=")[2]
    crowds: list[object] = []
    nodes = fleet.start_ready(2)
    clients = [fleet.start("unique", count=200) for _ in range(CLIENTS)]

    def all_enqueued() -> bool:
        crowds.extend(own_postgres.sql(CROWD.format(schema=schema)))
        return not any(one.runs for one in clients)

    fleet.wait_for(all_enqueued, "all to have enqueued")
    fleet.wait_until_done()
    assert [one.process.returncode for one in clients] == [0] * CLIENTS, fleet.errors()
    assert [fleet.end(node) for node in nodes] == [0, 0], fleet.errors()
    ledger = fleet.ledger()
    fresh, there = fleet.lines("fresh"), fleet.lines("there")
    views = fleet.jobs()

    assert not crowds, "two of one key at the same time"
    assert {view.job.state for view in views} == {State.SUCCEEDED}
    assert {str(view.job.id) for view in views} == {line.job for line in fresh}
    assert {line.job for line in there} <= {line.job for line in fresh}
    assert len(fresh) > 2 * len(KEYS), "each key was taken again and again"
    bodies = ledger.bodies()
    assert len(bodies) == len(fresh)
    assert {key: most_at_once(body for body in bodies if body.key == key) for key in KEYS} == dict.fromkeys(KEYS, 1)
