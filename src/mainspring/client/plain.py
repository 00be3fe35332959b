"""Records as what JSON knows, under the field names of the records: one form for the command line and the JSON API.

A job within a `JobView`, a node within a `NodeView` and so on is unfolded into it: what every script asks for first
(`id`, `state`, `alive`) stands at the top. Names are text, instants ISO 8601 in UTC, lengths of time seconds; payloads,
results and saved values are JSON already and are shown as such.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Final
from uuid import UUID

import msgspec

from mainspring.client.causes import why
from mainspring.client.views import RunView, ScheduleView
from mainspring.core.names import Name
from mainspring.stores.outbox import Letter
from mainspring.stores.overview import Entry
from mainspring.stores.records import JobView, NodeView

UNFOLDED: Final[Mapping[type, str]] = {
    JobView: "job",
    NodeView: "node",
    ScheduleView: "schedule",
    RunView: "run",
    Letter: "message",
    Entry: "entry",
}
"""Records that are written as one with the record that they hold, and the name of the field that holds it."""

IMPLIED: Final[Mapping[type, Mapping[str, tuple[object, Callable[[Any], object]]]]] = {
    JobView: {"why": (str | None, lambda view: why(view.job))},
}
"""What is written beside the fields of a record, because they say it in a word only: its name, its type, and how to say it."""


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
        case msgspec.Struct():
            return unfolded(value)
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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"base64": b64encode(stored).decode()}


def unfolded(record: msgspec.Struct) -> dict[str, object]:
    """Turn a record into its fields, with those of the record in it, if it is a view of that."""
    implied = {name: plain(say(record)) for name, (_, say) in IMPLIED.get(type(record), {}).items()}
    inner = UNFOLDED.get(type(record))
    if inner is None:
        return _fields(record) | implied
    return {**_fields(getattr(record, inner)), **_fields(record, but=inner), **implied}


def _fields(record: msgspec.Struct, but: str = "") -> dict[str, object]:
    tag = record.__struct_config__.tag
    kind: dict[str, object] = {"type": tag} if tag else {}
    return kind | {name: plain(getattr(record, name)) for name in record.__struct_fields__ if name != but}
