# ruff: noqa: S101 -- a suite of tests is built on assert
"""What can be seen: jobs one by one and in pages, queues, pauses."""

import asyncio
from collections.abc import AsyncIterator
from itertools import islice, product

import pytest

from mainspring.core.command import CancelJob
from mainspring.core.job import Cause, JobId, State
from mainspring.core.outcome import NoSuchTask, Succeeded
from mainspring.stores.records import Facts, JobFilter, JobView, Pause, QueueView
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import FATAL, HOUR, RAISED, RESIZE, SEND, World


class InspectorContract(Contract):
    """The roles Inspector, and of Operator the pauses. Needs the roles Jobs and Nodes too."""

    @obligation("get")
    async def test_jobs_are_read_in_the_order_asked_for(self, world: World) -> None:
        first, second = await world.enqueue(), await world.enqueue()

        views = await world.store.get([second, world.id(), first, second])

        assert [view and view.job.id for view in views] == [second, None, first, second]
        assert await world.store.get([]) == ()

    @obligation("get")
    async def test_more_jobs_than_fit_into_one_statement_are_read(self, world: World) -> None:
        new = [world.new() for _ in range(50)]
        await world.enqueue_all(new)
        missing = [world.id() for _ in range(33_000)]  # more than SQLite or PostgreSQL take as parameters

        views = await world.store.get([*missing, *(one.id for one in new)])

        assert [view and view.job.id for view in views] == [None] * len(missing) + [one.id for one in new]

    @obligation("list_jobs", 1)
    async def test_jobs_are_listed_newest_first_in_pages(self, world: World) -> None:
        ids = [await world.enqueue() for _ in range(7)]

        for limit in (1, 2, 3, 6, 7, 8):
            pages = [page async for page in pages_of(world, JobFilter(), limit)]
            assert [id_ for page in pages for id_ in page] == ids[::-1]
            assert [len(page) for page in pages] == [
                len(ids[begin : begin + limit]) for begin in range(0, len(ids), limit)
            ]

    @obligation("list_jobs", 1)
    async def test_other_verbs_go_on_beside_lists_that_find_nothing(self, world: World) -> None:
        await world.enqueue_all(world.new() for _ in range(500))
        node = await world.node()
        nothing = JobFilter(tag="none")
        lists = [asyncio.ensure_future(world.store.list_jobs(nothing)) for _ in range(8)]
        claimed = await world.claim(node, room=10)

        assert len(claimed) == 10
        for page in await asyncio.gather(*lists):
            assert page.jobs == ()
            assert page.in_time or page.after is not None

    @obligation("list_jobs")
    async def test_an_empty_list_is_one_page(self, world: World) -> None:
        page = await world.store.list_jobs(JobFilter())

        assert (page.jobs, page.after) == ((), None)

    @obligation("list_jobs")
    async def test_a_page_begins_where_its_mark_says_though_that_job_is_gone(self, world: World) -> None:
        ids = [await world.enqueue() for _ in range(4)]
        page = await world.store.list_jobs(JobFilter(), limit=2)
        await world.enqueue()
        for view in page.jobs:
            await world.command(view.job.id, CancelJob())

        rest = await world.store.list_jobs(JobFilter(states=(State.READY,)), limit=9, after=page.after)
        assert [view.job.id for view in rest.jobs] == ids[1::-1]

    @obligation("list_jobs")
    async def test_the_views_of_a_list_are_those_of_the_jobs(self, world: World) -> None:
        await various(world)
        page = await world.store.list_jobs(JobFilter())

        assert page.jobs == await world.store.get([view.job.id for view in page.jobs])

    @obligation("list_jobs")
    @pytest.mark.parametrize("limit", [2, 100])
    async def test_a_filter_lets_through_what_it_says_and_nothing_else(self, world: World, limit: int) -> None:
        await various(world)
        views = (await world.store.list_jobs(JobFilter())).jobs
        parent = next(view.facts.parent for view in views if view.facts.parent)
        choices = product(
            [(), (State.READY,), (State.FAILED, State.CANCELLED), (State.RUNNING, State.SUCCEEDED)],
            [None, "mail", "nowhere"],
            [None, SEND, RESIZE],
            [None, "a", "ab"],
            [None, Cause.REFUSED, Cause.UNKNOWN_TASK],
            [None, parent],
        )
        found = 0
        for states, queue, task, tag, cause, whose in islice(choices, 0, None, 5):  # every value meets every other
            which = JobFilter(states=states, queue=queue, task=task, tag=tag, cause=cause, parent=whose)
            expected = [view.job.id for view in views if wanted(view, which)]
            got = [id_ async for page in pages_of(world, which, limit) for id_ in page]
            assert got == expected, which
            found += len(got)
        assert found > 50  # or the jobs are not various enough

    @obligation("attempts")
    @obligation("log_lines")
    async def test_a_job_that_is_not_there_has_no_attempts_and_no_lines(self, world: World) -> None:
        assert await world.store.attempts(world.id()) == ()
        assert await world.store.log_lines(world.id()) == ()

    @obligation("queues")
    async def test_queues_with_work_and_paused_ones_are_listed_by_name(self, world: World) -> None:
        node = await world.node()
        await world.enqueue_all(world.new(queue="b") for _ in range(3))
        await world.enqueue(queue="a", run_at=HOUR)
        await world.end(await world.claim_one(node), RAISED)
        await world.claim_one(node)
        await world.end(await world.running(node, queue="done", priority=99), Succeeded())
        await world.store.pause("empty", by="me", reason="moving house")

        assert await world.store.queues() == (
            QueueView(name="a", waiting=1, running=0),
            QueueView(name="b", waiting=2, running=1),
            QueueView(name="empty", waiting=0, running=0, paused=Pause(at=world.now, by="me", reason="moving house")),
        )

    @obligation("pause")
    @obligation("resume")
    async def test_a_pause_is_told_once_and_so_is_its_end(self, world: World) -> None:
        await world.enqueue(queue="mail")

        assert not await world.store.resume("mail")
        assert await world.store.pause("mail")
        assert not await world.store.pause("mail")
        (queue,) = await world.store.queues()
        assert queue.paused == Pause(at=world.now)
        assert await world.store.resume("mail")
        assert not await world.store.resume("mail")
        assert await world.store.queues() == (QueueView(name="mail", waiting=1, running=0),)

    @obligation("pause")
    async def test_what_runs_goes_on_while_its_queue_is_paused(self, world: World) -> None:
        claim = await world.running(await world.node(), queue="mail")
        await world.store.pause("mail")

        await world.end(claim, Succeeded())


