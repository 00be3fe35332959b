"""A worker whose handler writes and ends its job in one transaction, and which dies at a step of it if told to.

python exactly_once_worker.py FILE [STEP]
"""

import asyncio
import os
import sqlite3
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from mainspring import Context, Mainspring
from mainspring.core.job import FINISHED
from mainspring.stores.records import JobFilter
from mainspring.stores.sqlite.transaction import SqliteTransaction

FILE = sys.argv[1]
STEP = sys.argv[2] if len(sys.argv) > 2 else ""

app = Mainspring(f"sqlite:///{FILE}")


def die_at(step: str) -> None:
    if step == STEP:
        os._exit(9)


@app.task(name="with_the_store's_transaction")
async def with_ours(ctx: Context) -> str:
    async with ctx.transaction() as tx:
        await tx.execute("INSERT INTO effects (job) VALUES (?)", [str(ctx.job)])
        tx.finish("done")
    return "too late"


@app.task(name="with_a_transaction_of_its_own")
def with_its_own(ctx: Context) -> None:
    connection = sqlite3.connect(FILE, timeout=30)
    try:
        with connection:
            die_at("before the write")
            connection.execute("INSERT INTO effects (job) VALUES (?)", [str(ctx.job)])
            die_at("after the write")
            ctx.settle_in(connection, None)
            die_at("after settle_in")
        die_at("after the commit")
    finally:
        connection.close()


def deadly(verb: str) -> None:
    """Have the process die before or after a verb of the store's transaction."""
    real: Callable[..., Coroutine[Any, Any, Any]] = getattr(SqliteTransaction, verb)

    async def call(*args: object, **kwargs: object) -> object:
        die_at(f"before {verb}")
        answer = await real(*args, **kwargs)
        die_at(f"after {verb}")
        return answer

    setattr(SqliteTransaction, verb, call)


async def main() -> None:
    for verb in ("begin", "execute", "settle", "commit"):
        deadly(verb)
    async with app.node(lease="5s"):
        while (await app.store.list_jobs(JobFilter(states=FINISHED))).jobs == ():
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(main())
