"""Promise 4 on PostgreSQL: effects in the same database are exactly once, whatever step the node dies at, and whatever
the network does to a COMMIT or to its answer.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from mainspring.core.job import State
from mainspring.stores.records import JobView
from tests.jobs.postgres_exactly_once_worker import ASYNCPG, EXIT, OURS, PSYCOPG, an_app, work_off
from tests.servers.postgres import Server
from tests.servers.system import wait_until
from tests.servers.wire import Wire

pytestmark = pytest.mark.slow

WORKER = Path(__file__).with_name("postgres_exactly_once_worker.py")
WAYS = (OURS, ASYNCPG, PSYCOPG)
COMMON = ("before the transaction", "after the write", "before the commit", "after the commit")


@dataclass(frozen=True, slots=True)
class Story:
    """One job, the table that its handler writes to, and the network between its node and the server."""

    server: Server
    schema: str
    wire: Wire

    def url(self, *, straight: bool = False) -> str:
        """Where the store is, through the wire or straight; a statement has two seconds."""
        return f"{(self.server if straight else self.wire).dsn()}?schema={self.schema}&timeout=2s"

    def dsn(self, *, straight: bool = False) -> str:
        return (self.server if straight else self.wire).dsn()

    def enqueue(self, task: str) -> UUID:
        async def put() -> UUID:
            async with an_app(self.url(straight=True), "") as app:
                job = await app.enqueue(task)
                return job.id

        return asyncio.run(put())

    def look(self, job: UUID) -> JobView:
        async def get() -> JobView:
            async with an_app(self.url(straight=True), "") as app:
                return await app.job(job).refresh()

        return asyncio.run(get())

    def effects(self) -> int:
        ((count,),) = self.server.sql("SELECT count(*) FROM effects")
        return int(count)

    @contextmanager
    def worker(self, action: str, step: str) -> Iterator["subprocess.Popen[str]"]:
        command = [sys.executable, str(WORKER), self.url(), self.dsn(), action, step]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def work_off(self) -> None:
        """Be another node, to the end of the job."""
        asyncio.run(asyncio.wait_for(work_off(an_app(self.url(straight=True), self.dsn(straight=True))), 60))


@pytest.fixture
def story(own_postgres: Server) -> Iterator[Story]:
    own_postgres.sql("CREATE TABLE effects (job text)")
    try:
        with own_postgres.schema() as schema, Wire.to(own_postgres) as wire:
            yield Story(own_postgres, schema, wire)
    finally:
        own_postgres.sql("DROP TABLE effects")


def reached(process: "subprocess.Popen[str]") -> None:
    assert process.stdout
    assert process.stdout.readline() == "here\n"


def go_on(process: "subprocess.Popen[str]") -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.parametrize(
    ("way", "step"),
    [(OURS, "after the begin"), (OURS, "after the settle"), *((way, step) for way in WAYS for step in COMMON)],
)
def test_effects_are_there_once_whatever_step_the_node_dies_at(story: Story, way: str, step: str) -> None:
    job = story.enqueue(way)

    with story.worker("die", step) as process:
        assert process.wait(60) == EXIT
    committed = step == "after the commit"
    wait_until(lambda: story.effects() == committed, "the server has ended what was left open")
    assert (story.look(job).job.state is State.SUCCEEDED) == committed

    story.work_off()
    view = story.look(job)
    assert (story.effects(), view.job.state) == (1, State.SUCCEEDED)
    assert view.job.claims == (1 if committed else 2)


@pytest.mark.parametrize("way", WAYS)
def test_a_node_that_dies_before_it_hears_that_its_commit_went_through_has_ended_the_job(
    story: Story, way: str
) -> None:
    job = story.enqueue(way)

    with story.worker("wait", "before the commit") as process:
        reached(process)
        story.wire.hang(answers_only=True)
        go_on(process)
        wait_until(story.effects, "the commit arrives")
        process.kill()
        process.wait(60)
    story.wire.heal()

    view = story.look(job)
    assert (story.effects(), view.job.state, view.job.claims) == (1, State.SUCCEEDED, 1)


@pytest.mark.parametrize("way", WAYS)
def test_a_node_whose_commit_went_through_without_an_answer_finds_out(story: Story, way: str) -> None:
    job = story.enqueue(way)

    with story.worker("wait", "before the commit") as process:
        reached(process)
        story.wire.hang(answers_only=True)
        go_on(process)
        wait_until(story.effects, "the commit arrives")
        story.wire.cut()
        story.wire.heal()
        assert process.wait(60) == 0

    view = story.look(job)
    assert (story.effects(), view.job.state, view.job.claims) == (1, State.SUCCEEDED, 1)


@pytest.mark.parametrize("way", WAYS)
def test_a_commit_that_never_arrived_is_done_again(story: Story, way: str) -> None:
    job = story.enqueue(way)

    with story.worker("wait", "before the commit") as process:
        reached(process)
        story.wire.cut()
        go_on(process)
        # What waits at the step does so each time that it comes there.
        reached(process)
        go_on(process)
        assert process.wait(60) == 0

    view = story.look(job)
    assert (story.effects(), view.job.state, view.job.claims) == (1, State.SUCCEEDED, 2)


def test_a_commit_that_arrives_after_its_node_has_given_up_on_it_ends_the_job_once(story: Story) -> None:
    job = story.enqueue(OURS)

    with story.worker("wait", "before the commit") as process:
        reached(process)
        story.wire.hang()
        go_on(process)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3.0)  # longer than a statement may take
        story.wire.heal()
        # The node may have looked before the late commit came, or after it. Then it tries again, and stops there.
        go_on(process)
        assert process.wait(60) == 0

    assert (story.effects(), story.look(job).job.state) == (1, State.SUCCEEDED)
