"""The statistics under the names of Triton's metrics, for dashboards and autoscalers that query those."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import UntypedMetricFamily
from prometheus_client.registry import Collector

from .recorder import Ledger

MICROSECONDS = 1e6
DURATIONS = {
    "request": "success",
    "queue": "queue",
    "compute_input": "compute_input",
    "compute_infer": "compute_infer",
    "compute_output": "compute_output",
}


class TritonMetrics(Collector):
    """Untyped, since a counter's name would get the ending `_total` that Triton's do not have."""

    def __init__(self, ledgers: Callable[[], Iterable[Ledger]], registry: CollectorRegistry) -> None:
        """ledgers: those of all models, settled."""
        self.ledgers = ledgers
        registry.register(self)

    def collect(self) -> Iterator[UntypedMetricFamily]:
        """All of them, for a scrape."""
        families = {
            name: UntypedMetricFamily(f"nv_inference_{name}", text, labels=LABELS) for name, text in TEXTS.items()
        }
        for ledger in self.ledgers():
            for name, value in values(ledger).items():
                families[name].add_metric((ledger.model.name, str(ledger.model.version)), value)
        yield from families.values()


LABELS = ("model", "version")
TEXTS = {
    "request_success": "requests answered",
    "request_failure": "requests refused or failed",
    "count": "context vectors computed",
    "exec_count": "batches computed",
    **{f"{name}_duration_us": f"microseconds of {name} in all" for name in DURATIONS},
}


def values(ledger: Ledger) -> dict[str, float]:
    """By the names of `TEXTS`."""
    statistics, durations = ledger.statistics, ledger.statistics.durations
    return {
        "request_success": durations["success"].count,
        "request_failure": durations["fail"].count,
        "count": statistics.rows,
        "exec_count": statistics.batches,
        **{f"{name}_duration_us": durations[ours].seconds * MICROSECONDS for name, ours in DURATIONS.items()},
    }
