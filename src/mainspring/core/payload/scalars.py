"""The shapes of single values: numbers, texts, dates, enums, and the limits that `Annotated` sets on them.

A shape takes exactly the declared type, because that is what comes back. So True is no int, a `str` is no `datetime`
even where their JSON is the same, and an `IntEnum` is no int. One exception: an int may stand for a float.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from math import isfinite
from operator import countOf
from types import NoneType
from typing import Annotated, Any, Final, TypeAlias
from uuid import UUID

import msgspec
from msgspec import inspect

from mainspring.core.payload.misfit import Misfit, wrong
from mainspring.core.payload.plain import LONGEST_INT, Check, check_float, check_int, check_plain, check_text

Search: TypeAlias = Callable[[object], None]
"""Looks through JSON for fields that nobody declared, and raises `Misfit` at the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What may stand at one place of a payload."""

    name: str
    """How messages call it."""
    kinds: tuple[type, ...]
    """The exact types that may stand here, the declared one first. Empty where any plain JSON may."""
    check: Check
    fits_all: Callable[[Collection[object]], bool] | None = None
    """A quick yes for many values at once, without a call for each: 1000 ints in 40 µs instead of 80."""
    search: Search | None = None
    """None where there are no fields, and so no strangers."""


def exact(kind: type, check: Check | None = None) -> Shape:
    """The shape of one type, with nothing to look at in its values, or with a check of its own."""
    name = "None" if kind is NoneType else kind.__qualname__
    if check is not None:
        return Shape(name=name, kinds=(kind,), check=check)

    def check_kind(value: object, _depth: int) -> None:
        if type(value) is not kind:
            raise wrong(name, value)

    return Shape(name=name, kinds=(kind,), check=check_kind, fits_all=partial(_all_of, kind))


def _all_of(kind: type, values: Collection[object]) -> bool:
    return countOf(map(type, values), kind) == len(values)


def _ints_fit(values: Collection[Any]) -> bool:
    return _all_of(int, values) and max(map(int.bit_length, values), default=0) <= LONGEST_INT


def _floats_fit(values: Collection[Any]) -> bool:
    return _all_of(float, values) and isfinite(sum(values))  # one NaN or infinity spoils the sum


def _texts_fit(values: Collection[Any]) -> bool:
    return _all_of(str, values) and "".join(values).isascii()


def _check_datetime(value: object, _depth: int) -> None:
    if type(value) is not datetime:
        raise wrong("datetime", value)
    if value.tzinfo is not None and value.tzinfo is not UTC:
        _check_offset(value)


def _check_time(value: object, _depth: int) -> None:
    if type(value) is not time:
        raise wrong("time", value)
    if value.tzinfo is not None:
        _check_offset(value)


def _check_offset(value: datetime | time) -> None:
    """Refuse what RFC 3339 cannot say, which msgspec would cut off: zones before about 1900 have odd seconds."""
    offset = value.utcoffset()
    if offset is None:
        raise Misfit("its time zone has no offset without a date, and would be lost")
    if offset % timedelta(minutes=1):
        raise Misfit(f"its offset from UTC, {offset}, is not in whole minutes")


def _check_decimal(value: object, _depth: int) -> None:
    if type(value) is not Decimal:
        raise wrong("Decimal", value)
    if not value.is_finite():
        raise Misfit(f"{value} is no number")


PLAIN: Final = Shape(name="JSON", kinds=(), check=check_plain)

SCALARS: Final[dict[type[inspect.Type], Shape]] = {
    inspect.AnyType: PLAIN,
    inspect.NoneType: exact(NoneType),
    inspect.BoolType: exact(bool),
    inspect.IntType: Shape(name="int", kinds=(int,), check=check_int, fits_all=_ints_fit),
    inspect.FloatType: Shape(name="float", kinds=(float, int), check=check_float, fits_all=_floats_fit),
    inspect.StrType: Shape(name="str", kinds=(str,), check=check_text, fits_all=_texts_fit),
    inspect.BytesType: exact(bytes),
    inspect.ByteArrayType: exact(bytearray),
    inspect.DateTimeType: exact(datetime, _check_datetime),
    inspect.TimeType: exact(time, _check_time),
    inspect.DateType: exact(date),
    inspect.TimeDeltaType: exact(timedelta),
    inspect.UUIDType: exact(UUID),
    inspect.DecimalType: exact(Decimal, _check_decimal),
}


def literal_shape(values: tuple[object, ...]) -> Shape:
    name = " | ".join(repr(value) for value in values)
    allowed = {(type(value), value) for value in values}  # by type too: True equals 1
    kinds = tuple({kind for kind, _ in allowed})

    def check(value: object, _depth: int) -> None:
        if type(value) not in kinds:
            raise wrong(name, value)
        if (type(value), value) not in allowed:
            raise Misfit(f"expected `{name}`, got another value")

    return Shape(name=name, kinds=kinds, check=check)


_LIMITS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")


def limited(shape: Shape, node: inspect.Type) -> Shape:
    """Add the limits of `Annotated[int, Meta(ge=1)]` to a shape, if the node has any; msgspec itself applies them."""
    limits = {name: limit for name in _LIMITS if (limit := getattr(node, name, None)) is not None}
    if not limits:
        return shape
    annotated: Any = Annotated[shape.kinds[0], msgspec.Meta(**limits)]

    def check(value: object, depth: int) -> None:
        shape.check(value, depth)
        try:
            msgspec.convert(value, annotated)
        except msgspec.ValidationError as error:
            raise Misfit(told(str(error))) from None

    return Shape(name=shape.name, kinds=shape.kinds, check=check, search=shape.search)


def told(message: str) -> str:
    """Msgspec's sentences begin with a capital; ours follow a colon."""
    return message[:1].lower() + message[1:]
