"""Running a verb of the PostgreSQL store in a transaction of the user's own, by whatever driver it is on."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar
from uuid import UUID

import asyncpg as driver

from mainspring.errors import DeclarationError, StoreError
from mainspring.stores.postgres.joined import FAILED, Awaited, Blocking, Work
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.trouble import said, translated
from mainspring.stores.postgres.verb import Verb
from mainspring.stores.transactions import asyncpg, psycopg, sqlalchemy

T = TypeVar("T")

_FAILED: Final = "25P02"


async def run_in(
    tx: object,
    verb: Verb[T],
    settings: Settings,
    identity: UUID,
    *,
    whole: bool = False,
    hint: tuple[str, str] | None = None,
) -> T:
    """Run a verb in the transaction that the user's object is in. A driver that blocks does so here too.

    `identity` is the store's (`joined.identity`); `whole` says that the verb may raise when it has written something;
    `hint` is a channel, and what to say there when the user commits. Raises `DeclarationError` before anything is
    written, unless the object is in a transaction on the store's database which the user will end.
    """
    way = _find(tx)
    work = Work(verb=verb, settings=settings, identity=identity, whole=whole, hint=hint)
    with _told(settings):
        return way.drive(work) if isinstance(way, Blocking) else await way.drive(work)


def run_in_sync(
    tx: object,
    verb: Verb[T],
    settings: Settings,
    identity: UUID,
    *,
    whole: bool = False,
    hint: tuple[str, str] | None = None,
) -> T:
    """Do the same where nothing can be awaited."""
    way = _find(tx)
    if isinstance(way, Awaited):
        problem = f"{_name(tx)} has to be awaited; use the awaited form of this call, such as `await task.enqueue(…)`"
        raise DeclarationError("tx", problem)
    work = Work(verb=verb, settings=settings, identity=identity, whole=whole, hint=hint)
    with _told(settings):
        return way.drive(work)


def blocks(tx: object) -> bool:
    """Say whether the user's object is on a driver that blocks: it can be used without awaiting."""
    return isinstance(_find(tx), Blocking)


def _find(tx: object) -> Blocking | Awaited:
    way = sqlalchemy.find(tx) or asyncpg.find(tx) or psycopg.find(tx)
    if way is None:
        raise DeclarationError(
            "tx",
            f"{_name(tx)} cannot be joined; give a connection of asyncpg or psycopg, or a connection or session of "
            "SQLAlchemy",
        )
    return way


def _name(tx: object) -> str:
    return f"{type(tx).__module__}.{type(tx).__qualname__}"


@contextmanager
def _told(settings: Settings) -> Iterator[None]:
    """Raise what the port promises instead of each driver's own errors."""
    try:
        yield
    except Exception as error:
        ours = _translated(settings, error)
        if ours is error:
            raise
        raise ours from error


def _translated(settings: Settings, error: Exception) -> Exception:
    theirs: Any = getattr(error, "orig", None) or error  # SQLAlchemy wraps its driver's
    state = getattr(theirs, "sqlstate", None)
    if state == _FAILED:
        return DeclarationError("tx", FAILED)
    if state is not None:  # the same codes from every driver
        return translated(settings, driver.PostgresError.new({"C": state, "M": said(theirs)}))
    match type(error).__module__.partition(".")[0], type(theirs).__name__:
        case "asyncpg", "InterfaceError":  # closed, or at something else just now
            return DeclarationError("tx", said(error))
        case "asyncpg", _:
            return translated(settings, error)
        case "psycopg" | "sqlalchemy", "OperationalError" | "InterfaceError":
            return translated(settings, ConnectionError(said(theirs)))
        case "psycopg" | "sqlalchemy", _:
            return StoreError(settings.store, said(theirs))
        case _:
            return error
