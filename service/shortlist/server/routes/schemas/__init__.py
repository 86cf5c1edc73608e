"""The bodies of the HTTP interface, for /docs alone: requests are decoded by the codecs, not by these."""

from __future__ import annotations

from .document import (
    BINARY_CONTENT,
    FAILURE_RESPONSES,
    add_path_parameters,
    add_request_schemas,
    add_security,
    describe_body,
    describe_response,
)
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
from .v2_operations import LogState, ModelConfig, SharedRegion, Statistics, TraceState

__all__ = [
    "BINARY_CONTENT",
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
    "LogState",
    "ModelConfig",
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
    "SharedRegion",
    "Statistics",
    "StoredLists",
    "TopKRequest",
    "TopKResponse",
    "TraceState",
    "add_path_parameters",
    "add_request_schemas",
    "add_security",
    "describe_body",
    "describe_response",
]
