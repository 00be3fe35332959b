"""What is done in a transaction of the user's own, whatever its driver: said once, as a verb around the store's verb.

Nothing here begins, commits or rolls back anything but a savepoint of ours.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final, Generic, TypeAlias, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

from mainspring.errors import DeclarationError
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Row, Verb

T = TypeVar("T")

_SIGHT: Final = statement("join_sight")
_IDENTITY: Final = statement("join_identity")
_SAVEPOINT: Final = Ask(statement("join_savepoint"))
_UNDO: Final = Ask(statement("join_undo"))
_RELEASE: Final = Ask(statement("join_release"))
_NOTIFY: Final = statement("join_notify")

FAILED: Final = (
    "an earlier statement has failed in this transaction, and PostgreSQL takes no more until it is rolled back: put a "
    "savepoint around what may fail"
)
CLOSED: Final = "the connection is closed"

Known: TypeAlias = "set[UUID]"
"""The stores that a connection is known to lead to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Generic[T]):
    """A verb that is to be run in a transaction of the user's."""

    verb: Verb[T]
    settings: Settings
    identity: UUID
    """The store's own (`identity`), which the user's connection has to find too."""
    whole: bool = False
    """Whether the verb may raise when it has written something already: then that is undone, by a savepoint.

    That takes two round trips: on one machine 120 to 300 µs, by driver, a fifth to a third of an enqueue. So what cannot
    raise goes without; an error of the database's own then ends the user's transaction, as any other statement's would.
    """
    hint: tuple[str, str] | None = None
    """A channel and what to say there when the user commits."""

    def asks(self, known: Known) -> Verb[T]:
        """All that is to be asked on a connection: where it leads, the verb, and the hint."""
        if self.identity not in known:
            yield from _expect(self.settings.schema, self.identity)
            known.add(self.identity)
        answer = yield from undoing(self.verb) if self.whole else self.verb
        if self.hint is not None:
            yield Ask(_NOTIFY, self.hint)
        return answer


class Blocking(ABC):
    """A transaction of the user's on a driver that blocks."""

    @abstractmethod
    def drive(self, work: Work[T]) -> T:
        """Do the work, after a look at whether the transaction can be joined."""


class Awaited(ABC):
    """A transaction of the user's on a driver that is awaited."""

    @abstractmethod
    async def drive(self, work: Work[T]) -> T:
        """Do the work, after a look at whether the transaction can be joined."""


def identity() -> Verb[UUID]:
    """Read what tells a store from every other. One statement.

    It is copied with the database: to a standby and back, but also to another server that a backup is played into.
    """
    rows = yield Ask(_IDENTITY)
    found: UUID = rows[0][0]
    return found


def undoing(verb: Verb[T]) -> Verb[T]:
    """Do a verb whole or not at all: who called it may go on after an error."""
    yield _SAVEPOINT
    try:
        answer = yield from verb
    except Exception:
        try:
            yield _UNDO
            yield _RELEASE
        except Exception:  # noqa: BLE001, S110 -- the connection is gone, and with it all of the transaction
            pass
        raise
    yield _RELEASE
    return answer


def _expect(schema: str, wanted: UUID) -> Verb[None]:
    """Raise unless the connection leads to the store."""
    ((is_there, is_open, database, role),) = yield Ask(_SIGHT, (schema,))
    if not is_there:
        raise _elsewhere(f"the database {database}, which has no store in a schema {schema}")
    if not is_open:
        raise DeclarationError(
            "tx",
            f"the role {role} may not use the schema {schema}; run `mainspring migrate --grant {role}` as its owner",
        )
    if (yield from identity()) != wanted:
        raise _elsewhere(f"a database {database} with another store in its schema {schema}")


def _elsewhere(where: str) -> DeclarationError:
    return DeclarationError("tx", f"it is a connection to {where}: two databases cannot be committed together")


# What the drivers share.


def drive(run: Callable[[Ask], Sequence[Row]], verb: Verb[T]) -> T:
    """Run a verb with a driver that blocks. Unlike our own connections' way, errors go through the verb."""
    step = partial(next, verb)
    try:
        while True:
            ask = step()
            try:
                rows = run(ask)
            except Exception as error:  # noqa: BLE001 -- comes back out of the verb
                step = partial(verb.throw, error)
            else:
                step = partial(verb.send, rows)
    except StopIteration as end:
        answer: T = end.value
        return answer
    finally:
        verb.close()


async def drive_awaited(run: Callable[[Ask], Awaitable[Sequence[Row]]], verb: Verb[T]) -> T:
    """Run a verb with a driver that is awaited."""
    step = partial(next, verb)
    try:
        while True:
            ask = step()
            try:
                rows = await run(ask)
            except Exception as error:  # noqa: BLE001 -- comes back out of the verb
                step = partial(verb.throw, error)
            else:
                step = partial(verb.send, rows)
    except StopIteration as end:
        answer: T = end.value
        return answer
    finally:
        verb.close()


def known(connection: object) -> Known:
    """Return what is known of a connection for as long as it lives."""
    return _KNOWN.setdefault(connection, set())


_KNOWN: Final[WeakKeyDictionary[object, Known]] = WeakKeyDictionary()


def by_name(values: Sequence[object]) -> dict[str, object]:
    """Name values as `statements.with_names` does."""
    return {f"p{number}": value for number, value in enumerate(values, 1)}


def in_utc(rows: Sequence[Row]) -> list[Row]:
    """Put instants into UTC; psycopg gives them in the time zone that the user's session has set."""
    return [[one.astimezone(UTC) if isinstance(one, datetime) else one for one in row] for row in rows]
