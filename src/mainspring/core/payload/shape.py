"""Declared types, read once into shapes: what may go in, and where strangers could hide in what comes out.

msgspec reads the annotations and says what a type is made of (`msgspec.inspect`); this file says what that means for a
payload. What cannot be carried is refused with a `Misfit` whose path leads to it: `.lines[].lock`.

Containers take exactly the type that comes back, which is `list` for `Sequence`, `dict` for `Mapping`, `set` for `Set`.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias, get_origin

from msgspec import inspect

from mainspring.core.payload.misfit import Misfit, TooDeep, field_step, wrong
from mainspring.core.payload.models import is_model
from mainspring.core.payload.plain import Check, each_entry, each_item
from mainspring.core.payload.records import (
    attributes_shape,
    keys_shape,
    model_shape,
    search_array,
    search_inside,
    search_object,
    unless_unset,
)
from mainspring.core.payload.scalars import PLAIN, SCALARS, Search, Shape, exact, limited, literal_shape, told

_Begun: TypeAlias = dict[int, Shape]
"""The records of one type, by the identity of their nodes: one that holds itself is found here."""

_Record: TypeAlias = inspect.StructType | inspect.DataclassType | inspect.NamedTupleType | inspect.TypedDictType

_KEYS: Final = (
    inspect.AnyType,
    inspect.StrType,
    inspect.IntType,
    inspect.FloatType,
    inspect.EnumType,
    inspect.BytesType,
    inspect.DateTimeType,
    inspect.TimeType,
    inspect.DateType,
    inspect.TimeDeltaType,
    inspect.UUIDType,
    inspect.DecimalType,
)

_ADVICE: Final = "use a dataclass, a msgspec Struct, a TypedDict, a pydantic model, or a type of the standard library"


def shape_of(declared: object) -> Shape:
    """Read a type, or raise `Misfit` where it cannot be carried."""
    try:
        node = inspect.type_info(declared)
    except NameError as error:
        raise Misfit(f"the name `{error.name}` in one of its annotations is not defined") from error
    except Exception as error:  # annotations of fields are code, which may raise anything
        raise Misfit(told(str(error))) from error
    return _shape(node, {})


def _shape(node: inspect.Type, begun: _Begun) -> Shape:
    scalar = SCALARS.get(type(node))
    if scalar is not None:
        return limited(scalar, node)
    match node:
        case inspect.Metadata():
            return _shape(node.type, begun)
        case inspect.EnumType():
            return exact(node.cls)
        case inspect.LiteralType():
            return literal_shape(node.values)
        case inspect.UnionType():
            return _union(node.types, begun)
        case inspect.ListType():
            return limited(_items(list, node.item_type, begun), node)
        case inspect.VarTupleType():
            return limited(_items(tuple, node.item_type, begun), node)
        case inspect.SetType():
            return limited(_members(set, node.item_type, begun), node)
        case inspect.FrozenSetType():
            return limited(_members(frozenset, node.item_type, begun), node)
        case inspect.TupleType():
            return _places(node.item_types, begun)
        case inspect.DictType():
            return limited(_entries(node, begun), node)
        case inspect.StructType() | inspect.DataclassType() | inspect.NamedTupleType() | inspect.TypedDictType():
            return begun.get(id(node)) or _record(node, begun)
        case inspect.CustomType():
            return _custom(node.cls)
        case _:  # what only MessagePack has, and views of memory that somebody else owns
            name = type(node).__name__.removesuffix("Type").lower()
            raise Misfit(f"`{name}` cannot be carried; use `bytes`")


def _part(node: inspect.Type, step: str, begun: _Begun) -> Shape:
    try:
        return _shape(node, begun)
    except Misfit as misfit:
        misfit.under(step)
        raise


def _custom(kind: type) -> Shape:
    if kind is object:
        return PLAIN
    if is_model(kind):
        return model_shape(kind)
    raise Misfit(f"`{kind.__qualname__}` cannot be carried; {_ADVICE}")


def _items(kind: type[list[object]] | type[tuple[object, ...]], node: inspect.Type, begun: _Begun) -> Shape:
    """Lists, and tuples of any length."""
    item = _part(node, "[]", begun)
    fits_all = item.fits_all

    def check(value: object, depth: int) -> None:
        if type(value) is not kind:
            raise wrong(kind.__name__, value)
        if not (depth and fits_all and fits_all(value)):
            each_item(value, item.check, depth)

    return Shape(name=kind.__name__, kinds=(kind,), check=check, search=_search_items(item.search))


def _members(kind: type[set[object]] | type[frozenset[object]], node: inspect.Type, begun: _Begun) -> Shape:
    """Sets. A bad member is reported at the set, since no path leads to a member."""
    item = _part(node, "[]", begun)

    def check(value: object, depth: int) -> None:
        if type(value) is not kind:
            raise wrong(kind.__name__, value)
        if not depth:
            raise TooDeep
        for member in value:
            try:
                item.check(member, depth - 1)
            except Misfit as misfit:
                raise Misfit(f"a member: {misfit.problem}") from None

    return Shape(name=kind.__name__, kinds=(kind,), check=check, search=_search_items(item.search))


def _search_items(search: Search | None) -> Search | None:
    if search is None:
        return None

    def search_items(raw: object) -> None:
        if isinstance(raw, list):
            for index, item in enumerate(raw):
                search_inside(item, search, f"[{index}]")

    return search_items


def _places(nodes: Sequence[inspect.Type], begun: _Begun) -> Shape:
    """Tuples whose every place has a type of its own."""
    places = [_part(node, f"[{index}]", begun) for index, node in enumerate(nodes)]
    searches = [(index, place.search) for index, place in enumerate(places) if place.search is not None]

    def check(value: object, depth: int) -> None:
        if type(value) is not tuple:
            raise wrong("tuple", value)
        if len(value) != len(places):
            raise Misfit(f"expected a tuple of {len(places)}, got one of {len(value)}")
        if not depth:
            raise TooDeep
        for index, place in enumerate(places):
            try:
                place.check(value[index], depth - 1)
            except Misfit as misfit:
                misfit.under(f"[{index}]")
                raise

    search = search_array(len(places), searches) if searches else None
    return Shape(name="tuple", kinds=(tuple,), check=check, search=search)


def _entries(node: inspect.DictType, begun: _Begun) -> Shape:
    key = _key(node.key_type, begun)
    item = _part(node.value_type, "[]", begun)
    keys_fit, values_fit = key.fits_all, item.fits_all
    search_value = item.search

    def check(value: object, depth: int) -> None:
        if type(value) is not dict:
            raise wrong("dict", value)
        if depth and keys_fit and values_fit and keys_fit(value.keys()) and values_fit(value.values()):
            return
        each_entry(value, key.check, item.check, depth)

    def search(raw: object) -> None:
        if search_value is not None and isinstance(raw, dict):
            for name, entry in raw.items():
                search_inside(entry, search_value, f"[{name!r}]")

    return Shape(name="dict", kinds=(dict,), check=check, search=search if search_value is not None else None)


def _key(node: inspect.Type, begun: _Begun) -> Shape:
    """Keys become text in JSON, so each must tell its type by itself: of `int | str`, 1 would come back as "1"."""
    if isinstance(node, inspect.AnyType):
        return SCALARS[inspect.StrType]
    if isinstance(node, inspect.LiteralType) and {*map(type, node.values)} in ({str}, {int}):
        return _shape(node, begun)
    if isinstance(node, _KEYS):
        return _shape(node, begun)
    raise Misfit("keys of this type cannot be carried: JSON has text there; use one type of text, number, date or enum")


def _union(nodes: Sequence[inspect.Type], begun: _Begun) -> Shape:
    """One of several types, found by the exact type of the value.

    msgspec lets no two members through that have the same form in JSON, with a few exceptions: `int` or `str` next to
    their own literals, and `float` next to anything of int. It reads them in the order of `_breadth`, and so must we.
    """
    members = [_shape(node, begun) for node in sorted(nodes, key=_breadth)]
    if any(member is PLAIN for member in members):
        return PLAIN
    checks: dict[type, Check] = {}
    for member in members:
        for kind in member.kinds:
            checks.setdefault(kind, member.check)
    if any(_reads_as_int(node) for node in nodes):
        checks.pop(int, None)
    name = " | ".join(member.name for member in members)

    def check(value: object, depth: int) -> None:
        check_member = checks.get(type(value))
        if check_member is None:
            raise wrong(name, value)
        check_member(value, depth)

    searches = [member.search for member in members if member.search is not None]

    def search(raw: object) -> None:
        for search_member in searches:
            search_member(raw)

    return Shape(name=name, kinds=tuple(checks), check=check, search=search if searches else None)


def _breadth(node: inspect.Type) -> int:
    match node:
        case inspect.FloatType():  # takes the ints that nobody else takes
            return 2
        case inspect.LiteralType():
            return 1
        case _:
            return 0


def _reads_as_int(node: inspect.Type) -> bool:
    """An enum of ints takes every int in the JSON, so none can stand for a float next to it."""
    return isinstance(node, inspect.EnumType) and any(isinstance(member.value, int) for member in node.cls)


def _record(node: _Record, begun: _Begun) -> Shape:
    checks: list[tuple[str, Check]] = []
    searches: list[tuple[str, Search]] = []
    places: list[tuple[int, Search]] = []
    begun[id(node)] = shape = _unfinished(node, checks, searches, places)
    for place, field in enumerate(node.fields):
        part = _part(field.type, field_step(field.name), begun)
        checks.append(
            (field.name, part.check if isinstance(node, inspect.TypedDictType) else unless_unset(field, part.check))
        )
        if part.search is not None:
            searches.append((field.encode_name, part.search))
            places.append((place, part.search))
    return shape


def _unfinished(
    node: _Record,
    checks: Sequence[tuple[str, Check]],
    searches: Sequence[tuple[str, Search]],
    places: Sequence[tuple[int, Search]],
) -> Shape:
    """The shape of a record whose fields are still to be read."""
    names = [field.encode_name for field in node.fields]
    kind = get_origin(node.cls) or node.cls
    match node:
        case inspect.TypedDictType():
            return keys_shape(kind, node, checks, search_object(names, searches))
        case inspect.NamedTupleType():
            return attributes_shape(kind, checks, search_array(len(names), places))
        case inspect.StructType(array_like=True):
            return attributes_shape(kind, checks, search_array(len(names), places, tag=node.tag))
        case inspect.StructType():
            return attributes_shape(kind, checks, search_object(names, searches, tag_key=node.tag_field, tag=node.tag))
        case _ if hasattr(kind, "__pydantic_validator__"):
            raise Misfit(f"`{kind.__qualname__}` is a pydantic dataclass, whose rules would be passed over; {_ADVICE}")
        case _:
            return attributes_shape(kind, checks, search_object(names, searches))
