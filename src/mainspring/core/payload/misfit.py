"""The words for a value that does not fit where it stands.

`Misfit` is raised at the value and gathers its path on the way out: each container which it leaves adds its own step.
So a value that fits pays nothing for paths. It never leaves the codec, which turns it into the error that callers see.
"""

from collections.abc import Collection
from difflib import get_close_matches
from math import isfinite
from typing import Final

DEEPEST: Final = 100
"""Levels a value may be nested. Reading takes stack as writing does; 100 leaves room below Python's limit of 1000."""

KEY: Final = "a key: "
MEMBER: Final = "a member: "
"""Steps that no path can take. A bad key is told of at its dict, a bad member at its set."""

_PLAIN: Final = frozenset({"None", "bool", "int", "float", "str", "list", "dict"})


class Misfit(ValueError):
    """A value that does not fit; `path` leads to it from wherever the error is caught."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path

    def under(self, step: str) -> "Misfit":
        if step in (KEY, MEMBER):
            self.problem, self.path = step + self.problem, ""
        else:
            self.path = step + self.path
        return self


class TooDeep(Misfit):
    """A value nested without end. The hundred steps down to the limit would tell nobody anything."""

    def __init__(self, path: str = "") -> None:
        super().__init__(f"nested more than {DEEPEST} levels deep, or holding itself", path)


def wrong(expected: str, value: object) -> Misfit:
    """Tell of a value of another type than the one that would come back, and what to do about it."""
    if type(value) is float and not isfinite(value):
        return Misfit(f"JSON has no {value}")
    got = name_of(type(value))
    if got != "bool" and expected in map(name_of, type(value).__mro__[1:-1]):
        advice = f", which would come back as a mere `{expected}`; convert it first"
    elif expected in _PLAIN and got not in _PLAIN:
        advice = "; convert it, or annotate it with its type"
    else:
        advice = ""
    return Misfit(f"expected `{expected}`, got `{got}`{advice}")


def name_of(kind: type) -> str:
    return "None" if kind is type(None) else kind.__qualname__


def unknown(what: str, name: object, known: Collection[str]) -> Misfit:
    """Tell of a name that nobody declared, and of the one that was probably meant."""
    close = get_close_matches(str(name), known, n=1)
    return Misfit(f"unknown {what}" + (f"; did you mean `{close[0]}`?" if close else ""), field_step(name))


def missing(what: str, name: str) -> Misfit:
    return Misfit(f"missing {what}", field_step(name))


def field_step(name: object) -> str:
    """The step to a field: `.price`, or `['unit price']` where it could be no attribute."""
    return f".{name}" if isinstance(name, str) and name.isidentifier() else key_step(name)


def key_step(key: object) -> str:
    """The step to an entry of a dict. A key may be an int of too many digits to be shown, or fail in its own `repr`."""
    try:
        return f"[{key!r}]"
    except Exception:  # noqa: BLE001 - the user's own code
        return "[...]"


def told(message: str) -> str:
    """Msgspec's sentences begin with a capital; ours follow a colon."""
    return message[:1].lower() + message[1:]
