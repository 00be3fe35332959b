"""Breakers as users see them: declared with a task, kept by the store, one probe over all nodes, and an operator's word.

Flaws of uni's breaker that are not here (contracts 1.11) have their numbers in the names.
"""

import asyncio
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mainspring import Breaker, Context, Limit, Mainspring, Snooze
from mainspring.core.breaker import Phase
from mainspring.core.job import Cause, State
from mainspring.core.names import Name
from mainspring.errors import DeclarationError, UnknownBreaker
from mainspring.runtime.events import BreakerChange
from mainspring.task import Task
from mainspring.testing import VirtualTime
from tests.jobs.conftest import Boom, Changes, MakeStore, ended, now, until, victim

pytestmark = pytest.mark.usefixtures("virtual_time")

COOLDOWN = 30.0


class Work:
    """A task with a breaker that opens after three failures, and what its handler does and has done."""

    def __init__(self, app: Mainspring, **options: object) -> None:
        self.calls: list[float] = []
        self.at_once = 0
        self.most_at_once = 0
        self.is_broken = True
        self.takes = 0.0
        self.snoozes = False
        given: dict[str, Any] = {"breaker": Breaker(threshold=3), "max_attempts": 1, **options}
        self.task: Task[[], None] = app.task(name="work", **given)(self.run)

    async def run(self) -> None:
        self.calls.append(now())
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.takes)
        finally:
            self.at_once -= 1
        if self.snoozes:
            raise Snooze("1h")
        if self.is_broken:
            raise Boom

    async def enqueue(self, count: int) -> None:
        await self.task.enqueue_many([self.task.call() for _ in range(count)])

    async def fail(self) -> None:
        """Fail until the breaker opens; what else is claimed meanwhile would run too."""
        await self.enqueue(3)
        await asyncio.sleep(1)
        assert len(self.calls) == 3


async def phase(app: Mainspring) -> Phase:
    return (await app.breakers.show("work")).breaker.circuit.phase


async def test_a_task_that_fails_again_and_again_stops_for_the_cooldown(app: Mainspring) -> None:
    work = Work(app)
    async with app.node(concurrency=1):
        await work.fail()
        await work.enqueue(6)
        await until(29)
        assert len(work.calls) == 3
        await until(31)
        assert len(work.calls) == 4
        work.is_broken = False
        await until(70)
        assert len(work.calls) == 9
    assert await phase(app) is Phase.CLOSED


async def test_a_cooldown_that_is_over_needs_no_hint(app: Mainspring) -> None:
    work = Work(app)
    async with app.node(concurrency=1):
        await work.fail()
        await work.enqueue(1)
        await until(40)
    assert work.calls[3] - work.calls[2] == pytest.approx(COOLDOWN, abs=0.05)


