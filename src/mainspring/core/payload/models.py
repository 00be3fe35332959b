"""Pydantic models inside payloads, without needing pydantic.

Nothing here imports it: whoever hands over a model has imported it already. msgspec calls `written` and `read` for the
types that it does not know.
"""

import sys
from typing import TYPE_CHECKING, TypeGuard

import msgspec

from mainspring.core.payload.misfit import Misfit, field_step

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


def is_model(kind: object) -> "TypeGuard[type[BaseModel]]":
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def written(value: object) -> object:
    """Turn a model into plain JSON values, under the names that it will be read by."""
    if not is_model(type(value)):
        raise NotImplementedError
    model: BaseModel = value  # type: ignore[assignment]  # as was just seen
    return model.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False)


def read(kind: type, raw: object) -> object:
    """Turn plain JSON values into a model, or leave them as they are where `object` was declared."""
    if not is_model(kind):
        return raw
    try:
        # From JSON text and not from values: a strict model takes "2026-01-01" for a date only there.
        return kind.model_validate_json(msgspec.json.encode(raw))
    except sys.modules["pydantic"].ValidationError as error:
        raise _told(error) from error


def _told(error: "ValidationError") -> Misfit:
    """Say what pydantic says of the first error, without its pages of links and without the value."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = "".join(f"[{step}]" if isinstance(step, int) else field_step(step) for step in first["loc"])
    return Misfit(first["msg"], path)
