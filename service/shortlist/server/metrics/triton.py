"""The statistics under the names of Triton's metrics, for dashboards and autoscalers that query those."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import UntypedMetricFamily
from prometheus_client.registry import Collector

from shortlist.core.units import MICROSECONDS_PER_SECOND
from shortlist.server.models import Model

from .model_statistics import ModelStatistics

STATISTICS_BY_DURATION = {
    "request": "success",
    "queue": "queue",
    "compute_input": "compute_input",
    "compute_infer": "compute_infer",
    "compute_output": "compute_output",
}
METRIC_TEXTS = {
    "request_success": "requests answered",
    "request_failure": "requests refused or failed",
    "count": "context vectors computed",
    "exec_count": "batches computed",
    **{f"{name}_duration_us": f"microseconds of {name} in all" for name in STATISTICS_BY_DURATION},
}


class TritonMetrics(Collector):
    """Untyped, since a counter's name would get the ending `_total` that Triton's do not have."""

    def __init__(
        self, statistics: Callable[[], Iterable[tuple[Model, ModelStatistics]]], registry: CollectorRegistry
    ) -> None:
        """statistics: those of all models, of all that was noted."""
        self.statistics = statistics
        registry.register(self)

    def collect(self) -> Iterator[UntypedMetricFamily]:
        labels = ("model", "version")
        families = {
            name: UntypedMetricFamily(f"nv_inference_{name}", text, labels=labels)
            for name, text in METRIC_TEXTS.items()
        }
        for model, statistics in self.statistics():
            for name, value in list_metric_values(statistics).items():
                families[name].add_metric((model.name, str(model.version)), value)
        yield from families.values()


def list_metric_values(statistics: ModelStatistics) -> dict[str, float]:
    """One model's values by the names of `METRIC_TEXTS`."""
    durations = statistics.durations
    return {
        "request_success": durations["success"].count,
        "request_failure": durations["fail"].count,
        "count": statistics.rows,
        "exec_count": statistics.batches,
        **{
            f"{name}_duration_us": durations[duration].seconds * MICROSECONDS_PER_SECOND
            for name, duration in STATISTICS_BY_DURATION.items()
        },
    }
