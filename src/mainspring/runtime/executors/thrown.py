"""Errors that cross the pipe between a node and a process slot.

Nothing is unpickled, and nothing is imported because of what came over the pipe. An error crosses as the names of its
classes and as text. On the other side it becomes an error of the nearest of those classes that is loaded there already,
so that a retry policy, which speaks of classes, finds what it names. Our own errors and signals come over whole.
"""

import functools
from collections.abc import Iterable
from contextlib import suppress
from typing import TypeAlias

from msgspec import Struct

from mainspring.core.outcome import AttemptError, RetryIn, Signal, Snooze
from mainspring.errors import Escaped
from mainspring.runtime.executors.errors import CANNOT_TRAVEL, attempt_error, carry
from mainspring.runtime.executors.reference import loaded

Plain: TypeAlias = str | int | float | bool | None
Kind: TypeAlias = type[BaseException]


class Thrown(Struct, frozen=True, kw_only=True):
    """An error on its way."""

    classes: tuple[str, ...]
    """Its class and all its ancestors, the nearest first, as "module:qualified.name"."""
    error: AttemptError
    arguments: tuple[Plain, ...] | None = None
    """What to make it from again, if it is one of ours."""
    members: tuple["Thrown", ...] = ()
    """Of a group."""


def thrown(error: BaseException) -> Thrown:
    """Write an error down for the other side."""
    return Thrown(
        classes=tuple(f"{kind.__module__}:{kind.__qualname__}" for kind in type(error).__mro__ if kind is not object),
        error=attempt_error(error),
        arguments=_arguments(error),
        members=tuple(map(thrown, error.exceptions)) if isinstance(error, BaseExceptionGroup) else (),
    )


def rebuilt(thrown: Thrown) -> BaseException:
    """Make an error of what came over: one that can be raised here without harm."""
    kinds = [kind for kind in map(loaded, thrown.classes) if isinstance(kind, type) and issubclass(kind, BaseException)]
    error = _whole(kinds, thrown) or _group(kinds, thrown) or _look_alike(_nearest(kinds), thrown)
    if isinstance(error, CANNOT_TRAVEL):
        error = Escaped(thrown.error.type, thrown.error.message)
    carry(error, thrown.error)
    return error


def _arguments(error: BaseException) -> tuple[Plain, ...] | None:
    """What one of ours was made from. A signal is ours, whoever has derived from it: its data steers the job."""
    match error:
        case RetryIn() | Snooze():
            return (error.delay.total_seconds(), error.reason)
        case Signal() if isinstance(reason := getattr(error, "reason", None), str):
            return (reason,)
        case _ if _is_ours(type(error)) and all(isinstance(argument, Plain) for argument in error.args):
            return error.args
        case _:
            return None


def _whole(kinds: Iterable[Kind], thrown: Thrown) -> BaseException | None:
    ours = next(filter(_is_ours, kinds), None)
    if ours is None or thrown.arguments is None:
        return None
    with suppress(Exception):  # someone else's class that calls itself ours
        return ours(*thrown.arguments)
    return None


def _group(kinds: Iterable[Kind], thrown: Thrown) -> BaseException | None:
    if not thrown.members:
        return None
    members = [rebuilt(member) for member in thrown.members]
    for kind in kinds:
        with suppress(Exception):  # a class of the user's own, with a constructor of its own
            return kind(thrown.error.message, members)
    return None


def _look_alike(kinds: tuple[Kind, ...], thrown: Thrown) -> BaseException:
    """Make an error of these classes that says the same, without calling constructors, which may want anything."""
    message = thrown.error.message
    alone = _blank(kinds[0], message) if len(kinds) == 1 else None
    if alone is not None and attempt_error(alone).message == message:
        return alone
    stand_in = _stand_in(thrown.classes[0], kinds)
    for kind in (stand_in, *kinds) if stand_in else kinds:
        error = _blank(kind, message)
        if error is not None:
            return error
    return Exception(message)


def _nearest(kinds: Iterable[Kind]) -> tuple[Kind, ...]:
    """Leave out every class that another of them descends from."""
    nearest: list[Kind] = []
    for kind in kinds:
        if not any(issubclass(one, kind) for one in nearest):
            nearest.append(kind)
    return tuple(nearest)


def _blank(kind: Kind, message: str) -> BaseException | None:
    # Of several bases only the one with the largest layout can make it, and that need not come first.
    for base in kind.__mro__:
        if not issubclass(base, BaseException):
            continue
        with suppress(Exception):  # a class of the user's own, which may do anything
            error = base.__new__(kind, message)
            error.args = (message,)
            return error
    return None


@functools.lru_cache(maxsize=256)
def _stand_in(name: str, kinds: tuple[Kind, ...]) -> Kind | None:
    """A class for what these cannot express: a message that they would make from data which is not here."""
    module, _, path = name.partition(":")
    body = {"__module__": module, "__qualname__": path, "__str__": lambda self: attempt_error(self).message}
    with suppress(Exception):  # classes that do not go together, or that refuse to be derived from
        return type(path.rpartition(".")[2], kinds, body)
    return None


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "mainspring"
