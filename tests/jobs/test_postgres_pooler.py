"""Jobs through a PgBouncer in transaction mode, where no connection is one's own for longer than a transaction."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from uuid import UUID

import pytest

from mainspring import Context, Limit, Mainspring, Unique
from mainspring.runtime import claimer
from tests.jobs.postgres_work import Told, survive
from tests.servers.pgbouncer import Pooler
from tests.servers.postgres import Server
from tests.servers.system import PATIENCE
from tests.stores.postgres_wires import on_real_time

pytestmark = [pytest.mark.slow, pytest.mark.needs("pgbouncer")]

AT_ONCE = 2


@pytest.fixture
def pooler(own_postgres: Server) -> Iterator[Pooler]:
    with Pooler(own_postgres) as pooler:
        yield pooler


@pytest.fixture
def schema(own_postgres: Server) -> Iterator[str]:
    with own_postgres.schema() as name:
        yield name


class Side:
    """An app; one is the node's, another that of whoever enqueues."""

    def __init__(self, url: str) -> None:
        self.app = Mainspring(url)
        self.started: set[UUID] = set()
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.all_asked = asyncio.Event()

        @self.app.task(name="double")
        async def double(ctx: Context, number: int) -> int:
            self.started.add(ctx.job)
            return 2 * number

        @self.app.task(name="limited", limit=Limit(concurrency=AT_ONCE, key="key"))
        async def limited(key: str) -> None:
            self.running[key] += 1
            self.most[key] = max(self.most[key], self.running[key])
            await asyncio.sleep(0.01)
            self.running[key] -= 1

        @self.app.task(name="alone", unique=Unique(key="key"))
        async def alone(key: str) -> str:
            await self.all_asked.wait()
            return key

        self.double, self.limited, self.alone = double, limited, alone


async def start_each(node: Side, other: Side, count: int) -> None:
    """Enqueue one job after the other, each when the one before has started."""
    for number in range(count):
        job = await other.double.enqueue(number)
        async with asyncio.timeout(PATIENCE):
            while job.id not in node.started:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.02 + 0.037 * (number % 7))  # not in step with anybody's looks


async def all_kinds(node: Side, other: Side) -> None:
    """Have jobs of every kind done: many, with results; limited ones; unique ones."""
    many = await other.double.enqueue_many([other.double.call(number) for number in range(300)])
    limited = await other.limited.enqueue_many([other.limited.call("ab"[number % 2]) for number in range(60)])
    unique = await asyncio.gather(*(other.alone.enqueue("x") for _ in range(8)))
    node.all_asked.set()
    assert await asyncio.gather(*(job.result(timeout="60s") for job in many)) == [2 * n for n in range(300)]
    await asyncio.gather(*(job.result(timeout="60s") for job in limited))
    assert len({job.id for job in unique}) == 1
    assert sum(job.fresh for job in unique) == 1
    assert await unique[0].result(timeout="60s") == "x"
    assert node.most == {"a": AT_ONCE, "b": AT_ONCE}


@on_real_time
async def test_with_a_way_past_the_pooler_for_notifications_jobs_start_at_once(
    own_postgres: Server,
    pooler: Pooler,
    schema: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claimer, "LOOK", 3600.0)  # then a node looks where it is notified, and not by itself
    node = Side(f"{pooler.dsn()}?schema={schema}&listen={own_postgres.host}:{own_postgres.port}")
    other = Side(f"{pooler.dsn()}?schema={schema}")
    async with node.app.node(), other.app:
        await all_kinds(node, other)
        await start_each(node, other, 40)

    assert not [record for record in caplog.records if "out of reach" in record.getMessage()]


@on_real_time
@pytest.mark.parametrize("option", ["", pytest.param("&listen=false", marks=pytest.mark.full)])
async def test_without_notifications_jobs_start_with_the_next_look(
    pooler: Pooler, schema: str, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert claimer.LOOK == 1.0, "seconds that a job waits at most; a busy machine cannot measure them"
    node = Side(f"{pooler.dsn()}?schema={schema}{option}")
    other = Side(f"{pooler.dsn()}?schema={schema}{option}")
    async with node.app.node(), other.app:
        await all_kinds(node, other)
        await start_each(node, other, 12)

    warnings = [record.getMessage() for record in caplog.records if record.name.startswith("mainspring")]
    assert len(warnings) == (0 if option else 2), warnings  # one for each app, where they were wanted
    assert all("no notifications arrive: they do not pass the pooler" in line for line in warnings)


@on_real_time
async def test_a_node_outlives_a_restart_of_the_pooler(
    pooler: Pooler, schema: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"{pooler.dsn()}?schema={schema}&listen=false"
    await survive(url, pooler.restart, Told(caplog, capsys), unnoticed=True)
