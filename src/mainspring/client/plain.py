"""Records as what JSON knows, under the field names of the records: one form for the command line and the JSON API.

A job within a `JobView`, and a node within a `NodeView`, is unfolded into it: what every script asks for first
(`id`, `state`, `alive`) stands at the top. Names are text, instants ISO 8601 in UTC, lengths of time seconds; payloads,
results and saved values are JSON already and are shown as such.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import assert_never
from uuid import UUID

import msgspec

from mainspring.core.names import Name
from mainspring.stores.records import JobView, NodeView


def plain(value: object) -> object:
    """Turn a record, and all that is in it, into what JSON knows; raises `TypeError` where there is nothing for it."""
    match value:
        case None | bool() | int() | float():
            return value
        case Enum():
            return value.value
        case str():
            return text(value)
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case timedelta():
            return value.total_seconds()
        case Name() | UUID():
            return str(value)
        case bytes():
            return read(value)
        case JobView() | NodeView():
            return unfolded(value)
        case msgspec.Struct():
            return _fields(value)
        case Mapping():
            return {text(str(key)): plain(one) for key, one in value.items()}
        case frozenset() | set():
            return sorted(str(plain(one)) for one in value)
        case Iterable():
            return [plain(one) for one in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            raise TypeError(f"no JSON for {value!r}")


def shown(value: object) -> object:
    """Turn whatever a program has returned into what JSON knows; what has no such form is shown as Python shows it."""
    try:
        return plain(value)
    except (TypeError, RecursionError):
        return repr(value)


def text(value: str) -> str:
    """Keep what JSON can carry: halves of surrogate pairs, as in names of files, have no place in UTF-8."""
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()


def read(stored: bytes) -> object:
    """Read stored JSON; what is none is shown as base64 rather than hidden."""
    try:
        return msgspec.json.decode(stored)
    except msgspec.DecodeError:
        return {"base64": b64encode(stored).decode()}


def unfolded(view: JobView | NodeView) -> dict[str, object]:
    """Turn a view into its own fields and those of the job or node in it."""
    match view:
        case JobView():
            return {**_fields(view.job), **_fields(view, but="job")}
        case NodeView():
            return {**_fields(view.node), **_fields(view, but="node")}
        case _:
            assert_never(view)


def _fields(record: msgspec.Struct, but: str = "") -> dict[str, object]:
    tag = record.__struct_config__.tag
    kind: dict[str, object] = {"type": tag} if tag else {}
    return kind | {name: plain(getattr(record, name)) for name in record.__struct_fields__ if name != but}
