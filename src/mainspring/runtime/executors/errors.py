"""What goes wrong around a call, and how an error is written down so that the next attempt and a person can read it."""

import asyncio
import traceback
from contextlib import suppress
from types import TracebackType
from typing import Final

from mainspring.core.outcome import AttemptError, Signal
from mainspring.errors import Escaped
from mainspring.runtime.call import storable

LONGEST_MESSAGE: Final = 10_000
LONGEST_TRACEBACK: Final = 30_000
"""Characters. A hundred attempts of a job are kept: 4 MB at the very worst."""

CANNOT_TRAVEL: Final = (SystemExit, KeyboardInterrupt, StopIteration, GeneratorExit, asyncio.CancelledError)
"""What means something else to an event loop than it did to the function that raised it."""

_CANCELLED: Final = "something that the function awaited was cancelled"
_MAX_NOTES: Final = 100
_CARRIED: Final = "__mainspring_error__"
_OURS: Final = ("mainspring", "asyncio")


def escaped(error: BaseException) -> Escaped:
    """Stand in for an error that cannot travel; raise it from that error."""
    return Escaped(_type(error), _message(error))


def attempt_error(raised: BaseException) -> AttemptError:
    """Write an error down: its type, its message, its traceback from the handler's own frame on, notes and causes.

    Never raises, whatever the error's own methods do: also `SystemExit` in a `__str__` must not end the node.
    """
    with suppress(BaseException):  # attribute access may run code of the error's class
        carried = raised.__dict__.get(_CARRIED)
        if isinstance(carried, AttemptError):
            return carried
        if isinstance(raised, Escaped) and raised.__cause__ is not None:
            return attempt_error(raised.__cause__)
    return AttemptError(type=_type(raised), message=_message(raised), traceback=_traceback(raised))


def carry(raised: BaseException, error: AttemptError) -> None:
    """Have `attempt_error` say what another process had to say of this error; loggers show it as a note."""
    object.__setattr__(raised, _CARRIED, error)
    if error.traceback:
        raised.add_note(f"In the process slot:\n{error.traceback}")


def _type(raised: BaseException) -> str:
    kind = type(raised)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return storable(name, 500)


def _message(raised: BaseException) -> str:
    try:
        if isinstance(raised, asyncio.CancelledError) and not raised.args:
            return _CANCELLED
        text = raised.reason if isinstance(raised, Signal) and hasattr(raised, "reason") else str(raised)
        return storable(text, LONGEST_MESSAGE)
    except BaseException as error:  # noqa: BLE001 - raised by code of a handler's error class
        return f"(its message cannot be shown: str() raised {type(error).__name__})"


def _traceback(raised: BaseException) -> str:
    try:
        told = traceback.TracebackException(type(raised), raised, _handlers_own(raised.__traceback__), compact=True)
        _shorten(told)
        # The innermost frames and the message stand at the end.
        return storable("".join(told.format()), LONGEST_TRACEBACK, head=0.25)
    except BaseException as error:  # noqa: BLE001 - formatting runs code of the error, its notes and its causes
        return f"(its traceback cannot be shown: {type(error).__name__})"


def _shorten(told: traceback.TracebackException) -> None:
    """Cut the texts of an error, its causes and its members before they are formatted.

    A message of 50 million lines takes 25 s to format, on the node's loop, and all but the ends would be cut afterwards.
    """
    left = [told]
    while left:
        one = left.pop()
        for name in ("_str", "msg", "text"):  # the message, and what a SyntaxError has in its place
            text = getattr(one, name, None)
            if isinstance(text, str) and len(text) > LONGEST_TRACEBACK:
                setattr(one, name, storable(text, LONGEST_TRACEBACK))
        notes = getattr(one, "__notes__", None)
        if isinstance(notes, list | tuple):
            last = notes[-_MAX_NOTES:]
            one.__notes__ = [storable(note, LONGEST_MESSAGE) if isinstance(note, str) else note for note in last]
        left += filter(None, (one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())))


def _handlers_own(trace: TracebackType | None) -> TracebackType | None:
    """Skip the frames that led to the handler. Where all are ours, nothing is skipped: the error is about us."""
    frame = trace
    while frame is not None and str(frame.tb_frame.f_globals.get("__name__")).partition(".")[0] in _OURS:
        frame = frame.tb_next
    return frame or trace
