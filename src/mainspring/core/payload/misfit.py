"""The words for a value that does not fit where it stands.

`Misfit` is raised at the value and gathers its path on the way out: each container which it leaves adds its own step.
So a value that fits pays nothing for paths. It never leaves the codec, which turns it into the error that callers see.
"""

import re
from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

DEEPEST: Final = 100
"""Levels a value may be nested. Reading takes stack as writing does; 100 leaves room below Python's limit of 1000."""

_KEY: Final = re.compile(r"\['([^\W\d]\w*)'\]")


class Misfit(ValueError):
    """A value that does not fit; `path` leads to it from wherever the error is caught."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path

    def under(self, step: str) -> None:
        self.path = step + self.path


class TooDeep(Misfit):
    """A value nested without end. It takes no steps: the hundred down to the limit would tell nobody anything."""

    def __init__(self) -> None:
        super().__init__(f"nested more than {DEEPEST} levels deep, or holding itself")

    def under(self, step: str) -> None:
        pass


def wrong(expected: str, value: object) -> Misfit:
    kind = type(value)
    got = "None" if value is None else kind.__qualname__
    derived = kind is not bool and expected in {base.__qualname__ for base in kind.__mro__[1:]}
    advice = f", which would come back as a mere `{expected}`; convert it first" if derived else ""
    return Misfit(f"expected `{expected}`, got `{got}`{advice}")


def unknown(what: str, name: object, known: Collection[str]) -> Misfit:
    """Tell of a name that nobody declared, and of the one that was probably meant."""
    close = get_close_matches(str(name), known, n=1)
    return Misfit(f"unknown {what}" + (f"; did you mean `{close[0]}`?" if close else ""), field_step(name))


def missing(what: str, name: str) -> Misfit:
    return Misfit(f"missing {what}", field_step(name))


def field_step(name: object) -> str:
    """The step to a field: `.price`, or `['unit price']` where it could be no attribute."""
    return f".{name}" if isinstance(name, str) and name.isidentifier() else f"[{name!r}]"


def fields_for_keys(path: str) -> str:
    """Read the keys of a model's JSON as the fields that they were: `['lines'][2]['price']` is `.lines[2].price`."""
    return _KEY.sub(r".\1", path)
