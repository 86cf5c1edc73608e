"""The bodies of the HTTP interface, for /docs alone: requests are decoded by the codecs, not by these."""

from __future__ import annotations

from .document import FAILURE_RESPONSES, add_request_schemas, add_security, describe_body
from .v1_requests import BeamRequest, ListTable, RecallRequest, ScoreRequest, TopKRequest
from .v1_responses import BeamResponse, ListTables, ModelInfo, ModelList, ModelVersions, ScoreResponse, TopKResponse
from .v2 import InferRequest, InferResponse

__all__ = [
    "FAILURE_RESPONSES",
    "BeamRequest",
    "BeamResponse",
    "InferRequest",
    "InferResponse",
    "ListTable",
    "ListTables",
    "ModelInfo",
    "ModelList",
    "ModelVersions",
    "RecallRequest",
    "ScoreRequest",
    "ScoreResponse",
    "TopKRequest",
    "TopKResponse",
    "add_request_schemas",
    "add_security",
    "describe_body",
]
