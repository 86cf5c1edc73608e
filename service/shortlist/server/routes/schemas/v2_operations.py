"""The JSON bodies of the protocol's extensions for operators: configuration, statistics, log, trace, shared memory."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

Digits = Annotated[str, Field(description="a whole number as text")]


class LatestVersions(BaseModel):
    """So many of the newest versions are served."""

    num_versions: int


class PinnedVersions(BaseModel):
    """These versions are served."""

    versions: list[int]


class EveryVersion(BaseModel):
    """Nothing: every version is served."""


class VersionPolicy(BaseModel):
    """Which versions are served, aliases apart: one of the three."""

    latest: LatestVersions | None = None
    specific: PinnedVersions | None = None
    all: EveryVersion | None = None


class ConfigInput(BaseModel):
    """A tensor that a model takes; `dims` leave out the batch, -1 in them is any size."""

    name: str
    data_type: str = Field(description="TYPE_ and the datatype of the metadata, but TYPE_STRING for BYTES")
    dims: list[int]
    optional: bool


class ConfigOutput(BaseModel):
    """A tensor that a model gives."""

    name: str
    data_type: str
    dims: list[int]
    label_filename: str = Field(description="empty where its classes have no labels")


class QueuePolicy(BaseModel):
    """The queue of all models together. max_queue_size: in rows."""

    max_queue_size: int
    default_timeout_microseconds: int
    allow_timeout_override: bool


class DynamicBatching(BaseModel):
    """How requests are gathered."""

    preferred_batch_size: list[int]
    max_queue_delay_microseconds: int
    default_queue_policy: QueuePolicy


class Instance(BaseModel):
    """Where a model computes."""

    name: str
    kind: Literal["KIND_CPU", "KIND_GPU"]
    count: int


class ConfigParameter(BaseModel):
    """The value of a parameter, as text."""

    string_value: str


class WarmUp(BaseModel):
    """Requests that a model computes before it is ready."""

    name: str
    batch_size: int
    count: int
    inputs: dict[str, str] = Field(description="empty: contexts are made up")


class ResponseCache(BaseModel):
    """Answers are not cached."""

    enable: bool


class TransactionPolicy(BaseModel):
    """A request has one response."""

    decoupled: bool


class ModelConfig(BaseModel):
    """How a model is served, in the words of Triton's ModelConfig."""

    name: str
    platform: str
    backend: str
    version_policy: VersionPolicy
    max_batch_size: int = Field(description="most context vectors of a request")
    input: list[ConfigInput]
    output: list[ConfigOutput]
    dynamic_batching: DynamicBatching
    instance_group: list[Instance]
    parameters: dict[str, ConfigParameter] = Field(description="method, plan, normalizer, max_k")
    model_warmup: list[WarmUp]
    response_cache: ResponseCache
    model_transaction_policy: TransactionPolicy


class DurationTotal(BaseModel):
    """How often something happened, and how many nanoseconds it took in all."""

    count: int
    ns: int


class InferenceDurations(BaseModel):
    """Durations of requests, and of their phases where they were answered."""

    success: DurationTotal
    fail: DurationTotal
    queue: DurationTotal
    compute_input: DurationTotal
    compute_infer: DurationTotal
    compute_output: DurationTotal
    cache_hit: DurationTotal
    cache_miss: DurationTotal


class BatchDurations(BaseModel):
    """Durations of the batches of one size."""

    batch_size: int
    compute_input: DurationTotal
    compute_infer: DurationTotal
    compute_output: DurationTotal


class VersionStatistics(BaseModel):
    """Counts and times of one version of a model since the server started."""

    name: str
    version: str
    last_inference: int = Field(description="milliseconds since 1970; 0 before the first")
    inference_count: int = Field(description="context vectors computed")
    execution_count: int = Field(description="batches computed")
    inference_stats: InferenceDurations
    response_stats: dict[str, DurationTotal] = Field(description="empty: no model is decoupled")
    batch_stats: list[BatchDurations]
    memory_usage: list[dict[str, int | str]] = Field(description="empty")


class Statistics(BaseModel):
    """The statistics of models, by version."""

    model_stats: list[VersionStatistics]


class LogState(BaseModel):
    """Every log setting; each switch that is on implies those that log less."""

    log_info: bool
    log_warning: bool
    log_error: bool
    log_verbose_level: int
    log_file: str = Field(description="empty: the log goes to standard error")
    log_format: str


class TraceState(BaseModel):
    """Every trace setting."""

    trace_level: list[str]
    trace_rate: Digits
    trace_count: Digits
    log_frequency: Digits
    trace_file: str


class SharedRegion(BaseModel):
    """A region of shared memory that is registered; offset, byte_size: bytes in the object `key`."""

    name: str
    key: str
    offset: int
    byte_size: int
