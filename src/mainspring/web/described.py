"""JSON Schema of what `mainspring.client.plain` writes: for each type, what becomes of its values there.

msgspec has a schema of its own, of what msgspec writes; a length of time is another text there, and a name an object.
"""

import types
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Final, Literal, NewType, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from msgspec import Struct, UnsetType

from mainspring.client.plain import IMPLIED, UNFOLDED
from mainspring.core.names import Name

Schema = dict[str, Any]

REFERENCE: Final = "#/components/schemas/"

_PLAIN: Final[Mapping[object, Schema]] = {
    None: {"type": "null"},
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    datetime: {"type": "string", "format": "date-time"},
    timedelta: {"type": "number", "description": "seconds"},
    Name: {"type": "string"},
    UUID: {"type": "string", "format": "uuid"},
    bytes: {},  # JSON that was stored
    object: {},
    Any: {},
}


class Described:
    """Schemas of types; records are components, and are named by their classes."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}
        self._names: dict[type, str] = {}

    def schema(self, kind: Any) -> Schema:  # noqa: ANN401 - any type there is
        """Describe what becomes of values of a type; raises `TypeError` for one that cannot be written."""
        while isinstance(kind, NewType) or get_origin(kind) is Annotated:
            kind = kind.__supertype__ if isinstance(kind, NewType) else get_args(kind)[0]
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        arguments = get_args(kind)
        match get_origin(kind):
            case None:
                return self._class(kind)
            case origin if origin is Union or origin is types.UnionType:
                return {"anyOf": [self.schema(one) for one in arguments if one is not UnsetType]}
            case origin if origin is Literal:
                return {"enum": list(arguments)}
            case origin if issubclass(origin, Mapping):
                return {"type": "object", "additionalProperties": self.schema(arguments[1])}
            case origin if issubclass(origin, frozenset | set):
                return {"type": "array", "items": {"type": "string"}}
            case origin if issubclass(origin, tuple) and arguments[-1] is not Ellipsis:
                return {"type": "array", "prefixItems": [self.schema(one) for one in arguments]}
            case origin if issubclass(origin, Iterable):
                return {"type": "array", "items": self.schema(arguments[0])}
            case _:
                raise TypeError(f"no JSON for {kind!r}")

    def _class(self, kind: Any) -> Schema:  # noqa: ANN401 - as above
        if not isinstance(kind, type):
            raise TypeError(f"no JSON for {kind!r}")
        if issubclass(kind, dict):
            return {"type": "object"}
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return {"type": "array", "prefixItems": [self.schema(one) for one in get_type_hints(kind).values()]}
        if kind not in self._names:
            name = kind.__name__
            if name in self.components:
                name = f"{kind.__module__.rpartition('.')[2]}.{name}"
            self._names[kind] = name
            self.components[name] = {}  # for those that hold themselves
            self.components[name] = self._component(kind)
        return {"$ref": REFERENCE + self._names[kind]}

    def _component(self, kind: type) -> Schema:
        if issubclass(kind, Enum):
            return {"enum": [one.value for one in kind]}
        properties, required = self._fields(kind)
        if inner := UNFOLDED.get(kind):
            more, also = self._fields(get_type_hints(kind)[inner])
            properties = {**more, **properties}
            required = [*also, *required]
            del properties[inner]
            required.remove(inner)
        implied = {name: self.schema(given) for name, (given, _) in IMPLIED.get(kind, {}).items()}
        properties, required = {**properties, **implied}, [*required, *implied]
        return {"type": "object", "properties": properties, "required": required}

    def _fields(self, kind: type) -> tuple[dict[str, Schema], list[str]]:
        hints = get_type_hints(kind)
        if issubclass(kind, Struct):
            names = kind.__struct_fields__
            tag = kind.__struct_config__.tag
        elif is_dataclass(kind):
            names = tuple(one.name for one in fields(kind))
            tag = None
        else:
            raise TypeError(f"no JSON for {kind!r}")
        properties: dict[str, Schema] = {"type": {"const": tag}} if tag else {}
        properties |= {name: self.schema(hints[name]) for name in names}
        return properties, [name for name in properties if UnsetType not in get_args(hints.get(name))]
