"""An onion around every attempt: async functions, the first one registered outermost, the handler in the middle."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from mainspring.runtime.context import Context

Next: TypeAlias = Callable[[], Awaitable[object]]
"""Calls what lies further in, and returns what that returned."""

Middleware: TypeAlias = Callable[[Context, Next], Awaitable[object]]
"""Gets the attempt's context; returns the result of the job. One that does not call `Next` short-circuits the rest."""


def onion(layers: Sequence[Middleware], context: Context, heart: Next) -> Next:
    """Wrap the heart in all layers."""
    for layer in reversed(layers):
        heart = _wrapped(layer, context, heart)
    return heart


def _wrapped(layer: Middleware, context: Context, inner: Next) -> Next:
    def call() -> Awaitable[object]:
        return layer(context, inner)

    return call
