"""A Prometheus histogram that takes whole arrays: one call a request, not one a row."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector


class Counts:
    """The series of one set of label values."""

    def __init__(self, bounds: npt.NDArray[np.float64]) -> None:
        """Nothing counted yet; `bounds` [n] are the buckets' upper ends, ascending."""
        self.bounds = bounds
        self.buckets = np.zeros(bounds.size + 1, np.int64)
        self.sum = 0.0
        self.lock = threading.Lock()

    def observe(self, values: npt.NDArray[Any]) -> None:
        """Count every one of `values` [m]."""
        buckets = np.bincount(np.searchsorted(self.bounds, values), minlength=self.buckets.size)
        total = float(values.sum(dtype=np.float64))
        with self.lock:
            self.buckets += buckets
            self.sum += total

    def cumulative(self) -> tuple[list[tuple[str, float]], float]:
        """Buckets as Prometheus wants them, and the sum."""
        with self.lock:
            counts, total = self.buckets.cumsum(), self.sum
        names = [*(str(bound) for bound in self.bounds.tolist()), "+Inf"]
        return [(name, float(count)) for name, count in zip(names, counts, strict=True)], total


class CountHistogram(Collector):
    """Equals `prometheus_client.Histogram`, but observes arrays."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float], registry: CollectorRegistry
    ) -> None:
        """Register with `registry`."""
        self.name, self.text, self.label_names = name, text, tuple(labels)
        self.bounds = np.array(bounds, np.float64)
        self.children: dict[tuple[str, ...], Counts] = {}
        registry.register(self)

    def labels(self, *values: str) -> Counts:
        """The series with these label values; made at the first call."""
        return self.children.setdefault(values, Counts(self.bounds))

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """All series, for a scrape."""
        family = HistogramMetricFamily(self.name, self.text, labels=self.label_names)
        for values, counts in list(self.children.items()):
            buckets, total = counts.cumulative()
            family.add_metric(values, buckets, total)
        yield family
