"""The server's metrics as data: names, labels and buckets are a contract with dashboards and alerts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MODEL_LABELS = ("model", "version")
SECONDS_BUCKETS = [50e-6 * 2**i for i in range(18)]  # 50 us to 6.6 s
ROWS_BUCKETS = [2**i for i in range(13)]  # 1 to 4,096
RISK_BUCKETS = [1e-5, 1e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
CLASSES_BUCKETS = [2**i for i in range(19)]  # 1 to 262,144


class Family(NamedTuple):
    """A metric. text: what /metrics says of it. labels: of each of its series."""

    name: str
    text: str
    labels: Sequence[str] = ()


class HistogramFamily(NamedTuple):
    """A histogram, as `Family`. buckets: their upper ends, ascending."""

    name: str
    text: str
    labels: Sequence[str]
    buckets: Sequence[float]


# By attribute of `Metrics`.
COUNTERS = {
    "requests": Family("shortlist_requests", "requests answered, by status code", (*MODEL_LABELS, "endpoint", "code")),
    "rows": Family(
        "shortlist_rows",
        "context vectors answered: by the head, by the dense layer, or proved by bounds",
        (*MODEL_LABELS, "answered"),
    ),
    "all_refusals": Family("shortlist_refusals", "requests refused before they were read, by reason", ("reason",)),
    "all_loads": Family(
        "shortlist_loads", "versions that were loaded, failed to load, or were rolled back, by outcome", ("outcome",)
    ),
}
GAUGES = {
    "held_rows": Family("shortlist_held_rows", "context vectors accepted and not answered yet"),
    "held_bytes": Family(
        "shortlist_held_bytes", "bytes of requests that are not answered, and of answers that are not read"
    ),
    "info": Family(
        "shortlist_model_info",
        "1 for every model that is ready",
        (*MODEL_LABELS, "method", "plan", "device", "normalizer"),
    ),
    "quality": Family(
        "shortlist_model_quality",
        "figures that a model's export measured on held-out contexts, by metric",
        (*MODEL_LABELS, "metric"),
    ),
    "canary": Family(
        "shortlist_canary",
        "1 while a served bundle's files and answers are those of its load, else 0",
        MODEL_LABELS,
    ),
    "failed_versions": Family(
        "shortlist_failed_versions", "versions in the repository that failed their load, or were rolled back"
    ),
    "repository_present": Family(
        "shortlist_repository_present", "1 while the last look at the repository found models there, else 0"
    ),
    "ready": Family("shortlist_ready", "1 when /readyz answers 200"),
    "build_info": Family("shortlist_build_info", "always 1; the label is the version of the server", ("version",)),
}
HISTOGRAMS = {
    "duration": HistogramFamily(
        "shortlist_request_duration_seconds",
        "seconds of a request, from the whole body to the answer's last byte made",
        (*MODEL_LABELS, "endpoint"),
        SECONDS_BUCKETS,
    ),
    "phases": HistogramFamily(
        "shortlist_phase_duration_seconds",
        "seconds that a request spends in each of its phases: decode, queue, compute, encode",
        (*MODEL_LABELS, "phase"),
        SECONDS_BUCKETS,
    ),
    "batch_rows": HistogramFamily(
        "shortlist_batch_rows", "context vectors computed together", MODEL_LABELS, ROWS_BUCKETS
    ),
    "batch_requests": HistogramFamily(
        "shortlist_batch_requests", "requests with rows in a batch", MODEL_LABELS, ROWS_BUCKETS
    ),
    "scored": HistogramFamily(
        "shortlist_scored_classes", "classes scored for a context vector", MODEL_LABELS, CLASSES_BUCKETS
    ),
    "rescored": HistogramFamily(
        "shortlist_rescored_classes",
        "classes scored exactly for a context vector whose exact answer was proved",
        MODEL_LABELS,
        CLASSES_BUCKETS,
    ),
    "risk": HistogramFamily(
        "shortlist_risk",
        "estimated share of the best classes that the answer to a context vector misses",
        MODEL_LABELS,
        RISK_BUCKETS,
    ),
}
