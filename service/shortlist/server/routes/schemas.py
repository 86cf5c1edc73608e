"""The bodies of the HTTP interface, for /docs alone: requests are decoded by the codecs, not by these."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

from shortlist.bundle.manifest import Certificate, Normalizer, Quality
from shortlist.server.precision.schemas import ServedPrecision
from shortlist.wire.open_inference import BINARY_TYPE, JSON_TYPE, LENGTH_HEADER

IdRow = list[int]
Ids = list[int] | list[list[int]] | list[str] | list[list[str]]
Promise = Annotated[
    float | None, Field(description="mean P@k that the search was to keep; left out where none was made, or needed")
]


class NamedLists(BaseModel):
    """Lists that were registered at /v1/lists."""

    model_config = ConfigDict(extra="forbid")

    list: str = Field(description="the name that they were registered by")
    rows: IdRow | None = Field(default=None, description="which of them each row has, -1 for none; row i has list i")


Lists = Ids | NamedLists
Bias = dict[str, float] | list[dict[str, float]]


class Request(BaseModel):
    """The fields that every request of /v1 has."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(description="name of the model", examples=["lm"])
    version: int | None = Field(default=None, description="`stable` where that is declared, else the latest ready one")
    contexts: list[list[float]] = Field(description="B context vectors of d numbers")
    exact: bool = Field(default=False, description="the dense head's answer, proved by bounds or computed by it")
    timeout: float | None = Field(default=None, ge=0, description="seconds after which the answer is 504 instead")
    priority: int | None = Field(default=None, ge=0, description="lower goes first; 0 by default")


class Sample(BaseModel):
    """Draws from the softmax by noise that is a function of seed, position and class."""

    model_config = ConfigDict(extra="forbid")

    seed: int | list[int] = Field(description="from 0, for all rows or one a row")
    position: int | list[int] = Field(default=0, description="from 0, for all rows or one a row: the token's place")
    temperature: float | list[float] = Field(default=1.0, description="0.01 to 100, divides the logits")
    draws: int = Field(default=1, ge=1, description="independent draws of each row")
    top_p: float | None = Field(default=None, gt=0, le=1, description="from the fewest best classes so probable")


