"""Prometheus metrics: latency by phase, rows, scored classes, and what each model promises."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from .head import Head
from .manifest import Manifest
from .result import TopK

SECONDS = tuple(50e-6 * 2**i for i in range(18))  # 50 us to 6.6 s
ROWS = tuple(float(2**i) for i in range(13))
CLASSES = tuple(float(2**i) for i in range(19))
PHASES = ("decode", "compute", "encode")
UNKNOWN = "unknown"  # names that clients invent must not become label values
MODEL = ("model", "version")


class Metrics:
    """All metrics of one app, in a registry of its own."""

    def __init__(self, version: str) -> None:
        """Create them; `version` is the package's."""
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.requests = self.counter("shortlist_requests", "requests answered", *MODEL, "endpoint", "code")
        self.rows = self.counter("shortlist_rows", "context vectors answered, by head or by dense", *MODEL, "answered")
        self.duration = self.histogram(
            "shortlist_request_duration_seconds", "whole request", SECONDS, *MODEL, "endpoint"
        )
        self.phase = self.histogram("shortlist_phase_duration_seconds", "phase of a request", SECONDS, *MODEL, "phase")
        self.batch = self.histogram("shortlist_batch_rows", "context vectors of a request", ROWS, *MODEL)
        self.scored = self.histogram("shortlist_scored_classes", "classes scored for a context vector", CLASSES, *MODEL)
        self.info = self.gauge(
            "shortlist_model_info", "1 for each model that is ready", *MODEL, "method", "plan", "device", "normalizer"
        )
        self.quality = self.gauge("shortlist_model_quality", "held-out quality promised at export", *MODEL, "metric")
        self.ready = self.gauge("shortlist_ready", "1 when every model passed its canary")
        self.gauge("shortlist_build_info", "1, labelled with the version", "version").labels(version).set(1)
        self.models: dict[tuple[str, int], ModelMetrics] = {}

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """A counter in this registry."""
        return Counter(name, text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """A gauge in this registry."""
        return Gauge(name, text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        """A histogram in this registry."""
        return Histogram(name, text, labels, registry=self.registry, buckets=buckets)

    def add_model(self, head: Head) -> None:
        """Bind the label values of a model that became ready, and publish its promise."""
        manifest = head.manifest
        version = str(manifest.version)
        self.models[manifest.name, manifest.version] = ModelMetrics(self, manifest)
        self.info.labels(manifest.name, version, manifest.method, manifest.plan, head.device, manifest.normalizer).set(
            1
        )
        if manifest.quality is not None:
            for metric, value in manifest.quality.model_dump().items():
                self.quality.labels(manifest.name, version, metric).set(value)

    def of(self, manifest: Manifest) -> ModelMetrics:
        """The bound metrics of a ready model."""
        return self.models[manifest.name, manifest.version]

    def finished(self, endpoint: str, code: int, manifest: Manifest | None, seconds: float) -> None:
        """Count one request; `manifest` is None where no model was found."""
        model, version = (manifest.name, str(manifest.version)) if manifest else (UNKNOWN, UNKNOWN)
        self.requests.labels(model, version, endpoint, str(code)).inc()
        self.duration.labels(model, version, endpoint).observe(seconds)

    def render(self) -> bytes:
        """The text exposition."""
        return generate_latest(self.registry)


class ModelMetrics:
    """One model's children, bound once: label look-ups stay off the request's way."""

    def __init__(self, metrics: Metrics, manifest: Manifest) -> None:
        """Bind them."""
        labels = (manifest.name, str(manifest.version))
        self.classes = manifest.classes
        self.phases = {phase: metrics.phase.labels(*labels, phase) for phase in PHASES}
        self.batch = metrics.batch.labels(*labels)
        self.scored = metrics.scored.labels(*labels)
        self.by_head = metrics.rows.labels(*labels, "head")
        self.by_dense = metrics.rows.labels(*labels, "dense")

    @contextmanager
    def time(self, phase: str) -> Iterator[None]:
        """Observe how long the block takes."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.phases[phase].observe(time.perf_counter() - start)

    def answered(self, top: TopK) -> None:
        """Count the rows of an answer: distinct counts of scored classes, not row by row."""
        self.batch.observe(len(top.scored))
        counts, rows = np.unique(top.scored, return_counts=True)
        for count, many in zip(counts.tolist(), rows.tolist(), strict=True):
            (self.by_dense if count == self.classes else self.by_head).inc(many)
            for _ in range(many):
                self.scored.observe(count)
