"""Two nodes that deliver outboxes of one file, killed with -9 at random moments, while others publish.

Whatever was committed is delivered, in one order for everybody: none is lost, and in a transaction each effect is there
once. With MAINSPRING_TESTS=full it runs for a minute. MAINSPRING_SEED, which a failure prints, decides when processes are
killed; the rest depends on the machine.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.chaos.fleet import Fleet, is_sound
from tests.chaos.outbox_run import PROGRAM, WAYS, Run, tables
from tests.chaos.worker import DATABASE
from tests.tier import FULL

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    path = tmp_path / DATABASE

    def rows(statement: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(path, timeout=60)) as connection:
            return connection.execute(statement).fetchall()

    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    for statement in tables("", "INTEGER PRIMARY KEY"):
        rows(statement)
    with Fleet(tmp_path, program=PROGRAM) as fleet:
        yield Run(fleet=fleet, rows=rows, nodes=2)
    assert is_sound(tmp_path)


def test_all_that_was_committed_is_delivered_in_order_while_nodes_are_killed(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    story = run.deliver_all(processes=1, writers=4, longest=0.5)
    with capsys.disabled():
        print(story)  # noqa: T201 - what `make chaos` is run for


@pytest.mark.parametrize("how", WAYS if FULL else WAYS[:1])
def test_messages_that_end_their_process_become_dead_letters_and_no_others(
    run: Run, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    story = run.end_poison(how)
    with capsys.disabled():
        print(story)  # noqa: T201 - as above
