"""Connections of asyncpg, alone or out of its pool, in a transaction that the user commits or rolls back."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from mainspring.errors import DeclarationError
from mainspring.stores.postgres.joined import CLOSED, Awaited, Work, drive_awaited, known
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.statements import in_schema
from mainspring.stores.postgres.verb import Ask, Row
from mainspring.stores.transactions.recognized import imported

T = TypeVar("T")


class Connection(Protocol):
    """What is used of one."""

    async def fetch(self, query: str, /, *args: object, record_class: type) -> Sequence[Row]: ...

    def is_closed(self) -> bool: ...

    def is_in_transaction(self) -> bool: ...


def find(tx: object) -> Awaited | None:
    """Recognize what asyncpg makes; None if it is nothing of the kind."""
    found = _lent(tx) if isinstance(tx, imported("asyncpg.pool", "PoolConnectionProxy")) else tx
    return AsyncpgTransaction(found) if isinstance(found, imported("asyncpg", "Connection")) else None


class AsyncpgTransaction(Awaited):
    """An open transaction; whether begun by `transaction()` or by hand does not matter."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def drive(self, work: Work[T]) -> T:
        if self._connection.is_closed():
            raise DeclarationError("tx", CLOSED)
        if not self._connection.is_in_transaction():
            raise DeclarationError(
                "tx",
                "the connection commits each statement by itself; use it inside `async with connection.transaction():`",
            )
        asks = work.asks(known(self._connection))
        return await drive_awaited(partial(self._run, work.settings), asks)

    async def _run(self, settings: Settings, ask: Ask) -> Sequence[Row]:
        (plain,) = imported("asyncpg", "Record")  # the user's connection may make records that are read otherwise
        text = in_schema(ask.statement, settings.schema)
        return await self._connection.fetch(text, *ask.values, record_class=plain)


def _lent(proxy: Any) -> object:  # noqa: ANN401 -- asyncpg brings no types
    """Return the connection behind what a pool lends out: the proxy is another one each time, and not remembered."""
    if proxy._con is None:  # noqa: SLF001 -- there is no other way to it
        raise DeclarationError("tx", "the connection has been given back to its pool")
    return proxy._con  # noqa: SLF001 -- the same
