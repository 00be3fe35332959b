"""Verbs of a PostgreSQL store, one statement at a time: with something else in between, or with each one explained."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias, TypeVar

import pytest
from psycopg.sql import Literal

from mainspring.stores.postgres import connections
from mainspring.stores.postgres.connected import Connected
from mainspring.stores.postgres.drive import drive, drive_with
from mainspring.stores.postgres.statements import Statement, in_schema
from mainspring.stores.postgres.verb import Row, Verb

T = TypeVar("T")

Meanwhile: TypeAlias = Callable[[], Awaitable[object]]
Run: TypeAlias = Callable[[Connected, Statement, str, tuple[object, ...]], Awaitable[Sequence[Row]]]
"""Runs a statement on a connection: (connection, statement, its text in the schema, its values)."""

_EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)"
_NO_QUERY = ("SAVEPOINT", "RELEASE", "ROLLBACK", "DO ")
"""What cannot be explained begins so."""
_NUMBERS = count(1)
_RUN: ContextVar[Run | None] = ContextVar("run", default=None)


async def driven(verb: Awaitable[T], run: Run) -> T:
    """Do a verb, each of whose statements is run by `run`; others that are done meanwhile are not."""

    async def do() -> T:
        _RUN.set(run)
        return await verb

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "drive", _drive)
        return await asyncio.create_task(do())


async def _drive(connected: Connected, verb: Verb[T], schema: str) -> T:
    run = _RUN.get()
    if run is None:
        return await drive(connected, verb, schema)
    return await drive_with(lambda one, values: run(connected, one, in_schema(one, schema), values), verb)


async def staged(verb: Awaitable[T], **meanwhile: Meanwhile) -> T:
    """Do a verb, and something else meanwhile: `before_take=…`, `after_settle_read=…`, once each."""

    async def run(connected: Connected, one: Statement, text: str, values: tuple[object, ...]) -> Sequence[Row]:
        await pause(f"before_{one.name}")
        rows = await connected.fetch(text, *values)
        await pause(f"after_{one.name}")
        return rows

    async def pause(where: str) -> None:
        if where in left:
            await asyncio.create_task(alone(left.pop(where)))

    async def alone(other: Meanwhile) -> None:
        _RUN.set(None)
        await other()

    left = dict(meanwhile)
    answer = await driven(verb, run)
    assert not left, f"never came to {list(left)}"
    return answer


# Plans.


@dataclass(frozen=True, slots=True)
class Plan:
    """A node of a plan, with those below it."""

    statement: str
    node: dict[str, Any]

    @property
    def below(self) -> "list[Plan]":
        return [Plan(self.statement, node) for node in self.node.get("Plans", ())]

    def __iter__(self) -> "Iterator[Plan]":
        """All nodes, this one first."""
        yield self
        for plan in self.below:
            yield from plan

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 -- as PostgreSQL tells it
        return self.node.get(name, default)

    @property
    def buffers(self) -> int:
        """Pages that were looked at; only where it was run."""
        return int(self.node["Shared Hit Blocks"]) + int(self.node["Shared Read Blocks"])

    def __str__(self) -> str:
        return "\n".join(self._lines(0))

    def _lines(self, depth: int) -> Iterator[str]:
        shown = ("Node Type", "Subplan Name", "Relation Name", "Index Name", "Index Cond", "Filter", "Actual Rows")
        yield "  " * depth + " · ".join(str(self.node[name]) for name in shown if name in self.node)
        for plan in self.below:
            yield from plan._lines(depth + 1)


async def explained(verb: Awaitable[T], *, generic: bool = True) -> tuple[T, list[Plan]]:
    """Do a verb; says also how PostgreSQL did each of its statements.

    Each is run twice, and the first time undone. `generic`: by the plan that does not know the values, as our own
    connections have it; else by one that is made for them, as behind a pooler.
    """
    plans: list[Plan] = []

    async def run(connected: Connected, one: Statement, text: str, values: tuple[object, ...]) -> Sequence[Row]:
        if text.startswith(_NO_QUERY):
            return await connected.fetch(text, *values)
        async with undone(connected):
            if generic:
                found = await _as_prepared(connected, text, values)
            else:
                ((found,),) = await connected.fetch(f"{_EXPLAIN} {text}", *values)
        plans.append(Plan(one.name, json.loads(found)[0]["Plan"]))
        return await connected.fetch(text, *values)

    return await driven(verb, run), plans


async def _as_prepared(connected: Connected, text: str, values: tuple[object, ...]) -> str:
    name = f"explained_{next(_NUMBERS)}"
    given = ", ".join(Literal(value).as_string() for value in values)
    await connected.execute(f"PREPARE {name} AS {text}")
    try:
        ((found,),) = await connected.fetch(f"{_EXPLAIN} EXECUTE {name} {f'({given})' if values else ''}")
    finally:
        await connected.execute(f"DEALLOCATE {name}")
    return str(found)


@asynccontextmanager
async def undone(connected: Connected) -> AsyncIterator[None]:
    """Undo what is written in the block, in a transaction or not."""
    begin, end = (
        ("SAVEPOINT undone", "ROLLBACK TO undone")
        if connected.connection.is_in_transaction()
        else ("BEGIN", "ROLLBACK")
    )
    await connected.execute(begin)
    try:
        yield
    finally:
        await connected.execute(end)
