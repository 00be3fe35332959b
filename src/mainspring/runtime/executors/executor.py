"""What every executor offers to the runner, and what they have in common."""

from typing import Protocol

from mainspring.core.payload.signature import Call
from mainspring.errors import BadResult, PayloadError
from mainspring.runtime.call import CallFacts
from mainspring.runtime.context import Context
from mainspring.runtime.definition import Definition


class Executor(Protocol):
    """Calls functions. All of it belongs to one event loop."""

    async def call(self, definition: Definition, facts: CallFacts, context: Context | None = None) -> object:
        """Call the task's function and return what it returns, or raise what it raises.

        To be awaited in a task of its own, which is cancelled to stop the attempt; stop the context's link first, so
        that a coroutine which catches the cancel sees that it was meant. A context is needed where the task takes one.

        Ends only when the function has really ended. A function that was told to stop and returned all the same has
        succeeded; one that was killed has raised `CancelledError`.
        """
        ...

    @property
    def busy(self) -> int:
        """How many calls are under way."""
        ...

    async def close(self, deadline: float = 1.0) -> None:
        """Let go of everything: calls that are under way get `deadline` real seconds, then are given up or killed."""
        ...


def arguments_of(definition: Definition, facts: CallFacts, context: Context | None) -> Call:
    """Read the arguments from the payload, and add the context where the task takes one."""
    args, kwargs = definition.arguments.decode(facts.payload)
    if definition.context is not None:
        if context is None:
            raise TypeError(f"{facts.task} takes a context, and was called without")
        kwargs[definition.context] = context
    return args, kwargs


def encode_result(definition: Definition, value: object) -> bytes:
    """Encode what a function returned, or raise `BadResult`."""
    try:
        return definition.result.encode(value)
    except Exception as error:
        raise _bad_result(definition, error) from error


def decode_result(definition: Definition, result: bytes) -> object:
    """Decode what a function returned in another process, or raise `BadResult`."""
    try:
        return definition.result.decode(result)
    except Exception as error:
        raise _bad_result(definition, error) from error


def _bad_result(definition: Definition, error: Exception) -> BadResult:
    if isinstance(error, PayloadError):
        return BadResult(error.subject, error.path, error.problem)
    return BadResult(f"result of {definition.name}", "", f"cannot be encoded: {type(error).__name__}")
