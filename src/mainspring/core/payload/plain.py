"""Values that JSON holds as they are.

Where no type is declared, only None, bool, int, float, str, list and dict with str keys may stand: anything else would
come back as something else (a datetime as str, a tuple as list) and nobody would be told. Everything goes by exact type
for the same reason: a subclass would come back as its base.

A check takes a value and how many levels it may still hold. It returns nothing, or raises `Misfit`.
"""

from collections.abc import Callable, Iterable
from math import isfinite
from types import NoneType
from typing import Final, TypeAlias

import msgspec

from mainspring.core.payload.misfit import Misfit, TooDeep, wrong
from mainspring.core.payload.models import is_model

Check: TypeAlias = Callable[[object, int], None]

LONGEST_INT: Final = 2048
"""Bits of the longest int: 617 digits. Python reads 640 at least, however low its limit is set."""


def check_plain(value: object, depth: int) -> None:
    """Let through what JSON holds as it is, and nothing else."""
    leaf = _LEAVES.get(type(value))
    if leaf is not None:
        leaf(value, depth)
    elif type(value) is list:
        each_item(value, check_plain, depth)
    elif type(value) is dict:
        each_entry(value, check_text, check_plain, depth)
    else:
        raise _foreign(type(value))


def each_item(values: Iterable[object], check: Check, depth: int) -> None:
    """Check what stands in an ordered container."""
    if not depth:
        raise TooDeep
    index = 0
    try:
        for index, value in enumerate(values):  # noqa: B007 - the handler below reads where the loop stopped
            check(value, depth - 1)
    except Misfit as misfit:
        misfit.under(f"[{index}]")
        raise


def each_entry(entries: dict[object, object], check_key: Check, check_value: Check, depth: int) -> None:
    """Check the keys and values of a dict. A bad key is reported at the dict, since no path leads to a key."""
    if not depth:
        raise TooDeep
    for key, value in entries.items():
        try:
            check_key(key, depth - 1)
        except Misfit as misfit:
            raise Misfit(f"a key: {misfit.problem}") from None
        try:
            check_value(value, depth - 1)
        except Misfit as misfit:
            misfit.under(f"[{key!r}]")
            raise


def check_text(value: object, _depth: int) -> None:
    if type(value) is not str:
        raise wrong("str", value)
    if value.isascii():
        return
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Misfit(f"character {error.start} is half of a surrogate pair, which UTF-8 cannot hold") from None


def check_int(value: object, _depth: int) -> None:
    if type(value) is not int:
        raise wrong("int", value)
    if value.bit_length() > LONGEST_INT:
        raise Misfit(f"an int of {value.bit_length()} bits; the limit is {LONGEST_INT}")


def check_float(value: object, _depth: int) -> None:
    """Take a float that is a number, or an int that a float can hold."""
    if type(value) is float:
        if not isfinite(value):
            raise Misfit(f"JSON has no {value}")
    elif type(value) is not int:
        raise wrong("float", value)
    elif not _held_by_float(value):
        raise Misfit("an int that no float can hold without loss")


def _held_by_float(value: int) -> bool:
    try:
        return float(value) == value
    except OverflowError:
        return False


def _nothing_more(_value: object, _depth: int) -> None:
    """There is one None and there are two bools: the type says it all."""


_LEAVES: Final[dict[type, Check]] = {
    NoneType: _nothing_more,
    bool: _nothing_more,
    int: check_int,
    float: check_float,
    str: check_text,
}


def _foreign(kind: type) -> Misfit:
    name = kind.__qualname__
    if _declarable(kind):
        return Misfit(
            f"a `{name}` would come back as something else where no type is declared; annotate it with its type"
        )
    return Misfit(f"a `{name}` cannot be written as JSON")


def _declarable(kind: type) -> bool:
    """Whether an annotation would help, because msgspec or pydantic can carry this type."""
    try:
        return is_model(kind) or not isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)
    except (TypeError, NameError):  # an enum of floats; a dataclass whose annotations cannot be resolved
        return False