async def test_U9_half_open_is_one_probe_over_all_nodes_and_one_more_failure_opens_it(
    app: Mainspring, make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    work = Work(app)
    work.takes = 2.0
    others = []
    for _ in range(2):
        other = Mainspring(store=make_store(), clock=virtual_time.clock)
        other.registry.add(work.task.definition)
        others.append(other)
    async with app.node(concurrency=3), others[0].node(concurrency=3), others[1].node(concurrency=3):
        await work.enqueue(30)
        await until(20)
        before = len(work.calls)  # three nodes had three each at work when it opened
        assert before <= 9 + 3
        work.most_at_once = 0
        for round_ in range(1, 4):
            await until(40 * round_)
            assert len(work.calls) == before + round_
        assert work.most_at_once == 1
        work.is_broken = False
        await until(170)
    assert len(work.calls) == 30


async def test_U9_what_is_skipped_counts_for_nothing_and_the_state_outlives_its_nodes(
    app: Mainspring, make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    work = Work(app)
    async with app.node(concurrency=1):
        await work.fail()
        await work.enqueue(2)
        await until(5)
    other = Mainspring(store=make_store(), clock=virtual_time.clock)
    other.registry.add(work.task.definition)
    async with other.node(concurrency=1):
        await until(25)
        assert len(work.calls) == 3
        story = await other.breakers.show("work")
        assert (story.breaker.circuit.phase, story.breaker.circuit.term) == (Phase.OPEN, 1)
        await until(31)
        assert len(work.calls) == 4


async def test_U8_a_cancelled_attempt_counts_for_nothing_and_a_cancelled_probe_frees_its_place(app: Mainspring) -> None:
    work = Work(app)
    work.takes = 1000.0
    async with app.node(concurrency=1):
        for _ in range(5):
            job = await work.task.enqueue()
            await asyncio.sleep(0.5)
            await job.cancel()
            assert (await ended(job)).job.state is State.CANCELLED
        assert (await app.breakers.show("work")).breaker.circuit.failures == 0

        work.takes = 0.0
        await work.enqueue(3)
        await asyncio.sleep(1)
        assert await phase(app) is Phase.OPEN
        work.takes, work.is_broken = 1000.0, False
        probe = await work.task.enqueue()
        await asyncio.sleep(COOLDOWN + 1)
        assert await phase(app) is Phase.HALF_OPEN
        other = await work.task.enqueue()
        await asyncio.sleep(5)
        assert (await other.refresh()).job.state is State.READY
        work.takes = 0.0
        await probe.cancel()
        assert (await ended(other)).job.state is State.SUCCEEDED
    assert await phase(app) is Phase.CLOSED


async def test_U18_a_clock_that_jumps_lets_one_through_and_not_all(app: Mainspring, virtual_time: VirtualTime) -> None:
    work = Work(app)
    async with app.node(concurrency=5):
        await work.fail()
        await work.enqueue(50)
        virtual_time.clock.jump(timedelta(hours=3))
        await until(5)
        assert len(work.calls) == 4
        virtual_time.clock.jump(-timedelta(hours=2, minutes=59))
        await until(5 + 2 * COOLDOWN + 5)
        assert await phase(app) is Phase.OPEN
    assert 5 <= len(work.calls) <= 7  # one in each cooldown at most


async def test_a_probe_whose_node_dies_gives_its_place_to_another(app: Mainspring) -> None:
    work = Work(app)
    async with app:
        async with app.node(concurrency=1):
            await work.fail()
        assert await phase(app) is Phase.OPEN
        work.takes, work.is_broken = 1000.0, False
        await work.enqueue(3)
        async with victim(app, concurrency=3) as dying:
            await until(35)
            assert len(work.calls) == 4
            dying.kill()
        work.takes = 0.0
        async with app.node(concurrency=3):
            await until(70)
    assert len(work.calls) == 6  # the one that was lost had no attempt left
    assert await phase(app) is Phase.CLOSED


async def test_a_probe_that_snoozes_gives_its_place_to_another(app: Mainspring) -> None:
    work = Work(app)
    async with app.node(concurrency=3):
        await work.enqueue(3)
        await until(2)
        work.snoozes = True
        await work.enqueue(2)
        await until(34)
        assert len(work.calls) == 5  # one after the other
        assert await phase(app) is Phase.HALF_OPEN
        work.snoozes = work.is_broken = False
        await work.enqueue(1)
        await until(36)
        assert len(work.calls) == 6
    assert await phase(app) is Phase.CLOSED


async def test_a_node_that_is_shut_down_gives_the_probe_back(app: Mainspring) -> None:
    work = Work(app)
    async with app:
        async with app.node(concurrency=1, grace="1s"):
            await work.fail()
            await work.enqueue(1)
            work.takes = 1000.0
            await until(31)
            assert await phase(app) is Phase.HALF_OPEN
        circuit = (await app.breakers.show("work")).breaker.circuit
        assert (circuit.phase, circuit.probe) == (Phase.HALF_OPEN, None)


@pytest.mark.parametrize("make_store", ["sqlite"], indirect=True)  # the memory store has no transactions
async def test_a_handler_that_ends_its_job_in_a_transaction_closes_the_breaker_with_it(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    app = Mainspring(store=make_store(), clock=virtual_time.clock)
    told: list[BreakerChange] = []
    app.breakers.listener(told.append)
    is_broken = True

    @app.task(name="work", breaker=Breaker(threshold=1), max_attempts=1)
    async def work(ctx: Context) -> None:
        if is_broken:
            raise Boom
        async with ctx.transaction() as tx:
            await tx.execute("SELECT 1")

    async with app.node(concurrency=1):
        await work.enqueue()
        await until(1)
        is_broken = False
        await work.enqueue()
        await until(32)
        assert await phase(app) is Phase.CLOSED
    assert [one.change.target for one in told] == [Phase.OPEN, Phase.HALF_OPEN, Phase.CLOSED]


async def test_listeners_are_told_of_every_change_after_it_was_committed(app: Mainspring) -> None:
    work = Work(app)
    changes = Changes(app)
    told: list[BreakerChange] = []

    @app.breakers.listener
    def broken(_: BreakerChange) -> None:
        raise Boom

    app.breakers.listener(told.append)
    async with app.node(concurrency=1) as node:
        await work.fail()
        work.is_broken = False
        await work.enqueue(1)
        await until(32)
        assert [one.node for one in told] == [node.id] * 3
        assert node.events.counts["listener_errors"] == 3
        assert node.events.counts["breakers_open"] == 1
    assert [(one.change.source, one.change.target) for one in told] == [
        (Phase.CLOSED, Phase.OPEN),
        (Phase.OPEN, Phase.HALF_OPEN),
        (Phase.HALF_OPEN, Phase.CLOSED),
    ]
    assert [one.change for one in told][::-1] == list((await app.breakers.show("work")).changes)
    assert len(changes) == 8  # those who watch jobs are not disturbed


async def test_an_operator_opens_closes_and_resets(app: Mainspring) -> None:
    work = Work(app)
    work.is_broken = False
    async with app.node(concurrency=5):
        await app.breakers.open("work", by="ada", reason="maintenance")
        await work.enqueue(3)
        await until(100)
        assert work.calls == []
        (view,) = (await app.breakers.list()).breakers
        assert (view.by, view.reason, view.circuit.forced) == ("ada", "maintenance", True)
        assert await app.breakers.reset("work", term=view.circuit.term - 1) is None
        assert await app.breakers.reset("work", term=view.circuit.term) is not None
        await until(101)
        assert len(work.calls) == 3

        work.is_broken = True
        await app.breakers.close("work", by="ada")
        await work.enqueue(9)
        await until(110)
        assert len(work.calls) == 12
        story = await app.breakers.show("work", limit=2)
        assert [change.target for change in story.changes] == [Phase.CLOSED, Phase.CLOSED]


async def test_a_task_without_a_breaker_is_told_apart_with_the_nearest_that_has_one(app: Mainspring) -> None:
    Work(app)
    async with app.node():
        for ask in (app.breakers.show, app.breakers.open, app.breakers.close, app.breakers.reset):
            with pytest.raises(UnknownBreaker, match="'wrok' has no breaker; did you mean 'work'"):
                await ask("wrok")


def test_operators_without_an_event_loop_have_the_same() -> None:
    app = Mainspring("memory://")
    for ask in (app.breakers.open_sync, app.breakers.close_sync, app.breakers.reset_sync, app.breakers.show_sync):
        with pytest.raises(UnknownBreaker):
            ask("work")
    assert app.breakers.list_sync().breakers == ()
    app.close_sync()


async def test_a_breaker_that_is_taken_out_of_the_code_is_taken_out_of_the_store(
    app: Mainspring, make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    work = Work(app)
    async with app.node(concurrency=1):
        await work.fail()
        await work.enqueue(3)
        await until(2)
        assert len(work.calls) == 3
    other = Mainspring(store=make_store(), clock=virtual_time.clock)
    other.task(name="work", max_attempts=1)(work.run)
    async with other.node(concurrency=1):
        await until(4)
        assert len(work.calls) == 6
        assert (await other.breakers.list()).breakers == ()


async def test_jobs_behind_the_breaker_of_a_task_that_nobody_knows_any_more_fail_all_the_same(
    app: Mainspring, make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    work = Work(app)
    async with app.node(concurrency=1):
        await work.fail()
        await app.breakers.open("work")
        await work.enqueue(6)
    other = Mainspring(store=make_store(), clock=virtual_time.clock)
    async with other.node(unknown_task_grace="10s", prune_every="1s"):
        await until(60)
        page = await other.jobs(state="failed")
    assert [view.job.cause for view in page.jobs].count(Cause.UNKNOWN_TASK) == 6


async def test_jobs_under_an_old_name_have_a_breaker_too(app: Mainspring) -> None:
    work = Work(app, aliases="old")
    async with app.node():
        views = (await app.breakers.list()).breakers
    assert [view.task for view in views] == [Name("", "old"), Name("", "work")]
    assert views[0].rule == work.task.definition.breaker


async def test_a_breaker_and_a_limit_stand_in_front_of_the_same_task(app: Mainspring) -> None:
    work = Work(app, limit=Limit(concurrency=2))
    work.takes = 0.1
    async with app.node(concurrency=9):
        await work.enqueue(12)
        await until(29)
        assert 3 <= len(work.calls) <= 4
        work.is_broken = False
        await until(35)
        assert len(work.calls) == 12
    assert work.most_at_once == 2


@pytest.mark.parametrize("given", ["10", 3, Breaker], ids=repr)
def test_what_is_no_breaker_is_told_where_it_is_declared(given: Any) -> None:  # noqa: ANN401 -- it is wrong on purpose
    app = Mainspring("memory://")
    with pytest.raises(DeclarationError, match="write Breaker"):
        app.task(name="work", breaker=given)(lambda: None)


def test_true_means_ten_failures_and_thirty_seconds_and_false_none() -> None:
    app = Mainspring("memory://")

    async def work() -> None: ...

    assert app.task(name="a", breaker=True)(work).definition.breaker == Breaker(threshold=10, cooldown="30s")
    assert app.task(name="b", breaker=False)(work).definition.breaker is None
    assert app.task(name="c")(work).definition.breaker is None


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "stop-a-failing-task.md"
USE = """
import asyncio, shop

async def main():
    async with shop.app.node():
        await shop.maintenance()
        await shop.look()
    print((await shop.app.breakers.show("shop.charge")).changes[0].reason)

asyncio.run(main())
"""


def test_what_the_page_shows_works(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (tmp_path / "shop.py").write_text("\n".join(blocks), encoding="utf-8")
    (tmp_path / "use.py").write_text(USE, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "use.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    phase, reason = done.stdout.splitlines()
    assert phase.startswith("shop.charge open ")
    assert reason == "the provider moves tonight"
