"""What jobs carry: arguments and single values, as JSON, checked against their declared types on both ways.

What goes in comes out, or is refused with a `PayloadError` that says where and why. Codecs are built once, when
something is declared; types that cannot be carried are a `DeclarationError` then.

The checks at `encode` look at the values themselves and not at their JSON: a `str` where a `datetime` is declared would
make the same JSON, and is wrong all the same. They go by exact type, because that is what comes back. So a dict is
refused for a dataclass, a subclass for its base, True for an int; only an int may stand for a float. Aware datetimes
come back as the same instant with the same offset; the name of the zone is not kept.

Stored by name, `{"v":1,"args":{"order":…}}`, only what was given: parameters may change places, gain defaults or get
new neighbours with defaults while jobs wait.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, overload

import msgspec
from msgspec import UNSET

from mainspring.core.payload.envelope import Envelope
from mainspring.core.payload.misfit import DEEPEST, Misfit, TooDeep
from mainspring.core.payload.plain import Check
from mainspring.core.payload.records import search_object
from mainspring.core.payload.scalars import Shape
from mainspring.core.payload.shape import shape_of
from mainspring.core.payload.signature import Call, Signature, read_signature
from mainspring.errors import DeclarationError

LIMIT: Final = 262_144
"""Bytes of JSON that a payload may have, unless its task says otherwise."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The codec of one task's parameters."""

    signature: Signature
    checks: Mapping[str, Check]
    envelope: Envelope

    @classmethod
    def of(
        cls, function: Callable[..., object], *, subject: str, injected: Collection[str] = (), limit: int = LIMIT
    ) -> "Arguments":
        """Read a function's parameters. Those `injected` are passed by keyword when it runs, and are not stored."""
        signature = read_signature(function, subject=subject, injected=injected)
        shapes = _shapes(signature, subject)
        searches = [(name, shape.search) for name, shape in shapes.items() if shape.search is not None]
        envelope = Envelope.around(
            _struct(signature),
            content="args",
            subject=subject,
            limit=limit,
            search=search_object(shapes, searches, what="argument"),
            search_always=bool(searches),  # of its own level, the struct refuses strangers by itself
        )
        return cls(
            signature=signature,
            checks={name: shape.check for name, shape in shapes.items()},
            envelope=envelope,
        )

    def encode(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bytes:
        """Bind, check and write what is meant for `function(*args, **kwargs)`."""
        checks = self.checks
        name = ""
        try:
            bound = self.signature.bind(args, kwargs)
            for name, value in bound.items():
                checks[name](value, DEEPEST)
        except Misfit as misfit:
            raise self.envelope.refusal(misfit, name) from misfit.__cause__
        except RecursionError:
            raise self.envelope.refusal(TooDeep(), name) from None
        return self.envelope.seal(bound)

    def decode(self, payload: bytes) -> Call:
        """Give back the args and kwargs to call the function with; injected ones are added by keyword."""
        values = msgspec.structs.astuple(self.envelope.open(payload))
        given = {name: value for name, value in zip(self.checks, values, strict=True) if value is not UNSET}
        try:
            return self.signature.call(given)
        except Misfit as misfit:
            raise self.envelope.refusal(misfit) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Value(Generic[T]):
    """The codec of single values of one type: results, saved state, messages."""

    check: Check
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
            shape = shape_of(kind)
        except Misfit as misfit:
            where = f"{misfit.path.removeprefix('.')}: " if misfit.path else ""
            raise DeclarationError(subject, where + misfit.problem) from misfit.__cause__
        envelope = Envelope.around(
            kind,
            content="value",
            subject=subject,
            limit=limit,
            search=shape.search or _nowhere,
            search_always=shape.search is not None,
        )
        return cls(check=shape.check, envelope=envelope)

    def encode(self, value: T) -> bytes:
        try:
            self.check(value, DEEPEST)
        except Misfit as misfit:
            raise self.envelope.refusal(misfit) from misfit.__cause__
        except RecursionError:
            raise self.envelope.refusal(TooDeep()) from None
        return self.envelope.seal(value)

    def decode(self, payload: bytes) -> T:
        value: T = self.envelope.open(payload)
        return value


def _nowhere(_raw: object) -> None:
    """Where a type has no fields, there are no strangers."""


def _shapes(signature: Signature, subject: str) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    problems: list[str] = []
    for name, hint in signature.hints.items():
        try:
            shapes[name] = shape_of(hint)
        except Misfit as misfit:
            problems.append(f"parameter `{name}{misfit.path}`: {misfit.problem}")
    if problems:
        raise DeclarationError(subject, "; ".join(problems))
    return shapes


def _struct(signature: Signature) -> type[msgspec.Struct]:
    """A struct with a field for each parameter. The fields have names of their own: no parameter can clash with it."""
    fields: list[Any] = []
    names: dict[str, str] = {}
    for place, (name, hint) in enumerate(signature.hints.items()):
        names[f"field{place}"] = name
        fields.append((f"field{place}", hint) if name in signature.required else (f"field{place}", hint, UNSET))
    return msgspec.defstruct("Arguments", fields, rename=names, kw_only=True, forbid_unknown_fields=True)
