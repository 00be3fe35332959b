"""Schedules that programs declare: several deployments on one store, rolling deploys, and what is wrong with a rule."""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring import Context, Cron, Every, Mainspring, Manual, Missed, Once, Unique
from mainspring.core.missed import Reason
from mainspring.core.schedule import Overlap
from mainspring.core.steps import decide
from mainspring.errors import (
    BadName,
    DeclarationError,
    NameTaken,
    PayloadError,
    ScheduleError,
    StoreError,
    UnknownSchedule,
    UnknownTask,
)
from mainspring.ids import new_id
from mainspring.runtime.firing import move_of
from mainspring.stores.records import Move
from mainspring.testing import VirtualTime
from mainspring.testing.contract.plans import unreadable
from mainspring.testing.faults import FaultyStore
from tests.schedules.conftest import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    T0,
    Diary,
    MakeStore,
    diary_task,
    dropped,
    fired,
    jobs,
    pass_by,
    runs,
    schedules,
    slots,
    until,
)

pytestmark = pytest.mark.usefixtures("virtual_time")

Program = Callable[..., Mainspring]


@pytest.fixture
def program(make_store: MakeStore, virtual_time: VirtualTime) -> Program:
    """Makes programs: an app with its own handle on the store, and the schedules that it declares, by name."""

    def make(
        plans: dict[str, Any] | None = None, *, owner: str | None = None, release: str = "", task: str = "work"
    ) -> Mainspring:
        app = Mainspring(store=make_store(), clock=virtual_time.clock, owner=owner, release=release)
        work, _ = diary_task(app, task)
        for name, rule in (plans or {}).items():
            app.schedule(rule, name=name)(work)
        return app

    return make


async def deploy(app: Mainspring) -> None:
    """Have a node of the program start, and end again."""
    async with app.node():
        pass


async def names(app: Mainspring) -> dict[str, str | None]:
    """Say which schedules there are, and whose they are."""
    return {name: one.owner for name, one in (await schedules(app)).items()}


# Several deployments on one store.


async def test_each_deployment_has_its_own_schedules_and_never_takes_away_another_s(program: Program) -> None:
    web = program({"a": Every(HOUR), "b": Every(HOUR)}, owner="web")
    billing = program({"c": Every(HOUR)}, owner="billing")
    await deploy(web)
    await deploy(billing)
    assert await names(web) == {"a": "web", "b": "web", "c": "billing"}
    await deploy(program({"b": Every(HOUR)}, owner="web"))
    assert await names(web) == {"b": "web", "c": "billing"}
    await deploy(program(owner="billing"))
    assert await names(web) == {"b": "web"}


async def test_two_programs_that_name_no_owner_take_nothing_away_from_each_other(program: Program) -> None:
    await deploy(program({"a": Every(HOUR)}, task="mail"))
    await deploy(program({"b": Every(HOUR)}, task="report"))
    await deploy(program({"a": Every(HOUR)}, task="mail"))
    assert await names(program()) == {"a": "app", "b": "app"}


async def test_a_program_without_an_owner_takes_away_what_is_surely_its_own(program: Program) -> None:
    await deploy(program({"a": Every(HOUR), "b": Every(HOUR)}))
    await deploy(program({"b": Every(HOUR)}))
    assert list(await names(program())) == ["b"]


async def test_a_program_that_declares_nothing_and_names_no_owner_takes_nothing_away(program: Program) -> None:
    """It may be a script that only imports the tasks."""
    await deploy(program({"a": Every(HOUR)}))
    await deploy(program())
    assert list(await names(program())) == ["a"]


async def test_a_schedule_that_was_taken_out_of_the_code_and_stays_is_reported_at_each_start(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    def reported() -> list[str]:
        return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]

    await deploy(program({"nightly": Every(HOUR)}))
    assert reported() == []
    for _ in range(2):
        caplog.clear()
        await deploy(program())
        (line,) = reported()
        assert "schedule nightly: not declared by this program, and still active" in line
        assert (
            "`mainspring schedules remove nightly`. Only schedules that were declared by an app with an owner" in line
        )
    await deploy(program(owner="myapp"))
    assert list(await names(program())) == ["nightly"], "an owner that is given later is another one"
    caplog.clear()
    await deploy(program(task="another"))
    assert reported() == [], "it is most likely another program's"


