"""Whether what came back is what went in: the same types and the same values, all the way down.

A payload is written, read back with the decoder that will read it later, and compared here, before anybody relies on
it. So there is no rule for each type about what it may hold: a value that JSON would change, lose or take for another
is different when it comes back, whatever the reason. One difference is allowed: an int comes back as a float where a
float was declared, if that float is as much.

Records are compared field by field and not with their own `==`, which may be missing or leave fields out.
"""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import repeat
from math import isfinite
from operator import eq
from typing import Any, Final, TypeAlias
from uuid import UUID

from mainspring.core.payload.misfit import DEEPEST, KEY, MEMBER, TooDeep, field_step, key_step
from mainspring.core.payload.models import is_model

LONGEST_INT: Final = 2048
"""Bits of the longest int: 617 digits. Python reads 640 at least, however low its limit is set."""

Contents: TypeAlias = tuple[Collection[Any], Collection[Any], Callable[[], list[str]]]
"""What two containers hold, pair by pair, and the steps to it, which only a refusal needs."""

ABSENT: Final = object()
"""Stands for a field that was deleted, or that a constructor left out."""


def same(given: object, back: object, depth: int = DEEPEST) -> bool:
    """Say yes, or no, or raise `TooDeep`."""
    if given is back:  # as None, True, small ints and members of enums are
        return True
    kind = type(back)
    if type(given) is not kind:
        return kind is float and type(given) is int and given == back
    if kind is int:
        return given == back and given.bit_length() <= LONGEST_INT  # type: ignore[attr-defined]  # both are ints
    single = SINGLES.get(kind)
    if single is not None:
        return single(given, back)
    inside = contents(given, back)
    if inside is None:  # a type that only a model can carry
        return bool(given == back)
    if not depth:
        raise TooDeep
    ours, theirs, _ = inside
    return len(ours) == len(theirs) and all(map(same, ours, theirs, repeat(depth - 1)))


def contents(given: Any, back: Any) -> Contents | None:  # noqa: ANN401 - two values of one type, whichever
    """Lay the contents of two values side by side, if they are containers or records."""
    kind: Any = type(given)
    names = fields_of(kind)
    if names is not None:
        extra = {
            **(getattr(given, "__pydantic_extra__", None) or {}),
            **(getattr(back, "__pydantic_extra__", None) or {}),
        }
        names = (*names, *extra)
        ours = [getattr(given, name, ABSENT) for name in names]
        return ours, [getattr(back, name, ABSENT) for name in names], lambda: [*map(field_step, names)]
    if isinstance(given, list | tuple | deque):
        return given, back, lambda: [f"[{index}]" for index in range(len(given))]
    if isinstance(given, dict):
        keys = _twins(given, back)
        ours = [*given, *given.values()]
        return ours, [*keys, *(back[key] for key in keys)], lambda: [KEY] * len(given) + [*map(key_step, given)]
    if isinstance(given, set | frozenset):
        return given, _twins(given, back), lambda: [MEMBER] * len(given)
    return None


def _twins(given: Collection[object], back: Collection[object]) -> list[object]:
    """The keys or members that came back for those that were given: their equals, or else any that is the same.

    An ambiguous hour has no equal, not even itself in another zone.
    """
    if len(given) != len(back):
        return []
    equals = {key: key for key in back}
    others = [key for key in back if key not in given]
    return [equals[key] if key in equals else _twin(key, others) for key in given]


def _twin(key: object, others: list[object]) -> object:
    return next((other for other in others if same(key, other)), others[0])


@lru_cache(maxsize=1024)
def fields_of(kind: Any) -> tuple[str, ...] | None:  # noqa: ANN401 - a class of the user's
    """The attributes in which records of this type keep their data; None if it is no record."""
    if hasattr(kind, "__struct_fields__"):
        return tuple(kind.__struct_fields__)
    if is_model(kind):
        return tuple(kind.model_fields)
    if is_dataclass(kind) or hasattr(kind, "__attrs_attrs__"):
        return tuple(field.name for field in (fields(kind) if is_dataclass(kind) else kind.__attrs_attrs__))
    return getattr(kind, "_fields", None) if issubclass(kind, tuple) else None


def _same_float(given: float, back: float) -> bool:
    return given == back and isfinite(given) and (given != 0 or str(given) == str(back))  # 0.0 equals -0.0


def _same_decimal(given: Decimal, back: Decimal) -> bool:
    return given.is_finite() and not given.compare_total(back)  # 1.0 equals 1.00


def _same_time(given: Any, back: Any) -> bool:  # noqa: ANN401 - two datetimes, or two times
    """By the clock on the wall and its offset: `==` looks at neither, and finds no equal to an ambiguous hour."""
    if given.tzinfo is None or back.tzinfo is None:
        return given.tzinfo is back.tzinfo and given == back and not given.fold
    return bool(given.tzinfo is back.tzinfo and given == back) or given.isoformat() == back.isoformat()


SINGLES: Final[dict[type, Callable[[Any, Any], bool]]] = {
    **dict.fromkeys((type(None), bool, int, str, bytes, bytearray, date, timedelta, UUID), eq),
    float: _same_float,
    Decimal: _same_decimal,
    datetime: _same_time,
    time: _same_time,
}
