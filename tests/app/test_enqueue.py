"""From a call to a job in the store: arguments, options, batches, and what a handler's own jobs are told."""

import copy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID, uuid4

import pytest

from mainspring import Context, Limit, Mainspring, Retention, Retry, Unique
from mainspring.app import MAX_UNKNOWN_LOGGED
from mainspring.client.calls import CHUNK
from mainspring.core.job import JobId, State
from mainspring.core.names import Name
from mainspring.errors import Conflict, DeclarationError, JobGone, PayloadError, UnknownTask
from mainspring.runtime.call import CallFacts, current_call
from mainspring.stores.memory import MemoryStore
from mainspring.stores.records import AT_ONCE, NewJob
from mainspring.testing import VirtualTime
from mainspring.testing.virtual import START
from tests.app.conftest import Hand

DAY = timedelta(days=1)


async def resize(photo: int, width: int = 800) -> str:
    return f"{photo} at {width}"


def new(app: Mainspring, **options: Any) -> NewJob:  # noqa: ANN401 - whatever `using` takes
    """Return the job that an enqueue of photo 7 would make."""
    return app.find("resize").using(**options).call(7).hand_over()


async def test_an_enqueued_job_is_in_the_store_as_it_was_declared(app: Mainspring, virtual_time: VirtualTime) -> None:
    task = app.task(
        name="resize", queue="photos", priority=75, max_attempts=4, loss_limit=5, retention=Retention(failed=DAY)
    )(resize)
    async with app:
        handle = await task.enqueue(7, width=200)
        view = await handle.refresh()

    assert handle.fresh
    assert str(handle.task) == "resize"
    assert handle.id.version == 7
    assert view.payload == b'{"v":1,"args":{"photo":7,"width":200}}'
    job = view.job
    assert (job.id, job.task, job.state) == (handle.id, Name("", "resize"), State.READY)
    assert (job.queue, job.priority, job.max_attempts, job.loss_limit) == ("photos", 75, 4, 5)
    assert job.retention == Retention(failed=DAY)
    assert job.backoff == Retry.exponential().backoff
    assert job.run_at == view.enqueued_at == virtual_time.clock.now()
    assert (view.unique, view.key, view.timeout, job.expires_at) == (None, None, None, None)


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        ((), {}, "missing argument"),
        (("seven",), {}, "expected `int`, got `str`"),
        ((7, 8, 9), {}, "takes 2 by position, 3 given"),
        ((7,), {"hight": 3}, "hight"),
    ],
)
async def test_wrong_arguments_are_refused_before_anything_is_written(
    app: Mainspring,
    args: Any,  # noqa: ANN401 - what no type allows
    kwargs: Any,  # noqa: ANN401 - the same
    problem: str,
) -> None:
    task = app.task(name="resize")(resize)
    async with app:
        for enqueue in (task.enqueue, task.using(delay=1).enqueue):
            with pytest.raises(PayloadError, match=problem):
                await enqueue(*args, **kwargs)
        with pytest.raises(PayloadError, match=problem):
            task.enqueue_sync(*args, **kwargs)
        with pytest.raises(PayloadError, match=problem):
            task.call(*args, **kwargs)
        assert (await app.jobs()).jobs == ()


async def test_a_context_is_not_passed(app: Mainspring) -> None:
    @app.task
    async def report(ctx: Context, day: int) -> None: ...

    async with app:
        view = await (await report.enqueue(3)).refresh()
        assert view.payload == b'{"v":1,"args":{"day":3}}'
        with pytest.raises(PayloadError, match="it is supplied when the job runs"):
            await report.enqueue(3, ctx=None)  # type: ignore[call-arg]  # what the test is about


# Options.


async def test_options_say_when_where_and_how_often(app: Mainspring) -> None:
    task = app.task(name="resize")(resize)
    mine = uuid4()
    async with app:
        handle = await task.using(
            delay="10m",
            priority="critical",
            queue="fast",
            max_attempts=2,
            timeout=30,
            expires="1h",
            key="tenant-7",
            tags=["a", "b"],
            owner="ada",
            id=mine,
            traceparent="00-1-2-03",
            retention=Retention(succeeded=DAY * 3),
        ).enqueue(7)
        view = await handle.refresh()

    job = view.job
    assert (job.id, job.state, job.priority, job.queue) == (mine, State.SCHEDULED, 100, "fast")
    assert job.run_at == view.enqueued_at + timedelta(minutes=10)
    assert job.expires_at == job.run_at + timedelta(hours=1)
    assert (job.max_attempts, view.timeout, view.key) == (2, timedelta(seconds=30), "tenant-7")
    assert job.retention.succeeded == DAY * 3
    facts = view.facts
    assert (facts.tags, facts.owner, facts.traceparent, facts.parent) == (("a", "b"), "ada", "00-1-2-03", None)


