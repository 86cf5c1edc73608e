"""Prometheus metrics: names and labels are a contract with dashboards and alerts.

Labels hold names from the repository and small enumerations only, never text from a request. What a request
needs is bound once per model, and counted many at a time, by a `Recorder`.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from shortlist.plans.common.tally import Tally
from shortlist.server.access.policy import REFUSAL_REASONS
from shortlist.server.models import Model

from .histogram import Histogram

PHASES = ("decode", "queue", "compute", "encode")
SECONDS_BUCKETS = [50e-6 * 2**i for i in range(18)]  # 50 us to 6.6 s
ROWS_BUCKETS = [2**i for i in range(13)]  # 1 to 4,096
RISK_BUCKETS = [1e-5, 1e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
CLASSES_BUCKETS = [2**i for i in range(19)]  # 1 to 262,144
MODEL_LABELS = ("model", "version")
MAX_ENDED_PLACES = 8  # versions that are over and wait for a scrape: where nobody scrapes, the oldest are dropped
LOAD_OUTCOMES = ("ready", "failed", "rolled_back")
Place = tuple[str, str]  # a model's name and version, as labels
Content = TypeVar("Content")


class Metrics:
    """All metric families of one server."""

    def __init__(
        self, version: str, registry: CollectorRegistry | None = None, endpoint_names: Sequence[str] = ()
    ) -> None:
        """Register every family with `registry`, by default a new one. version: the package's.

        endpoint_names: endpoints whose durations a model has from its first request on, be they zero.
        """
        self.endpoint_names = endpoint_names
        disable_created_metrics()  # type: ignore[no-untyped-call]  # else every series comes twice
        self.registry = registry = registry or CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        by_endpoint, by_phase = (*MODEL_LABELS, "endpoint"), (*MODEL_LABELS, "phase")
        self.requests = counter("shortlist_requests", "requests answered, by status code", (*by_endpoint, "code"))
        self.duration = histogram(
            "shortlist_request_duration_seconds",
            "from the whole body to the answer's last byte made",
            by_endpoint,
            SECONDS_BUCKETS,
        )
        self.phases = histogram("shortlist_phase_duration_seconds", "of a request's phases", by_phase, SECONDS_BUCKETS)
        self.rows = counter(
            "shortlist_rows",
            "context vectors answered: by the head, by the dense layer, or proved by bounds",
            (*MODEL_LABELS, "answered"),
        )
        self.batch_rows = histogram(
            "shortlist_batch_rows", "context vectors computed together", MODEL_LABELS, ROWS_BUCKETS
        )
        self.batch_requests = histogram(
            "shortlist_batch_requests", "requests with rows in a batch", MODEL_LABELS, ROWS_BUCKETS
        )
        self.scored = histogram(
            "shortlist_scored_classes", "classes scored for a context vector", MODEL_LABELS, CLASSES_BUCKETS
        )
        self.rescored = histogram(
            "shortlist_rescored_classes",
            "classes scored exactly for a context vector whose exact answer was proved",
            MODEL_LABELS,
            CLASSES_BUCKETS,
        )
        self.risk = histogram(
            "shortlist_risk",
            "estimated share of the best classes that the answer to a context vector misses",
            MODEL_LABELS,
            RISK_BUCKETS,
        )
        results = self.batch_rows, self.batch_requests, self.scored, self.rescored, self.risk
        self.histograms: tuple[Histogram, ...] = (self.duration, self.phases, *results)
        self.held_rows = gauge("shortlist_held_rows", "context vectors accepted and not answered yet")
        self.held_bytes = gauge(
            "shortlist_held_bytes", "bytes of requests that are not answered, and of answers that are not read"
        )
        self.info = gauge(
            "shortlist_model_info",
            "1 for every model that is ready",
            (*MODEL_LABELS, "method", "plan", "device", "normalizer"),
        )
        self.quality = gauge(
            "shortlist_model_quality", "what the export measured on held-out contexts", (*MODEL_LABELS, "metric")
        )
        self.canary = gauge(
            "shortlist_canary",
            "1 while a served bundle's files and answers are those of its load, else 0",
            MODEL_LABELS,
        )
        refusals = counter("shortlist_refusals", "requests refused before they were read, by reason", ("reason",))
        self.refusals = {reason: refusals.labels(reason) for reason in REFUSAL_REASONS}
        self.failed_versions = gauge(
            "shortlist_failed_versions", "versions in the repository that failed their load, or were rolled back"
        )
        loads = counter("shortlist_loads", "versions that were loaded, failed to, or were rolled back", ("outcome",))
        self.loads = {outcome: loads.labels(outcome) for outcome in LOAD_OUTCOMES}
        self.opened = OpenedTails(registry)
        self.caches = CacheSizes(registry)
        self.ready = gauge("shortlist_ready", "1 when /readyz answers 200")
        gauge("shortlist_build_info", "1", ("version",)).labels(version).set(1)
        self.infos: dict[Model, tuple[str, ...]] = {}
        self.uses: collections.Counter[Place] = collections.Counter()  # who counts in a version's series
        self.ended_places: collections.deque[Place] = collections.deque()

    def render(self) -> bytes:
        """The text exposition of all families, as `read` has it."""
        return self.read(generate_latest)

    def read(self, write: Callable[[CollectorRegistry], Content]) -> Content:
        """What `write` makes of all families; those of versions that are over are shown to it for the last time."""
        ended = len(self.ended_places)
        text = write(self.registry)
        self.drop_ended_series(ended)
        return text

    def start_series(self, place: Place) -> None:
        """Somebody counts the requests of this version from now on."""
        self.uses[place] += 1
        self.drop_ended_series(len(self.ended_places) - MAX_ENDED_PLACES)

    def end_series(self, place: Place) -> None:
        """Somebody has counted the last request of this version; any thread may say so."""
        self.ended_places.append(place)

    def drop_ended_series(self, number: int) -> None:
        """Show the first `number` versions that are over no more, but for those in which somebody counts again."""
        for _ in range(number):
            place = self.ended_places.popleft()
            self.uses[place] -= 1
            if self.uses[place] <= 0:
                self.remove_series(place)

    def remove_series(self, place: Place) -> None:
        """Show the requests to a version no more."""
        del self.uses[place]
        by_label = dict(zip(MODEL_LABELS, place, strict=True))
        self.requests.remove_by_labels(by_label)
        self.rows.remove_by_labels(by_label)
        for histogram in self.histograms:
            histogram.remove(place)

    def publish_model(self, model: Model) -> None:
        """Publish what a model is, once it is ready."""
        if model.state != "ready":
            return
        manifest = model.head.manifest
        place = (model.name, str(model.version))
        self.withdraw_model(model)  # as it was before it was loaded again
        self.infos[model] = (*place, manifest.method, manifest.plan, model.head.device, manifest.normalizer)
        self.info.labels(*self.infos[model]).set(1)
        figures = manifest.quality.figures() if manifest.quality else {}
        for metric, value in figures.items():
            self.quality.labels(*place, metric).set(value)
        self.publish_canary(model, passed=True)
        if model.head.plan.tally is not None:
            self.opened.tallies[place] = model.head.plan.tally

    def publish_canary(self, model: Model, *, passed: bool) -> None:
        """Publish whether the files and answers of a served model are still those of its load."""
        self.canary.labels(model.name, str(model.version)).set(passed)

    def withdraw_model(self, model: Model) -> None:
        """Say no longer that a model is ready, nor how good it is."""
        labels = self.infos.pop(model, None)
        if labels is None:
            return
        place = {"model": labels[0], "version": labels[1]}
        for family in (self.info, self.quality, self.canary):
            family.remove_by_labels(place)
        self.opened.tallies.pop((labels[0], labels[1]), None)


class OpenedTails(Collector):
    """A histogram of tails opened by a context vector, read off the plans' own tallies at a scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.tallies: dict[tuple[str, str], Tally] = {}  # by model and version
        registry.register(self)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(
            "shortlist_opened_tails", "tails opened for a context vector, of plans that have some", labels=MODEL_LABELS
        )
        for place, tally in list(self.tallies.items()):
            counts = np.cumsum(tally.counts).tolist()
            buckets = [(str(float(number)), float(count)) for number, count in enumerate(counts)]
            total = sum(number * count for number, count in enumerate(tally.counts))
            family.add_metric(place, [*buckets, ("+Inf", float(counts[-1]))], float(total))
        yield family


class CacheSizes(Collector):
    """How many entries the server's caches hold, read off at a scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sizes: dict[str, Callable[[], int]] = {}
        registry.register(self)

    def watch(self, cache: str, size: Callable[[], int]) -> None:
        """Export what `size` returns as the number of entries of `cache`."""
        self.sizes[cache] = size

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "shortlist_cache_entries",
            "entries held: request heads of the fast path, paths of requests, JSON texts of infer requests",
            labels=["cache"],
        )
        for cache, size in self.sizes.items():
            family.add_metric([cache], size())
        yield family
