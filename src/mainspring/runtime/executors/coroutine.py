"""Functions that are called on the node's own loop: as thin as can be, because most jobs go this way."""

from collections.abc import Awaitable, Callable
from typing import Any

from mainspring.runtime.call import CallFacts, current_call
from mainspring.runtime.context import Context
from mainspring.runtime.definition import Definition
from mainspring.runtime.executors.errors import escaped
from mainspring.runtime.executors.executor import arguments_of


class CoroutineExecutor:
    """Awaits the function in the caller's task, which a cancel reaches at its next `await`."""

    def __init__(self) -> None:
        self.busy = 0

    async def call(self, definition: Definition, facts: CallFacts, context: Context | None = None) -> object:
        current_call.set(facts)
        function: Callable[..., Awaitable[Any]] = definition.function  # type: ignore[assignment]  # checked where declared
        self.busy += 1
        try:
            args, kwargs = arguments_of(definition, facts, context)
            return await function(*args, **kwargs)
        except SystemExit as error:  # through a task it would end the whole loop
            raise escaped(error) from error
        except KeyboardInterrupt as error:
            if not definition.name.namespace:  # it may be a person's; a plugin's is never let through
                raise
            raise escaped(error) from error
        finally:
            self.busy -= 1

    async def close(self, deadline: float = 1.0) -> None:
        """Do nothing: whoever awaits the calls ends them."""
