"""Four nodes that deliver outboxes of PostgreSQL, killed with -9 at random moments, while twenty others publish: with
every driver, in transactions that some of them hold for seconds, and that are rolled back now and then.

What must be true of it is said in tests/chaos/test_outbox.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.fleet import Fleet
from tests.chaos.outbox_run import LONGEST, PROGRAM, WAYS, Run, tables
from tests.chaos.outbox_worker import effects_table, written_table
from tests.servers.postgres import Server
from tests.tier import FULL

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def run(own_postgres: Server, tmp_path: Path) -> Iterator[Run]:
    with own_postgres.schema() as schema:
        prefix = f"{schema}_"
        for statement in tables(prefix, "bigserial"):
            own_postgres.sql(statement)
        with Fleet(tmp_path, f"{own_postgres.dsn()}?schema={schema}", program=PROGRAM) as fleet:
            yield Run(fleet=fleet, rows=own_postgres.sql, prefix=prefix, nodes=4, elsewhere=True)
        for table in (written_table(prefix), effects_table(prefix)):
            own_postgres.sql(f"DROP TABLE {table}")


def test_all_that_was_committed_is_delivered_in_order_while_nodes_are_killed(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    story = run.deliver_all(processes=2, writers=10, longest=LONGEST)
    with capsys.disabled():
        print(story)  # noqa: T201 - what `make chaos` is run for


@pytest.mark.parametrize("how", WAYS if FULL else WAYS[3:])
def test_messages_that_end_their_process_become_dead_letters_and_no_others(
    run: Run, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    story = run.end_poison(how)
    with capsys.disabled():
        print(story)  # noqa: T201 - as above
