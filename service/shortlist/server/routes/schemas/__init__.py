"""The bodies of the HTTP interface, for /docs alone: requests are decoded by the codecs, not by these."""

from __future__ import annotations

from .document import FAILURE_RESPONSES, add_request_schemas, add_security, describe_body
from .v1_requests import BeamRequest, ListTable, RecallRequest, ScoreRequest, TopKRequest
from .v1_responses import (
    BeamResponse,
    Forgotten,
    ListTables,
    ModelInfo,
    ModelList,
    ModelVersions,
    ScoreResponse,
    SetContent,
    SetInfo,
    SetList,
    StoredLists,
    TopKResponse,
)
from .v2 import (
    Health,
    IndexEntry,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelNames,
    ModelReady,
    ServerInfo,
)

__all__ = [
    "FAILURE_RESPONSES",
    "BeamRequest",
    "BeamResponse",
    "Forgotten",
    "Health",
    "IndexEntry",
    "InferRequest",
    "InferResponse",
    "ListTable",
    "ListTables",
    "ModelInfo",
    "ModelList",
    "ModelMetadata",
    "ModelNames",
    "ModelReady",
    "ModelVersions",
    "RecallRequest",
    "ScoreRequest",
    "ScoreResponse",
    "ServerInfo",
    "SetContent",
    "SetInfo",
    "SetList",
    "StoredLists",
    "TopKRequest",
    "TopKResponse",
    "add_request_schemas",
    "add_security",
    "describe_body",
]
