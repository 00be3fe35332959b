# ruff: noqa: S101 -- a suite of tests is built on assert
"""What can be seen of schedules: which are due, which there are, and that they come out as they went in."""

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from msgspec.structs import replace

from mainspring.core.backoff import Backoff
from mainspring.core.job import Retention
from mainspring.core.limits import MOMENT
from mainspring.core.missed import Missed, Reason
from mainspring.core.names import Name
from mainspring.core.outcome import Succeeded
from mainspring.core.rules import Every, Manual, Once
from mainspring.core.schedule import Decision, Overlap, Paused, Plan, Run, Schedule, Slot, Template
from mainspring.core.steps import create, decide, pause, remove, resume, run_now
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.duration import LONGEST
from mainspring.stores.records import Former, Look, SchedulePage
from mainspring.testing.contract import plans
from mainspring.testing.contract.obligation import GENERAL, obligation
from mainspring.testing.contract.plans import BY_HAND, HOURLY, names_of
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import HOUR, SECOND, World

TEXT = "späte Grüße 🕰 'quoted' \"twice\" \\ % ; -- \n\ttabbed \u202e\u2028"
A, B, C = Name("", "a"), Name("", "b"), Name("", "c")


def every(hours: int) -> Plan:
    return plans.plan(Every(hours * HOUR))


