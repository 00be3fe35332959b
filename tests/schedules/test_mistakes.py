"""What people say wrongly about schedules: it is refused where it is said, and nothing of it gets into the store."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from mainspring import Cron, Every, Mainspring, Manual, Missed, Once
from mainspring.core.missed import Policy
from mainspring.errors import DeclarationError, NameTaken, PayloadError, ScheduleError, UnknownTask
from mainspring.stores.memory import MemoryStore
from mainspring.task import Task
from mainspring.testing import VirtualTime
from tests.schedules.conftest import DAY, HOUR, MINUTE, SECOND, T0, pass_by

pytestmark = pytest.mark.usefixtures("virtual_time")


@pytest.fixture
def app(virtual_time: VirtualTime) -> Mainspring:
    return Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)


@pytest.fixture
def work(app: Mainspring) -> Task[..., Any]:
    @app.task(name="work")
    async def work(number: int = 1) -> None: ...

    return work


# Whose they are.


@pytest.mark.parametrize("release", [42, 1.2, b"1", True])
def test_a_release_is_text(release: object) -> None:
    with pytest.raises(DeclarationError, match="Mainspring: release is text"):
        Mainspring("memory://", release=release)  # type: ignore[arg-type]  # the mistake


@pytest.mark.parametrize("owner", [7, ["shop"], b"shop"])
def test_an_owner_is_text(owner: object) -> None:
    with pytest.raises(DeclarationError, match="Mainspring: owner is text"):
        Mainspring("memory://", owner=owner)  # type: ignore[arg-type]  # the mistake


@pytest.mark.parametrize("owner", ["", "  "])
def test_an_empty_owner_is_none_and_no_deployment_may_have_it(owner: str) -> None:
    with pytest.raises(DeclarationError, match=r"owner is empty.*leave it out"):
        Mainspring("memory://", owner=owner)


async def test_no_release_is_the_same_as_an_empty_one(virtual_time: VirtualTime) -> None:
    app = Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock, release=None)

    @app.schedule(Manual(), name="by-hand")
    @app.task(name="work")
    async def work() -> None: ...

    async with app.node():
        await pass_by(SECOND)
        assert (await app.schedules.get("by-hand")).release == ""


@pytest.mark.parametrize("words", [{"by": 7}, {"reason": 7}, {"by": None}])
async def test_who_paused_it_and_why_is_text(app: Mainspring, work: Task[..., Any], words: dict[str, Any]) -> None:
    await app.schedules.add("hourly", Every("1h"), work.call())
    with pytest.raises(ScheduleError, match="is text"):
        await app.schedules.pause("hourly", **words)
    assert (await app.schedules.get("hourly")).paused is None
    await app.close()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Missed.all(limit=2.5), "a limit of at least 1, in whole numbers, not 2.5"),  # type: ignore[arg-type]  # the mistake
        (lambda: Missed.all(limit=True), "a limit of at least 1, in whole numbers, not True"),
        (lambda: Missed.all(limit=0), "not 0; to make no job there is Missed.skip"),
        (lambda: Missed.all(limit=2**64), "a limit of at least 1"),
        (lambda: Missed.all(per_tick="3"), "at least 1 a tick, in whole numbers, not '3'"),  # type: ignore[arg-type]  # the mistake
        (lambda: Missed(policy="sometimes"), "a policy is one of skip, latest, all, not 'sometimes'"),  # type: ignore[arg-type]  # the mistake
    ],
)
def test_numbers_of_missed_slots_are_whole(make: Callable[[], object], says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        make()


def test_a_grace_is_read_however_missed_is_made() -> None:
    made = Missed(policy="all", grace="2h")  # type: ignore[arg-type]  # as somebody may write it
    assert (made.policy, made.grace) == (Policy.ALL, timedelta(hours=2))


async def test_a_number_of_runs_that_no_store_can_keep_is_refused(app: Mainspring, work: Task[..., Any]) -> None:
    with pytest.raises(ScheduleError, match="max_runs"):
        await app.schedules.add("hourly", Every("1h"), work.call(), max_runs=2**70)
    assert (await app.schedules.list()).looks == ()
    await app.close()


# Calls.


async def test_a_task_is_no_call(app: Mainspring, work: Task[..., Any]) -> None:
    says = r"write work\.call\(…\)"
    with pytest.raises(ScheduleError, match=says):
        await app.schedules.add("hourly", Every("1h"), work)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ScheduleError, match=says):
        await app.schedules.add("hourly", Every("1h"), work.using(queue="mail"))  # type: ignore[arg-type]  # the mistake
    await app.schedules.add("hourly", Every("1h"), work.call())
    with pytest.raises(ScheduleError, match=says):
        await app.schedules.change("hourly", call=work)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ScheduleError, match=r"a call of a task is needed: task\.call\(…\), not 7"):
        await app.schedules.change("hourly", call=7)  # type: ignore[arg-type]  # the mistake
    await app.close()


async def test_a_call_of_another_apps_task_is_refused(app: Mainspring, work: Task[..., Any]) -> None:
    other = Mainspring("memory://")

    @other.task(name="strange")
    async def strange() -> None: ...

    @other.task(name="work")
    async def same_name() -> None: ...

    await app.schedules.add("hourly", Every("1h"), work.call())
    for call, error in ((strange.call(), UnknownTask), (same_name.call(), DeclarationError)):
        with pytest.raises(error):
            await app.schedules.add("other", Every("1h"), call)
        with pytest.raises(error):
            await app.schedules.change("hourly", call=call)
    await app.close()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("id", "0190a6ae-0000-7000-8000-000000000001"),
        ("owner", "someone"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ],
)
async def test_what_is_said_of_one_job_is_refused_for_all_of_a_schedule(
    app: Mainspring, work: Task[..., Any], option: str, value: str
) -> None:
    options: Any = {option: value}
    call = work.using(**options).call()
    with pytest.raises(ScheduleError, match=f"leave out {option}"):
        await app.schedules.add("hourly", Every("1h"), call)
    await app.schedules.add("hourly", Every("1h"), work.call())
    with pytest.raises(ScheduleError, match=f"leave out {option}"):
        await app.schedules.change("hourly", call=call)
    await app.close()


async def test_a_handler_may_add_a_schedule(app: Mainspring, work: Task[..., Any]) -> None:
    """Its calls bring the trace of its own job along, which nobody has asked for."""

    @app.task(name="plan")
    async def plan() -> None:
        await app.schedules.add("hourly", Every("1h"), work.call())

    async with app.node():
        job = await plan.using(traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").enqueue()
        await job.result()
    assert (await app.schedules.get("hourly")).name == "hourly"
    await app.close()


def test_arguments_that_do_not_fit_are_told_with_the_schedule(app: Mainspring, work: Task[..., Any]) -> None:
    with pytest.raises(PayloadError, match=r"schedule nightly.*number"):
        app.schedule(Every("1h"), name="nightly", kwargs={"number": "many"})(work)


async def test_a_name_that_is_taken_is_a_schedules(app: Mainspring, work: Task[..., Any]) -> None:
    await app.schedules.add("hourly", Every("1h"), work.call())
    with pytest.raises(NameTaken, match=r"a schedule named 'hourly' already.*schedules\.change"):
        await app.schedules.add("hourly", Every("2h"), work.call())
    app.schedule(Every("1h"), name="nightly")(work)
    with pytest.raises(NameTaken, match="a schedule named 'nightly' already"):
        app.schedule(Every("2h"), name="nightly")(work)
    await app.close()


# Names.


async def test_a_name_compares_with_its_text(app: Mainspring, work: Task[..., Any]) -> None:
    added = await app.schedules.add("by-hand", Manual(), work.call())
    await app.schedules.run("by-hand")
    (run,) = (await app.schedules.runs()).runs
    assert added.name == "by-hand"
    assert run.schedule == "by-hand"
    assert added.name != "by-foot"
    assert {run.schedule: 1}["by-hand"] == 1  # type: ignore[index]  # a text finds the name
    await app.close()


# Changing.


async def test_a_change_takes_its_rule_and_call_by_name(app: Mainspring, work: Task[..., Any]) -> None:
    await app.schedules.add("hourly", Every("1h"), work.call())
    changed = await app.schedules.change("hourly", rule=Cron("0 9 * * *"), call=work.call(number=2))
    assert changed.plan.rule == Cron("0 9 * * *")
    assert b"2" in changed.plan.template.payload
    await app.close()


async def test_an_end_can_be_taken_back(app: Mainspring, work: Task[..., Any]) -> None:
    await app.schedules.add("hourly", Every("1h"), work.call(), until=T0 + DAY, max_runs=3)
    changed = await app.schedules.change("hourly", until=None)
    assert (changed.plan.until, changed.plan.max_runs) == (None, 3)
    changed = await app.schedules.change("hourly", max_runs=None)
    assert changed.plan.max_runs is None
    await app.close()


async def test_what_a_schedule_did_not_do_while_it_was_over_is_not_owed_when_it_goes_on(
    app: Mainspring, work: Task[..., Any]
) -> None:
    await app.schedules.add("often", Every("1m"), work.call(), until=T0 + 10 * MINUTE)
    async with app.node():
        await pass_by(HOUR)
        assert (await app.schedules.get("often")).is_over
        await app.schedules.change("often", until=None)
        await pass_by(30 * SECOND)
        runs = (await app.schedules.runs("often")).runs
        assert [run.slot for run in runs] == [T0 + minute * MINUTE for minute in range(10, 0, -1)]
        await pass_by(MINUTE)
        assert (await app.schedules.runs("often", limit=1)).runs[0].slot == T0 + 61 * MINUTE


# Dead on arrival.


async def test_an_end_that_has_passed_is_refused(app: Mainspring, work: Task[..., Any]) -> None:
    with pytest.raises(ScheduleError, match=r"until .* has passed already"):
        await app.schedules.add("hourly", Every("1h"), work.call(), until=T0 - DAY)
    await app.close()


def test_a_declaration_that_has_come_to_its_end_is_told_in_the_log(
    app: Mainspring, work: Task[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "mainspring"):
        app.schedule(Every("1h"), name="old", until=T0 - DAY)(work)
        app.schedule(Every("1h"), name="new", until=T0 + DAY)(work)
    assert [record.getMessage() for record in caplog.records] == [
        "schedule old will make no job: its until, 2029-12-31T00:00:00+00:00, has passed",
    ]


def test_a_declared_time_that_has_passed_is_reported(app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    @app.schedule(Once("2029-12-31T00:00:00Z"), name="old")
    @app.schedule(Once("2031-01-01T00:00:00Z"), name="new")
    @app.task
    async def work() -> None: ...

    assert [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING] == [
        "schedule old will make no job: its time, 2029-12-31T00:00:00+00:00, has passed"
    ]


async def test_a_jitter_is_not_longer_than_the_interval(app: Mainspring, work: Task[..., Any]) -> None:
    says = "a jitter of 0:02:00 is longer than the interval of 0:01:00"
    with pytest.raises(ScheduleError, match=says):
        await app.schedules.add("often", Every("1m"), work.call(), jitter="2m")
    await app.schedules.add("often", Every("1m"), work.call(), jitter="1m")
    with pytest.raises(ScheduleError, match=says):
        await app.schedules.change("often", jitter="2m")
    with pytest.raises(ScheduleError, match="a jitter of 0:01:00 is longer than the interval of 0:00:30"):
        await app.schedules.change("often", Every("30s"))
    await app.close()


@pytest.mark.parametrize("limit", [0, -1, 1.5])
async def test_a_page_has_one_entry_at_least(app: Mainspring, limit: object) -> None:
    with pytest.raises(DeclarationError, match=r"limit: .* at least 1"):
        await app.schedules.runs(limit=limit)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(DeclarationError, match=r"limit: .* at least 1"):
        await app.schedules.list(limit=limit)  # type: ignore[arg-type]  # the mistake
    await app.close()


# Backfills of nothing.


async def test_a_backfill_that_ends_before_it_begins(app: Mainspring, work: Task[..., Any]) -> None:
    await app.schedules.add("hourly", Every("1h"), work.call())
    with pytest.raises(ScheduleError, match="start is later than end"):
        await app.schedules.backfill("hourly", T0, T0 - DAY)
    await app.close()


async def test_a_backfill_takes_datetimes(app: Mainspring, work: Task[..., Any]) -> None:
    await app.schedules.add("hourly", Every("1h"), work.call())
    with pytest.raises(DeclarationError, match=r"start: '2029-12-31': a datetime is needed$"):
        await app.schedules.backfill("hourly", "2029-12-31", T0)  # type: ignore[arg-type]  # the mistake
    await app.close()


async def test_what_has_no_slots_of_the_past_says_so(app: Mainspring, work: Task[..., Any]) -> None:
    await app.schedules.add("by-hand", Manual(), work.call())
    await app.schedules.add("hourly", Every("1h"), work.call())
    with pytest.raises(ScheduleError, match="it is run by hand only, and has no slots"):
        await app.schedules.backfill("by-hand", T0 - DAY, T0)
    with pytest.raises(ScheduleError, match=r"its first slot is 2030-01-01T01:00:00\+00:00"):
        await app.schedules.backfill("hourly", T0 - DAY, T0)
    await app.close()


async def test_slots_of_a_pause_that_lasts_are_not_decided_yet(app: Mainspring, work: Task[..., Any]) -> None:
    await app.schedules.add("hourly", Cron("0 * * * *"), work.call())
    await app.schedules.pause("hourly")
    assert len(await app.schedules.backfill("hourly", T0 - 3 * HOUR, T0)) == 4
    await pass_by(3 * HOUR)
    with pytest.raises(ScheduleError, match=r"it is paused, and slots from .* are not decided yet: resume it first"):
        await app.schedules.backfill("hourly", T0, T0 + 2 * HOUR)
    await app.schedules.resume("hourly")
    assert len(await app.schedules.backfill("hourly", T0, T0 + 2 * HOUR)) == 2
    await app.close()


async def test_backfilled_jobs_may_stand_behind_others(app: Mainspring, work: Task[..., Any]) -> None:
    await app.schedules.add("hourly", Cron("0 * * * *"), work.call())
    made = await app.schedules.backfill("hourly", T0 - HOUR, T0, priority="background")
    views = [await job.refresh() for job in made]
    assert [view.job.priority for view in views] == [0, 0]
    assert (await (await app.schedules.run("hourly")).refresh()).job.priority == 50
    with pytest.raises(DeclarationError, match="priority"):
        await app.schedules.backfill("hourly", T0 - HOUR, T0, priority=1000)
    await app.close()


# Rules.


def test_an_interval_is_not_negative() -> None:
    with pytest.raises(DeclarationError, match=r"'-5s'.*backwards"):
        Every("-5s")


def test_a_time_without_a_zone_is_told_how_to_get_one() -> None:
    naive = datetime(2027, 1, 31, 9)  # noqa: DTZ001 - the mistake
    with pytest.raises(ScheduleError, match=r"Once: .*no time zone: add tzinfo=UTC"):
        Once(naive)
    with pytest.raises(ScheduleError, match=r"Once: .*no time zone.*or to text its offset"):
        Once("2027-01-31T09:00")
