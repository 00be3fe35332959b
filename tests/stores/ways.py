"""The ways in which people are in a transaction on PostgreSQL: each driver, as its manual shows it.

A way is entered with the transaction open, or about to open with the first statement; leaving it closes everything and
rolls back what was not committed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from typing import TypeAlias

import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool


@dataclass(frozen=True, slots=True)
class User:
    """Someone in a transaction."""

    handle: object
    """What Mainspring is given."""
    run: Callable[[str], Awaitable[object]]
    """Runs a statement of the user's own."""
    commit: Callable[[], Awaitable[None]]
    rollback: Callable[[], Awaitable[None]]


Way: TypeAlias = Callable[[str], AbstractAsyncContextManager[User]]


def awaited(step: Callable[[], object]) -> Callable[[], Awaitable[None]]:
    async def do() -> None:
        step()

    return do


# asyncpg.


@asynccontextmanager
async def asyncpg_connection(dsn: str) -> AsyncIterator[User]:
    connection = await asyncpg.connect(dsn)
    try:
        transaction = connection.transaction()
        await transaction.start()
        yield User(connection, connection.execute, transaction.commit, transaction.rollback)
    finally:
        connection.terminate()
        await asyncio.sleep(0)  # in which the transport lets go of its socket


@asynccontextmanager
async def asyncpg_by_hand(dsn: str) -> AsyncIterator[User]:
    connection = await asyncpg.connect(dsn)

    async def end(word: str) -> None:
        await connection.execute(word)

    try:
        await connection.execute("BEGIN")
        yield User(connection, connection.execute, lambda: end("COMMIT"), lambda: end("ROLLBACK"))
    finally:
        connection.terminate()
        await asyncio.sleep(0)  # in which the transport lets go of its socket


@asynccontextmanager
async def asyncpg_pool(dsn: str) -> AsyncIterator[User]:
    pool = await asyncpg.create_pool(dsn, min_size=1, max_size=1)
    try:
        async with pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            yield User(connection, connection.execute, transaction.commit, transaction.rollback)
    finally:
        pool.terminate()
        await asyncio.sleep(0)


@asynccontextmanager
async def asyncpg_committing(dsn: str) -> AsyncIterator[User]:
    connection = await asyncpg.connect(dsn)
    try:
        yield User(connection, connection.execute, awaited(int), awaited(int))
    finally:
        connection.terminate()
        await asyncio.sleep(0)  # in which the transport lets go of its socket


# psycopg.


def psycopg_user(connection: psycopg.Connection, handle: object) -> User:
    async def run(statement: str) -> object:
        return connection.execute(statement.encode())

    return User(handle, run, awaited(connection.commit), awaited(connection.rollback))


@asynccontextmanager
async def psycopg_connection(dsn: str) -> AsyncIterator[User]:
    with closing(psycopg.connect(dsn)) as connection:
        yield psycopg_user(connection, connection)


@asynccontextmanager
async def psycopg_cursor(dsn: str) -> AsyncIterator[User]:
    with closing(psycopg.connect(dsn)) as connection, connection.cursor() as cursor:
        yield psycopg_user(connection, cursor)


@asynccontextmanager
async def psycopg_with_begin(dsn: str) -> AsyncIterator[User]:
    with closing(psycopg.connect(dsn, autocommit=True)) as connection:
        connection.execute("BEGIN")
        yield psycopg_user(connection, connection)


@asynccontextmanager
async def psycopg_committing(dsn: str) -> AsyncIterator[User]:
    with closing(psycopg.connect(dsn, autocommit=True)) as connection:
        yield psycopg_user(connection, connection)


def psycopg_awaited(dsn: str) -> AbstractAsyncContextManager[User]:
    return psycopg_async(dsn, autocommit=False)


def psycopg_awaited_committing(dsn: str) -> AbstractAsyncContextManager[User]:
    return psycopg_async(dsn, autocommit=True)


@asynccontextmanager
async def psycopg_async(dsn: str, *, autocommit: bool) -> AsyncIterator[User]:
    connection = await psycopg.AsyncConnection.connect(dsn, autocommit=autocommit)

    async def run(statement: str) -> object:
        return await connection.execute(statement.encode())

    try:
        yield User(connection, run, connection.commit, connection.rollback)
    finally:
        await connection.close()


# SQLAlchemy.


def engine(dsn: str, **options: object) -> sqlalchemy.Engine:
    url = sqlalchemy.make_url(dsn).set(drivername="postgresql+psycopg")
    return sqlalchemy.create_engine(url, poolclass=NullPool, **options)


