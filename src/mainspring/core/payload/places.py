"""Where in a value the trouble is, and what to say of it, once it is known that there is some.

All of this runs at leisure, for a value that is refused: it may try many times what failed once.
"""

from datetime import datetime, time
from decimal import Decimal
from math import isfinite
from typing import Any, Final

import msgspec

from mainspring.core.payload.compare import ABSENT, LONGEST_INT, SINGLES, contents, fields_of, same
from mainspring.core.payload.misfit import DEEPEST, KEY, Misfit, TooDeep, key_step, name_of, unknown, wrong
from mainspring.core.payload.models import is_model, written

ENCODER: Final = msgspec.json.Encoder(enc_hook=written)


def difference(given: Any, back: Any) -> Misfit:  # noqa: ANN401 - what was given, and what would come back
    """Find where two values differ that are not the same."""
    if given is ABSENT or back is ABSENT:
        return Misfit("missing field")
    if type(given) is not type(back):
        lossy = type(given) is int and type(back) is float
        return Misfit("an int that no float can hold without loss") if lossy else wrong(name_of(type(back)), given)
    ours, theirs, steps = contents(given, back) or ((), (), list)
    if isinstance(given, dict) and len(given) > len(back):
        return unknown("field", next(key for key in given if key not in back), back)
    for one, other, step in zip(ours, theirs, steps(), strict=False):
        if not same(one, other):
            return difference(one, other).under(step)
    return _changed(given)


def _changed(value: object) -> Misfit:
    match value:
        case float() if not isfinite(value):
            return wrong("float", value)
        case Decimal() if not value.is_finite():
            return Misfit(f"{value} is no number")
        case int() if value.bit_length() > LONGEST_INT:
            return Misfit(f"an int of {value.bit_length()} bits; the limit is {LONGEST_INT}")
        case datetime() | time():
            return Misfit("its time zone or `fold` would be lost: JSON has an offset in whole minutes, or nothing")
        case _:
            return Misfit("does not come back from JSON as it went in")


def parts(value: object) -> list[tuple[str, Any]]:
    """What a value holds, and the step to it, in the order in which msgspec writes it. A model writes itself."""
    inside = None if is_model(type(value)) else contents(value, value)
    pairs = [] if inside is None else zip(inside[2](), inside[0], strict=True)
    return [(step, None if part is ABSENT else part) for step, part in pairs]


def levels(value: object) -> int:
    """How deeply a value is nested; a value that holds itself is a little deeper than allowed. It takes no stack."""
    level, depth = {id(value): value}, 0
    while level and depth <= DEEPEST:
        level = {id(part): part for whole in level.values() for _, part in parts(whole)}
        depth += 1
    return depth


def unwritable(among: list[tuple[str, Any]], depth: int = DEEPEST) -> Misfit | None:
    """Find the first of these values that cannot be written, and say where in it and why."""
    if among and depth < 0:
        raise TooDeep
    for step, value in among:
        try:
            ENCODER.encode({value: None} if step is KEY else value)
        except Exception as error:  # noqa: BLE001 - models and enums run the user's own code
            return (unwritable(parts(value), depth - 1) or _unwritable(value, error)).under(step)
    return None


def _unwritable(value: object, error: Exception) -> Misfit:
    kind = type(value)
    if isinstance(error, UnicodeEncodeError):
        return Misfit(f"character {error.start} is half of a surrogate pair, which UTF-8 cannot hold")
    if kind is int:
        return _changed(value)
    if is_model(kind) or not isinstance(error, NotImplementedError):
        return Misfit(f"cannot be written as JSON: {error}")
    base = next((base for base in kind.__mro__ if base in SINGLES), kind)
    return Misfit(f"a `{name_of(kind)}` cannot be written as JSON") if base is kind else wrong(name_of(base), value)


def part_at(value: Any, node: Any, key: str | int) -> tuple[str, Any]:  # noqa: ANN401 - any value, and its JSON
    """The part of a value that was written as `node[key]`, and the step to it."""
    kind: Any = type(value)
    if isinstance(value, dict):
        real = [*value][[*node].index(key)]
        return key_step(real), value[real]
    if isinstance(key, int):
        tag = getattr(getattr(kind, "__struct_config__", None), "tag", None)
        return parts(value)[key if tag is None else key - 1]
    return parts(value)[(getattr(kind, "__struct_encode_fields__", None) or fields_of(kind) or ()).index(key)]
