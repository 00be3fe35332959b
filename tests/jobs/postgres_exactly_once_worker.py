"""A node on PostgreSQL whose handlers write and end their job in one transaction, and which dies at a step of it, or
waits there for a word on standard input, if told to.

python postgres_exactly_once_worker.py URL DSN [die|wait STEP]
"""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import asyncpg
import psycopg

from mainspring import Context, Mainspring, Retry
from mainspring.core.job import FINISHED
from mainspring.stores.postgres.connections import Connections
from mainspring.stores.postgres.lease import Lease
from mainspring.stores.postgres.transaction import PostgresTransaction
from mainspring.stores.records import JobFilter

OURS = "transaction"
ASYNCPG = "settle_in.asyncpg"
PSYCOPG = "settle_in.psycopg"
EXIT = 9

At = Callable[[str], None]


def pass_by(_: str) -> None:
    """Let every step pass."""


def an_app(url: str, dsn: str, at: At = pass_by) -> Mainspring:
    """Declare a task for each way; `at` is told of every step."""
    app = Mainspring(url)
    soon = app.task(retry=Retry.fixed("100ms", max_attempts=5))

    @soon(name=OURS)
    async def _(ctx: Context) -> str:
        at("before the transaction")
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO effects (job) VALUES ($1)", [str(ctx.job)])
            tx.finish("done")
        return "too late"

    @soon(name=ASYNCPG)
    async def _(ctx: Context) -> None:
        connection = await asyncpg.connect(dsn)
        try:
            at("before the transaction")
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute("INSERT INTO effects (job) VALUES ($1)", str(ctx.job))
            at("after the write")
            await ctx.settle_in(connection)
            at("before the commit")
            await transaction.commit()
            at("after the commit")
        finally:
            connection.terminate()

    @soon(name=PSYCOPG)
    def _(ctx: Context) -> None:
        with psycopg.connect(dsn) as connection:
            at("before the transaction")
            connection.execute("INSERT INTO effects (job) VALUES (%s)", [str(ctx.job)])
            at("after the write")
            ctx.settle_in(connection)
            at("before the commit")
            connection.commit()
            at("after the commit")

    return app


def tell_steps(at: At) -> None:
    """Have the steps of the store's own transactions told too."""
    told: list[tuple[type, str, str, str]] = [
        (Connections, "_begin", "", "after the begin"),
        (PostgresTransaction, "execute", "", "after the write"),
        (PostgresTransaction, "settle", "", "after the settle"),
        (Lease, "commit", "before the commit", "after the commit"),
    ]
    for owner, verb, before, after in told:
        setattr(owner, verb, telling(getattr(owner, verb), at, before, after))


def telling(verb: Callable[..., Coroutine[Any, Any, Any]], at: At, before: str, after: str) -> Callable[..., Any]:
    async def call(*args: object, **kwargs: object) -> object:
        at(before)
        answer = await verb(*args, **kwargs)
        at(after)
        return answer

    return call


async def work_off(app: Mainspring) -> None:
    """Be a node until the one job that there is has finished."""
    async with app.node(lease="5s"):
        while not (await app.store.list_jobs(JobFilter(states=FINISHED))).jobs:
            await asyncio.sleep(0.02)


def main() -> None:
    url, dsn, *rest = sys.argv[1:]
    action, step = rest or ("", "")

    def at(reached: str) -> None:
        if not action or reached != step:
            return
        if action == "die":
            os._exit(EXIT)
        print("here", flush=True)  # noqa: T201 - the test waits for it
        sys.stdin.readline()

    tell_steps(at)
    asyncio.run(work_off(an_app(url, dsn, at)))


if __name__ == "__main__":
    main()
