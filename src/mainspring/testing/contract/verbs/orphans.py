# ruff: noqa: S101 -- a suite of tests is built on assert
"""What dead nodes leave behind, and tasks that no node knows."""

from datetime import timedelta

from msgspec.structs import replace

from mainspring.core.command import CancelJob
from mainspring.core.job import Claim
from mainspring.core.limits import MOMENT
from mainspring.core.names import Name
from mainspring.core.outcome import Lost
from mainspring.stores.records import Verdict
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import FATAL, HOUR, RESIZE, SEND, Member, World

UNKNOWN = Name("", "mail.sned")


class OrphansContract(Contract):
    """`orphans` and `unknown_tasks`. Needs the roles Jobs, Nodes and Inspector."""

    @obligation("orphans")
    async def test_orphans_are_the_running_jobs_of_dead_nodes(self, world: World) -> None:
        alive, dead = await world.node(), await world.node()
        await world.running(alive)
        orphan, ended = await world.running(dead), await world.running(dead)
        await world.end(ended, FATAL)
        assert await world.store.orphans(100) == ()
        await world.kill(dead)

        assert await world.store.orphans(100) == (orphan,)

    @obligation("orphans")
    async def test_an_orphan_is_listed_as_it_is_now(self, world: World) -> None:
        dead = await world.node()
        claim = await world.running(dead)
        await world.command(claim.job.id, CancelJob())
        await world.kill(dead)

        assert await world.store.orphans(100) == (Claim(job=await world.job(claim.job.id), node=dead.id),)

    @obligation("orphans")
    async def test_orphans_with_the_fewest_losses_come_first_and_no_more_than_asked_for(self, world: World) -> None:
        suspect, twice = await world.enqueue(), await world.enqueue(loss_limit=9, max_attempts=9)
        await world.lose(1, [suspect, twice])
        reaper = await world.node()
        await world.end(await world.claim_one(reaper), FATAL)  # the first, out of the way
        await world.lose(1, [twice])
        dead = await world.node()
        await world.claim_one(dead)
        fresh = [await world.running(dead) for _ in range(3)]
        await world.kill(dead)

        orphans = await world.store.orphans(100)
        assert [claim.job.losses for claim in orphans] == [0, 0, 0, 2]
        assert {claim.job.id for claim in orphans[:3]} == {claim.job.id for claim in fresh}
        assert [claim.job.losses for claim in await world.store.orphans(3)] == [0, 0, 0]
        assert await world.store.orphans(0) == ()

    @obligation("orphans")
    async def test_an_orphan_that_was_settled_is_none_any_more(self, world: World) -> None:
        reaper, dead = await world.node(), await world.node()
        claim = await world.running(dead)
        await world.kill(dead)
        assert (await world.settle(claim, Lost(), by=reaper.id)).verdict is Verdict.ACCEPTED

        assert await world.store.orphans(100) == ()

    @obligation("unknown_tasks")
    async def test_a_task_is_unknown_when_its_job_has_been_due_for_the_grace_time(self, world: World) -> None:
        await world.node()
        await world.enqueue(UNKNOWN, run_at=HOUR)
        await world.enqueue(SEND)

        world.clock.advance(2 * HOUR - MOMENT)
        assert await world.store.unknown_tasks(HOUR) == ()
        world.clock.advance(MOMENT)
        assert await world.store.unknown_tasks(HOUR) == (UNKNOWN,)

    @obligation("unknown_tasks")
    async def test_a_task_that_a_live_node_knows_is_known(self, world: World) -> None:
        await world.node(tasks=[SEND])
        await world.enqueue(SEND)
        await world.enqueue(RESIZE)
        world.clock.advance("1d")

        assert await world.store.unknown_tasks(HOUR) == (RESIZE,)
        await world.node(tasks=[RESIZE])
        assert await world.store.unknown_tasks(HOUR) == ()

    @obligation("unknown_tasks")
    async def test_a_task_stays_known_for_the_grace_time_after_its_last_node_died(self, world: World) -> None:
        node = await world.node(tasks=[SEND])
        await world.enqueue(SEND)
        world.clock.advance("1d")
        await world.store.renew(node.id, node.term)
        await world.kill(node)

        world.clock.advance(HOUR - MOMENT)
        assert await world.store.unknown_tasks(HOUR) == ()
        world.clock.advance(timedelta(seconds=1))
        assert await world.store.unknown_tasks(HOUR) == (SEND,)

    @obligation("unknown_tasks")
    async def test_a_task_stays_known_for_the_grace_time_after_its_node_forgot_it(self, world: World) -> None:
        record = world.record(tasks=[SEND, RESIZE])
        node = Member(record.id, await world.store.join(record))
        await world.enqueue(SEND)
        world.clock.advance("1d")
        await world.store.renew(node.id, node.term)
        await world.store.update(node.id, node.term, replace(record, tasks=frozenset({RESIZE})))

        world.clock.advance(HOUR - MOMENT)
        assert await world.store.unknown_tasks(HOUR) == ()
        world.clock.advance(timedelta(seconds=1))
        assert await world.store.unknown_tasks(HOUR) == (SEND,)

    @obligation("unknown_tasks")
    async def test_only_jobs_that_wait_make_a_task_unknown(self, world: World) -> None:
        node = await world.node(tasks=[SEND])
        cancelled = await world.enqueue(UNKNOWN)
        await world.command(cancelled, CancelJob())
        await world.running(node, SEND)
        world.clock.advance("1d")

        assert await world.store.unknown_tasks(HOUR) == ()
