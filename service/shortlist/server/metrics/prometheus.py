"""Prometheus metrics: names and labels are a contract with dashboards and alerts.

Labels hold names from the repository and small enumerations only, never text from a request. What a request
needs is bound once per model, and counted many at a time: see `ledger`.
"""

from __future__ import annotations

from collections import Counter as counted  # noqa: N813  # Counter is a metric here
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from shortlist.core.results import IntArray
from shortlist.plans.common.tally import Tally
from shortlist.server.models import Model

from .histogram import Histogram

ENDPOINTS = ("topk", "score", "infer")
PHASES = ("decode", "queue", "compute", "encode")
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
            "context vectors answered: by the head, by the dense layer, or proved by bounds",
            (*MODEL, "answered"),
            registry=registry,
        )
        self.batch_rows = Histogram(
            "shortlist_batch_rows", "context vectors computed together", MODEL, buckets=ROWS, registry=registry
        )
        self.batch_requests = Histogram(
            "shortlist_batch_requests", "requests with rows in a batch", MODEL, buckets=ROWS, registry=registry
        )
        self.scored = Histogram(
            "shortlist_scored_classes", "classes scored for a context vector", MODEL, CLASSES, registry
        )
        self.rescored = Histogram(
            "shortlist_rescored_classes",
            "classes scored exactly for a context vector whose exact answer was proved",
            MODEL,
            CLASSES,
            registry,
        )
        self.held_rows = Gauge(
            "shortlist_held_rows", "context vectors accepted and not answered yet", registry=registry
        )
        self.held_bytes = Gauge(
            "shortlist_held_bytes", "bytes of bodies accepted and not answered yet", registry=registry
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
        self.opened = OpenedTails(registry)
        self.ready = Gauge("shortlist_ready", "1 when /readyz answers 200", registry=registry)
        Gauge("shortlist_build_info", "1", ("version",), registry=registry).labels(version).set(1)
        self.infos: dict[Model, tuple[str, ...]] = {}
        self.known_requests: dict[Model | None, Requests] = {}
        self.known_answers: dict[Model, Answers] = {}

    def requests_of(self, model: Model | None) -> Requests:
        """The series of requests to a model; None where they named none that is known."""
        found = self.known_requests.get(model)
        if found is None:
            place = UNKNOWN if model is None else (model.name, str(model.version))
            found = self.known_requests[model] = Requests(self, *place)
        return found

    def answers_of(self, model: Model) -> Answers:
        """The series of a model's answers."""
        found = self.known_answers.get(model)
        if found is None:
            found = self.known_answers[model] = Answers(self, model)
        return found

    def render(self) -> bytes:
        """The text exposition."""
        return generate_latest(self.registry)

    def loaded(self, model: Model) -> None:
        """Publish what a model is, once it is ready."""
        if model.state != "ready":
            return
        manifest = model.head.manifest
        place = (model.name, str(model.version))
        self.unloaded(model)  # as it was before it was loaded again
        self.infos[model] = (*place, manifest.method, manifest.plan, model.head.device, manifest.normalizer)
        self.info.labels(*self.infos[model]).set(1)
        for metric, value in (manifest.quality.figures() if manifest.quality else {}).items():
            self.quality.labels(*place, metric).set(value)
        if model.head.plan.tally is not None:
            self.opened.tallies[place] = model.head.plan.tally

    def unloaded(self, model: Model) -> None:
        """No longer say that a model is ready."""
        labels = self.infos.pop(model, None)
        if labels is not None:
            self.info.remove(*labels)
            self.opened.tallies.pop((labels[0], labels[1]), None)


class OpenedTails(Collector):
    """A histogram of tails opened by a context vector, read off the plans' own tallies at a scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register; `tallies` is filled by model and version."""
        self.tallies: dict[tuple[str, str], Tally] = {}
        registry.register(self)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """All series."""
        family = HistogramMetricFamily(
            "shortlist_opened_tails", "tails opened for a context vector, of plans that have some", labels=MODEL
        )
        for place, tally in list(self.tallies.items()):
            counts = np.cumsum(tally.counts).tolist()
            buckets = [(str(float(number)), float(count)) for number, count in enumerate(counts)]
            total = sum(number * count for number, count in enumerate(tally.counts))
            family.add_metric(place, [*buckets, ("+Inf", float(counts[-1]))], float(total))
        yield family


class Requests:
    """The series of requests to one model version, bound beforehand."""

    def __init__(self, metrics: Metrics, name: str, version: str) -> None:
        """Bind durations; a status code is bound when it first comes."""
        self.duration = {endpoint: metrics.duration.labels(name, version, endpoint) for endpoint in ENDPOINTS}
        self.bind = partial(metrics.requests.labels, name, version)
        self.codes: dict[tuple[str, int], Counter] = {}

    def count(self, noted: Sequence[tuple[str, int, float]]) -> None:
        """Requests that are over: endpoint, status code, seconds."""
        for (endpoint, code), times in counted((endpoint, code) for endpoint, code, _ in noted).items():
            if (endpoint, code) not in self.codes:
                self.codes[endpoint, code] = self.bind(endpoint, str(code))
            self.codes[endpoint, code].inc(times)
        for endpoint in {endpoint for endpoint, _, _ in noted}:
            self.duration[endpoint].observe_all(np.array([seconds for name, _, seconds in noted if name == endpoint]))


class Answers:
    """The series of one model version's computed answers, bound beforehand."""

    def __init__(self, metrics: Metrics, model: Model) -> None:
        """Bind them."""
        place = (model.name, str(model.version))
        self.model = model
        self.phases = [metrics.phases.labels(*place, phase) for phase in PHASES]
        self.batch_rows = metrics.batch_rows.labels(*place)
        self.batch_requests = metrics.batch_requests.labels(*place)
        self.by_head = metrics.rows.labels(*place, "head")
        self.by_dense = metrics.rows.labels(*place, "dense")
        self.proved = metrics.rows.labels(*place, "proved")
        self.scored = metrics.scored.labels(*place)
        self.rescored = metrics.rescored.labels(*place)

    def count(
        self, spent: Sequence[tuple[float, ...]], scored: Sequence[IntArray], rescored: Sequence[IntArray] = ()
    ) -> None:
        """Some answers: seconds in each of `PHASES`, and the classes scored [B] of those that are top k.

        rescored: of those whose normaliser is `bounded`, the same; they are not among `scored`.
        """
        for phase, seconds in zip(self.phases, zip(*spent, strict=True), strict=True):
            phase.observe_all(np.array(seconds))
        if scored:
            rows = np.concatenate(scored)
            dense = int(np.count_nonzero(rows == self.model.dense_scored))
            self.by_dense.inc(dense)
            self.by_head.inc(len(rows) - dense)
            self.scored.observe_all(rows)
        if rescored:
            rows = np.concatenate(rescored)
            proved = rows[rows < self.model.classes]
            self.by_dense.inc(len(rows) - len(proved))
            self.proved.inc(len(proved))
            self.scored.observe_all(rows)
            self.rescored.observe_all(proved)

    def count_batches(self, noted: Sequence[tuple[int, int, float]]) -> None:
        """Some batches: rows, requests, seconds."""
        rows, requests, _ = zip(*noted, strict=True)
        self.batch_rows.observe_all(np.array(rows))
        self.batch_requests.observe_all(np.array(requests))
