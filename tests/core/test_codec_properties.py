"""The codec by property: whatever goes in comes out the same or is refused, and calls bind as Python binds them."""

import dataclasses
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from inspect import Parameter, Signature
from itertools import count
from types import GenericAlias, NoneType
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypeAlias, Union
from uuid import UUID

import msgspec
import pydantic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Meta
from typing_extensions import TypedDict  # which pydantic wants before Python 3.12

from mainspring.core.codec import Arguments, Value
from mainspring.errors import PayloadError

Typed: TypeAlias = tuple[Any, st.SearchStrategy[Any]]
"""A type, and values of it."""

UserId = NewType("UserId", int)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


offsets = st.one_of(
    st.just(UTC), st.builds(timezone, st.integers(-1439, 1439).map(lambda minutes: timedelta(minutes=minutes)))
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)

KEYS: list[Typed] = [
    (int, st.integers(-(2**2048) + 1, 2**2048 - 1)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (str, st.text()),
    (bytes, st.binary()),
    (datetime, st.datetimes(timezones=st.none() | offsets).map(lambda moment: moment.replace(fold=0))),
    (date, st.dates()),
    (time, st.times(timezones=st.none() | offsets).map(lambda moment: moment.replace(fold=0))),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Literal["a", "b"], st.sampled_from(["a", "b"])),
    (UserId, st.integers()),
    (Annotated[int, Meta(ge=3)], st.integers(min_value=3)),
]
SCALARS: list[Typed] = [
    *KEYS,
    (bool, st.booleans()),
    (NoneType, st.none()),
    (bytearray, st.binary().map(bytearray)),
    (Any, plain),
    (object, plain),
    (int | float, st.integers() | st.floats(allow_nan=False, allow_infinity=False)),
    (int | str | None, st.integers() | st.text() | st.none()),
    (Literal[1, True, "x"] | None, st.sampled_from([1, True, None, "x"])),
]
numbers = count()


def optional(inner: Typed) -> Typed:
    kind, values = inner
    return Union[kind, None], st.none() | values  # noqa: UP007 - a type of run time


def list_of(inner: Typed) -> Typed:
    kind, values = inner
    return GenericAlias(list, (kind,)), st.lists(values, max_size=3)


def tuple_of(inner: Typed) -> Typed:
    kind, values = inner
    return GenericAlias(tuple, (kind, ...)), st.lists(values, max_size=3).map(tuple)


def places_of(inner: list[Typed]) -> Typed:
    return GenericAlias(tuple, tuple(kind for kind, _ in inner)), st.tuples(*(values for _, values in inner))


def set_of(key: Typed) -> Typed:
    kind, values = key
    return GenericAlias(set, (kind,)), st.sets(values, max_size=3)


def dict_of(key: Typed, inner: Typed) -> Typed:
    (key_kind, keys), (kind, values) = key, inner
    return dict[key_kind, kind], st.dictionaries(keys, values, max_size=3)  # type: ignore[valid-type]  # a type of run time


def dataclass_of(inner: list[Typed]) -> Typed:
    made = dataclasses.make_dataclass(
        f"Made{next(numbers)}", [(f"f{place}", kind) for place, (kind, _) in enumerate(inner)]
    )
    return made, st.builds(made, *(values for _, values in inner))


def struct_of(inner: list[Typed], flags: dict[str, Any]) -> Typed:
    fields = [(f"the_field{place}", kind) for place, (kind, _) in enumerate(inner)]
    made = msgspec.defstruct(f"Made{next(numbers)}", [*fields, ("last", int, 0)], **flags)
    return made, st.builds(made, *(values for _, values in inner), last=st.integers(0, 1))


def named_tuple_of(inner: list[Typed]) -> Typed:
    made: Any = NamedTuple(f"Made{next(numbers)}", [(f"f{place}", kind) for place, (kind, _) in enumerate(inner)])  # type: ignore[misc]  # a type of run time
    return made, st.builds(made, *(values for _, values in inner))


def typed_dict_of(inner: list[Typed]) -> Typed:
    kinds = {f"f {place}": kind for place, (kind, _) in enumerate(inner)}
    made: Any = TypedDict(f"Made{next(numbers)}", kinds)  # type: ignore[misc]  # a type of run time
    return made, st.fixed_dictionaries({f"f {place}": values for place, (_, values) in enumerate(inner)})


