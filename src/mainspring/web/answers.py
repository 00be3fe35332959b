"""Answers that are JSON, and what all of them say to whoever is on their way."""

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.responses import Response

ISOLATED: Final = {
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Headers of every answer, against pages of other sites that open, embed or load it."""
HEADERS: Final = {
    **ISOLATED,
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}


def json_answer(status: int, value: object, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with a record."""
    return Response(msgspec.json.encode(value), status, {**HEADERS, **(headers or {})}, "application/json")
