"""What jobs carry: arguments and single values, as JSON, checked against their declared types on both ways.

What goes in comes out, or is refused with a `PayloadError` that says where and why. Codecs are built once, when
something is declared; types that cannot be carried are a `DeclarationError` then.

`encode` takes that literally: it writes, reads back with the decoder that will read later, and compares types and
values all the way down. So a `str` is refused for a `datetime` though their JSON is the same, a dict for a dataclass, a
subclass for its base, True for an int. Only an int may stand for a float, and comes back as one. Aware datetimes come
back as the same instant with the same offset; the name of the zone is not kept. Only short calls whose arguments are all
plain are not read back, because it is known that they come back: of an `int`, a `str` and a `bool` JSON loses nothing.

Stored by name, `{"v":1,"args":{"order":…}}`, only what was given: parameters may change places, gain defaults or get
new neighbours with defaults while jobs wait.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, overload

import msgspec
from msgspec import UNSET

from mainspring.core.payload.declared import Search, read_type, search_object
from mainspring.core.payload.envelope import VERSION, Envelope, decoder_of
from mainspring.core.payload.misfit import Misfit
from mainspring.core.payload.places import ENCODER
from mainspring.core.payload.signature import Call, Signature, read_signature
from mainspring.errors import DeclarationError

LIMIT: Final = 262_144
"""Bytes of JSON that a payload may have, unless its task says otherwise."""

_PLAIN: Final = (int, str, bool)
_SHORT: Final = 512
"""Bytes of JSON in which no int can be too long to be read: that takes 617 digits."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The codec of one task's parameters."""

    signature: Signature
    envelope: Envelope
    plain: tuple[object, ...] | None
    """The types of all parameters, in order, if a call by position can give nothing but plain values."""

    @classmethod
    def of(
        cls, function: Callable[..., object], *, subject: str, injected: Collection[str] = (), limit: int = LIMIT
    ) -> "Arguments":
        """Read a function's parameters. Those `injected` are passed by keyword when it runs, and are not stored."""
        signature = read_signature(function, subject=subject, injected=injected)
        searches = _searches(signature, subject)
        fields = {name: f"field{place}" for place, name in enumerate(signature.hints)}
        envelope = Envelope(
            subject=subject,
            limit=limit,
            content="args",
            fields=fields,
            decoder=decoder_of(_struct(signature, fields), "args"),
            search=search_object(fields, searches, what="argument"),
            search_always=bool(searches),  # of its own level, the struct refuses strangers by itself
        )
        return cls(signature=signature, envelope=envelope, plain=_plain(signature))

    def encode(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bytes:
        """Bind, write and prove what is meant for `function(*args, **kwargs)`."""
        if not kwargs and tuple(map(type, args)) == self.plain:
            payload = self._written(args)
            if payload is not None:
                return payload
        try:
            bound = self.signature.bind(args, kwargs)
        except Misfit as misfit:
            raise self.envelope.refusal(misfit) from None
        return self.envelope.seal(bound)

    def _written(self, args: tuple[object, ...]) -> bytes | None:
        """Write plain values of the types that were declared; None: they have to be looked at closely."""
        try:
            payload = ENCODER.encode({"v": VERSION, "args": dict(zip(self.signature.positional, args, strict=True))})
        except Exception:  # noqa: BLE001 - half of a surrogate pair, or an int without end; told by who looks closely
            return None
        return payload if len(payload) <= _SHORT and len(payload) <= self.envelope.limit else None

    def decode(self, payload: bytes) -> Call:
        """Give back the args and kwargs to call the function with; injected ones are added by keyword."""
        values = msgspec.structs.astuple(self.envelope.open(payload))
        given = {name: value for name, value in zip(self.envelope.fields, values, strict=True) if value is not UNSET}
        try:
            return self.signature.call(given)
        except Misfit as misfit:
            raise self.envelope.refusal(misfit) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Value(Generic[T]):
    """The codec of single values of one type: results, saved state, messages."""

    envelope: Envelope

    @overload
    @classmethod
    def of(cls, kind: type[T], *, subject: str, limit: int = LIMIT) -> "Value[T]": ...

    @overload
    @classmethod
    def of(cls, kind: object, *, subject: str, limit: int = LIMIT) -> "Value[Any]": ...

    @classmethod
    def of(cls, kind: object, *, subject: str, limit: int = LIMIT) -> "Value[Any]":
        """Read a type: a class, or any other annotation, such as `int | None`."""
        try:
            search = read_type(kind)
        except Misfit as misfit:
            where = f"{misfit.path.removeprefix('.')}: " if misfit.path else ""
            raise DeclarationError(subject, where + misfit.problem) from misfit.__cause__
        envelope = Envelope(
            subject=subject,
            limit=limit,
            content="value",
            fields={},
            decoder=decoder_of(kind, "value"),
            search=search or _nowhere,
            search_always=search is not None,
        )
        return cls(envelope=envelope)

    def encode(self, value: T) -> bytes:
        return self.envelope.seal(value)

    def decode(self, payload: bytes) -> T:
        value: T = self.envelope.open(payload)
        return value


def _nowhere(_raw: object) -> None:
    """Where a type has no fields, there are no strangers."""


def _searches(signature: Signature, subject: str) -> dict[str, Search]:
    searches: dict[str, Search] = {}
    problems: list[str] = []
    for name, hint in signature.hints.items():
        try:
            search = read_type(hint)
            if search is not None:
                searches[name] = search
        except Misfit as misfit:
            problems.append(f"parameter `{name}{misfit.path}`: {misfit.problem}")
    if problems:
        raise DeclarationError(subject, "; ".join(problems))
    return searches


def _plain(signature: Signature) -> tuple[object, ...] | None:
    kinds = tuple(signature.hints.values())
    by_position = tuple(signature.hints) == signature.positional
    return kinds if by_position and all(any(kind is plain for plain in _PLAIN) for kind in kinds) else None


def _struct(signature: Signature, fields: Mapping[str, str]) -> type[msgspec.Struct]:
    """A struct with a field for each parameter. The fields have names of their own: no parameter can clash with it."""
    kinds: list[Any] = [
        (fields[name], hint) if name in signature.required else (fields[name], hint, UNSET)
        for name, hint in signature.hints.items()
    ]
    names = {field: name for name, field in fields.items()}
    return msgspec.defstruct("Arguments", kinds, rename=names, kw_only=True, forbid_unknown_fields=True)