class SchedulesContract(Contract):
    """The role Schedules, but for its writing. Needs the roles Jobs and Nodes too."""

    # due

    @obligation("due")
    @obligation("due", 1)
    async def test_a_schedule_is_due_from_the_very_moment_of_its_slot(self, world: World) -> None:
        there = await plans.add(world)
        world.clock.advance(HOUR - MOMENT)
        early = await world.store.due(9)
        world.clock.advance(MOMENT)
        in_time = await world.store.due(9)

        assert (early.looks, early.now) == ((), world.now - MOMENT)
        assert (in_time.looks, in_time.now) == ((Look(schedule=there),), world.now)

    @obligation("due", 1)
    async def test_a_clock_that_was_set_back_makes_nothing_due(self, world: World) -> None:
        await plans.add(world)
        world.clock.advance(HOUR)
        world.clock.jump(-SECOND)

        assert (await world.store.due(9)).looks == ()

    @obligation("due")
    async def test_the_longest_due_come_first_and_no_more_than_asked_for(self, world: World) -> None:
        for name, hours in ((A, 2), (B, 3), (C, 1)):
            await plans.add(world, name, every(hours))
        world.clock.advance("10h")

        assert names_of((await world.store.due(9)).looks) == ["c", "a", "b"]
        assert names_of((await world.store.due(2)).looks) == ["c", "a"]

    @obligation("due", 2)
    async def test_the_answer_says_when_the_next_of_the_others_comes_up(self, world: World) -> None:
        began = world.now
        for name, hours in ((A, 2), (B, 3), (C, 1)):
            await plans.add(world, name, every(hours))

        assert (await world.store.due(9)).next_at == began + HOUR
        world.clock.advance("2h")
        assert (await world.store.due(9)).next_at == began + 3 * HOUR
        assert (await world.store.due(1)).next_at == began + 2 * HOUR
        world.clock.advance("1h")
        assert (await world.store.due(9)).next_at is None

    @obligation("due", 2)
    async def test_what_never_comes_up_by_itself_is_not_waited_for(self, world: World) -> None:
        await plans.add(world, A, plans.plan(Manual()))
        there = await plans.add(world, B)
        await plans.written(world, pause(there, world.now))
        world.clock.advance("2h")
        answer = await world.store.due(9)

        assert (answer.looks, answer.next_at) == ((), None)

    @obligation("due", 3)
    @pytest.mark.parametrize("limit", [1, 2, 9])
    async def test_what_cannot_be_read_does_not_hinder_the_others(self, world: World, limit: int) -> None:
        for name, hours in ((A, 1), (B, 2)):
            await plans.set_up(world, plans.unreadable(created(world, name, every(hours))))
        await plans.add(world, C, every(3))
        world.clock.advance("3h")
        answer = await world.store.due(limit)

        assert names_of(answer.looks) == ["c"]
        assert set(answer.unreadable) == {"a", "b"}
        assert "on_full_moon" in answer.unreadable["a"]
        # Or a ticker would look again at once, and for ever.
        assert answer.next_at is None

    @obligation("due")
    async def test_what_a_move_or_the_end_of_a_run_changes_is_due_then(self, world: World) -> None:
        there = await plans.add(world)
        await plans.written(world, pause(there, world.now))
        world.clock.advance(HOUR)
        assert (await world.store.due(9)).looks == ()

        paused = await plans.schedule(world)
        again = replace(paused, paused=None, next_at=world.now, revision=paused.revision + 1)
        await plans.written(world, Decision(before=paused, after=again))
        assert (await world.store.due(9)).looks == (Look(schedule=again),)
        await plans.written(world, remove(again))
        assert (await world.store.due(9)).looks == ()

    # Open runs

    @obligation("due")
    @obligation("look")
    async def test_a_look_shows_the_jobs_that_have_not_ended(self, world: World) -> None:
        node = await world.node()
        await plans.add(world)
        first, second, third = [await plans.fire(world) for _ in range(3)]
        assert (await plans.look_at(world)).open == (third.id, second.id, first.id)

        await world.end(await world.claim_one(node), Succeeded())
        await world.claim_one(node)
        assert (await plans.look_at(world)).open == (third.id, second.id)
        world.clock.advance(HOUR)
        (look,) = (await world.store.due(9)).looks
        assert look.open == (third.id, second.id)
        (look,) = (await world.store.list_schedules()).looks
        assert look.open == (third.id, second.id)

    @obligation("look")
    async def test_a_look_shows_the_ten_newest_of_many_and_none_of_others(self, world: World) -> None:
        await plans.add(world, A)
        await plans.add(world, B)
        ids = []
        for _ in range(12):
            decision = await plans.written(world, run_now(await plans.schedule(world, A), world.now, world.id))
            ids += [run.id for run in decision.runs]
            await plans.written(world, run_now(await plans.schedule(world, B), world.now, world.id))

        assert (await plans.look_at(world, A)).open == tuple(ids[:1:-1])

    # look

    @obligation("look")
    async def test_schedules_are_looked_at_by_their_names(self, world: World) -> None:
        a, b = await plans.add(world, A), await plans.add(world, B)
        await plans.set_up(world, plans.unreadable(created(world, C)))

        answer = await world.store.look([B, Name("", "nobody"), A, C])

        assert {look.schedule.name: look.schedule for look in answer.looks} == {A: a, B: b}
        assert set(answer.unreadable) == {"c"}
        assert answer.now == world.now
        assert (await world.store.look([])).looks == ()

    @obligation("look", 1)
    async def test_of_names_that_are_not_there_those_with_runs_are_named(self, world: World) -> None:
        nobody, idle, by_hand = Name("", "nobody"), Name("", "idle"), Name("", "by-hand")
        gone = await plans.add(world, A)
        await plans.add(world, B)
        for name in (idle, by_hand):
            await plans.add(world, name)
        await plans.written(world, run_now(await plans.schedule(world, by_hand), world.now, world.id))
        for _ in range(2):
            world.clock.advance(HOUR)
            for name in (A, B):
                there = await plans.schedule(world, name)
                await plans.written(world, decide(there, world.now, world.id, busy=False))
        last = world.now
        world.clock.advance(HOUR)
        await plans.written(world, pause(await plans.schedule(world, A), world.now))
        world.clock.advance(HOUR)
        resumed = resume(await plans.schedule(world, A), world.now, world.id, busy=False)
        assert [run.job for run in resumed.runs] == [None], "a later slot, without a job"
        await plans.written(world, resumed)
        for name in (gone.name, idle, by_hand):
            await plans.written(world, remove(await plans.schedule(world, name)))

        looked = await world.store.look([nobody, by_hand, B, idle, A])

        assert looked.former == (Former(name=str(A), last_slot=last), Former(name=str(by_hand), last_slot=None))
        assert (await world.store.look([B])).former == ()
        assert (await world.store.due(9)).former == ()
        await plans.add(world, A)
        assert [one.name for one in (await world.store.look([A, by_hand])).former] == [str(by_hand)]

    @obligation("look")
    async def test_names_are_told_apart_by_their_namespace(self, world: World) -> None:
        names = [Name("", "a.b"), Name("a", "b"), Name("a", "b.c"), Name("a.b", "c"), Name("", "A.B")]
        for name in names:
            await plans.add(world, name)

        answer = await world.store.look(names)
        assert {look.schedule.name for look in answer.looks} == set(names)
        assert [look.schedule.name for look in (await world.store.look(names[1:2])).looks] == [names[1]]

    @obligation(GENERAL, 7)
    @obligation("look")
    @obligation("list_schedules")
    async def test_a_schedule_comes_out_as_it_went_in(self, world: World) -> None:
        there = elaborate(world.now)
        await plans.set_up(world, there)

        (look,) = (await world.store.look([there.name])).looks
        assert look.schedule == there
        (look,) = (await world.store.list_schedules()).looks
        assert look.schedule == there
        world.clock.advance(LONGEST / 2)
        (look,) = (await world.store.due(9)).looks
        assert look.schedule == there

    @obligation(GENERAL, 5)
    async def test_instants_of_a_schedule_come_back_in_utc(self, world: World) -> None:
        tokyo = timezone(timedelta(hours=9))
        until = datetime(2031, 1, 1, 9, 0, 0, 7, tzinfo=tokyo)
        await plans.set_up(world, created(world, HOURLY, replace(plans.plan(), until=until)))
        there = await plans.schedule(world)

        assert there.plan.until == until
        instants = [there.plan.until, there.created_at, there.cursor, there.next_at]
        assert [instant.tzinfo for instant in instants if instant] == [UTC] * 4

    @obligation("look")
    async def test_a_schedule_that_does_only_what_its_defaults_say_comes_out_as_it_went_in(self, world: World) -> None:
        there = await plans.add(world, BY_HAND, plans.plan(Manual()))

        assert await plans.schedule(world, BY_HAND) == there

    # list_schedules

    @obligation("list_schedules")
    async def test_schedules_are_listed_by_name_in_pages(self, world: World) -> None:
        names = [f"{letter}{number}" for letter in "abc" for number in range(3)]
        for name in reversed(names):
            await plans.add(world, Name("", name))

        for limit in (1, 2, 3, 8, 9, 10):
            assert await listed(world, limit) == [names[at : at + limit] for at in range(0, len(names), limit)]

    @obligation("list_schedules")
    async def test_only_those_of_one_owner_are_listed(self, world: World) -> None:
        for name, owner in (("a", "shop"), ("b", None), ("c", "shop"), ("d", "blog"), ("e", "shop")):
            await plans.add(world, Name("", name), owner=owner)
        there = await plans.schedule(world, C)
        given_away = replace(there, owner="blog", revision=there.revision + 1)
        await plans.written(world, Decision(before=there, after=given_away))

        assert await listed(world, 9, owner="shop") == [["a", "e"]]
        assert await listed(world, 1, owner="blog") == [["c"], ["d"]]
        assert await listed(world, 9, owner="nobody") == [[]]
        assert await listed(world, 9) == [["a", "b", "c", "d", "e"]]

    @obligation("list_schedules")
    async def test_a_list_tells_of_what_cannot_be_read_and_goes_on(self, world: World) -> None:
        await plans.set_up(world, plans.unreadable(created(world, A)))
        await plans.add(world, B)
        pages = [await world.store.list_schedules(limit=1)]
        while pages[-1].after:
            pages.append(await world.store.list_schedules(limit=1, after=pages[-1].after))

        assert [name for page in pages for name in page.unreadable] == ["a"]
        assert [name for page in pages for name in names_of(page.looks)] == ["b"]

    @obligation("list_schedules")
    async def test_an_empty_list_of_schedules_is_one_page(self, world: World) -> None:
        assert await world.store.list_schedules() == SchedulePage(now=world.now, looks=())