async def test_a_program_that_runs_no_node_declares_nothing(program: Program) -> None:
    app = program({"a": Every(HOUR)})
    async with app:
        assert (await app.schedules.list()).looks == ()


async def test_the_same_name_by_two_owners_stays_with_the_first(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    await deploy(program({"nightly": Every(HOUR)}, owner="web"))
    (before,) = (await schedules(program())).values()
    await deploy(program({"nightly": Every(MINUTE)}, owner="billing"))
    (after,) = (await schedules(program())).values()
    assert after == before
    assert (after.owner, after.next_at) == ("web", T0 + HOUR)
    (warned,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "nightly" in warned.getMessage()
    assert "belongs to web" in warned.getMessage()
    assert "another name" in warned.getMessage()


async def test_a_name_is_free_again_when_its_owner_has_given_it_up(program: Program) -> None:
    await deploy(program({"nightly": Every(HOUR)}, owner="web"))
    await deploy(program(owner="web"))
    await deploy(program({"nightly": Every(MINUTE)}, owner="billing"))
    assert await names(program()) == {"nightly": "billing"}


async def test_schedules_that_were_added_at_run_time_are_left_alone(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    app = program(owner="web")
    async with app:
        for name in ("by-a-person", "of-the-same-name"):
            await app.schedules.add(name, Every(DAY), app.find("work").call())
    await deploy(program({"of-the-same-name": Every(HOUR)}, owner="web"))
    await deploy(program(owner="web"))
    kept = await schedules(app)
    assert {name: (one.owner, one.next_at) for name, one in kept.items()} == {
        "by-a-person": (None, T0 + DAY),
        "of-the-same-name": (None, T0 + DAY),
    }
    assert "of-the-same-name was added at run time and is left as it is" in caplog.text


# Deploys.


async def test_a_declaration_that_has_not_changed_writes_nothing(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    revisions = []
    for life in range(3):
        faulty = FaultyStore(make_store())
        app = Mainspring(store=faulty.as_store, clock=virtual_time.clock, owner="web", release="7")
        task, _ = diary_task(app, unique=Unique())
        app.schedule(Every("15m"), name="every", missed=Missed.all(), jitter="10s", overlap="skip")(task)
        app.schedule(Cron("@daily", tz="Europe/Berlin"), name="cron", until=T0 + 400 * DAY, max_runs=7)(task)
        app.schedule(Once(T0 + DAY), name="once", keep_runs="2d", description="in words")(task)
        async with app.node(ticker=False):
            assert faulty.calls.count("move") == (1 if life == 0 else 0)
        revisions.append({name: one.revision for name, one in (await schedules(app)).items()})
    assert revisions[0] == revisions[1] == revisions[2]


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"missed": Missed.skip()}, "missed", Missed.skip()),
        ({"overlap": "queue_one"}, "overlap", Overlap.QUEUE_ONE),
        ({"jitter": "1m"}, "jitter", MINUTE),
        ({"until": T0 + DAY}, "until", T0 + DAY),
        ({"max_runs": 7}, "max_runs", 7),
        ({"keep_runs": "1d"}, "keep_runs", DAY),
        ({"description": "new words"}, "description", "new words"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_an_option_that_has_changed_is_written_and_the_slots_stay(
    program: Program, options: dict[str, Any], field: str, value: object
) -> None:
    await deploy(program({"hourly": Every(HOUR)}))
    await until(25 * MINUTE)
    for given in (options, {}):
        app = program()
        app.schedule(Every(HOUR), name="hourly", **given)(app.find("work"))
        await deploy(app)
        (kept,) = (await schedules(app)).values()
        assert (getattr(kept.plan, field) == value) == bool(given), "and back again"
        assert kept.next_at == T0 + HOUR


async def test_arguments_that_have_changed_are_those_of_the_next_job(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    seen: list[tuple[datetime | None, str]] = []
    for word in ("one", "two"):
        app = Mainspring(store=make_store(), clock=virtual_time.clock)

        @app.schedule(Every(MINUTE), name="minutely", args=[word])
        @app.task(name="say")
        async def say(ctx: Context, word: str) -> None:
            seen.append((ctx.slot, word))

        async with app.node():
            await pass_by(65 * SECOND)
    assert seen == [(T0 + MINUTE, "one"), (T0 + 2 * MINUTE, "two")]


async def test_a_rule_that_has_changed_decides_what_was_owed_under_the_old_one_first(program: Program) -> None:
    old = program()
    old.schedule(Every(HOUR), name="often", missed=Missed.all(limit=12, per_tick=5))(old.find("work"))
    await deploy(old)
    await until(8 * HOUR + 30 * MINUTE)
    new = program({"often": Every(MINUTE)})
    async with new.node():
        await pass_by(90 * SECOND)
    assert slots(await fired(new)) == [
        *[T0 + n * HOUR for n in range(1, 9)],
        T0 + 8 * HOUR + 31 * MINUTE,
    ]
    assert await dropped(new) == []


async def test_a_rule_that_has_changed_while_many_slots_were_owed_tells_of_each(program: Program) -> None:
    old = program()
    old.schedule(Every(SECOND), name="often", missed=Missed.all(limit=200, per_tick=1))(old.find("work"))
    await deploy(old)
    await until(300.5)
    await deploy(program({"often": Every(HOUR)}))
    kept = await schedules(old)
    assert kept["often"].next_at == T0 + HOUR + 300.5 * SECOND
    assert sum(run.count for run in await runs(old)) == 300
    assert len(await fired(old)) == 200


async def test_a_paused_schedule_whose_rule_has_changed_tells_of_what_was_paused_and_stays_paused(
    program: Program,
) -> None:
    app = program({"often": Every(HOUR)})
    await deploy(app)
    async with app:
        await app.schedules.pause("often")
        await until(5 * HOUR + MINUTE)
    await deploy(program({"often": Every(MINUTE)}))
    assert await dropped(app) == [(Reason.PAUSED, 5)]
    (kept,) = (await schedules(app)).values()
    assert kept.paused
    assert kept.next_at is None


async def test_a_schedule_that_is_gone_leaves_its_runs_and_its_jobs(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    old = program({"minutely": Every(MINUTE)}, owner="web")
    async with old.node(queues=["another"]):
        await until(61)
    new = program(owner="web")
    await deploy(new)
    assert await names(new) == {}
    (run,), (view,) = await runs(new), await jobs(new)
    assert run.is_open
    async with new.node():
        await until(65)
        (run,) = await runs(new)
    assert run.finished_at
    assert run.id == view.job.id
    assert "schedule minutely is gone: web does not declare it any more" in caplog.text


# Rolling deploys.


async def test_in_a_rolling_deploy_the_newer_release_counts_in_whatever_order_nodes_start(program: Program) -> None:
    def old() -> Mainspring:
        return program({"a": Every(HOUR), "b": Every(HOUR)}, owner="web", release="1.9")

    def new() -> Mainspring:
        return program({"b": Every(MINUTE), "c": Every(MINUTE)}, owner="web", release="1.10")

    for app in (old(), new(), old(), new(), old(), old()):
        await deploy(app)
        if "c" in await names(app):
            kept = await schedules(app)
            assert {name: one.next_at for name, one in kept.items()} == {"b": T0 + MINUTE, "c": T0 + MINUTE}
            assert {one.release for one in kept.values()} == {"1.10"}
    assert list(await names(old())) == ["b", "c"]


async def test_an_older_node_that_starts_late_brings_nothing_back(program: Program) -> None:
    await deploy(program({"a": Every(HOUR), "b": Every(HOUR)}, owner="web", release="1"))
    await deploy(program({"b": Every(HOUR)}, owner="web", release="2"))
    await deploy(program({"a": Every(HOUR), "b": Every(HOUR)}, owner="web", release="1"))
    assert list(await names(program())) == ["b"]


async def test_a_release_counts_over_its_own_candidate(program: Program) -> None:
    await deploy(program({"a": Every(HOUR)}, owner="web", release="2.0.0-rc1"))
    await deploy(program({"a": Every(MINUTE)}, owner="web", release="2.0.0"))
    (kept,) = (await schedules(program())).values()
    assert (kept.release, kept.next_at) == ("2.0.0", T0 + MINUTE)


@pytest.mark.parametrize("releases", [("f00dfeed", "1dea0000"), ("1dea0000", "f00dfeed"), ("9abcdef", "1abcdef")])
async def test_of_releases_without_an_order_the_last_to_start_counts(
    program: Program, releases: tuple[str, str]
) -> None:
    before, after = releases
    await deploy(program({"a": Every(HOUR), "b": Every(HOUR)}, owner="web", release=before))
    await deploy(program({"a": Every(MINUTE), "c": Every(HOUR)}, owner="web", release=after))
    kept = await schedules(program())
    assert sorted(kept) == ["a", "c"]
    assert kept["a"].next_at == T0 + MINUTE


async def test_an_older_release_is_warned_of_what_it_declares_in_vain_and_of_nothing_else(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    await deploy(program({"changed": Every(MINUTE), "same": Every(HOUR)}, owner="web", release="2"))
    await deploy(program({"changed": Every(HOUR), "same": Every(HOUR), "gone": Every(HOUR)}, owner="web", release="1"))
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "schedule changed stays as release 2 has declared it: 1 is an older one",
        "schedule gone is not made by release 1: release 2 has been here",
    ]


async def test_an_older_node_brings_nothing_back_although_it_cannot_read_what_newer_ones_have_written(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    await deploy(program({"a": Every(HOUR), "b": Every(HOUR)}, owner="web", release="1"))
    new = program({"b": Every(HOUR)}, owner="web", release="2")
    async with new.node():
        there = await new.schedules.get("b")
        newer = unreadable(replace(there, revision=there.revision + 1))
        assert await new.store.move([Move(before=there, after=newer)]) == (True,)
    await deploy(program({"a": Every(HOUR), "b": Every(HOUR)}, owner="web", release="1"))
    assert list(await names(program())) == []  # and one that cannot be read
    assert "schedule a is not made by release 1: a newer release seems to have been here, for b cannot" in caplog.text


async def test_a_node_tells_what_it_has_declared(program: Program, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mainspring.node")

    def told() -> list[str]:
        lines = [record.getMessage() for record in caplog.records if "schedule" in record.getMessage()]
        caplog.clear()
        return lines

    await deploy(program({"a": Every(HOUR), "b": Every(HOUR)}, owner="web", release="1"))
    assert told() == ["schedule a is added: web declares it", "schedule b is added: web declares it"]
    await deploy(program({"a": Every(HOUR), "b": Every(MINUTE)}, owner="web", release="1"))
    assert told() == ["schedule b is changed: web declares another rule"]
    await deploy(program({"a": Every(HOUR)}, owner="web", release="2"))
    assert told() == ["schedule b is gone: web does not declare it any more"]


async def test_many_declarations_are_read_and_written_some_hundreds_at_a_time(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    def program(interval: timedelta, count: int) -> tuple[FaultyStore, Mainspring]:
        store = FaultyStore(make_store())
        app = Mainspring(store=store.as_store, clock=virtual_time.clock, owner="web")
        task, _ = diary_task(app)
        for number in range(count):
            app.schedule(Every(interval), name=f"s{number:04}")(task)
        return store, app

    calls = {}
    for what, interval, count in (
        ("none there", HOUR, 1100),
        ("all there", HOUR, 1100),
        ("other rules", DAY, 1100),
        ("fewer", DAY, 50),
    ):
        store, app = program(interval, count)
        await store.inner.open()
        async with app.node(ticker=False):
            calls[what] = {verb: store.calls.count(verb) for verb in ("list_schedules", "look", "move", "runs")}
        kept = await schedules(app)
        assert list(kept) == [f"s{number:04}" for number in range(count)]
        assert {one.next_at for one in kept.values()} == {T0 + interval}
    assert calls == {
        "none there": {"list_schedules": 1, "look": 3, "move": 3, "runs": 0},
        "all there": {"list_schedules": 3, "look": 0, "move": 0, "runs": 0},
        "other rules": {"list_schedules": 3, "look": 3, "move": 3, "runs": 0},
        "fewer": {"list_schedules": 3, "look": 0, "move": 3, "runs": 0},
    }


@pytest.mark.parametrize("error", [ScheduleError("schedule s3", "it cannot be kept"), StoreError("store", "too long")])
async def test_a_declaration_that_cannot_be_written_keeps_no_other_back(
    make_store: MakeStore, virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    class Picky(FaultyStore):
        """A store that cannot keep two of them."""

        async def move(self, moves: Sequence[Move]) -> tuple[bool, ...]:
            self.calls.append("move")
            if any(move.after and str(move.after.name) in {"s3", "s77"} for move in moves):
                raise error
            return await self.inner.move(moves)

    picky = Picky(make_store())
    app = Mainspring(store=picky.as_store, clock=virtual_time.clock, owner="web")
    task, _ = diary_task(app)
    for number in range(100):
        app.schedule(Every(HOUR), name=f"s{number}")(task)
    async with app.node(ticker=False):
        assert set(await names(app)) == {f"s{number}" for number in range(100)} - {"s3", "s77"}
        assert picky.calls.count("move") < 40
        await until(MINUTE)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert told == [
        f"schedule {name} is left as it is: what is declared cannot be written: {error}" for name in ("s3", "s77")
    ], "once each"


async def test_a_store_that_can_write_none_of_the_declarations_is_told_of_as_what_it_is(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    class Broken(FaultyStore):
        async def move(self, moves: Sequence[Move]) -> tuple[bool, ...]:
            raise StoreError("store", f"it cannot write {len(moves)}")

    app = Mainspring(store=Broken(make_store()).as_store, clock=virtual_time.clock, owner="web")
    task, _ = diary_task(app)
    for name in "abc":
        app.schedule(Every(HOUR), name=name)(task)
    with pytest.raises(StoreError, match="it cannot write 1"):
        await deploy(app)


async def test_a_schedule_that_somebody_else_has_in_hand_keeps_no_other_declaration_back(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    seen: list[list[str]] = []

    class Contended(FaultyStore):
        """A store in which somebody else is always faster with one of them."""

        async def move(self, moves: Sequence[Move]) -> tuple[bool, ...]:
            seen.append([str(move.after.name) for move in moves if move.after])
            others = [move for move in moves if move.after and str(move.after.name) != "s0000"]
            answers = iter(await self.inner.move(others))
            return tuple(move in others and next(answers) for move in moves)

    app = Mainspring(store=Contended(make_store()).as_store, clock=virtual_time.clock, owner="web")
    task, _ = diary_task(app)
    for number in range(600):
        app.schedule(Every(HOUR), name=f"s{number:04}")(task)
    await deploy(app)
    assert len(await names(app)) == 599
    assert [len(some) for some in seen[:2]] == [500, 100]
    assert all(some == ["s0000"] for some in seen[2:])


async def test_what_is_declared_again_goes_on_behind_the_slots_that_have_jobs(program: Program) -> None:
    """As after a clock that was set back; and of what was before nobody knows which runs have been pruned."""
    app = program({"a": Every(HOUR), "b": Every(HOUR), "new": Every(HOUR)}, owner="web")
    async with app:
        task = app.find("work")
        for name in ("a", "b"):
            await app.schedules.add(name, Every(HOUR, start=T0), task.call())
        there = await app.schedules.get("a")
        ahead = decide(replace(there, cursor=T0 - HOUR), T0 + HOUR, partial(new_id, T0), busy=False)
        assert await app.store.move([move_of(ahead)]) == (True,)
        await app.schedules.remove("a")
        await app.schedules.run("b")
        await app.schedules.remove("b")
    await deploy(app)
    kept = await schedules(app)
    last = max(run.slot for run in await runs(app, "a") if run.slot)
    assert last > T0
    assert {name: (one.cursor, one.known_since) for name, one in kept.items()} == {
        "a": (last, last),
        "b": (T0, T0),
        "new": (T0, None),
    }


async def test_a_declaration_that_others_are_always_faster_than_is_made_later(
    make_store: MakeStore, virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    class Contended(FaultyStore):
        """A store in which somebody else was faster, so many times."""

        left = 60

        async def move(self, moves: Sequence[Move]) -> tuple[bool, ...]:
            self.left -= 1
            return await self.inner.move(moves) if self.left < 0 else (False,) * len(moves)

    app = Mainspring(store=Contended(make_store()).as_store, clock=virtual_time.clock, owner="web")
    task, _ = diary_task(app)
    app.schedule(Every(HOUR), name="a")(task)
    async with app.node(ticker=False):
        assert list(await names(app)) == []
        await until(MINUTE)
        assert list(await names(app)) == ["a"]
    assert "schedule a is still not what is declared: others change it all the time" in caplog.text


async def test_a_change_of_what_comes_up_faster_than_the_store_answers_is_made_at_once(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    slow = FaultyStore(make_store())
    app = Mainspring(store=slow.as_store, clock=virtual_time.clock)
    task, _ = diary_task(app)
    async with app:
        await app.schedules.add("often", Every(timedelta(milliseconds=10)), task.call())
        await pass_by(HOUR)
        slow.delay("look", 0.012, times=1000)
        slow.calls.clear()
        await app.schedules.change("often", Every(DAY), task.using(queue="other").call())
        assert slow.calls == ["look", "move"]
    made = await fired(app)
    assert [run.is_catch_up for run in made] == [False]
    assert [view.job.queue for view in await jobs(app)] == ["default"], "what was owed is made as it was declared then"
    assert (await schedules(app))["often"].next_slot == made[0].decided_at + DAY


async def test_old_and_new_nodes_side_by_side_make_each_slot_once(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    diary = Diary()

    def release(number: int, interval: timedelta) -> Mainspring:
        app = Mainspring(store=make_store(), clock=virtual_time.clock, owner="web", release=str(number))

        @app.schedule(Every(interval), name="often")
        @app.task(name="work")
        async def work(ctx: Context) -> None:
            await diary.write(ctx)

        return app

    async with release(1, 10 * SECOND).node():
        await until(35)
        async with release(2, 20 * SECOND).node():
            await until(60)
            async with release(1, 10 * SECOND).node():
                await until(99)
    assert diary.slots == [T0 + n * SECOND for n in (10, 20, 30, 55, 75, 95)]


async def test_without_a_release_the_last_to_start_counts(program: Program) -> None:
    for rule in (Every(HOUR), Every(MINUTE), Every(HOUR)):
        await deploy(program({"a": rule}))
    (kept,) = (await schedules(program())).values()
    assert kept.next_at == T0 + HOUR


async def test_nodes_that_start_together_leave_one_of_each(make_store: MakeStore, virtual_time: VirtualTime) -> None:
    faulty = [FaultyStore(make_store()) for _ in range(4)]
    apps = [Mainspring(store=one.as_store, clock=virtual_time.clock) for one in faulty]
    for one, app in zip(faulty, apps, strict=True):
        task, _ = diary_task(app)
        for name in ("a", "b", "c"):
            app.schedule(Every(MINUTE), name=name)(task)
        one.delay("look", "1s")  # all have seen that nothing is there before anybody writes
        one.delay("move", "1s", times=3)
    async with apps[0].node(), apps[1].node(), apps[2].node(), apps[3].node():
        await pass_by(62 * SECOND)
    assert await names(apps[0]) == {"a": "app", "b": "app", "c": "app"}
    assert len(await fired(apps[0])) == 3


# Declared while a node runs.


async def test_a_schedule_that_is_declared_after_the_node_has_started_is_taken_up(app: Mainspring) -> None:
    task, diary = diary_task(app)
    async with app.node():
        await until(10)
        app.schedule(Every(10 * SECOND), name="late")(task)
        await until(40)
    assert list(await schedules(app)) == ["late"]
    assert len(diary.calls) >= 2


async def test_what_was_declared_late_is_written_when_the_store_answers_again(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    faulty = FaultyStore(make_store())
    app = Mainspring(store=faulty.as_store, clock=virtual_time.clock)
    task, diary = diary_task(app)
    async with app.node():
        await until(10)
        faulty.drop("move", times=3)
        app.schedule(Every(10 * SECOND), name="late")(task)
        await until(60)
    assert len(diary.calls) >= 2


# What is wrong is told where it is written, all at once.


async def nothing() -> None:
    """A task."""


def test_everything_that_is_wrong_with_a_declaration_is_told_at_once(app: Mainspring) -> None:
    task = app.task(name="work")(nothing)
    declare: Any = app.schedule
    with pytest.raises(ScheduleError) as refused:
        declare(
            "0 9 * * *",
            name="nightly",
            missed="latest",
            overlap="sometimes",
            jitter="soon",
            until=datetime(2030, 1, 1),  # noqa: DTZ001 - which is the point
            max_runs=0,
            keep_runs=-1,
            description=7,
            retries=3,
            jiter="1s",
        )(task)
    said = str(refused.value)
    assert said.startswith("schedule nightly")
    for part in (
        "Cron('0 9 * * *')",
        "Missed.latest()",
        "'queue_one'",
        "jitter",
        "time zone",
        "max_runs",
        "keep_runs",
        "a description is text",
        "there is no option 'retries'",
        "did you mean 'jitter'?",
    ):
        assert part in said, f"nothing is said about {part}"
    assert isinstance(refused.value, DeclarationError)
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize("rule", ["@daily", 60, None, timedelta(minutes=5), datetime.now(UTC), Every])
async def test_what_is_no_rule_is_refused_with_advice(app: Mainspring, rule: Any) -> None:  # noqa: ANN401 - which is the point
    task = app.task(name="work")(nothing)
    with pytest.raises(ScheduleError, match="a rule is Cron"):
        app.schedule(rule)(task)
    async with app:
        with pytest.raises(ScheduleError, match="a rule is Cron"):
            await app.schedules.add("x", rule, task.call())
        await app.schedules.add("x", Manual(), task.call())
        if rule is not None:
            with pytest.raises(ScheduleError, match="a rule is Cron"):
                await app.schedules.change("x", rule)


def test_arguments_that_do_not_fit_are_refused_when_they_are_declared(app: Mainspring) -> None:
    @app.task(name="resize")
    async def resize(photo: int, width: int = 800) -> None:
        """Do nothing."""

    with pytest.raises(PayloadError, match="photo"):
        app.schedule(Every(HOUR))(resize)
    with pytest.raises(PayloadError, match="width"):
        app.schedule(Every(HOUR), args=[7], kwargs={"width": "wide"})(resize)
    app.schedule(Every(HOUR), args=[7], kwargs={"width": 200})(resize)


async def test_what_the_rule_says_cannot_be_said_of_the_job(app: Mainspring) -> None:
    task = app.task(name="work")(nothing)
    async with app:
        with pytest.raises(ScheduleError) as refused:
            await app.schedules.add("x", Every(HOUR), task.using(delay="5m", expires=T0 + DAY).call())
        assert "leave out delay and run_at" in str(refused.value)
        assert "give expires a length of time" in str(refused.value)
        with pytest.raises(ScheduleError, match="leave out delay and run_at"):
            await app.schedules.add("x", Every(HOUR), task.using(run_at=T0 + DAY).call())


def test_a_schedule_stands_above_a_task(app: Mainspring) -> None:
    declare: Any = app.schedule(Every(HOUR))
    with pytest.raises(ScheduleError, match=r"write @app.schedule\(…\) above @app.task"):
        declare(nothing)


def test_a_task_of_another_app_is_refused(app: Mainspring) -> None:
    task = Mainspring("memory://").task(name="work")(nothing)
    with pytest.raises(UnknownTask, match="work"):
        app.schedule(Every(HOUR))(task)


@pytest.mark.parametrize("name", ["a b", "", "x" * 1000, "a:b:c", "\n"])
async def test_a_name_that_cannot_be_kept_is_refused(app: Mainspring, name: str) -> None:
    task = app.task(name="work")(nothing)
    if name:  # without one, it is the task's
        with pytest.raises(BadName):
            app.schedule(Every(HOUR), name=name)(task)
    async with app:
        with pytest.raises(BadName):
            await app.schedules.add(name, Every(HOUR), task.call())


def test_two_schedules_of_one_task_need_two_names(app: Mainspring) -> None:
    task = app.task(name="work")(nothing)
    app.schedule(Every(HOUR))(task)
    app.schedule(Every(DAY), name="work.daily")(task)
    with pytest.raises(NameTaken):
        app.schedule(Every(MINUTE))(task)


def test_a_declared_task_can_still_be_called_and_enqueued(app: Mainspring) -> None:
    @app.schedule(Every(HOUR))
    @app.task(name="double")
    def double(number: int = 21) -> int:
        return 2 * number

    assert double(4) == 8
    assert double.name == "double"


@pytest.mark.parametrize(
    ("verb", "args"),
    [("get", ()), ("pause", ()), ("resume", ()), ("remove", ()), ("run", ()), ("change", ()), ("backfill", (T0, T0))],
)
async def test_a_name_that_is_not_there_is_told_with_the_nearest_that_is(
    app: Mainspring, verb: str, args: tuple[object, ...]
) -> None:
    task = app.task(name="work")(nothing)
    async with app:
        await app.schedules.add("nightly-report", Every(DAY), task.call())
        with pytest.raises(UnknownSchedule, match=r"'nightly-reprot'; did you mean 'nightly-report'\?$"):
            await getattr(app.schedules, verb)("nightly-reprot", *args)
        with pytest.raises(UnknownSchedule, match=r"no schedule is named 'zzz'$"):
            await getattr(app.schedules, verb)("zzz", *args)


async def test_pausing_what_is_paused_and_resuming_what_runs_is_told(app: Mainspring) -> None:
    task = app.task(name="work")(nothing)
    async with app:
        await app.schedules.add("x", Every(DAY), task.call())
        with pytest.raises(ScheduleError, match="it is not paused"):
            await app.schedules.resume("x")
        await app.schedules.pause("x")
        with pytest.raises(ScheduleError, match="it is paused already"):
            await app.schedules.pause("x")


def test_everything_can_be_done_by_code_without_an_event_loop(app: Mainspring) -> None:
    schedules_ = app.schedules
    task = app.task(name="work")(nothing)
    try:
        schedules_.add_sync("x", Every(DAY), task.call())
        schedules_.change_sync("x", Every(HOUR, start=T0 - DAY), jitter="1s")
        schedules_.pause_sync("x", by="me")
        schedules_.resume_sync("x")
        assert schedules_.get_sync("x").plan.jitter == SECOND
        assert schedules_.run_sync("x").state_sync()
        assert len(schedules_.runs_sync("x").runs) == 1
        assert len(schedules_.list_sync().looks) == 1
        assert schedules_.backfill_sync("x", T0 - MINUTE, T0 - SECOND) == ()
        schedules_.remove_sync("x")
        assert schedules_.list_sync().looks == ()
    finally:
        app.close_sync()
    verbs = {name for name in dir(schedules_) if not name.startswith("_") and not name.endswith("_sync")}
    assert {f"{name}_sync" for name in verbs} <= set(dir(schedules_))
