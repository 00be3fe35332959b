"""Jobs through a PgBouncer in transaction mode, where no connection is one's own for longer than a transaction."""

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from uuid import UUID

import pytest

from mainspring import Context, Limit, Mainspring, Unique
from tests.jobs.postgres_work import Told, survive
from tests.servers.metronome import metronome
from tests.servers.pgbouncer import Pooler
from tests.servers.postgres import Server
from tests.servers.system import PATIENCE
from tests.stores.postgres_wires import on_real_time

pytestmark = [pytest.mark.slow, pytest.mark.needs("pgbouncer")]

HINTED = 0.1
"""Seconds within which a job starts if a notification comes."""
LOOK = 1.0
"""Seconds within which a node looks by itself."""
BUSY = 0.5
"""Seconds that some may take on top of that; what the machine gave to others does not count."""
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
        self.started: dict[UUID, float] = {}
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.all_asked = asyncio.Event()

        @self.app.task(name="double")
        async def double(ctx: Context, number: int) -> int:
            self.started[ctx.job] = time.monotonic()
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


async def latencies(pooler: Pooler, node: Side, other: Side, count: int) -> list[float]:
    """Enqueue one job after the other; returns how many seconds after the enqueue each has started."""
    found = []
    async with metronome(pooler) as others:
        for number in range(count):
            job = await other.double.enqueue(number)
            enqueued, before = time.monotonic(), others.taken
            async with asyncio.timeout(PATIENCE):
                while job.id not in node.started:
                    await asyncio.sleep(0.001)
            found.append(node.started[job.id] - enqueued - (others.taken - before))
            await asyncio.sleep(0.1 + 0.037 * (number % 7))  # not in step with anybody's looks
    return sorted(found)


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
    capsys: pytest.CaptureFixture[str],
) -> None:
    node = Side(f"{pooler.dsn()}?schema={schema}&listen={own_postgres.host}:{own_postgres.port}")
    other = Side(f"{pooler.dsn()}?schema={schema}")
    async with node.app.node(), other.app:
        await all_kinds(node, other)
        took = await latencies(pooler, node, other, 40)

    with capsys.disabled():
        print(f"\nthrough a pooler, notified: p50 {statistics.median(took):.4f} s, all within {took[-1]:.4f} s")  # noqa: T201
    assert statistics.median(took) < HINTED
    assert took[round(0.9 * len(took))] < HINTED + BUSY
    assert not [record for record in caplog.records if "out of reach" in record.getMessage()]


@on_real_time
@pytest.mark.parametrize("option", ["", "&listen=false"])
async def test_without_notifications_jobs_start_with_the_next_look(
    pooler: Pooler, schema: str, option: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    node = Side(f"{pooler.dsn()}?schema={schema}{option}")
    other = Side(f"{pooler.dsn()}?schema={schema}{option}")
    async with node.app.node(), other.app:
        await all_kinds(node, other)
        took = await latencies(pooler, node, other, 12)

    with capsys.disabled():
        print(f"\nthrough a pooler, unnotified: p50 {statistics.median(took):.4f} s, all within {took[-1]:.4f} s")  # noqa: T201
    assert took[-1] < LOOK + BUSY
    warnings = [record.getMessage() for record in caplog.records if record.name.startswith("mainspring")]
    assert len(warnings) == (0 if option else 2), warnings  # one for each app, where they were wanted
    assert all("no notifications arrive: they do not pass the pooler" in line for line in warnings)


@on_real_time
async def test_a_node_outlives_a_restart_of_the_pooler(
    pooler: Pooler, schema: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"{pooler.dsn()}?schema={schema}&listen=false"
    await survive(url, pooler.restart, Told(caplog, capsys), unnoticed=True)
