"""Answers that are JSON, and what all of them say to whoever is on their way."""

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.responses import Response

HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def json_answer(status: int, value: object, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with a record."""
    return Response(msgspec.json.encode(value), status, {**HEADERS, **(headers or {})}, "application/json")
