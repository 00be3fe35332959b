"""What attempts leave behind, as PostgreSQL keeps it: whatever text a handler makes up, and several notes at once."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from math import inf, nan
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainspring.core.job import JobId, NodeId
from mainspring.core.machine import Event
from mainspring.core.outcome import AttemptError
from mainspring.stores.postgres import bodies
from mainspring.stores.postgres.rows import clean
from mainspring.stores.records import AttemptView, LogLine, Note, Progress
from mainspring.testing import VirtualTime
from mainspring.testing.contract import SettableClock
from mainspring.testing.contract.world import World
from tests.servers.postgres import Server
from tests.stores.postgres_world import PostgresHarness

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
ATTEMPT = AttemptView(
    job=JobId(UUID(int=1)), lease=1, attempt=1, node=NodeId("a"), event=Event.FAILED, started_at=None, ended_at=NOON
)


@given(st.text(st.characters(codec=None)))
def test_whatever_a_handler_says_can_be_written_and_read(text: str) -> None:
    error, kept = (AttemptError(type=one, message=one, traceback=one) for one in (text, clean(text)))
    attempt = bodies.attempt(bodies.attempt_bytes(replace(ATTEMPT, error=error, reason=text)))

    assert attempt == replace(ATTEMPT, error=kept, reason=clean(text))
    assert bodies.line(bodies.line_bytes(LogLine(NOON, text, text))) == LogLine(NOON, clean(text), clean(text))
    assert bodies.progress(bodies.progress_bytes(Progress(1.5, text))) == Progress(1.5, clean(text))
    assert "\0" not in bodies.printable(text)


@pytest.mark.parametrize("percent", [nan, inf, -inf])
def test_progress_that_is_no_number_is_not_kept(percent: float) -> None:
    assert bodies.progress_bytes(Progress(percent, "somewhere")) is None


@pytest.fixture
def world(postgres: Server, postgres_schema: str, virtual_time: VirtualTime) -> Iterator[World]:
    clock = SettableClock()
    world = World(PostgresHarness(postgres, postgres_schema, clock), clock)
    world.store = virtual_time.run(world.open())
    yield world
    virtual_time.run(world.close())


async def test_several_notes_of_one_job_count_in_order(world: World) -> None:
    node = await world.node()
    claim, other = await world.running(node), await world.running(node)
    east = timezone(timedelta(hours=5, minutes=45))
    lines = [LogLine(at=world.now.astimezone(east), level="INFO", message=f"{number}\0") for number in range(3)]
    stale = Note(job=claim.job.id, lease=claim.job.lease + 1, node=node.id, saved=b"stale", lines=(lines[0],))
    notes = [
        Note(
            job=claim.job.id, lease=claim.job.lease, node=node.id, saved=b"1", progress=Progress(1.0), lines=(lines[0],)
        ),
        Note(job=other.job.id, lease=other.job.lease, node=node.id, lines=(lines[2],)),
        stale,
        Note(job=claim.job.id, lease=claim.job.lease, node=node.id, progress=Progress(2.0), lines=(lines[1],)),
        Note(job=claim.job.id, lease=claim.job.lease, node=node.id, saved=b"3", progress=Progress(nan)),
    ]

    assert await world.store.note(notes) == (True, True, False, True, True)
    view = await world.view(claim.job.id)
    assert (view.saved, view.progress) == (b"3", Progress(2.0))
    assert await world.store.log_lines(claim.job.id) == tuple(lines[:2])
    assert await world.store.log_lines(other.job.id) == (lines[2],)


async def test_a_job_with_nothing_to_keep_is_left_as_it_is(
    postgres: Server, postgres_schema: str, world: World
) -> None:
    """It settles on the short way then, which those that leave traces cannot take."""
    node = await world.node()
    claim = await world.running(node)
    assert await world.store.note([Note(job=claim.job.id, lease=claim.job.lease, node=node.id)]) == (True,)
    assert postgres.sql(f'SELECT traced FROM "{postgres_schema}".jobs') == [(False,)]  # noqa: S608 -- the test's own

    assert await world.store.note([Note(job=claim.job.id, lease=claim.job.lease, node=node.id, saved=b"")]) == (True,)
    assert postgres.sql(f'SELECT traced FROM "{postgres_schema}".jobs') == [(True,)]  # noqa: S608 -- the test's own
