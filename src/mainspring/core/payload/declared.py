"""Declared types, read once: whether they can be carried, and where strangers could hide in their JSON.

msgspec reads the annotations and says what a type is made of (`msgspec.inspect`). What cannot be carried is refused
with a `Misfit` whose path leads to it: `.lines[].lock`.

msgspec's decoder skips fields that it does not know, and a stored job must not lose data that way. So JSON is searched
for them next to the decoder, where there are records. The search trusts nothing: where the JSON is no record at all, it
looks away, for the decoder has more to say about that.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, get_origin

from msgspec import inspect

from mainspring.core.payload.misfit import Misfit, field_step, told, unknown
from mainspring.core.payload.models import is_model

Search: TypeAlias = Callable[[object], None]
"""Looks through JSON for fields that nobody declared, and raises `Misfit` at the first."""

_Begun: TypeAlias = dict[int, Search]
"""The searches of one type, by the identity of their nodes: a record that holds itself is found here."""

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
_SINGLES: Final = (*_KEYS, inspect.NoneType, inspect.BoolType, inspect.ByteArrayType, inspect.LiteralType)

_ADVICE: Final = (
    "use a dataclass, a msgspec Struct, a TypedDict, a pydantic model, or pass it as text, such as str(path)"
)


def read_type(declared: object) -> Search | None:
    """Read a type and make its search, if there is anything to search; or raise `Misfit` if it cannot be carried."""
    try:
        node = inspect.type_info(declared)
    except NameError as error:
        raise Misfit(f"the name `{error.name}` in one of its annotations is not defined") from error
    except Exception as error:  # annotations of fields are code, which may raise anything
        raise Misfit(told(str(error))) from error
    return _search(node, {})


def _search(node: inspect.Type, begun: _Begun) -> Search | None:
    if isinstance(node, _SINGLES):
        return None
    match node:
        case inspect.Metadata():
            return _search(node.type, begun)
        case inspect.UnionType():
            members = [search for member in node.types if (search := _search(member, begun))]
            return _any(members) if members else None
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            item = _part(node.item_type, "[]", begun)
            return _all(list, item) if item else None
        case inspect.TupleType():
            places = enumerate(_part(item, f"[{index}]", begun) for index, item in enumerate(node.item_types))
            searches = {index: search for index, search in places if search}
            return _array(searches) if searches else None
        case inspect.DictType():
            _refuse_key(node.key_type)
            entry = _part(node.value_type, "[]", begun)
            return _all(dict, entry) if entry else None
        case inspect.StructType() | inspect.DataclassType() | inspect.NamedTupleType() | inspect.TypedDictType():
            return begun.get(id(node)) or _record(node, begun)
        case inspect.CustomType() if node.cls is object or is_model(node.cls):
            return None
        case inspect.CustomType():
            raise Misfit(f"`{node.cls.__qualname__}` cannot be carried; {_ADVICE}")
        case _:  # what only MessagePack has, and views of memory that somebody else owns
            name = type(node).__name__.removesuffix("Type").lower()
            raise Misfit(f"`{name}` cannot be carried; use `bytes`")


def _part(node: inspect.Type, step: str, begun: _Begun) -> Search | None:
    try:
        return _search(node, begun)
    except Misfit as misfit:
        raise misfit.under(step) from None


def _refuse_key(node: inspect.Type) -> None:
    """Keys become text in JSON, so each must tell its type by itself: of `int | str`, 1 would come back as "1"."""
    literals = {*map(type, node.values)} if isinstance(node, inspect.LiteralType) else None
    if not isinstance(node, _KEYS) and literals not in ({str}, {int}):
        advice = "JSON has text there; use one type of text, number, date or enum"
        raise Misfit(f"keys of this type cannot be carried: {advice}")


def _record(node: _Record, begun: _Begun) -> Search:
    kind = get_origin(node.cls) or node.cls
    if hasattr(kind, "__pydantic_validator__"):
        raise Misfit(f"`{kind.__qualname__}` is a pydantic dataclass, whose rules would be passed over; {_ADVICE}")
    names = [field.encode_name for field in node.fields]
    tag_key, tag = (node.tag_field, node.tag) if isinstance(node, inspect.StructType) else (None, None)
    is_array = isinstance(node, inspect.NamedTupleType) or getattr(node, "array_like", False)
    first = 1 if is_array and tag is not None else 0
    searches: dict[Any, Search] = {}  # filled later: a record that holds itself is begun before its fields are read
    if is_array:
        search = _array(searches, length=first + len(names), tag=tag)
    else:
        search = search_object(names, searches, tag_key=tag_key, tag=tag)
    begun[id(node)] = search
    for place, field in enumerate(node.fields, first):
        part = _part(field.type, field_step(field.name), begun)
        if part is not None:
            searches[place if is_array else field.encode_name] = part
    return search


def search_object(
    names: Iterable[str],
    searches: Mapping[str, Search],
    *,
    what: str = "field",
    tag_key: str | None = None,
    tag: object = None,
) -> Search:
    """Search a JSON object for keys that nobody declared, then the values of those that somebody did."""
    known = frozenset(names if tag_key is None else (*names, tag_key))

    def search(raw: object) -> None:
        if not isinstance(raw, dict):
            return
        if tag_key is not None and raw.get(tag_key, tag) != tag:  # another struct of the same union is meant
            return
        if not raw.keys() <= known:
            raise unknown(what, next(key for key in raw if key not in known), known)
        for key, search_field in searches.items():
            if key in raw:
                _inside(raw[key], search_field, field_step(key))

    return search


def _array(searches: Mapping[int, Search], *, length: int | None = None, tag: object = None) -> Search:
    """Search a JSON array that stands for a record, whose tag comes first if it has one, or for a tuple."""

    def search(raw: object) -> None:
        if not isinstance(raw, list) or (tag is not None and raw[:1] != [tag]):
            return
        if length is not None and len(raw) > length:  # a tuple's own length is the decoder's to judge
            raise Misfit("unknown field", f"[{length}]")
        for index, search_item in searches.items():
            if index < len(raw):
                _inside(raw[index], search_item, f"[{index}]")

    return search


def _all(kind: type[list[object]] | type[dict[str, object]], search_part: Search) -> Search:
    """Search every item of a JSON array, or every entry of a JSON object."""

    def search(raw: object) -> None:
        if not isinstance(raw, kind):
            return
        for step, part in raw.items() if isinstance(raw, dict) else enumerate(raw):
            _inside(part, search_part, f"[{step!r}]")

    return search


def _any(searches: Sequence[Search]) -> Search:
    """Search for every member of a union. Those that are not meant look away."""

    def search(raw: object) -> None:
        for search_member in searches:
            search_member(raw)

    return search


def _inside(raw: object, search: Search, step: str) -> None:
    try:
        search(raw)
    except Misfit as misfit:
        raise misfit.under(step) from None
