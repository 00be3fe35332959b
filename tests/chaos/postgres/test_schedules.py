"""Five nodes on PostgreSQL that tick for one every-second schedule, killed with -9 at random moments.

What must be true of it is said in tests/chaos/test_schedules.py.
"""

from pathlib import Path

import pytest

from tests.chaos.fleet import Fleet
from tests.chaos.test_schedules import every_slot_makes_one_job
from tests.servers.postgres import Server


@pytest.mark.full
@pytest.mark.timeout(400)
def test_every_slot_makes_one_job_while_nodes_are_killed_at_random(
    own_postgres: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with own_postgres.schema() as schema, Fleet(tmp_path, f"{own_postgres.dsn()}?schema={schema}") as fleet:
        story = every_slot_makes_one_job(fleet)
    with capsys.disabled():
        print(story)  # noqa: T201 - what `make chaos` is run for