@asynccontextmanager
async def sqlalchemy_connection(dsn: str, **options: object) -> AsyncIterator[User]:
    with engine(dsn, **options).connect() as connection:

        async def run(statement: str) -> object:
            return connection.execute(sqlalchemy.text(statement))

        yield User(connection, run, awaited(connection.commit), awaited(connection.rollback))


def sqlalchemy_committing(dsn: str) -> AbstractAsyncContextManager[User]:
    return sqlalchemy_connection(dsn, isolation_level="AUTOCOMMIT")


def session_user(session: Session, handle: object) -> User:
    async def run(statement: str) -> object:
        return session.execute(sqlalchemy.text(statement))

    return User(handle, run, awaited(session.commit), awaited(session.rollback))


@asynccontextmanager
async def sqlalchemy_session(dsn: str) -> AsyncIterator[User]:
    with Session(engine(dsn)) as session:
        yield session_user(session, session)


@asynccontextmanager
async def sqlalchemy_scoped(dsn: str) -> AsyncIterator[User]:
    registry = scoped_session(sessionmaker(engine(dsn)))
    try:
        yield session_user(registry(), registry)
    finally:
        registry.remove()


@asynccontextmanager
async def sqlalchemy_transaction(dsn: str) -> AsyncIterator[User]:
    """`with engine.begin()` and its like give a connection; this is for who keeps what `begin` of that returns."""
    with engine(dsn).connect() as connection:
        transaction = connection.begin()

        async def run(statement: str) -> object:
            return connection.execute(sqlalchemy.text(statement))

        yield User(transaction, run, awaited(transaction.commit), awaited(transaction.rollback))


def sqlalchemy_awaited(driver: str, **options: object) -> Way:
    @asynccontextmanager
    async def way(dsn: str) -> AsyncIterator[User]:
        url = sqlalchemy.make_url(dsn).set(drivername=f"postgresql+{driver}")
        async with create_async_engine(url, poolclass=NullPool, **options).connect() as connection:

            async def run(statement: str) -> object:
                return await connection.execute(sqlalchemy.text(statement))

            yield User(connection, run, connection.commit, connection.rollback)

    return way


def sqlalchemy_awaited_session(driver: str, *, scoped: bool = False) -> Way:
    @asynccontextmanager
    async def way(dsn: str) -> AsyncIterator[User]:
        url = sqlalchemy.make_url(dsn).set(drivername=f"postgresql+{driver}")
        maker = async_sessionmaker(create_async_engine(url, poolclass=NullPool))
        registry = async_scoped_session(maker, lambda: None)
        session: AsyncSession = registry()
        try:

            async def run(statement: str) -> object:
                return await session.execute(sqlalchemy.text(statement))

            yield User(registry if scoped else session, run, session.commit, session.rollback)
        finally:
            await registry.remove()

    return way


BLOCKING: dict[str, Way] = {
    "psycopg": psycopg_connection,
    "psycopg cursor": psycopg_cursor,
    "psycopg BEGIN": psycopg_with_begin,
    "sqlalchemy": sqlalchemy_connection,
    "sqlalchemy session": sqlalchemy_session,
    "sqlalchemy scoped session": sqlalchemy_scoped,
    "sqlalchemy transaction": sqlalchemy_transaction,
}
AWAITED: dict[str, Way] = {
    "asyncpg": asyncpg_connection,
    "asyncpg BEGIN": asyncpg_by_hand,
    "asyncpg pool": asyncpg_pool,
    "psycopg awaited": psycopg_awaited,
    "sqlalchemy asyncpg": sqlalchemy_awaited("asyncpg"),
    "sqlalchemy asyncpg session": sqlalchemy_awaited_session("asyncpg"),
    "sqlalchemy asyncpg scoped session": sqlalchemy_awaited_session("asyncpg", scoped=True),
    "sqlalchemy psycopg": sqlalchemy_awaited("psycopg"),
    "sqlalchemy psycopg session": sqlalchemy_awaited_session("psycopg"),
}
COMMITTING: dict[str, Way] = {
    "asyncpg": asyncpg_committing,
    "psycopg": psycopg_committing,
    "psycopg awaited": psycopg_awaited_committing,
    "sqlalchemy": sqlalchemy_committing,
    "sqlalchemy asyncpg": sqlalchemy_awaited("asyncpg", isolation_level="AUTOCOMMIT"),
    "sqlalchemy psycopg": sqlalchemy_awaited("psycopg", isolation_level="AUTOCOMMIT"),
}
