"""Prometheus metrics: names and labels are a contract with dashboards and alerts.

Labels hold names from the repository and small enumerations only, never text from a request. What a request
needs is bound once per model, so that counting costs microseconds.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from .count_histogram import CountHistogram
from .models import Model
from .queries import Result
from .result import TopK

ENDPOINTS = ("topk", "score", "infer")
PHASES = ("decode", "compute", "encode")
SECONDS = [50e-6 * 2**i for i in range(18)]  # 50 us to 6.6 s
ROWS = [2**i for i in range(13)]  # 1 to 4,096
CLASSES = [2**i for i in range(19)]  # 1 to 262,144
MODEL = ("model", "version")
UNKNOWN = ("unknown", "unknown")  # names that clients invent must not become label values


class Metrics:
    """All metric families of one server."""

    def __init__(self, version: str, registry: CollectorRegistry | None = None) -> None:
        """Register every family with `registry`; `version` is the package's."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # else every series comes twice
        self.registry = registry = registry or CollectorRegistry()
        self.requests = Counter(
            "shortlist_requests", "requests answered, by status code", (*MODEL, "endpoint", "code"), registry=registry
        )
        self.duration = Histogram(
            "shortlist_request_duration_seconds",
            "from the first byte read to the answer's last byte made",
            (*MODEL, "endpoint"),
            buckets=SECONDS,
            registry=registry,
        )
        self.phases = Histogram(
            "shortlist_phase_duration_seconds",
            "of a request's phases",
            (*MODEL, "phase"),
            buckets=SECONDS,
            registry=registry,
        )
        self.rows = Counter(
            "shortlist_rows",
            "context vectors answered, by the head or by the dense layer",
            (*MODEL, "answered"),
            registry=registry,
        )
        self.batch_rows = Histogram(
            "shortlist_batch_rows", "context vectors computed together", MODEL, buckets=ROWS, registry=registry
        )
        self.scored = CountHistogram(
            "shortlist_scored_classes", "classes scored for a context vector", MODEL, CLASSES, registry
        )
        self.info = Gauge(
            "shortlist_model_info",
            "1 for every model that is ready",
            (*MODEL, "method", "plan", "device", "normalizer"),
            registry=registry,
        )
        self.quality = Gauge(
            "shortlist_model_quality",
            "what the export measured on held-out contexts",
            (*MODEL, "metric"),
            registry=registry,
        )
        self.ready = Gauge("shortlist_ready", "1 when /readyz answers 200", registry=registry)
        Gauge("shortlist_build_info", "1", ("version",), registry=registry).labels(version).set(1)
        self.requests_of: dict[Model | None, Requests] = {}
        self.answers_of: dict[Model, Answers] = {}

    def request(self, model: Model | None, endpoint: str, code: int, seconds: float) -> None:
        """One request that was answered, well or not; `model` is None when it named none that is known."""
        if model not in self.requests_of:
            place = UNKNOWN if model is None else (model.name, str(model.version))
            self.requests_of[model] = Requests(self, *place)
        self.requests_of[model].count(endpoint, code, seconds)

    def answer(self, model: Model, phases: dict[str, float], rows: int, result: Result) -> None:
        """One answer that was computed: seconds by phase, context vectors in it, and the answer itself."""
        if model not in self.answers_of:
            self.answers_of[model] = Answers(self, model.name, str(model.version), model.head.manifest.classes)
        self.answers_of[model].count(phases, rows, result)

    def render(self) -> bytes:
        """The text exposition."""
        return generate_latest(self.registry)

    def loaded(self, model: Model) -> None:
        """Publish what a model is, once it is ready."""
        if model.state != "ready":
            return
        manifest = model.head.manifest
        place = (model.name, str(model.version))
        self.info.labels(*place, manifest.method, manifest.plan, model.head.device, manifest.normalizer).set(1)
        for metric, value in (manifest.quality.model_dump() if manifest.quality else {}).items():
            self.quality.labels(*place, metric).set(value)


class Requests:
    """The series of requests to one model version, bound beforehand."""

    def __init__(self, metrics: Metrics, name: str, version: str) -> None:
        """Bind durations; a status code is bound when it first comes."""
        self.duration = {endpoint: metrics.duration.labels(name, version, endpoint) for endpoint in ENDPOINTS}
        self.bind = partial(metrics.requests.labels, name, version)
        self.codes: dict[tuple[str, int], Counter] = {}

    def count(self, endpoint: str, code: int, seconds: float) -> None:
        """One request."""
        if (endpoint, code) not in self.codes:
            self.codes[endpoint, code] = self.bind(endpoint, str(code))
        self.codes[endpoint, code].inc()
        self.duration[endpoint].observe(seconds)


class Answers:
    """The series of one model version's computed answers, bound beforehand."""

    def __init__(self, metrics: Metrics, name: str, version: str, classes: int) -> None:
        """Bind them; a row with `classes` (V) scored was answered by the dense head."""
        self.classes = classes
        self.phases = {phase: metrics.phases.labels(name, version, phase) for phase in PHASES}
        self.batch_rows = metrics.batch_rows.labels(name, version)
        self.by_head = metrics.rows.labels(name, version, "head")
        self.by_dense = metrics.rows.labels(name, version, "dense")
        self.scored = metrics.scored.labels(name, version)

    def count(self, phases: dict[str, float], rows: int, result: Result) -> None:
        """One answer."""
        for phase, seconds in phases.items():
            self.phases[phase].observe(seconds)
        self.batch_rows.observe(rows)
        if isinstance(result, TopK):
            dense = int(np.count_nonzero(result.scored == self.classes))
            self.by_dense.inc(dense)
            self.by_head.inc(rows - dense)
            self.scored.observe(result.scored)
