"""What nodes and their census would have written down in a day: what the overview is made from."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from bench.looking.names import QUEUES, TASKS
from mainspring.core.tally import MINUTE, TEN_MINUTES, Counted, Line, start_of, step_of, written
from mainspring.stores.overview import Overview, Tally

NODES = 4
FINE = 180
"""Minutes that are kept one by one."""
DAY = timedelta(days=1)


async def write(store: Overview, now: datetime) -> None:
    """Write counts of all queues and tasks, by several nodes, and a census."""
    body = written(Counted(lines=tuple(_lines())))
    last = start_of(now, MINUTE)
    for minute in range(FINE):
        at = last - minute * MINUTE
        await store.write_tallies([Tally(at=at, span=MINUTE, by=f"node-{node}", body=body) for node in range(NODES)])
    at = start_of(now - FINE * MINUTE, TEN_MINUTES)
    while at > now - DAY:
        await store.write_tallies([Tally(at=at, span=TEN_MINUTES, by="", body=body)])
        at -= TEN_MINUTES
    census = await store.census(now - MINUTE)
    counted = Counted(
        enqueued=1000,
        counted_at=census.at,
        complete=census.complete,
        counts=census.counts,
        nodes=NODES,
        places=20 * NODES,
    )
    await store.write_tallies([Tally(at=last, span=MINUTE, by="", body=written(counted))])


def _lines() -> Iterator[Line]:
    for task in TASKS:
        for queue in QUEUES:
            yield Line(
                queue=queue,
                task=str(task),
                ends={"succeeded": 95, "will_retry": 3, "failed": 2},
                waits={step_of(0.005 * 2**power): 20 for power in range(5)},
                runs={step_of(0.02 * 2**power): 20 for power in range(5)},
                errors={"ValueError": 3, "TimeoutError": 2},
            )
