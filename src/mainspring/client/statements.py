"""Statements that a host carries out, many rows at a time."""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from mainspring.client.kinds import Code
from mainspring.core.outcome import Signal
from mainspring.errors import CapabilityError, ControlError, ReadFailed
from mainspring.runtime.host import READ

BATCH: Final = 1000
ERRORS: Final = 10  # that are kept of a long piece of work


class StatementHost(Protocol):
    """Who carries out statements: what the program offers as `app.host`."""

    async def execute_read(self, statement: str, params: Any = ...) -> Any: ...  # noqa: ANN401 - the program's own

    async def execute_write(self, statement: str, params: Any = ...) -> Any: ...  # noqa: ANN401 - as above


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterated:
    """How far a piece of work has come, or came."""

    rows: int = 0
    """That were written; in a dry run, that would be given to the mutation."""
    batches: int = 0
    """That were given to the mutation, the failed ones too."""
    failed: int = 0
    """Batches that could not be written."""
    retried: int = 0
    """Times that a batch was tried again."""
    stopped: bool = False
    """Somebody had it end early."""
    errors: tuple[str, ...] = ()
    """Why batches failed, the first ones."""


Progress = Callable[[Iterated], object]
"""Told after each batch; one that returns False ends it there."""


@dataclass(frozen=True, slots=True)
class Work:
    """A mutation that is given rows, a batch at a time."""

    host: StatementHost
    mutation: str
    params: Mapping[str, object]
    rows_as: str
    batch_size: int
    retries: int
    dry: bool = False
    """Only count."""

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.retries < 0:
            problem = f"a batch size of 1 or more and retries of 0 or more, not {self.batch_size} and {self.retries}"
            raise ControlError("iterate", problem, Code.BAD_INTERVAL)

    async def over(self, rows: object, progress: Progress | None) -> Iterated:
        """Go through what a host has read; however that ends, a generator of the host's own is closed."""
        done = Iterated()
        async with aclosing(_each(rows)) as each, aclosing(_batches(each, self.batch_size)) as batches:
            async for batch in batches:
                done = await self._write(batch, done)
                if progress is not None and progress(done) is False:
                    return replace(done, stopped=True)
        return done

    async def _write(self, batch: list[Any], done: Iterated) -> Iterated:
        if self.dry:
            return replace(done, rows=done.rows + len(batch), batches=done.batches + 1)
        tries = 0
        while True:
            try:
                await self.host.execute_write(self.mutation, {**self.params, self.rows_as: batch})
            except CapabilityError:  # which no other batch will have either
                raise
            except Exception as error:  # noqa: BLE001 - whatever a host raises; it is counted and told
                if tries == self.retries:
                    errors = (*done.errors, f"{type(error).__name__}: {error}")[:ERRORS]
                    return replace(done, batches=done.batches + 1, failed=done.failed + 1, errors=errors)
            else:
                return replace(done, rows=done.rows + len(batch), batches=done.batches + 1)
            tries += 1
            done = replace(done, retried=done.retried + 1)


async def _batches(rows: AsyncIterable[Any], size: int) -> AsyncGenerator[list[Any], None]:
    batch: list[Any] = []
    async for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


async def _each(rows: object) -> AsyncGenerator[Any, None]:
    """Go through what a host has read, whatever it is: a list, something to go through, or something to wait for."""
    if rows is not None and not isinstance(rows, AsyncIterable | Iterable):
        raise ReadFailed(READ, f"it has read no rows, but {type(rows).__name__}")
    count = 0
    try:
        if isinstance(rows, AsyncIterable):
            async for row in rows:
                yield row
                count += 1
        else:
            for row in () if rows is None else rows:
                yield row
                count += 1
    except (Signal, CapabilityError, ReadFailed):
        raise
    except Exception as error:
        raise ReadFailed(READ, f"after {count:,} rows: {type(error).__name__}: {error}") from error
    finally:
        if isinstance(rows, AsyncGenerator):
            await rows.aclose()
        elif isinstance(rows, Generator):
            rows.close()
