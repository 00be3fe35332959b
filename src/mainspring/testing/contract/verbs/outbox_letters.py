# ruff: noqa: S101 -- a suite of tests is built on assert
"""Dead letters: how they are found, taken, ended, put back and given up."""

import asyncio

import pytest
from msgspec.structs import replace

from mainspring.stores.outbox import Letter, LetterFilter, LetterState
from mainspring.testing.contract import outboxes
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.outboxes import ORDERS, message, on
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.verbs.wake import Bell, heard
from mainspring.testing.contract.world import HOUR, SECOND, World

PENDING, REPROCESSING, RESOLVED, DISCARDED = LetterState
ALL = LetterFilter()


class LettersContract(Contract):
    """Dead letters in the role Outboxes. Needs the roles Nodes and Wake too."""

    # letters

    @obligation("letters")
    async def test_letters_are_read_in_pages_newest_failure_first(self, world: World) -> None:
        node = await world.node()
        ids = []
        for number in range(9):
            ids += [one.id for one in await outboxes.bury(world, node, str(number).encode(), partition=number % 2)]
            world.clock.advance(SECOND if number % 3 else 0 * SECOND)  # some fail at the same moment

        everything = await outboxes.dead(world)
        assert [one.failed_at for one in everything] == sorted((one.failed_at for one in everything), reverse=True)
        assert {one.id for one in everything} == set(ids)
        for limit in (1, 2, 4, 8, 9, 10):
            found: list[Letter] = []
            after: str | None = None
            while True:
                page = await on(world).letters(ALL, limit=limit, after=after)
                assert len(page.letters) <= limit
                found += page.letters
                if page.after is None:
                    break
                assert page.after != after
                after = page.after
            assert tuple(found) == everything

    @obligation("letters")
    async def test_there_may_be_no_letters(self, world: World) -> None:
        page = await on(world).letters(ALL)

        assert (page.letters, page.after) == ((), None)

    @obligation("letters")
    async def test_a_filter_finds_what_it_says(self, world: World) -> None:
        node = await world.node()
        made = [
            *await outboxes.bury(world, node, b"1", key="a"),
            *await outboxes.bury(world, node, b"2", key="b", partition=1),
            *await outboxes.bury(world, node, b"3", type="other", key="a", partition=1),
            *await outboxes.bury(world, node, b"4", outbox="other", key="a"),
            *await outboxes.bury(world, node, b"5"),
        ]
        ids = [one.id for one in made]
        await on(world).discard_letters(LetterFilter(ids=(ids[4],)), 9)

        async def found(which: LetterFilter) -> set[bytes]:
            return {one.message.payload for one in await outboxes.dead(world, which=which)}

        assert await found(LetterFilter()) == {b"1", b"2", b"3", b"4"}
        assert await found(LetterFilter(outbox=ORDERS)) == {b"1", b"2", b"3"}
        assert await found(LetterFilter(partition=1)) == {b"2", b"3"}
        assert await found(LetterFilter(type="order")) == {b"1", b"2", b"4"}
        assert await found(LetterFilter(key="a")) == {b"1", b"3", b"4"}
        assert await found(LetterFilter(key="a", outbox=ORDERS, partition=0)) == {b"1"}
        assert await found(LetterFilter(ids=(ids[1], ids[4], 10**12))) == {b"2"}
        assert await found(LetterFilter(ids=())) == set()
        assert await found(LetterFilter(states=(DISCARDED,))) == {b"5"}
        assert await found(LetterFilter(states=(DISCARDED, PENDING), ids=(ids[0], ids[4]))) == {b"1", b"5"}
        assert await found(LetterFilter(states=())) == set()
        assert await found(LetterFilter(outbox="nowhere")) == set()

    # take_letters

    @obligation("take_letters", 2)
    async def test_letters_are_taken_under_a_term_and_until_a_deadline(self, world: World) -> None:
        (letter,) = await outboxes.bury(world, await world.node(), b"1")
        world.clock.advance(SECOND)
        (taken,) = await outboxes.taken(world, HOUR)

        assert taken == replace(letter, state=REPROCESSING, term=1, deadline=world.now + HOUR)
        assert await outboxes.dead(world) == (taken,)

    @obligation("take_letters", 1)
    async def test_the_states_of_the_filter_do_not_matter(self, world: World) -> None:
        await outboxes.bury(world, await world.node(), b"1")

        assert len(await on(world).take_letters(LetterFilter(states=(RESOLVED,)), HOUR, 9)) == 1

    @obligation("take_letters", 3)
    async def test_what_is_taken_is_nobody_elses_before_its_deadline(self, world: World) -> None:
        await outboxes.bury(world, await world.node(), b"1")
        (first,) = await outboxes.taken(world, HOUR)
        world.clock.advance(HOUR - SECOND)
        assert await outboxes.taken(world, HOUR) == ()
        world.clock.advance(SECOND)
        (second,) = await outboxes.taken(world, HOUR)

        assert (second.id, second.term) == (first.id, first.term + 1)
        assert await on(world).resolve_letters([(first.id, first.term)]) == 0
        assert await on(world).resolve_letters([(second.id, second.term)]) == 1

    @obligation("take_letters", 3)
    async def test_pending_ones_are_taken_first_and_then_by_deadline(self, world: World) -> None:
        node = await world.node()
        made = await outboxes.bury(world, node, *(str(number).encode() for number in range(6)))
        ids = [one.id for one in made]
        await on(world).take_letters(LetterFilter(ids=(ids[0],)), 2 * HOUR, 9)
        await on(world).take_letters(LetterFilter(ids=(ids[1],)), HOUR, 9)
        await on(world).take_letters(LetterFilter(ids=(ids[2],)), HOUR, 9)
        await on(world).take_letters(LetterFilter(ids=(ids[3],)), 9 * HOUR, 9)
        world.clock.advance(3 * HOUR)

        order = [ids[4], ids[5], ids[1], ids[2], ids[0]]
        for at in range(len(order)):
            (one,) = await on(world).take_letters(ALL, 9 * HOUR, 1)
            assert one.id == order[at]
        assert await on(world).take_letters(ALL, 9 * HOUR, 1) == ()

    @obligation("take_letters", 3)
    async def test_all_that_are_taken_at_once_come_in_that_order(self, world: World) -> None:
        node = await world.node()
        ids = [one.id for one in await outboxes.bury(world, node, b"1", b"2", b"3")]
        await on(world).take_letters(LetterFilter(ids=(ids[0],)), HOUR, 9)
        world.clock.advance(HOUR)

        assert [one.id for one in await outboxes.taken(world, HOUR)] == [ids[1], ids[2], ids[0]]

    @obligation("take_letters", 3)
    async def test_of_many_who_take_at_once_each_gets_others(self, world: World) -> None:
        node = await world.node()
        made = await outboxes.bury(world, node, *[b"1"] * 12)
        stores = [world.store, *[await world.open() for _ in range(3)]]
        taken = await asyncio.gather(*(on(world, one).take_letters(ALL, HOUR, 2) for one in stores * 3))

        ids = [one.id for some in taken for one in some]
        assert len(ids) == len(set(ids))
        rest = [one.id for one in await outboxes.taken(world, HOUR)]
        assert sorted(ids + rest) == [one.id for one in made]

    # The end of reprocessing.

    @obligation("resolve_letters")
    async def test_reprocessing_ends_well_once(self, world: World) -> None:
        node = await world.node()
        (first, second, third) = await outboxes.bury(world, node, b"1", b"2", b"3")
        taken = await on(world).take_letters(LetterFilter(ids=(first.id, second.id)), HOUR, 9)
        world.clock.advance(SECOND)
        ends = [(one.id, one.term) for one in taken]

        assert await on(world).resolve_letters([*ends, (third.id, 0), (10**12, 1)]) == 2
        assert await on(world).resolve_letters(ends) == 0
        assert await on(world).resolve_letters([]) == 0
        resolved = await outboxes.dead(world, RESOLVED)
        assert {(one.id, one.completed_at) for one in resolved} == {(one.id, world.now) for one in (first, second)}
        assert await outboxes.dead(world, PENDING) == (third,)

    @obligation("return_letters")
    async def test_reprocessing_that_ends_badly_leaves_a_letter_pending(self, world: World) -> None:
        (letter,) = await outboxes.bury(world, await world.node(), b"1")
        (taken,) = await outboxes.taken(world, HOUR)
        world.clock.advance(SECOND)

        assert await on(world).return_letters([(taken.id, taken.term + 1), (10**12, 1)], "never") == 0
        assert await on(world).return_letters([(taken.id, taken.term)], "späte Grüße 🕰") == 1
        assert await on(world).return_letters([(taken.id, taken.term)], "twice") == 0
        (after,) = await outboxes.dead(world)
        wanted = replace(letter, term=1, attempts=letter.attempts + 1, error="späte Grüße 🕰", failed_at=world.now)
        assert after == wanted
        (again,) = await outboxes.taken(world, HOUR)
        assert again.term == 2

    @obligation("resolve_letters")
    async def test_who_is_late_may_end_what_nobody_else_has_taken(self, world: World) -> None:
        await outboxes.bury(world, await world.node(), b"1")
        (taken,) = await outboxes.taken(world, HOUR)
        world.clock.advance(2 * HOUR)

        assert await on(world).resolve_letters([(taken.id, taken.term)]) == 1

    # discard_letters

    @obligation("discard_letters")
    async def test_only_pending_letters_are_given_up(self, world: World) -> None:
        node = await world.node()
        made = await outboxes.bury(world, node, *[b"1"] * 5)
        (taken,) = await on(world).take_letters(LetterFilter(ids=(made[0].id,)), HOUR, 9)
        world.clock.advance(2 * HOUR)

        assert await on(world).discard_letters(LetterFilter(states=(RESOLVED,)), 3) == 3
        assert await on(world).discard_letters(ALL, 3) == 1
        assert await on(world).discard_letters(ALL, 3) == 0
        assert await outboxes.dead(world, REPROCESSING) == (taken,)
        discarded = await outboxes.dead(world, DISCARDED)
        assert {(one.id, one.completed_at) for one in discarded} == {(one.id, world.now) for one in made[1:]}
        assert await outboxes.taken(world, HOUR) != ()  # the one whose deadline has passed

    @obligation("discard_letters")
    async def test_what_the_filter_does_not_mean_stays(self, world: World) -> None:
        node = await world.node()
        await outboxes.bury(world, node, b"1")
        kept = await outboxes.bury(world, node, b"2", partition=1)

        assert await on(world).discard_letters(LetterFilter(partition=0), 9) == 1
        assert await outboxes.dead(world, PENDING) == kept

    # replay_letters

    @obligation("replay_letters", 1)
    async def test_letters_go_back_to_the_end_of_their_partitions(self, world: World) -> None:
        node = await world.node()
        new = message(b"1", key="a", type="other", traceparent="00-ab-cd-01", partition=1, unique="u")
        await on(world).publish([new])
        (first,) = await outboxes.bury(world, node, b"2", partition=1)  # which is the first of the partition
        await outboxes.bury(world, node, b"3", partition=1)
        world.clock.advance(SECOND)

        assert await on(world).replay_letters(ALL, 9) == 2
        back = await outboxes.read(world, 1, after=3)
        assert [(one.seq, one.payload, one.published_at) for one in back] == [
            (4, b"1", world.now),
            (5, b"2", world.now),
        ]
        assert (back[0].key, back[0].type, back[0].traceparent) == (new.key, new.type, new.traceparent)
        assert first.message.payload == b"1"
        resolved = await outboxes.dead(world)
        assert [(one.state, one.completed_at) for one in resolved] == [(RESOLVED, world.now)] * 2
        assert await on(world).replay_letters(ALL, 9) == 0

    @obligation("replay_letters")
    async def test_the_oldest_failure_goes_first(self, world: World) -> None:
        node = await world.node()
        made = await outboxes.bury(world, node, b"1", b"2", b"3")
        (taken,) = await on(world).take_letters(LetterFilter(ids=(made[0].id,)), HOUR, 1)
        world.clock.advance(SECOND)
        await on(world).return_letters([(taken.id, taken.term)], "again")

        assert await on(world).replay_letters(ALL, 2) == 2
        assert await on(world).replay_letters(ALL, 2) == 1
        assert [one.payload for one in await outboxes.read(world, after=3)] == [b"2", b"3", b"1"]

    @obligation("replay_letters", 1)
    async def test_what_somebody_reprocesses_is_left_alone_until_its_deadline(self, world: World) -> None:
        await outboxes.bury(world, await world.node(), b"1")
        (taken,) = await outboxes.taken(world, HOUR)
        assert await on(world).replay_letters(LetterFilter(states=(REPROCESSING,)), 9) == 0
        world.clock.advance(HOUR)

        assert await on(world).replay_letters(LetterFilter(states=(RESOLVED,)), 9) == 1
        assert await on(world).resolve_letters([(taken.id, taken.term)]) == 0
        assert [one.payload for one in await outboxes.read(world, after=1)] == [b"1"]

    @obligation("replay_letters", 1)
    async def test_of_many_who_replay_at_once_each_letter_goes_back_once(self, world: World) -> None:
        node = await world.node()
        await outboxes.bury(world, node, *(str(number).encode() for number in range(10)))
        stores = [world.store, *[await world.open() for _ in range(3)]]
        counts = await asyncio.gather(*(on(world, one).replay_letters(ALL, 4) for one in stores * 2))

        assert sum(counts) + await on(world).replay_letters(ALL, 100) == 10
        back = [one.payload for one in await outboxes.read(world, after=10)]
        assert sorted(back) == [str(number).encode() for number in range(10)]

    @obligation("replay_letters")
    async def test_a_replay_rings(self, world: World) -> None:
        bell = Bell()
        await outboxes.bury(world, await world.node(), b"1")
        stop = (await world.open()).watch(bell)
        await heard(world, bell)
        await on(world).replay_letters(ALL, 9)
        await bell.wait()
        stop()

    # clear_letters

    @obligation("clear_letters")
    async def test_letters_that_ended_long_ago_are_deleted(self, world: World) -> None:
        node = await world.node()
        made = await outboxes.bury(world, node, *[b"1"] * 6)
        ids = [one.id for one in made]
        taken = await on(world).take_letters(LetterFilter(ids=tuple(ids[:3])), HOUR, 9)
        await on(world).resolve_letters([(one.id, one.term) for one in taken[:2]])
        await on(world).discard_letters(LetterFilter(ids=(ids[3],)), 9)
        world.clock.advance(HOUR)
        await on(world).discard_letters(LetterFilter(ids=(ids[4],)), 9)

        assert await on(world).clear_letters(HOUR + SECOND, 9) == 0
        assert await on(world).clear_letters(HOUR, 2) == 2
        assert await on(world).clear_letters(HOUR, 2) == 1
        assert await on(world).clear_letters(HOUR, 2) == 0
        assert {one.id for one in await outboxes.dead(world)} == {ids[2], ids[4], ids[5]}
        assert await on(world).clear_letters(0 * SECOND, 9) == 1

    @obligation("clear_letters")
    @pytest.mark.parametrize("taken", [False, True])
    async def test_letters_that_have_not_ended_stay_for_ever(self, world: World, taken: bool) -> None:
        await outboxes.bury(world, await world.node(), b"1")
        if taken:
            await outboxes.taken(world, HOUR)
        world.clock.advance(10_000 * HOUR)

        assert await on(world).clear_letters(HOUR, 9) == 0
        assert len(await outboxes.dead(world)) == 1
