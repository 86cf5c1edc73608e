"""The JSON bodies of the Open Inference Protocol, and what goes with binary data."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


class Tensor(BaseModel):
    """A tensor of the Open Inference Protocol."""

    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, Any] | None = Field(default=None, description="binary_data_size in bytes, for binary data")
    data: list[Any] | None = Field(default=None, description="flat or nested, row-major; left out for binary data")


class Output(BaseModel):
    """An output that the client asks for."""

    name: Literal["ids", "logprobs", "scored", "labels", "names", "risk", "parents", "scores"]
    parameters: dict[str, Any] | None = Field(default=None, description="binary_data: true or false")


class InferRequest(BaseModel):
    """Inputs context FP32 (binary: also FP16, BF16) [B, d]; allow, ban INT64 or INT32, [m] or [B, m], where -1 pads.

    With the input ids INT64 [m] or [B, m] the response holds the log-probabilities of those ids; with seed INT64 or
    INT32 [1] or [B], draws; with scores FP64 or FP32 [G * beam] and the parameter beam, the best continuations of
    beams. Where classes have names, allow, ban and ids may be BYTES. docs/http.md lists all inputs.
    """

    id: str | None = None
    parameters: dict[str, Any] | None = Field(
        default=None,
        description="k (default 5), exact, timeout (microseconds), priority, binary_data_output, allow_list, ban_list, "
        "within, without; with seed draws, top_p; with scores beam, n and others of docs/decoding.md",
    )
    inputs: list[Tensor]
    outputs: list[Output] | None = Field(default=None, description="ids, logprobs and scored when left out")


class InferResponse(BaseModel):
    """Outputs ids INT64 [B, k], logprobs FP32 [B, k], scored INT32 [B]; in JSON, -3.4028235e38 is minus infinity.

    The outputs labels and names BYTES [B, k], empty beside an id of -1, risk FP32 [B] and scores FP32 [B, k] come only
    where the request names them. Beam steps have parents INT32, ids INT64, scores FP64 and logprobs FP32, all [G, n].
    """

    id: str | None = None
    model_name: str
    model_version: str
    parameters: dict[str, Any] = Field(description="normalizer, and promise where one is in force")
    outputs: list[Tensor]


class ServerInfo(BaseModel):
    """What the server is."""

    name: str
    version: str
    extensions: list[str]


class ModelNames(BaseModel):
    """The names of all models."""

    models: list[str]


class TensorInfo(BaseModel):
    """A tensor that a model takes or gives; -1 in its shape is any size."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    """What a model takes, all but `context` where it is wanted, and gives."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]


class ModelReady(BaseModel):
    """A model answers."""

    name: str
    ready: bool


class IndexEntry(BaseModel):
    """A version of a model in the repository."""

    name: str
    version: str
    state: Literal["LOADING", "READY", "UNAVAILABLE"]
    reason: str = Field(description="why it is not ready; empty where it is")


class Health(BaseModel):
    """The process answers, and all models are ready; what was not asked is left out."""

    live: bool | None = None
    ready: bool | None = None
    version: str | None = Field(default=None, description="of the server")