def created(world: World, name: Name = HOURLY, planned: Plan | None = None) -> Schedule:
    """A schedule as it begins, which no store has been told of."""
    after = create(name, planned or plans.plan(), world.now).after
    assert after
    return after


def elaborate(now: datetime) -> Schedule:
    """A schedule with a value of its own for everything."""
    template = Template(
        task=Name("späte", "grüße.🕰"),
        payload=bytes(range(256)),
        backoff=Backoff(
            initial=MOMENT,
            increment=timedelta(microseconds=333_333),
            multiplier=1.1 + 2**-40,
            cap=LONGEST,
            jitter=1 / 3,
        ),
        max_attempts=2**31 - 1,
        queue=TEXT,
        priority=0,
        loss_limit=1,
        retention=Retention(succeeded=timedelta(0), failed=LONGEST - MOMENT),
        timeout=MOMENT,
        expires=timedelta(days=3, microseconds=7),
        key=TEXT,
        unique=UniqueKey(key=TEXT, period=timedelta(days=3, microseconds=7), on_conflict=OnConflict.REPLACE),
        tags=("b", "a", "", TEXT, "a"),
    )
    plan = Plan(
        rule=Once(now + HOUR + MOMENT),
        template=template,
        missed=Missed.all(limit=7, per_tick=3, grace=timedelta(seconds=1, microseconds=1)),
        overlap=Overlap.CANCEL_PREVIOUS,
        jitter=timedelta(microseconds=333),
        until=now + LONGEST / 4,
        max_runs=2**31 - 1,
        keep_runs=timedelta(days=7, microseconds=1),
        description=TEXT,
    )
    name = Name("späte", "grüße.🕰")
    drop = Run(
        id=UUID(int=7),
        schedule=name,
        decided_at=now,
        slot=now - HOUR,
        last=now,
        count=3,
        is_catch_up=True,
        zone="Europe/Berlin",
        owner=TEXT,
        reason=Reason.SUPERSEDED,
    )
    return Schedule(
        name=name,
        plan=plan,
        created_at=now - HOUR,
        cursor=now - MOMENT,
        next_at=now + HOUR,
        revision=2**40,
        owner=TEXT,
        release=TEXT,
        paused=Paused(at=now, by=TEXT, reason=TEXT),
        runs=2**40,
        held=Slot(at=now - SECOND, is_catch_up=True),
        waits=True,
        last_end=now - 2 * SECOND,
        last_drop=drop,
    )


async def listed(world: World, limit: int, *, owner: str | None = None) -> list[list[str]]:
    """Read all pages, as names."""
    page = await world.store.list_schedules(owner=owner, limit=limit)
    pages = [names_of(page.looks)]
    while page.after:
        before = page.after
        page = await world.store.list_schedules(owner=owner, limit=limit, after=page.after)
        assert page.after != before, "a page that leads back to itself"
        pages.append(names_of(page.looks))
    return pages
