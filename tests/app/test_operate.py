"""What is done to many jobs at once: decided on what was read, and again on what has become of it."""

import pytest
from msgspec.structs import replace

from mainspring import Mainspring, Unique
from mainspring.client.operate import TOGETHER, Action, act, command_of, makes_sense
from mainspring.core import machine
from mainspring.core.job import Job, State
from mainspring.errors import IllegalTransition
from mainspring.handle import JobHandle
from mainspring.stores.memory import MemoryStore
from mainspring.testing import VirtualTime


@pytest.fixture
def app(virtual_time: VirtualTime) -> Mainspring:
    app = Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)

    @app.task(name="work")
    async def work(number: int = 0) -> None: ...

    @app.task(name="once", unique=Unique())
    async def once(letter: str) -> None: ...

    return app


async def read(*jobs: "JobHandle[object]") -> list[Job]:
    return [(await job.refresh()).job for job in jobs]


async def test_what_has_changed_meanwhile_is_decided_again(app: Mainspring) -> None:
    async with app:
        moved, cancelled, deleted = [await app.find("work").using(delay="1h").enqueue() for _ in range(3)]
        jobs = await read(moved, cancelled, deleted)
        await moved.move(priority=90)
        await cancelled.cancel()
        await deleted.delete()
        done = await act(app.store, jobs, Action.CANCEL)
        assert (done.changed, done.refused) == (1, 2)
        assert {one.id: one.problem.split(" ")[0] for one in done.problems} == {cancelled.id: "a", deleted.id: "job"}
        (job,) = await read(moved)
        assert (job.state, job.priority) == (State.CANCELLED, 90)


async def test_a_unique_key_that_another_has_is_told(app: Mainspring) -> None:
    async with app:
        first = await app.find("once").using(delay="1h").enqueue("a")
        await first.cancel()
        second = await app.find("once").using(delay="1h").enqueue("a")
        done = await act(app.store, await read(first), Action.RETRY)
        assert [one.problem for one in done.problems] == [f"its unique key is taken by job {second.id}"]


async def test_more_than_are_written_together_are_all_done(app: Mainspring) -> None:
    number = 2 * TOGETHER + 5
    async with app:
        jobs = await app.enqueue_many([app.find("work").using(delay="1h").call(one) for one in range(number)])
        assert (await act(app.store, await read(*jobs), Action.RUN_NOW)).changed == number
        again = await act(app.store, await read(*jobs), Action.RUN_NOW)
        assert (again.changed, again.refused, len(again.problems)) == (0, number, 5)
        assert (await act(app.store, await read(*jobs), Action.DELETE)).changed == number


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("action", Action)
async def test_what_makes_sense_is_what_the_machine_allows(app: Mainspring, action: Action, state: State) -> None:
    """But for what would change nothing: a cancel that was asked for, and a job that is due."""
    async with app:
        (job,) = await read(await app.find("work").using(delay="1h").enqueue())
        now = app.store.now()
        job = replace(job, state=state)
        try:
            machine.command(job, command_of(action, now), now)
            allowed = True
        except IllegalTransition:
            allowed = False
        assert makes_sense(action, job, now) == allowed
