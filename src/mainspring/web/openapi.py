"""The description of the API, made from the same rows as the API itself."""

import inspect
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

import msgspec

from mainspring.web.described import REFERENCE, Described, Schema
from mainspring.web.problems import Answer
from mainspring.web.routes import AnyRoute

_ERRORS: Final = {
    "400": "it cannot be read",
    "401": "nobody that is known asks",
    "403": "whoever asks may not, or asks from another site",
    "404": "there is no such thing",
    "409": "it cannot be done as things stand",
    "413": "it is too large",
    "415": "it is no JSON",
    "422": "it can be read, and makes no sense",
    "429": "too many wrong passwords or tokens from this address",
    "500": "something went wrong",
    "503": "the store is not there",
}
_REQUEST: Final = "request."


def document(routes: Sequence[AnyRoute]) -> dict[str, Any]:
    """Describe routes in OpenAPI 3.1. Addresses are relative to where the description is, wherever that is mounted."""
    asked, requests = _requests(routes)
    described = Described()
    error = _json(described.schema(Answer))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operation = {
            "operationId": route.name,
            "summary": inspect.getdoc(route.handler),
            "x-permission": route.permission,
            "description": _permission(route),
            "responses": {
                "200": {"description": "done", **_json(described.schema(route.gives))},
                **{status: {"$ref": f"#/components/responses/{status}"} for status in _ERRORS},
            },
        }
        operation |= _input(route, asked[route.takes], requests)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Mainspring", "version": version("mainspring")},
        "servers": [{"url": "."}],
        "security": [{"token": []}, {"password": []}],
        "paths": paths,
        "components": {
            "schemas": {**described.components, **requests},
            "responses": {status: {"description": why, **error} for status, why in _ERRORS.items()},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
            },
        },
    }


def _permission(route: AnyRoute) -> str:
    also = ", and the permission of the action" if route.also else ""
    return f"Needs the permission {route.permission}{also}." if route.permission else "Whoever is known may."


def _requests(routes: Sequence[AnyRoute]) -> tuple[dict[type, str], dict[str, Schema]]:
    """Describe what requests say, by the schema of what reads them; their names are apart from those of answers."""
    kinds = list(dict.fromkeys(route.takes for route in routes))
    references, components = msgspec.json.schema_components(kinds, ref_template=f"{REFERENCE}{_REQUEST}{{name}}")
    names = [one["$ref"].removeprefix(REFERENCE) for one in references]
    return dict(zip(kinds, names, strict=True)), {f"{_REQUEST}{name}": one for name, one in components.items()}


def _input(route: AnyRoute, name: str, requests: dict[str, Schema]) -> dict[str, Any]:
    schema = requests[name]
    needed = schema.get("required", [])
    if route.changes:
        return {"requestBody": {"required": bool(needed), **_json({"$ref": REFERENCE + name})}}
    parameters = [
        {"name": field, "in": "query", "required": field in needed, "schema": one}
        for field, one in schema.get("properties", {}).items()
    ]
    return {"parameters": parameters} if parameters else {}


def _json(schema: Schema) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}