class TopKRequest(Request):
    """The k classes that score highest; with `sample` draws, from all classes or from the k best."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": ["k"]}, {"required": ["sample"]}]})

    k: int | None = Field(default=None, ge=1, description="at most max_k; may lack with `sample`", examples=[5])
    sample: Sample | None = Field(default=None, description="draw classes in place of ranking them")
    partial: bool = Field(default=False, description="answer without shards that are lost")
    allow: Lists | None = Field(default=None, description="only these ids, for all rows or one list a row; -1 pads")
    ban: Lists | None = Field(default=None, description="none of these ids, for all rows or one list a row; -1 pads")
    bias: Bias | None = Field(default=None, description="weights by id, for all rows or one a row, added to the logits")
    within: str | list[str] | None = Field(default=None, description="names of sets: only classes in all of them")
    without: str | list[str] | None = Field(default=None, description="names of sets: only classes in none of them")
    labels: bool = Field(default=False, description="also answer the printable labels of the ids")
    risk: bool = Field(default=False, description="also answer how likely each row misses some of the best classes")
    names: bool = Field(default=False, description="also answer the names of the ids")
    scores: bool = Field(default=False, description="also answer the scores that log-probabilities are normalised from")


class BeamRequest(Request):
    """One step of a beam search over G groups of `beam` rows."""

    scores: list[float | None] = Field(description="[G * beam], of the beams so far; null where there is no beam")
    finished: list[bool] | None = Field(default=None, description="[G * beam]; a finished beam comes back as id -1")
    beam: int = Field(ge=1, description="rows in a group", examples=[5])
    n: int | None = Field(default=None, ge=1, description="continuations; max(2, 1 + number of eos) * beam by default")
    eos: int | list[int] = Field(default=[], description="ids that end a sequence")
    allow: Lists | None = Field(default=None, description="only these ids, for all rows or one list a row; -1 pads")
    ban: Lists | None = Field(default=None, description="none of these ids, for all rows or one list a row; -1 pads")
    bias: Bias | None = Field(default=None, description="weights by id, for all rows or one object a row")
    forced: list[int] | None = Field(default=None, description="[G * beam], the id that must follow; -1: a free row")
    min_length: int = Field(default=0, description="rows that have fewer tokens do not end")
    lengths: int | list[int] | None = Field(default=None, description="tokens that all rows have, or each")
    temperature: float | list[float] = Field(
        default=1.0, description="0.01 to 100, divides log-probabilities and biases"
    )


class ScoreRequest(Request):
    """The log-probabilities of given classes."""

    ids: Ids = Field(description="ids for all rows or one list a row; -1 pads")


class Response(BaseModel):
    """The fields that every response of /v1 has."""

    model: str
    version: int
    logprobs: list[list[float | None]] = Field(description="natural logarithms; null is minus infinity")
    normalizer: Normalizer = Field(description="what the log-probabilities are normalised over")


class TopKResponse(Response):
    """The best classes first; equal scores by lower id."""

    ids: list[list[int]] = Field(description="[B, k]; -1 where fewer than k classes are legal")
    scored: list[int] = Field(description="[B]; classes scored for the row, V when the dense head answered")
    promise: Promise = None
    labels: list[list[str | None]] | None = None
    names: list[list[str | None]] | None = None
    risk: list[float | None] | None = Field(
        default=None, description="[B]; estimated share of the k best that the ids miss; null: nothing is estimated"
    )
    scores: list[list[float | None]] | None = Field(default=None, description="[B, k]; logits; null beside an id of -1")
    coverage: float | None = Field(default=None, description="share of the classes that were searched, where asked for")


class BeamResponse(Response):
    """The best continuations of each group first; equal scores by lower parent, then by lower id."""

    parents: list[list[int]] = Field(description="[G, n]; the beam within its group, -1 where there are fewer than n")
    ids: list[list[int]] = Field(description="[G, n]; -1 for a finished beam")
    scores: list[list[float | None]] = Field(description="[G, n]; of the whole sequences")
    promise: Promise = None


class ListTable(BaseModel):
    """Lists of ids to be registered. As binary data: tensors `ids` and `offsets` in the format of /v2."""

    lists: list[list[int]]


class RegisteredLists(BaseModel):
    """A table of lists that is registered."""

    name: str
    lists: int
    ids: int
    bytes: int
    age_seconds: float
    idle_seconds: float


class ListTables(BaseModel):
    """Every table of lists that is registered."""

    tables: list[RegisteredLists]


class ScoreResponse(Response):
    """Log-probabilities [B, m] of the ids; null for the id -1."""


class ModelInfo(BaseModel):
    """A model version; what follows `reason` is there once it is ready."""

    name: str
    version: int
    state: Literal["loading", "ready", "failed", "rolled_back", "unloaded"]
    reason: str | None = Field(description="why it is not ready")
    method: str | None = None
    plan: str | None = None
    reference: Literal["dense", "self"] | None = None
    classes: int | None = Field(default=None, description="V")
    dim: int | None = Field(default=None, description="d")
    dtype: str | None = None
    max_k: int | None = None
    normalizer: Normalizer | None = None
    settings: dict[str, Any] | None = Field(default=None, description="how the plan searches")
    fit: dict[str, Any] | None = Field(default=None, description="how the head was made: options and what was learnt")
    seed: int | None = None
    logit_scale: float | None = None
    soft_cap: float | None = None
    dense_crossover: int | None = None
    certificate: Certificate | None = Field(default=None, description="how exact requests are proved; null: by dense")
    quality: Quality | None = None
    device: str | None = None
    threads: int | None = None
    kernels: str | None = Field(default=None, description="target of the compiled loops, as avx2; null: graphs answer")
    labels: bool | None = None
    exact: bool | None = None
    served_precision: ServedPrecision | None = Field(default=None, description="null until a row was asked again")


class RecallRequest(BaseModel):
    """Contexts to measure a model on. As binary data: the tensor `context` in the format of /v2."""

    contexts: list[list[float]] = Field(description="n context vectors of d numbers")


class AliasInfo(BaseModel):
    """A name for a version, as lm@stable."""

    version: int = Field(description="as declared")
    share: float = Field(description="of the requests that name no version, how many it answers")
    answers: int = Field(description="the version that answers for it now: another one while that is not ready")


class ModelVersions(ModelInfo):
    """One version of a model, all its versions and its aliases."""

    versions: list[ModelInfo] = Field(description="those that are served, load, or failed to; ascending")
    aliases: dict[str, AliasInfo]
    declaration_error: str | None = Field(description="why the model's model.json is not in force")


class ModelList(BaseModel):
    """Every model, by the version that answers by default."""

    models: list[ModelVersions]


class Error(BaseModel):
    """Every failure, on every route."""

    error: str = Field(description="one sentence: what was wrong, where, and how to mend it")


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
