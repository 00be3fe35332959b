"""Where the mirror writes to: anything that runs Cypher with parameters.

A sink may raise whatever it likes, and may hang: the mirror bounds every call, and tries again later.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, LiteralString, Protocol, TypeVar

from mainspring.clock import outside
from mainspring.errors import DeclarationError

T = TypeVar("T")

BUFFER: Final = 64 * 1024 * 1024  # bytes; left to itself ladybug takes most of the machine's memory


class CypherSink(Protocol):
    """What the mirror asks of a graph. One mirror writes into a graph at a time, and asks for one thing at a time."""

    async def prepare(self) -> None:
        """Make the graph ready for nodes of the label `_BackgroundJob`, with what it has to be told beforehand."""
        ...

    async def run(self, statement: LiteralString, parameters: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
        """Run one statement, in a transaction of its own; returns its rows, by the names of their columns."""
        ...

    async def close(self) -> None:
        """Let go of what need not be held between two passes; the next call takes it up again."""
        ...


LADYBUG_TABLE: Final = "CREATE NODE TABLE IF NOT EXISTS _BackgroundJob (qname STRING PRIMARY KEY)"
LADYBUG_COLUMNS: Final[tuple[LiteralString, ...]] = (  # one by one, for a table of an earlier release
    "ALTER TABLE _BackgroundJob ADD IF NOT EXISTS namespace STRING",
    "ALTER TABLE _BackgroundJob ADD IF NOT EXISTS local STRING",
    "ALTER TABLE _BackgroundJob ADD IF NOT EXISTS task STRING",
    "ALTER TABLE _BackgroundJob ADD IF NOT EXISTS rule STRING",
    "ALTER TABLE _BackgroundJob ADD IF NOT EXISTS explained STRING",
    "ALTER TABLE _BackgroundJob ADD IF NOT EXISTS owner STRING",
    "ALTER TABLE _BackgroundJob ADD IF NOT EXISTS status STRING",
    "ALTER TABLE _BackgroundJob ADD IF NOT EXISTS next_slot STRING",
    "ALTER TABLE _BackgroundJob ADD IF NOT EXISTS last_slot STRING",
    "ALTER TABLE _BackgroundJob ADD IF NOT EXISTS last_at STRING",
    "ALTER TABLE _BackgroundJob ADD IF NOT EXISTS last_state STRING",
    "ALTER TABLE _BackgroundJob ADD IF NOT EXISTS last_error STRING",
    "ALTER TABLE _BackgroundJob ADD IF NOT EXISTS open_runs INT64",
    "ALTER TABLE _BackgroundJob ADD IF NOT EXISTS failures INT64",
    "ALTER TABLE _BackgroundJob ADD IF NOT EXISTS updated_at STRING",
)


class LadybugSink:
    """A ladybug database, by its path, or one that the program has open already.

    By its path it is open only while the mirror writes: ladybug lets one process write at a time, and so another node
    can go on with the mirror, and other programs can look. Within one process ladybug does not notice a second opening,
    and both would write: whoever uses the same file in the same program passes its `Database`.

    Its calls block, and run in threads of their own, one after the other.
    """

    def __init__(self, database: object) -> None:
        if find_spec("ladybug") is None:  # else each pass of the mirror would fail, and only the log would tell
            raise ModuleNotFoundError(
                "LadybugSink needs ladybug: install Mainspring with the extra 'graph'", name="ladybug"
            )
        self._given = database
        self._made: Any = None
        self._connection: Any = None
        self._last: threading.Thread | None = None
        self._is_given_up = False

    async def prepare(self) -> None:
        await self.run(LADYBUG_TABLE, {})
        for column in LADYBUG_COLUMNS:
            await self.run(column, {})

    async def run(self, statement: LiteralString, parameters: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
        return await self._in_a_thread(lambda: self._execute(statement, parameters))

    async def close(self) -> None:
        if self._connection or self._made or (self._last and self._last.is_alive()):
            await self._in_a_thread(self._let_go)

    # In the threads.

    def _execute(self, statement: str, parameters: Mapping[str, object]) -> list[dict[str, object]]:
        if self._connection is None:
            self._open()
        result = self._connection.execute(statement, dict(parameters))
        try:
            return list(result.rows_as_dict())
        finally:
            result.close()

    def _open(self) -> None:
        ladybug = import_module("ladybug")  # an extra: only who mirrors into it has it
        if isinstance(self._given, str | os.PathLike):
            self._made = ladybug.Database(os.fspath(self._given), buffer_pool_size=BUFFER)
        self._connection = ladybug.Connection(self._given if self._made is None else self._made)

    def _let_go(self) -> None:
        with ExitStack() as ends:
            for one in (self._made, self._connection):
                if one is not None:
                    ends.callback(one.close)
            self._made = self._connection = None

    # To them and back.

    async def _in_a_thread(self, step: Callable[[], T]) -> T:
        if self._is_given_up and self._last and self._last.is_alive():
            raise TimeoutError("ladybug has not come back from an earlier call yet")
        self._is_given_up = False
        answer: Future[T] = Future()
        self._begin(step, answer)
        try:
            with outside("ladybug"):
                return await asyncio.wrap_future(answer)
        except asyncio.CancelledError:
            # Whoever gave up may never come again, and nobody else can write while it is open.
            self._is_given_up = True
            self._begin(self._let_go, Future())
            raise

    def _begin(self, step: Callable[[], T], answer: "Future[T]") -> None:
        """Take a step in a thread, after the one before it has ended."""
        before = self._last

        def work() -> None:
            if before:
                before.join()
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(step())
            except BaseException as error:  # noqa: BLE001 - whoever waits gets it
                answer.set_exception(error)

        # A daemon: a program that ends does not wait for a graph that hangs.
        self._last = threading.Thread(target=work, name="mainspring ladybug", daemon=True)
        self._last.start()


class Neo4jResult(Protocol):
    """What neo4j's driver answers."""

    @property
    def records(self) -> Sequence[Any]: ...


class Neo4jDriver(Protocol):
    """The part of `neo4j.AsyncDriver` that is used."""

    async def execute_query(
        self, query_: LiteralString, parameters_: dict[str, Any] | None = None, *, database_: str | None = None
    ) -> Neo4jResult: ...


NEO4J_CONSTRAINT: Final = (
    "CREATE CONSTRAINT mainspring_background_job IF NOT EXISTS FOR (j:_BackgroundJob) REQUIRE j.qname IS UNIQUE"
)


class Neo4jSink:
    """A database of Neo4j, by the async driver of the program's own, who also closes it.

    With `constraint` it has the database keep names unique, which is also the index that writing needs; without, the
    program has made one, and the mirror needs no right to change the schema.
    """

    def __init__(self, driver: Neo4jDriver, *, database: str | None = None, constraint: bool = True) -> None:
        if not callable(getattr(driver, "execute_query", None)):
            problem = f"it takes an async driver, as neo4j.AsyncGraphDatabase.driver(…) makes one, and not {driver!r}"
            raise DeclarationError("Neo4jSink", problem)
        self._driver = driver
        self._database = database
        self._constraint = constraint

    async def prepare(self) -> None:
        if self._constraint:
            await self.run(NEO4J_CONSTRAINT, {})

    async def run(self, statement: LiteralString, parameters: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
        result = await self._driver.execute_query(statement, dict(parameters), database_=self._database)
        return [record.data() for record in result.records]

    async def close(self) -> None:
        """Keep the driver: it is not ours."""
