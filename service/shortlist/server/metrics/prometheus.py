"""Prometheus metrics of a server.

Labels hold names from the repository and small enumerations only, never text from a request. What a request
needs is bound once per model, and counted many at a time, by a `Recorder`.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from shortlist.plans.common.tally import Tally
from shortlist.server.access.policy import REFUSAL_REASONS
from shortlist.server.models import Model

from .families import COUNTERS, GAUGES, HISTOGRAMS, MODEL_LABELS
from .histogram import Histogram

PHASES = ("decode", "queue", "compute", "encode")
MAX_ENDED_PLACES = 8  # versions that are over and wait for a scrape: where nobody scrapes, the oldest are dropped
LOAD_OUTCOMES = ("ready", "failed", "rolled_back")
Place = tuple[str, str]  # a model's name and version, as labels
Content = TypeVar("Content")


class Metrics:
    """All metric families of one server: those of `COUNTERS`, `GAUGES` and `HISTOGRAMS`, and what is read at a scrape.

    infos: labels of the models that are ready. uses: who counts in the series of a version.
    """

    requests: Counter
    rows: Counter
    all_refusals: Counter
    all_loads: Counter
    held_rows: Gauge
    held_bytes: Gauge
    info: Gauge
    quality: Gauge
    canary: Gauge
    failed_versions: Gauge
    repository_present: Gauge
    ready: Gauge
    build_info: Gauge
    duration: Histogram
    phases: Histogram
    batch_rows: Histogram
    batch_requests: Histogram
    scored: Histogram
    rescored: Histogram
    risk: Histogram

    def __init__(
        self, version: str, registry: CollectorRegistry | None = None, endpoint_names: Sequence[str] = ()
    ) -> None:
        """Register every family with `registry`, by default a new one. version: the package's.

        endpoint_names: endpoints whose durations a model has from its first request on, be they zero.
        """
        self.endpoint_names = endpoint_names
        disable_created_metrics()  # type: ignore[no-untyped-call]  # else every series comes twice
        self.registry = registry or CollectorRegistry()
        self.register_families()
        self.build_info.labels(version).set(1)
        self.refusals = {reason: self.all_refusals.labels(reason) for reason in REFUSAL_REASONS}
        self.loads = {outcome: self.all_loads.labels(outcome) for outcome in LOAD_OUTCOMES}
        self.opened = OpenedTails(self.registry)
        self.caches = CacheSizes(self.registry)
        self.infos: dict[Model, tuple[str, ...]] = {}
        self.uses: collections.Counter[Place] = collections.Counter()
        self.ended_places: collections.deque[Place] = collections.deque()

    def register_families(self) -> None:
        """Make every family of the tables, as the attribute of its key."""
        registry = self.registry
        for name, family in COUNTERS.items():
            setattr(self, name, Counter(*family, registry=registry))
        for name, family in GAUGES.items():
            setattr(self, name, Gauge(*family, registry=registry))
        for name, histogram in HISTOGRAMS.items():
            setattr(self, name, Histogram(*histogram, registry=registry))

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
        for name in HISTOGRAMS:
            getattr(self, name).remove(place)

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

    def publish_canary(self, model: Model, passed: bool) -> None:
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