async def various(world: World) -> None:
    """Make jobs that differ in all that can be asked for."""
    node = await world.node()
    parent = await world.enqueue(RESIZE, queue="mail", facts=Facts(tags=("a",)))
    facts = [Facts(), Facts(tags=("a", "b"), parent=parent), Facts(tags=("ab",)), Facts(tags=("b", "a"), owner="a")]
    for outcome in (None, Succeeded(), RAISED, FATAL, NoSuchTask()):
        for task, some in product((SEND, RESIZE), facts):
            claim = await world.running(node, task, queue="mail", facts=some, priority=99)
            if outcome:
                await world.end(claim, outcome)
    for some in facts:
        await world.enqueue(SEND, facts=some)
        await world.command(await world.enqueue(RESIZE, facts=some), CancelJob())


def wanted(view: JobView, which: JobFilter) -> bool:
    job = view.job
    return (
        (not which.states or job.state in which.states)
        and which.queue in {None, job.queue}
        and which.task in {None, job.task}
        and (which.tag is None or which.tag in view.facts.tags)
        and which.cause in {None, job.cause}
        and which.parent in {None, view.facts.parent}
    )


async def pages_of(world: World, which: JobFilter, limit: int) -> AsyncIterator[list[JobId]]:
    after = None
    while True:
        page = await world.store.list_jobs(which, limit=limit, after=after)
        yield [view.job.id for view in page.jobs]
        if page.after is None:
            return
        assert page.after != after, "a page that leads back to itself"
        after = page.after
