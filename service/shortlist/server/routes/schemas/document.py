"""The OpenAPI document: failures, the bodies that routes read or write by themselves, parts of paths, and API keys."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

from shortlist.wire.open_inference import BINARY_TYPE, JSON_TYPE, LENGTH_HEADER

from .v1_requests import BeamRequest, ListTable, RecallRequest, ScoreRequest, TopKRequest
from .v2 import InferRequest


class Error(BaseModel):
    """Every failure, on every route."""

    error: str = Field(description="one sentence: what was wrong, where, and how to mend it")


SCHEMA_REFERENCE = "#/components/schemas/{model}"
FAILURE_HEADERS = {
    "Retry-After": {"schema": {"type": "integer"}, "description": "beside 429 and some 503: seconds to wait"},
    "X-Request-Id": {"schema": {"type": "string"}, "description": "as the request's, and beside every 500"},
}
FAILURE_RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {"model": Error, "description": "what was wrong, in a sentence", "headers": FAILURE_HEADERS}
}
BINARY_CONTENT: dict[str, Any] = {
    BINARY_TYPE: {"schema": {"type": "string", "format": "binary", "description": f"see {LENGTH_HEADER}"}}
}
LENGTH_HEADERS = {
    LENGTH_HEADER: {"schema": {"type": "integer"}, "description": "bytes of JSON, where tensors follow as binary data"}
}


def describe_body(kind: type[BaseModel], *, binary: bool = False) -> dict[str, Any]:
    """The documentation of a request body that the route reads by itself."""
    content: dict[str, Any] = {JSON_TYPE: {"schema": {"$ref": SCHEMA_REFERENCE.format(model=kind.__name__)}}}
    return {"requestBody": {"required": True, "content": content | (BINARY_CONTENT if binary else {})}}


def describe_response(kind: type[BaseModel], *, binary: bool = False) -> dict[int | str, dict[str, Any]]:
    """The documentation of a response in JSON, which may hold binary data where a client asks for it."""
    return {200: {"model": kind} | ({"content": {**BINARY_CONTENT}, "headers": LENGTH_HEADERS} if binary else {})}


def add_request_schemas(document: dict[str, Any]) -> dict[str, Any]:
    """An OpenAPI document, with the schemas that `describe_body` refers to."""
    requests = (TopKRequest, ScoreRequest, BeamRequest, ListTable, RecallRequest, InferRequest)
    _, schemas = models_json_schema([(kind, "validation") for kind in requests], ref_template=SCHEMA_REFERENCE)
    document["components"]["schemas"] |= schemas["$defs"]
    return document


def add_path_parameters(document: dict[str, Any]) -> dict[str, Any]:
    """An OpenAPI document, with those parts of paths that functions read by themselves."""
    for path, operation in list_operations(document):
        parameters = operation.get("parameters", [])
        known = {parameter["name"] for parameter in parameters}
        added = [describe_path_parameter(name) for name in re.findall(r"{(\w+)}", path) if name not in known]
        if added:
            operation["parameters"] = added + parameters
    return document


def describe_path_parameter(name: str) -> dict[str, Any]:
    """A part of a path, for OpenAPI."""
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "title": name.title()}}


def add_security(document: dict[str, Any], open_paths: Collection[str]) -> dict[str, Any]:
    """An OpenAPI document of a server that wants API keys, but for `open_paths`."""
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path, operation in list_operations(document):
        if path in open_paths:
            operation["security"] = []
    return document | {"security": [{"key": []}]}


def list_operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Path and description of every operation of a document."""
    for path, operations in document["paths"].items():
        yield from ((path, operation) for operation in operations.values())
