"""What the messages of an outbox carry: values of declared types as JSON, or bytes as they are.

The name of a payload's type is kept with each message, so that a reader knows what it is before it looks.
"""

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Final, Generic, TypeVar, Union, get_args, get_origin

from mainspring.core.codec import Value
from mainspring.core.outbox import LARGEST_PAYLOAD, check_type
from mainspring.errors import DeclarationError, PayloadError, PayloadTooLarge
from mainspring.stores.outbox import Message

T = TypeVar("T")

ANYTHING: Final = "json"
"""The name of the type of whatever JSON can say."""
BYTES: Final = "bytes"
_ENDLESS: Final = 1 << 40


class Payloads(Generic[T]):
    """The types that one outbox carries."""

    def __init__(self, outbox: str, kinds: object = Any) -> None:
        self._subject: Final = f"outbox {outbox}"
        self._outbox: Final = outbox
        self._codecs: Final = {
            name: None if kind is bytes else Value.of(kind, subject=f"{self._subject}, {name}", limit=_ENDLESS)
            for name, kind in _named(self._subject, kinds).items()
        }
        self._kinds: Final = _named(self._subject, kinds)

    @property
    def types(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self._codecs)

    def encode(self, value: T) -> tuple[str, bytes]:
        """Write a value; returns the name of its type, and what a message carries."""
        name = self._type_of(value)
        codec = self._codecs[name]
        payload = bytes(value) if codec is None else codec.encode(value)  # type: ignore[call-overload]  # bytes: see above
        if len(payload) > LARGEST_PAYLOAD:
            raise PayloadTooLarge(self._outbox, len(payload), LARGEST_PAYLOAD)
        return name, payload

    def decode(self, message: Message) -> T:
        """Read what a message carries, or raise `PayloadError`."""
        if message.type not in self._codecs:
            known = ", ".join(self._codecs)
            raise PayloadError(self._subject, "", f"the type {message.type!r} is not known here, but {known}")
        codec = self._codecs[message.type]
        value: T = message.payload if codec is None else codec.decode(message.payload)  # type: ignore[assignment]  # as above
        return value

    def _type_of(self, value: object) -> str:
        if len(self._kinds) == 1:
            (name, kind) = next(iter(self._kinds.items()))
            if kind is not bytes or isinstance(value, bytes | bytearray | memoryview):
                return name
        found = [name for name, kind in self._kinds.items() if kind is type(value)]
        if not found:
            names = " or ".join(self._kinds)
            raise PayloadError(self._subject, "", f"it carries {names}, and not a `{type(value).__name__}`")
        return found[0]


def _named(subject: str, kinds: object) -> dict[str, object]:
    """Give each type its name: those that were given with names keep these."""
    if isinstance(kinds, Mapping):
        named = {check_type(name): kind for name, kind in kinds.items()}
    else:
        several = _several(kinds)
        named = {check_type(_name(kind)): kind for kind in several}
        if len(named) < len(several):
            raise DeclarationError(subject, "two of its types have the same name; give names: {'order.v1': Order}")
    strange = [kind for kind in named.values() if not isinstance(kind, type)] if len(named) > 1 else []
    DeclarationError.unless(
        subject,
        (
            (bool(named), "it carries nothing; name a type, or leave payload out for any JSON"),
            (not strange, f"of several types each is a class of its own, and not {strange[:1]}"),
        ),
    )
    return named


def _several(kinds: object) -> tuple[object, ...]:
    if isinstance(kinds, tuple | list):
        return tuple(kinds)
    members = get_args(kinds) if get_origin(kinds) in (Union, UnionType) else ()
    if members and all(isinstance(one, type) and one is not NoneType for one in members):
        return members
    return (kinds,)


def _name(kind: object) -> str:
    if kind is Any:
        return ANYTHING
    if kind is bytes:
        return BYTES
    return kind.__name__ if isinstance(kind, type) else str(kind)
