"""Write locks held by the running code's open transactions, on stores with a single write lock.

Inside of such a transaction, a write to the same store through another connection would wait for the transaction's own
lock until the transaction times out. So the store refuses such a write at once.

The locks are in a context variable, which is copied into tasks that are started inside of the block. They would wait as
well, so they are refused too, but only for as long as the transaction is open.
"""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple, Protocol

from mainspring.errors import DeclarationError


class Holder(Protocol):
    """A transaction that holds a write lock from its beginning to its end."""

    @property
    def is_open(self) -> bool: ...


class Held(NamedTuple):
    """The write lock of one database."""

    database: Hashable
    holder: Holder


_held: Final[ContextVar[tuple[Held, ...]]] = ContextVar("mainspring_write_locks", default=())


@contextmanager
def hold(database: Hashable, holder: Holder) -> Iterator[None]:
    """Refuse other writes to a database from inside of a block, while its transaction is open."""
    own = Held(database, holder)
    _held.set((*_held.get(), own))
    try:
        yield
    finally:  # not by a token: a block may be left in another context, or before one that was entered earlier
        _held.set(tuple(one for one in _held.get() if one is not own))


def is_held(database: Hashable | None = None) -> bool:
    """Whether the running code holds the write lock of a database, or of any."""
    return any(one.holder.is_open and database in {None, one.database} for one in _held.get())


def refuse_inside(database: Hashable, store: str) -> None:
    """Raise `DeclarationError` where a write would wait for the caller's own transaction."""
    if is_held(database):
        raise DeclarationError(
            store,
            "written to inside of an open transaction (ctx.transaction, or a transactional handler) that holds the only "
            "write lock; use `.using(tx=tx)` or `publish(tx, …)`, or do it before or after the block",
        )