def test_what_was_said_before_stays(app: Mainspring) -> None:
    task = app.task(name="resize")(resize)

    made = task.using(priority="low", tags="x").using(queue="photos", priority=99).call(7).hand_over()

    assert (made.priority, made.queue, made.facts.tags) == (99, "photos", ("x",))
    assert (task.call(7).hand_over().priority, task.call(7).hand_over().queue) == (50, "default")


def test_a_job_may_have_fewer_attempts_than_its_policy_and_not_more(app: Mainspring) -> None:
    app.task(name="resize", max_attempts=4)(resize)

    assert new(app, max_attempts=2).max_attempts == 2
    assert new(app, max_attempts=9).max_attempts == 4


def test_expiry_counts_from_when_a_job_is_due(app: Mainspring) -> None:
    app.task(name="resize", expires="5m")(resize)
    five = timedelta(minutes=5)
    later = START + DAY

    assert new(app).expires == five
    assert new(app, delay="1h").expires == timedelta(hours=1) + five
    assert new(app, run_at=later).expires == later + five
    assert new(app, run_at=START - DAY).expires == START + five
    assert new(app, expires=later).expires == later
    assert new(app, expires=0).expires == AT_ONCE


def test_every_problem_of_the_options_is_told_at_once(app: Mainspring) -> None:
    task = app.task(name="resize")(resize)

    with pytest.raises(DeclarationError) as raised:
        task.using(
            delay="soon",
            run_at=datetime(2030, 1, 1),  # noqa: DTZ001 - what the test is about
            priority="urgent",  # type: ignore[arg-type]  # the same
            queue="my queue",
            max_attempts=0,
            id="seven",
            tags=["", "b"],
            unique=3,  # type: ignore[arg-type]  # the same
            retention="1d",  # type: ignore[arg-type]  # the same
            tag="x",  # type: ignore[call-arg]  # the same
        )

    for problem in (
        "delay: 'soon' is no valid duration",
        "run_at: 2030-01-01 00:00:00: it has no time zone",
        "not 'urgent'",
        "queue: 'my queue' is no valid name",
        "max_attempts: 0",
        "id: 'seven': ids of jobs are UUIDs",
        "tags: '': give some text",
        "unique: 3: write Unique",
        "retention: '1d'",
        "there is no option 'tag'; did you mean 'tags'?",
    ):
        assert problem in str(raised.value)


def test_a_time_is_given_once(app: Mainspring) -> None:
    task = app.task(name="resize")(resize)

    with pytest.raises(DeclarationError, match="delay and run_at say the same thing"):
        task.using(delay=1, run_at=START)
    assert task.using(delay=1).using(run_at=START).call(7).hand_over().run_at == START
    with pytest.raises(DeclarationError, match="for a length of time there is delay="):
        task.using(run_at="10m")  # type: ignore[arg-type]  # what the test is about


async def test_an_id_of_ones_own_makes_one_job_however_often_it_is_enqueued(app: Mainspring, hand: Hand) -> None:
    task = app.task(name="resize")(resize)
    mine = UUID("01978af0-0000-7000-8000-000000000001")
    async with app:
        first = await task.using(id=mine).enqueue(7)
        await hand.succeed("done")
        second = await task.using(id=str(mine)).enqueue(8)

        assert (first.fresh, second.fresh) == (True, False)
        assert await second.result() == "done"


# Many.


async def test_many_calls_become_jobs_in_their_order(app: Mainspring) -> None:
    task = app.task(name="resize")(resize)
    calls = [task.using(priority=n % 100).call(n) for n in range(CHUNK * 2 + 5)]
    async with app:
        handles = await task.enqueue_many(calls)

        assert [handle.id for handle in handles] == [call.hand_over().id for call in calls]
        assert [handle.id for handle in handles] == sorted({handle.id for handle in handles})
        assert all(handle.fresh for handle in handles)
        first, last = await handles[0].refresh(), await handles[-1].refresh()
        assert (first.payload, last.payload) == (calls[0].hand_over().payload, calls[-1].hand_over().payload)
        assert last.job.priority == (CHUNK * 2 + 4) % 100


