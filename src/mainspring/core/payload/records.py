"""The shapes of values with named fields: structs, dataclasses, named tuples, typed dicts, pydantic models.

msgspec's decoder skips fields that it does not know, and a stored job must not lose data that way. So each record can
also search JSON for strangers. The search runs next to the decoder and trusts nothing: where the JSON is no record at
all, it looks away, for the decoder has more to say about that.

A record that holds itself is not finished while its own fields are being read; therefore `checks` and `searches` are
lists that are filled later.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import NODEFAULT, UNSET, inspect

from mainspring.core.payload.misfit import Misfit, TooDeep, field_step, fields_for_keys, missing, unknown, wrong
from mainspring.core.payload.models import differing_field, read_model, written
from mainspring.core.payload.plain import Check, check_plain
from mainspring.core.payload.scalars import Search, Shape

if TYPE_CHECKING:
    from pydantic import BaseModel


def attributes_shape(kind: type, checks: Sequence[tuple[str, Check]], search: Search) -> Shape:
    """The shape of a struct, dataclass or named tuple: exactly this class, each field by its attribute."""

    def check(value: object, depth: int) -> None:
        if type(value) is not kind:
            raise wrong(kind.__qualname__, value)
        if not depth:
            raise TooDeep
        name = ""
        try:
            for name, check_field in checks:
                check_field(getattr(value, name), depth - 1)
        except Misfit as misfit:
            misfit.under(field_step(name))
            raise
        except AttributeError:  # deleted, or left out by a constructor of its own
            raise missing("field", name) from None

    return Shape(name=kind.__qualname__, kinds=(kind,), check=check, search=search)


def keys_shape(kind: type, node: inspect.TypedDictType, checks: Sequence[tuple[str, Check]], search: Search) -> Shape:
    """The shape of a typed dict: a dict with all required keys, and none but the declared."""
    known = frozenset(field.name for field in node.fields)
    required = frozenset(field.name for field in node.fields if field.required)

    def check(value: object, depth: int) -> None:
        if type(value) is not dict:
            raise wrong("dict", value)
        if not depth:
            raise TooDeep
        if not value.keys() <= known:
            raise unknown("field", next(key for key in value if key not in known), known)
        if not required <= value.keys():
            raise missing("field", min(required - value.keys()))
        name = ""
        try:
            for name, check_field in checks:
                if name in value:
                    check_field(value[name], depth - 1)
        except Misfit as misfit:
            misfit.under(field_step(name))
            raise

    return Shape(name=kind.__qualname__, kinds=(dict,), check=check, search=search)


def unless_unset(field: inspect.Field, check: Check) -> Check:
    """Let UNSET pass where it is the default: the field is then not written, and is UNSET again when read."""
    if field.required or field.default is not NODEFAULT or field.default_factory is not NODEFAULT:
        return check

    def check_given(value: object, depth: int) -> None:
        if value is not UNSET:
            check(value, depth)

    return check_given


def search_object(
    names: Iterable[str],
    searches: Sequence[tuple[str, Search]],
    *,
    what: str = "field",
    tag_key: str | None = None,
    tag: object = None,
) -> Search:
    """Search a JSON object for keys that nobody declared, then the values of those that somebody did."""
    known = frozenset(names) if tag_key is None else frozenset((*names, tag_key))

    def search(raw: object) -> None:
        if not isinstance(raw, dict):
            return
        if tag_key is not None and raw.get(tag_key, tag) != tag:  # another struct of the same union is meant
            return
        if not raw.keys() <= known:
            raise unknown(what, next(key for key in raw if key not in known), known)
        for key, search_field in searches:
            if key in raw:
                search_inside(raw[key], search_field, field_step(key))

    return search


def search_array(length: int, searches: Sequence[tuple[int, Search]], *, tag: object = None) -> Search:
    """Search a JSON array that stands for a record, whose tag comes first if it has one."""
    shift = 0 if tag is None else 1

    def search(raw: object) -> None:
        if not isinstance(raw, list) or (shift and raw[:1] != [tag]):
            return
        if len(raw) > length + shift:
            raise Misfit("unknown field", f"[{length + shift}]")
        for place, search_field in searches:
            if place + shift < len(raw):
                search_inside(raw[place + shift], search_field, f"[{place + shift}]")

    return search


def search_inside(raw: object, search: Search, step: str) -> None:
    try:
        search(raw)
    except Misfit as misfit:
        misfit.under(step)
        raise


def model_shape(kind: "type[BaseModel]") -> Shape:
    """The shape of a pydantic model, which is written and read back at once: nothing less shows whether it can be.

    Its aliases, serializers and excluded fields may lose anything, and assignments to it were perhaps never validated.
    """

    def check(value: object, depth: int) -> None:
        if type(value) is not kind:
            raise wrong(kind.__qualname__, value)
        try:
            _rehearse(value, depth)
        except (Misfit, RecursionError):
            raise
        except Exception as error:  # a model runs the user's own code, which may raise anything
            raise Misfit(f"cannot be written as JSON and read back: {error}") from error

    return Shape(name=kind.__qualname__, kinds=(kind,), check=check)


def _rehearse(model: "BaseModel", depth: int) -> None:
    raw = written(model)
    try:
        check_plain(raw, depth)
    except Misfit as misfit:
        raise Misfit(misfit.problem, fields_for_keys(misfit.path)) from None
    name = differing_field(model, read_model(type(model), raw))
    if name is not None:
        raise Misfit("does not come back from JSON as it went in", field_step(name))