def model_of(inner: list[Typed]) -> Typed:
    fields: dict[str, Any] = {f"f{place}": (kind, ...) for place, (kind, _) in enumerate(inner)}
    made = pydantic.create_model(f"Made{next(numbers)}", **fields)
    return made, st.builds(made, **{f"f{place}": values for place, (_, values) in enumerate(inner)})


def containers(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    key, several = st.sampled_from(KEYS), st.lists(inner, min_size=1, max_size=3)
    flags = st.sampled_from([{}, {"rename": "camel"}, {"omit_defaults": True}, {"array_like": True}, {"tag": True}])
    return st.one_of(
        inner.map(optional),
        inner.map(list_of),
        inner.map(tuple_of),
        several.map(places_of),
        key.map(set_of),
        st.builds(dict_of, key, inner),
        several.map(dataclass_of),
        st.builds(struct_of, several, flags),
        several.map(named_tuple_of),
        several.map(typed_dict_of),
    )


kinds = st.recursive(st.sampled_from(SCALARS), containers, max_leaves=4)
MODEL_FIELDS: list[Typed] = [typed for typed in SCALARS if typed[0] is not bytearray]  # which pydantic does not know
MODEL_FIELDS += [(float | None, st.none() | st.floats()), (dict[str, list[Any]], st.just({"a": [(1,), float("inf")]}))]
flat_models = st.lists(st.sampled_from(MODEL_FIELDS), min_size=1, max_size=3).map(model_of)
models = flat_models | st.lists(flat_models.map(list_of), min_size=1, max_size=2).map(model_of)
anything = kinds.flatmap(lambda typed: typed[1])
slow = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def same(one: Any, other: Any) -> bool:  # noqa: ANN401 - whatever went in and came out
    """Equal, and of the same types all the way down; an int may have become the same float."""
    if type(one) is not type(other):
        return type(one) is int and type(other) is float and one == other
    match one:
        case list() | tuple():
            return len(one) == len(other) and all(map(same, one, other))
        case dict():
            return same(list(one), list(other)) and same([*one.values()], [*other.values()])
        case set():
            return one == other and {*map(type, one)} == {*map(type, other)}
        case msgspec.Struct():
            return same(msgspec.structs.astuple(one), msgspec.structs.astuple(other))
        case _ if dataclasses.is_dataclass(one):
            return all(same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
        case _:
            return bool(one == other)


@slow
@given(st.data())
def test_what_goes_in_comes_out_with_the_same_types(data: st.DataObject) -> None:
    kind, values = data.draw(kinds)
    codec = Value.of(kind, subject="value", limit=10**9)
    value = data.draw(values)
    assert same(value, codec.decode(codec.encode(value)))


@slow
@given(st.data())
def test_what_was_not_declared_comes_out_the_same_or_is_refused(data: st.DataObject) -> None:
    kind, _ = data.draw(kinds)
    codec = Value.of(kind, subject="value", limit=10**9)
    value = data.draw(anything)
    try:
        payload = codec.encode(value)
    except PayloadError:
        return
    assert same(value, codec.decode(payload))


@slow
@given(st.data())
def test_a_model_comes_out_the_same_or_is_refused(data: st.DataObject) -> None:
    kind, values = data.draw(models | containers(models))
    codec = Value.of(kind, subject="value", limit=10**9)
    value = data.draw(values)
    try:
        payload = codec.encode(value)
    except PayloadError:
        return
    assert same(value, codec.decode(payload))


@slow
@given(st.data())
def test_whatever_json_can_be_read_can_be_written_again(data: st.DataObject) -> None:
    kind, _ = data.draw(kinds)
    codec = Value.of(kind, subject="value", limit=10**9)
    content = data.draw(plain | anything.map(lambda value: json.loads(json.dumps(value, default=str, skipkeys=True))))
    try:
        value = codec.decode(json.dumps({"v": 1, "value": content}).encode())
    except PayloadError:
        return
    assert same(value, codec.decode(codec.encode(value)))


@given(st.binary() | plain.map(lambda value: json.dumps(value).encode()))
def test_bytes_are_read_or_refused(payload: bytes) -> None:
    with suppress(PayloadError):
        Value.of(dict[str, list[int]], subject="value").decode(payload)


# Calls

NAMES = ["a", "b", "c", "d", "e", "f"]
ORDER = [
    Parameter.POSITIONAL_ONLY,
    Parameter.POSITIONAL_OR_KEYWORD,
    Parameter.VAR_POSITIONAL,
    Parameter.KEYWORD_ONLY,
    Parameter.VAR_KEYWORD,
]


@st.composite
def signatures(draw: st.DrawFn) -> Signature:
    chosen = sorted(draw(st.lists(st.sampled_from(ORDER), max_size=len(NAMES))), key=ORDER.index)
    parameters: list[Parameter] = []
    defaulted = False
    for name, kind in zip(NAMES, chosen, strict=False):
        variable = kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        if variable and any(parameter.kind is kind for parameter in parameters):
            continue
        wanted = draw(st.booleans()) or (defaulted and kind is not Parameter.KEYWORD_ONLY)
        defaulted = defaulted or (wanted and not variable)
        default = -len(parameters) if wanted and not variable else Parameter.empty
        parameters.append(Parameter(name, kind, default=default, annotation=int))
    return Signature(parameters)


def taking(signature: Signature) -> Callable[..., dict[str, Any]]:
    """A real function of this signature that tells what it got."""
    made: dict[str, Any] = {}
    exec(f"def function{signature}: return locals()", made)  # noqa: S102 - Python itself is to judge calls
    function: Callable[..., dict[str, Any]] = made["function"]
    return function


@given(
    signatures(),
    st.lists(st.integers(), max_size=4).map(tuple),
    st.dictionaries(st.sampled_from([*NAMES, "g"]), st.integers(), max_size=4),
)
def test_calls_bind_as_python_binds_them(signature: Signature, args: tuple[int, ...], kwargs: dict[str, int]) -> None:
    function = taking(signature)
    codec = Arguments.of(function, subject="task")
    try:
        expected = function(*args, **kwargs)
    except TypeError:
        expected = None
    try:
        again = codec.decode(codec.encode(args, kwargs))
    except PayloadError:
        assert expected is None
        return
    assert function(*again[0], **again[1]) == expected


@given(signatures(), st.lists(st.integers(), max_size=4).map(tuple), st.booleans())
def test_an_injected_parameter_can_be_added_to_whatever_comes_back(
    signature: Signature, args: tuple[int, ...], by_position: bool
) -> None:
    own = list(signature.parameters.values())
    may_stand_before = by_position and not any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in own)
    kind = Parameter.POSITIONAL_OR_KEYWORD if may_stand_before else Parameter.KEYWORD_ONLY
    context = Parameter("context", kind, default=None)
    function = taking(Signature(sorted([*own, context], key=lambda parameter: ORDER.index(parameter.kind))))
    codec = Arguments.of(function, subject="task", injected=["context"])
    try:
        expected = taking(signature)(*args)
    except TypeError:
        return
    again = codec.decode(codec.encode(args, {}))
    assert function(*again[0], **again[1], context="here") == {**expected, "context": "here"}


def bill(order: int, customer: str, urgent: bool) -> None: ...


@given(
    st.integers() | st.integers(-(2**2100), 2**2100) | st.booleans(),
    st.text() | st.text(min_size=500) | st.text(st.characters(categories=["Cs"])) | st.none(),
    st.booleans() | st.integers(0, 1),
)
def test_plain_arguments_are_taken_and_refused_as_all_others_are(order: int, customer: str, urgent: bool) -> None:
    """Given by position they need not be read back, given by keyword they are: it makes no difference."""
    codec = Arguments.of(bill, subject="task", limit=700)
    ways: list[tuple[tuple[object, ...], dict[str, object]]] = [
        ((order, customer, urgent), {}),
        ((order,), {"customer": customer, "urgent": urgent}),
    ]

    assert codec.plain == (int, str, bool)
    short, long = (outcome(codec, *way) for way in ways)
    assert short == long


def outcome(codec: Arguments, args: tuple[object, ...], kwargs: dict[str, object]) -> bytes | str:
    try:
        return codec.encode(args, kwargs)
    except PayloadError as error:
        return str(error)