async def test_a_few_thousand_go_in_one_round_trip(virtual_time: VirtualTime) -> None:
    class Counting(MemoryStore):
        batches: ClassVar[list[int]] = []

        async def enqueue(self, new: Any) -> Any:  # noqa: ANN401 - as the port has it
            self.batches.append(len(new))
            return await super().enqueue(new)

    app = Mainspring(Counting(virtual_time.clock), clock=virtual_time.clock)
    task = app.task(name="resize")(resize)

    await task.enqueue_many(task.call(n) for n in range(CHUNK + 1))
    await task.enqueue_many([])

    assert Counting.batches == [CHUNK, 1]


async def test_the_same_call_is_the_same_job(app: Mainspring) -> None:
    task = app.task(name="resize")(resize)
    call = task.call(7)
    async with app:
        (first,) = await task.enqueue_many([call])
        (again,) = await task.enqueue_many([call])

        assert first == again
        assert (first.fresh, again.fresh) == (True, False)
        assert len((await app.jobs()).jobs) == 1


async def test_a_call_is_new_to_the_first_who_asks(app: Mainspring) -> None:
    """A store does not look whether a new job is there already, so nothing may be new twice."""
    task = app.task(name="resize")(resize)
    call, mine = task.call(7), task.using(id=uuid4()).call(7)

    assert [call.hand_over().is_new, call.hand_over().is_new, mine.hand_over().is_new] == [True, False, False]
    assert call.hand_over().id == call.hand_over().id


def test_of_several_threads_one_gets_a_call_as_new() -> None:
    task = Mainspring("memory://").task(name="resize")(resize)
    calls = [task.call(n) for n in range(2000)]
    with ThreadPoolExecutor(8) as threads:
        asked = list(threads.map(lambda _: [call.hand_over().is_new for call in calls], range(8)))

    assert {sum(answers) for answers in zip(*asked, strict=True)} == {1}


def test_neither_a_call_nor_its_copy_is_new() -> None:
    call = Mainspring("memory://").task(name="resize")(resize).call(7)
    other = copy.copy(call)

    assert (other.hand_over().is_new, call.hand_over().is_new) == (False, False)
    assert other.hand_over() == call.hand_over()
    assert repr(other) == repr(call)


