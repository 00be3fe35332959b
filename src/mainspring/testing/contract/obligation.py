"""Which sentence of the port a test checks."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeVar

F = TypeVar("F", bound=Callable[..., object])

GENERAL: Final = "G"
"""In the place of a verb: what holds for all of them."""

_MARK: Final = "obligations"


class Obligation(NamedTuple):
    """A numbered sentence of a verb. Number 0 is what its docstring says before, or without, any number."""

    verb: str
    number: int = 0


def obligation(verb: str, number: int = 0) -> Callable[[F], F]:
    """Say that a test checks this sentence. No pytest mark: those would have to be registered by everyone."""

    def mark(test: F) -> F:
        setattr(test, _MARK, (*getattr(test, _MARK, ()), Obligation(verb, number)))
        return test

    return mark


def obligations(contract: type) -> Iterator[tuple[str, Obligation]]:
    """Name the tests of a contract with what they check."""
    for name in dir(contract):
        for one in getattr(getattr(contract, name), _MARK, ()):
            yield name, one
