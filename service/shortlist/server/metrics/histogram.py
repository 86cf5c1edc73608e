"""A Prometheus histogram that takes whole arrays: one call for many values, from one thread (the event loop)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector


class Series:
    """The series of one set of label values."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """bounds: upper ends of the buckets, ascending."""
        self.bounds = bounds
        self.buckets = np.zeros(len(bounds) + 1, np.int64)
        self.sum = 0.0

    def observe_all(self, values: npt.NDArray[Any]) -> None:
        """Count every one of `values` [m]."""
        self.buckets += np.bincount(np.searchsorted(self.bounds, values), minlength=len(self.buckets))
        self.sum += float(values.sum(dtype=np.float64))

    def cumulative(self) -> list[tuple[str, float]]:
        """The cumulative buckets, as Prometheus wants them: upper end -> count."""
        names = [*(str(bound) for bound in self.bounds), "+Inf"]
        return [(name, float(count)) for name, count in zip(names, np.cumsum(self.buckets), strict=True)]


class Histogram(Collector):
    """Equals `prometheus_client.Histogram`, but observes arrays, from one thread."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        """Register with `registry`. buckets: their upper ends, ascending."""
        self.name, self.text, self.label_names = name, text, tuple(labels)
        self.bounds = [float(bound) for bound in buckets]
        self.children: dict[tuple[str, ...], Series] = {}
        registry.register(self)

    def labels(self, *values: str) -> Series:
        """The series with these label values; made at the first call."""
        return self.children.setdefault(values, Series(self.bounds))

    def remove(self, first_values: tuple[str, ...]) -> None:
        """Remove all series whose label values begin with these."""
        for values in [values for values in self.children if values[: len(first_values)] == first_values]:
            del self.children[values]

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self.name, self.text, labels=self.label_names)
        for values, series in list(self.children.items()):
            family.add_metric(values, series.cumulative(), series.sum)
        yield family
