"""Numbers of a query brought within their bounds, for pages: an address that somebody typed should show something.

The JSON API refuses them instead: a program that asks for 5,000 and gets 200 would take them for all.
"""

from collections.abc import Iterator
from typing import Final

from msgspec.inspect import IntType, Metadata, Type, UnionType

LONGEST: Final = 1000
"""Digits that are read."""


def plainly(kind: Type) -> Iterator[Type]:
    """Name the types that a field may have, without what is only said about them, as a description is."""
    if isinstance(kind, Metadata):
        yield from plainly(kind.type)
    elif isinstance(kind, UnionType):
        for one in kind.types:
            yield from plainly(one)
    else:
        yield kind


def whole_number(kind: Type) -> IntType | None:
    """Return the type of a field that takes whole numbers."""
    return next((one for one in plainly(kind) if isinstance(one, IntType)), None)


def clamped(text: str, kind: IntType) -> int | None:
    """Bring a number within its bounds; None: it is none."""
    try:
        number = int(text[:LONGEST])
    except ValueError:
        return None
    lows = [kind.ge, None if kind.gt is None else kind.gt + 1]
    highs = [kind.le, None if kind.lt is None else kind.lt - 1]
    number = max([number, *(low for low in lows if low is not None)])
    return min([number, *(high for high in highs if high is not None)])
