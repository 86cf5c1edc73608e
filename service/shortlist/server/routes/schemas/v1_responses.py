"""The JSON bodies of responses of /v1."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from shortlist.bundle.manifest import Certificate, Normalizer, Quality
from shortlist.server.precision.schemas import ServedPrecision

Promise = Annotated[
    float | None, Field(description="mean P@k that the search was to keep; left out where none was made, or needed")
]


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


class StoredLists(BaseModel):
    """A table of lists that was registered. lists, ids: how many."""

    name: str
    lists: int
    ids: int


class SetInfo(BaseModel):
    """A set of a model that was put. ids: how many. bytes: on the disk."""

    name: str
    ids: int
    bytes: int


class SetList(BaseModel):
    """Every set of a model that was put."""

    sets: list[SetInfo]


class SetContent(BaseModel):
    """The ids of a set, ascending."""

    name: str
    ids: list[int]


class Forgotten(BaseModel):
    """What was deleted, lists or a set."""

    name: str


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
