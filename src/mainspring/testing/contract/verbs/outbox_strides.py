# ruff: noqa: S101 -- a suite of tests is built on assert
"""Steps in the delivery of a partition: which count, what belongs to them, and what was set aside."""

import asyncio
import time
from datetime import timedelta

import pytest
from msgspec.structs import replace

from mainspring.core.job import NodeId
from mainspring.core.outbox import Stand, begin, release
from mainspring.errors import NodeGone
from mainspring.stores.outbox import Aside, LetterState, NewLetter
from mainspring.testing.contract import outboxes
from mainspring.testing.contract.obligation import GENERAL, obligation
from mainspring.testing.contract.outboxes import ORDERS, PARTITIONS, aside, message, on
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.verbs.sharing import given_up
from mainspring.testing.contract.verbs.wake import Bell, heard, quiet
from mainspring.testing.contract.world import HOUR, SECOND, Member, World


class StridesContract(Contract):
    """Delivery in the role Outboxes. Needs the roles Nodes and Wake too."""

    # stride

    @obligation("stride", 1)
    async def test_a_step_is_accepted_from_the_revision_that_it_was_made_from(self, world: World) -> None:
        node = await world.node()
        await outboxes.publish(world, b"1", b"2")
        before = await outboxes.stand(world)
        begun = begin(before, node.id, 2)

        assert await outboxes.step(world, node, outboxes.stride(before, begun))
        assert await outboxes.stand(world) == begun
        ended = replace(release(begun), cursor=2)
        assert await outboxes.step(world, node, outboxes.stride(begun, ended))
        assert await outboxes.stand(world) == ended
        assert ended.revision == 2

    @obligation("stride", 1)
    async def test_a_step_from_another_revision_writes_nothing(self, world: World) -> None:
        node = await world.node()
        await outboxes.publish(world, b"1", b"2", b"3", key="a")
        first, second, third = await outboxes.read(world)
        await outboxes.put_aside(world, node, aside(first, world.now))
        await outboxes.begun(world, node, 2)
        view = await outboxes.view(world)
        for revision in (0, 1, 3, 100):
            late = replace(
                outboxes.stride(replace(view.stand, revision=revision), replace(view.stand, cursor=3, error="late")),
                letters=(NewLetter(message=second, attempts=1, error="late"),),
                aside=(aside(third, world.now, error="late"),),
                back=(1,),
            )
            assert not await outboxes.step(world, node, late)

        assert await outboxes.view(world) == view
        assert await outboxes.dead(world) == ()
        assert [one.message.seq for one in await on(world).read_aside(ORDERS, 0, 9)] == [1]

    @obligation("stride", 1)
    async def test_what_somebody_holds_who_is_alive_is_left_alone(self, world: World) -> None:
        holder, other = await world.node(), await world.node()
        await outboxes.publish(world, b"1")
        held = await outboxes.begun(world, holder)
        take_over = outboxes.stride(held, begin(held, other.id, 1))

        assert not await outboxes.step(world, other, take_over)
        assert await outboxes.stand(world) == held
        await world.kill(holder)
        assert await outboxes.step(world, other, take_over)
        assert (await outboxes.stand(world)).holder == other.id

    @obligation("stride", 1)
    async def test_who_was_taken_for_dead_cannot_end_what_another_has_taken_over(self, world: World) -> None:
        holder, other = await world.node(), await world.node()
        await outboxes.publish(world, b"1")
        held = await outboxes.begun(world, holder)
        await world.kill(holder)
        taken = await outboxes.begun(world, other)

        with pytest.raises(NodeGone):
            await outboxes.step(world, holder, outboxes.stride(held, replace(release(held), cursor=1)))
        assert await outboxes.stand(world) == taken

    @obligation("stride", 1)
    async def test_there_is_no_step_of_a_partition_that_is_not_there(self, world: World) -> None:
        node = await world.node()
        await on(world).register_outbox(ORDERS, 2)

        assert not await outboxes.step(world, node, outboxes.stride(Stand(), Stand(), outbox="nowhere"))
        assert not await outboxes.step(world, node, outboxes.stride(Stand(), Stand(), 2))
        assert [one.name for one in await on(world).outboxes()] == [ORDERS]

    @obligation("stride")
    async def test_one_that_is_refused_does_not_hinder_the_others(self, world: World) -> None:
        node = await world.node()
        await on(world).register_outbox(ORDERS, 4)
        await outboxes.begun(world, node, 1, 1)
        strides = [outboxes.stride(Stand(), Stand(error=str(at)), at) for at in range(4)]

        assert await on(world).stride(node.id, node.term, strides) == (True, False, True, True)
        views = (await outboxes.look(world)).partitions
        assert [one.stand.error for one in views] == ["0", "", "2", "3"]

    @obligation("stride")
    @obligation("stride", 2)
    async def test_steps_of_one_partition_in_one_call_follow_one_another(self, world: World) -> None:
        node = await world.node()
        await on(world).register_outbox(ORDERS, 4)
        first, second = Stand(revision=1, error="1"), Stand(revision=2, error="2")
        strides = [
            outboxes.stride(Stand(), first),
            outboxes.stride(Stand(), replace(first, error="again")),
            outboxes.stride(first, second),
        ]

        assert await on(world).stride(node.id, node.term, strides) == (True, False, True)
        assert await outboxes.stand(world) == second

    @obligation("stride", 2)
    async def test_of_many_steps_from_one_revision_one_is_accepted(self, world: World) -> None:
        stores = [world.store, *[await world.open() for _ in range(3)]]
        nodes = [await world.node() for _ in stores]
        await on(world).register_outbox(ORDERS, PARTITIONS)
        for _ in range(10):
            before = await outboxes.stand(world)
            calls = [
                outboxes.step(world, node, outboxes.stride(before, Stand(error=node.id)), store=store)
                for store, node in zip(stores, nodes, strict=True)
            ]
            accepted = await asyncio.gather(*calls)

            assert accepted.count(True) == 1
            after = await outboxes.stand(world)
            assert (after.revision, after.error) == (before.revision + 1, nodes[accepted.index(True)].id)

    @obligation("stride", 3)
    @obligation(GENERAL, 1)
    async def test_a_node_that_is_not_alive_writes_nothing(self, world: World) -> None:
        node, dead = await world.node(), await world.node()
        await on(world).register_outbox(ORDERS, PARTITIONS)
        await world.kill(dead)
        stranger = Member(NodeId("stranger"), 1)
        for who in (dead, stranger, Member(node.id, node.term + 1)):
            strides = [outboxes.stride(Stand(), Stand(error="no"), at) for at in range(4)]
            with pytest.raises(NodeGone):
                await on(world).stride(who.id, who.term, strides)

        views = (await outboxes.look(world)).partitions
        assert [one.stand for one in views] == [Stand()] * 4

    @obligation("stride", 3)
    async def test_a_node_that_is_gone_does_not_hurt_its_neighbours(self, world: World) -> None:
        live, dead = await world.node(), await world.node()
        await on(world).register_outbox(ORDERS, 8)
        await world.kill(dead)
        calls = [
            outboxes.step(world, live if at % 2 else dead, outboxes.stride(Stand(), Stand(error="yes"), at))
            for at in range(8)
        ]
        ends = await asyncio.gather(*calls, return_exceptions=True)

        assert [end is True for end in ends] == [False, True] * 4
        assert [isinstance(end, NodeGone) for end in ends] == [True, False] * 4
        views = (await outboxes.look(world)).partitions
        assert [one.stand.error for one in views] == ["", "yes"] * 4

    @obligation("stride", 1)
    async def test_all_that_belongs_to_a_step_is_written_with_it(self, world: World) -> None:
        node = await world.node()
        await outboxes.publish(world, b"1", b"2", b"3", b"4", key="a")
        first, second, third, fourth = await outboxes.read(world)
        await outboxes.put_aside(world, node, aside(first, world.now))
        before = await outboxes.stand(world)
        step = replace(
            outboxes.stride(before, replace(before, cursor=4)),
            letters=(NewLetter(message=second, attempts=3, error="dead"),),
            aside=(aside(third, world.now + HOUR, attempts=2, error="later"), aside(fourth)),
            back=(1,),
        )
        assert await outboxes.step(world, node, step)

        (letter,) = await outboxes.dead(world)
        assert (letter.message, letter.attempts, letter.error) == (second, 3, "dead")
        assert (letter.state, letter.failed_at, letter.term) == (LetterState.PENDING, world.now, 0)
        assert (letter.deadline, letter.completed_at) == (None, None)
        assert await on(world).read_aside(ORDERS, 0, 9) == ()
        world.clock.advance(HOUR)
        (found,) = await on(world).read_aside(ORDERS, 0, 9)
        assert found == Aside(message=third, attempts=2, retry_at=world.now, error="later")

    @obligation("stride")
    @obligation(GENERAL, 2)
    @pytest.mark.parametrize("steps", range(8))
    async def test_a_step_that_was_given_up_is_done_whole_or_not_at_all(self, world: World, steps: int) -> None:
        node = await world.node()
        await outboxes.publish(world, b"1", b"2", key="a")
        first, second = await outboxes.read(world)
        whole = replace(
            outboxes.stride(Stand(), Stand(cursor=2)),
            letters=(NewLetter(message=first, attempts=1, error="no"),),
            aside=(aside(second),),
        )
        await given_up(asyncio.ensure_future(outboxes.step(world, node, whole)), steps)
        await asyncio.to_thread(time.sleep, 0.05)  # whoever is at it comes to an end

        found = (
            (await outboxes.stand(world)).revision,
            len(await outboxes.dead(world)),
            len(await on(world).read_aside(ORDERS, 0, 9)),
        )
        assert found in {(0, 0, 0), (1, 1, 1)}

    # What was set aside.

    @obligation("stride", 4)
    async def test_what_comes_back_lets_the_next_with_its_key_be_delivered_now(self, world: World) -> None:
        node = await world.node()
        await outboxes.publish(world, b"1", b"2", b"3", key="a")
        await outboxes.publish(world, b"4", key="b")
        first, second, third, fourth = await outboxes.read(world)
        later = world.now + HOUR
        await outboxes.put_aside(world, node, aside(first, later), aside(second), aside(third), aside(fourth, later))
        assert (await outboxes.view(world)).aside_at == later
        world.clock.advance(SECOND)
        await outboxes.bring_back(world, node, 1)

        (due,) = await on(world).read_aside(ORDERS, 0, 9)
        assert due == aside(second, world.now)
        assert (await outboxes.view(world)).aside_at == world.now
        await outboxes.bring_back(world, node, 2)
        assert [one.message for one in await on(world).read_aside(ORDERS, 0, 9)] == [third]
        await outboxes.bring_back(world, node, 3)
        assert await on(world).read_aside(ORDERS, 0, 9) == ()
        assert (await outboxes.view(world)).aside_at == later

    @obligation("stride", 4)
    async def test_one_that_comes_without_a_time_waits_for_nobody_if_there_is_nobody(self, world: World) -> None:
        node = await world.node()
        await outboxes.publish(world, b"1", b"2", key="a")
        await outboxes.publish(world, b"3", b"4")
        first, second, *others = await outboxes.read(world)
        await outboxes.put_aside(world, node, aside(first))
        world.clock.advance(SECOND)
        await outboxes.put_aside(world, node, aside(second), *(aside(one) for one in others))

        found = await on(world).read_aside(ORDERS, 0, 9)
        assert [(one.message.seq, one.retry_at) for one in found] == [
            (1, world.now - SECOND),
            (3, world.now),
            (4, world.now),
        ]

    @obligation("stride", 4)
    async def test_of_those_that_come_together_the_first_waits_for_nobody(self, world: World) -> None:
        node = await world.node()
        await outboxes.publish(world, b"1", b"2", b"3", key="a")
        messages = await outboxes.read(world)
        await outboxes.put_aside(world, node, *(aside(one) for one in messages))

        assert [one.message.seq for one in await on(world).read_aside(ORDERS, 0, 9)] == [1]
        await outboxes.bring_back(world, node, 1)
        assert [one.message.seq for one in await on(world).read_aside(ORDERS, 0, 9)] == [2]

    @obligation("stride", 4)
    async def test_keys_of_other_partitions_have_nothing_to_do_with_it(self, world: World) -> None:
        node = await world.node()
        for partition in (0, 1):
            await outboxes.publish(world, b"1", b"2", key="a", partition=partition)
            messages = await outboxes.read(world, partition)
            later = (aside(messages[0], world.now + HOUR), aside(messages[1]))
            await outboxes.put_aside(world, node, *later, partition=partition)
        await outboxes.bring_back(world, node, 1)

        assert len(await on(world).read_aside(ORDERS, 0, 9)) == 1
        assert await on(world).read_aside(ORDERS, 1, 9) == ()

    @obligation("stride")
    async def test_what_is_set_aside_already_becomes_what_it_is_like_now(self, world: World) -> None:
        node = await world.node()
        await outboxes.publish(world, b"1", key="a")
        (one,) = await outboxes.read(world)
        await outboxes.put_aside(world, node, aside(one, world.now))
        again = aside(one, world.now + SECOND, attempts=2, error="späte Grüße 🕰")
        await outboxes.put_aside(world, node, again)
        assert await on(world).read_aside(ORDERS, 0, 9) == ()
        world.clock.advance(SECOND)

        assert await on(world).read_aside(ORDERS, 0, 9) == (again,)

    @obligation("read_aside")
    async def test_what_is_due_is_read_the_longest_due_first(self, world: World) -> None:
        node = await world.node()
        for number, key in enumerate("abcdefgh"):
            await outboxes.publish(world, str(number).encode(), key=key)
        messages = await outboxes.read(world)
        waits = [3, 1, 4, 1, 5, 9, 2, 6]
        asides = [aside(one, world.now + timedelta(seconds=wait)) for one, wait in zip(messages, waits, strict=True)]
        await outboxes.put_aside(world, node, *asides)
        world.clock.advance(5 * SECOND)

        due = [asides[at] for at in (1, 3, 6, 0, 2, 4)]
        for limit in (1, 2, 6, 9):
            found = await on(world).read_aside(ORDERS, 0, limit)
            assert [one.retry_at for one in found] == [one.retry_at for one in due[:limit]]
        assert {one.message.seq for one in await on(world).read_aside(ORDERS, 0, 9)} == {1, 2, 3, 4, 5, 7}

    @obligation("read_aside")
    async def test_of_each_key_only_the_first_is_read(self, world: World) -> None:
        node = await world.node()
        await outboxes.publish(world, b"1", b"2", key="a")
        await outboxes.publish(world, b"3", key="b")
        first, second, third = await outboxes.read(world)
        await outboxes.put_aside(
            world, node, aside(second, world.now - HOUR), aside(first, world.now), aside(third, world.now)
        )
        assert {one.message.seq for one in await on(world).read_aside(ORDERS, 0, 9)} == {1, 3}
        await outboxes.put_aside(world, node, aside(first, world.now + HOUR))

        assert [one.message.seq for one in await on(world).read_aside(ORDERS, 0, 9)] == [3]
        assert (await outboxes.view(world)).aside_at == world.now

    @obligation("read_aside")
    async def test_where_nothing_is_set_aside_nothing_is_read(self, world: World) -> None:
        await outboxes.publish(world, b"1", key="a")

        assert await on(world).read_aside(ORDERS, 0, 9) == ()
        assert await on(world).read_aside("nowhere", 0, 9) == ()
        assert (await outboxes.view(world)).aside_at is None

    @obligation("read_keys_aside")
    async def test_it_is_known_which_keys_are_set_aside(self, world: World) -> None:
        node = await world.node()
        for key in ("a", "b", "", None):
            await on(world).publish([message(key=key)])
        await outboxes.publish(world, b"1", key="c", partition=1)
        messages = await outboxes.read(world)
        await outboxes.put_aside(world, node, *(aside(one, world.now + HOUR) for one in messages))
        (other,) = await outboxes.read(world, 1)
        await outboxes.put_aside(world, node, aside(other), partition=1)

        store = on(world)
        assert await store.read_keys_aside(ORDERS, 0, ["a", "c", "", "d"]) == {"a", ""}
        assert await store.read_keys_aside(ORDERS, 1, ["a", "c"]) == {"c"}
        assert await store.read_keys_aside(ORDERS, 0, []) == frozenset()
        assert await store.read_keys_aside("nowhere", 0, ["a"]) == frozenset()
        await outboxes.bring_back(world, node, 1)
        assert await store.read_keys_aside(ORDERS, 0, ["a", "b"]) == {"b"}

    # Wake.

    @obligation("stride", 5)
    @obligation("watch", 1)
    async def test_a_partition_that_is_left_with_something_to_deliver_rings(self, world: World) -> None:
        node = await world.node()
        await outboxes.publish(world, b"1", b"2")
        for store in (world.store, await world.open()):
            bell = Bell()
            stop = store.watch(bell)
            await heard(world, bell)
            held = await outboxes.begun(world, node)
            await quiet(bell)
            assert await outboxes.step(world, node, outboxes.stride(held, release(held)))
            await bell.wait()
            stop()

    @obligation("stride", 5)
    @obligation("watch", 1)
    async def test_the_end_of_a_node_rings_for_what_it_held(self, world: World) -> None:
        node, bell = await world.node(), Bell()
        await outboxes.publish(world, b"1")
        stop = (await world.open()).watch(bell)
        await heard(world, bell)
        await outboxes.begun(world, node)
        await quiet(bell)
        await world.kill(node)
        await bell.wait()
        stop()
