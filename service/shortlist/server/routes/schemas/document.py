"""The OpenAPI document: failures, the bodies that routes read by themselves, and API keys."""

from __future__ import annotations

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
FAILURE_RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {"model": Error, "description": "what was wrong, in a sentence"}
}


def describe_body(kind: type[BaseModel], *, binary: bool = False) -> dict[str, Any]:
    """The documentation of a request body that the route reads by itself."""
    content: dict[str, Any] = {JSON_TYPE: {"schema": {"$ref": SCHEMA_REFERENCE.format(model=kind.__name__)}}}
    if binary:
        content[BINARY_TYPE] = {"schema": {"type": "string", "format": "binary", "description": f"see {LENGTH_HEADER}"}}
    return {"requestBody": {"required": True, "content": content}}


def add_request_schemas(document: dict[str, Any]) -> dict[str, Any]:
    """An OpenAPI document, with the schemas that `describe_body` refers to."""
    requests = (TopKRequest, ScoreRequest, BeamRequest, ListTable, RecallRequest, InferRequest)
    _, schemas = models_json_schema([(kind, "validation") for kind in requests], ref_template=SCHEMA_REFERENCE)
    document["components"]["schemas"] |= schemas["$defs"]
    return document


def add_security(document: dict[str, Any]) -> dict[str, Any]:
    """An OpenAPI document of a server that wants API keys."""
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return document | {"security": [{"key": []}]}