def test_a_call_that_was_made_before_a_fork_is_not_new_in_the_child() -> None:
    program = """
import os
from mainspring import Mainspring
app = Mainspring("memory://")
@app.task(name="resize")
async def resize(photo: int) -> None: ...
call = resize.call(7)
read, write = os.pipe()
if not (child := os.fork()):
    os.write(write, f"{call.hand_over().is_new} {resize.call(8).hand_over().is_new}".encode())
    os._exit(0)
os.waitpid(child, 0)
print(call.hand_over().is_new, os.read(read, 100).decode())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["True", "False", "True"]


async def test_only_what_cannot_be_enqueued_again_is_new_on_its_own(virtual_time: VirtualTime) -> None:
    """A store may take in a single new job by a statement that is carried out after whoever waited was cancelled."""

    class Seeing(MemoryStore):
        seen: ClassVar[list[set[bool]]] = []

        async def enqueue(self, new: Any) -> Any:  # noqa: ANN401 - as the port has it
            self.seen.append({job.is_new for job in new})
            return await super().enqueue(new)

    app = Mainspring(Seeing(virtual_time.clock), clock=virtual_time.clock)
    task = app.task(name="resize")(resize)

    await task.enqueue(7)
    await task.enqueue_many([task.call(7)])
    await app.enqueue_many([task.call(7)])
    await task.enqueue_many([task.call(n) for n in range(CHUNK + 1)])

    assert Seeing.seen == [{True}, {False}, {False}, {True}, {False}]


async def test_calls_of_several_tasks_go_together(app: Mainspring, hand: Hand) -> None:
    one = app.task(name="one")(resize)
    two = app.task(name="two")(lambda: None)
    async with app:
        handles = await app.enqueue_many([one.call(1), two.call(), one.call(2)])

        assert [str(handle.task) for handle in handles] == ["one", "two", "one"]
        await hand.succeed("first")
        assert await handles[0].result() == "first"
        with pytest.raises(DeclarationError, match=r"<Call of two as .*>.*app\.enqueue_many"):
            await one.enqueue_many([one.call(1), two.call()])  # type: ignore[list-item]  # what the test is about


async def test_calls_of_another_apps_tasks_are_refused(app: Mainspring) -> None:
    theirs = Mainspring("memory://").task(name="resize")(resize)

    with pytest.raises(UnknownTask):
        await app.enqueue_many([theirs.call(7)])
    app.task(name="resize")(resize)
    with pytest.raises(DeclarationError, match="of a task of another app"):
        app.enqueue_many_sync([theirs.call(7)])


async def test_calls_bring_their_own_options(app: Mainspring) -> None:
    task = app.task(name="resize")(resize)

    with pytest.raises(DeclarationError, match="write using"):
        await task.using(priority=3).enqueue_many([task.call(1)])
    with pytest.raises(DeclarationError, match="use tx where it is enqueued"):
        task.using(tx=object()).call(1)


# By name.


async def test_a_task_of_the_app_can_be_enqueued_by_name(app: Mainspring, hand: Hand) -> None:
    app.task(name="resize", aliases="old.resize")(resize)
    async with app:
        handle = await app.enqueue("old.resize", 7, width=3)
        await hand.succeed("done")

        assert await handle.result() == "done"
        assert (await handle.refresh()).job.task == Name("", "resize")
        with pytest.raises(UnknownTask) as raised:
            await app.enqueue("resizee", 7)
        assert raised.value.did_you_mean == "resize"


# Unique and limited jobs.


async def test_a_unique_job_is_there_once(app: Mainspring, hand: Hand) -> None:
    task = app.task(name="resize", unique=Unique(key="photo"))(resize)
    async with app:
        first = await task.enqueue(7)
        second = await task.enqueue(7, width=3)
        other = await task.enqueue(8)

        assert second == first
        assert (first.fresh, second.fresh, other.fresh) == (True, False, True)
        await hand.succeed("done")
        assert (await task.enqueue(7)).fresh


async def test_an_enqueue_may_raise_where_its_key_is_taken(app: Mainspring) -> None:
    task = app.task(name="resize")(resize)
    once = task.using(unique=Unique(on_conflict="raise"))
    async with app:
        first = await once.enqueue(7)
        with pytest.raises(Conflict) as raised:
            await once.enqueue(7)

        assert raised.value.job == str(first.id)


async def test_an_enqueue_may_be_unique_in_a_way_of_its_own(app: Mainspring) -> None:
    task = app.task(name="resize", unique=Unique(key="photo", period="1h", on_conflict="replace"))(resize)

    def key(**options: Any) -> object:  # noqa: ANN401 - whatever `using` takes
        return task.using(**options).call(7, width=3).hand_over().unique

    declared = task.call(7).hand_over().unique
    assert declared
    assert (declared.key, declared.period, declared.on_conflict) == ('{"photo":7}', timedelta(hours=1), "replace")
    assert key(unique=True) == declared
    assert key(unique=False) is None
    mine = task.using(unique="invoice 7").call(7).hand_over().unique
    assert mine
    assert (mine.key, mine.period) == ("invoice 7", timedelta(hours=1))
    other = task.using(unique=Unique(key=("width",))).call(7).hand_over().unique
    assert other
    assert (other.key, other.period) == ('{"width":800}', None)
    with pytest.raises(DeclarationError, match="there is no argument `hight`"):
        task.using(unique=Unique(key="hight"))


def test_a_limited_job_carries_the_key_that_it_is_counted_under(app: Mainspring) -> None:
    task = app.task(name="resize", limit=[Limit(concurrency=1), Limit(concurrency=1, key="photo")])(resize)

    assert task.call(7).hand_over().key == "7"
    assert task.using(key="mine").call(7).hand_over().key == "mine"


# Where jobs come from.


async def test_a_job_that_a_handler_enqueues_is_a_child_of_the_handlers(app: Mainspring, hand: Hand) -> None:
    task = app.task(name="resize")(resize)
    async with app:
        parent = await task.using(traceparent="00-1-2-03").enqueue(7)
        (delivery,) = await hand.claim()
        token = current_call.set(CallFacts.of(delivery, timeout=None, started_at=datetime.now(UTC)))
        try:
            child = await task.enqueue(8)
            sync_child = task.enqueue_sync(9)
            traced = await task.using(traceparent="00-9-9-03").enqueue(8)
        finally:
            current_call.reset(token)
        stranger = await task.enqueue(10)

        facts = [(await handle.refresh()).facts for handle in (child, sync_child, traced, stranger)]
        assert [(one.parent, one.traceparent) for one in facts] == [
            (parent.id, "00-1-2-03"),
            (parent.id, "00-1-2-03"),
            (parent.id, "00-9-9-03"),
            (None, None),
        ]
        children = await app.jobs(parent=parent.id)
        assert {view.job.id for view in children.jobs} == {child.id, sync_child.id, traced.id}


# Transactions.


async def test_a_store_without_transactions_says_so(virtual_time: VirtualTime) -> None:
    app = Mainspring("memory://", clock=virtual_time.clock)
    task = app.task(name="resize")(resize)

    for problem in (task.using(tx=object()).enqueue(7), app.enqueue_many([task.call(7)], tx=object())):
        with pytest.raises(DeclarationError, match="cannot write in a transaction of yours"):
            await problem
    with pytest.raises(DeclarationError, match="cannot write in a transaction of yours"):
        task.using(tx=object()).enqueue_sync(7)


# Listing.


async def test_jobs_are_listed_by_what_is_known_of_them(app: Mainspring, hand: Hand) -> None:
    task = app.task(name="resize")(resize)
    other = app.task(name="other", queue="slow")(resize)
    async with app:
        failed = await task.using(tags="x").enqueue(1)
        await hand.fail("no")
        waiting = await task.enqueue(2)
        slow = await other.using(delay=60).enqueue(3)

        async def listed(**which: Any) -> list[JobId]:  # noqa: ANN401 - whatever `jobs` takes
            return [view.job.id for view in (await app.jobs(**which)).jobs]

        assert await listed() == [slow.id, waiting.id, failed.id]
        assert await listed(state="failed") == [failed.id]
        assert await listed(state=[State.READY, "scheduled"]) == [slow.id, waiting.id]
        assert await listed(queue="slow") == await listed(task="other") == [slow.id]
        assert await listed(tag="x") == await listed(cause="refused") == [failed.id]
        page = await app.jobs(limit=2)
        assert [view.job.id for view in page.jobs] == [slow.id, waiting.id]
        assert await listed(limit=2, after=page.after) == [failed.id]


async def test_a_word_that_is_no_state_or_cause_is_refused_with_the_nearest(app: Mainspring) -> None:
    async with app:
        with pytest.raises(DeclarationError, match=r"state: fialed: there are .*; did you mean 'failed'\?"):
            await app.jobs(state="fialed")
        with pytest.raises(DeclarationError, match=r"state: rnning: .*; did you mean 'running'\?"):
            await app.jobs(state=["ready", "rnning"])
        with pytest.raises(DeclarationError, match=r"cause: refusd: .*; did you mean 'refused'\?"):
            await app.jobs(cause="refusd")


async def test_a_list_by_a_task_that_is_not_known_warns_once_with_the_nearest(
    app: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    app.task(name="shop.resize")(resize)
    async with app:
        for _ in range(2):
            assert (await app.jobs(task="shop.resise")).jobs == ()
        assert (await app.jobs(task="shop.resize")).jobs == ()
    assert caplog.text.count("jobs: no task is named 'shop.resise'; did you mean 'shop.resize'?") == 1


async def test_lists_by_tasks_that_are_not_known_do_not_fill_the_log(
    app: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    async with app:
        for number in range(2 * MAX_UNKNOWN_LOGGED):
            assert (await app.jobs(task=f"shop.task_{number}")).jobs == ()
    assert caplog.text.count("jobs: no task is named") == MAX_UNKNOWN_LOGGED


async def test_a_job_can_be_held_by_its_id(app: Mainspring, hand: Hand) -> None:
    task = app.task(name="resize")(resize)
    async with app:
        made = await task.enqueue(7)
        await hand.succeed("done")

        for held in (app.job(made.id), app.job(str(made.id)), app.job(made.id, task)):
            assert held == made
            assert not held.fresh
            assert await held.result() == "done"
        assert (app.job(made.id).task, app.job(made.id, task).task) == (None, Name("", "resize"))
        with pytest.raises(JobGone):
            await app.job(uuid4()).result()
        with pytest.raises(DeclarationError, match="ids of jobs are UUIDs"):
            app.job("seven")


async def test_the_result_of_a_task_that_is_not_known_here_is_plain_json(app: Mainspring, hand: Hand) -> None:
    task = app.task(name="elsewhere")(resize)
    async with app:
        made = await task.enqueue(7)
        await hand.succeed("done")
        stranger = Mainspring(app.store, clock=app.clock)

        assert await stranger.job(made.id).result() == "done"
