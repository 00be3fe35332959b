"""Running verbs: on a connection of asyncpg's, or on whatever else can run a statement.

Errors of the driver come out as they are: in a transaction of the user's own they are the user's business.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from mainspring.stores.postgres.statements import Statement, in_schema
from mainspring.stores.postgres.verb import Row, Verb

T = TypeVar("T")


class Fetches(Protocol):
    """What is wanted of a connection of asyncpg's."""

    def fetch(self, query: str, /, *args: object) -> Awaitable[Any]: ...  # rows, of a type of its own


async def drive(connection: Fetches, verb: Verb[T], schema: str) -> T:
    """Run a verb on a connection of asyncpg's."""
    try:
        ask = next(verb)
        while True:
            rows = await connection.fetch(in_schema(ask.statement, schema), *ask.values)
            ask = verb.send(rows)
    except StopIteration as end:
        answer: T = end.value
        return answer
    finally:
        verb.close()


async def drive_with(run: Callable[[Statement, tuple[object, ...]], Awaitable[Sequence[Row]]], verb: Verb[T]) -> T:
    """Run a verb with any driver that is awaited."""
    try:
        ask = next(verb)
        while True:
            ask = verb.send(await run(ask.statement, ask.values))
    except StopIteration as end:
        answer: T = end.value
        return answer
    finally:
        verb.close()


def drive_sync(run: Callable[[Statement, tuple[object, ...]], Sequence[Row]], verb: Verb[T]) -> T:
    """Run a verb with any driver that blocks."""
    try:
        ask = next(verb)
        while True:
            ask = verb.send(run(ask.statement, ask.values))
    except StopIteration as end:
        answer: T = end.value
        return answer
    finally:
        verb.close()
