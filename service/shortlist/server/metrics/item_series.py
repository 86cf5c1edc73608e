"""Prometheus' view of items that change, read off the logs and the served versions at a scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from shortlist.items.ledger import Ledger
from shortlist.items.live_head import LiveHead
from shortlist.server.models import Model


class ItemSeries(Collector):
    """The series of all models whose items change. ledgers: theirs, by name. models: those that are served."""

    def __init__(
        self, ledgers: Mapping[str, Ledger], models: Callable[[], Iterable[Model]], registry: CollectorRegistry
    ) -> None:
        self.ledgers, self.models = ledgers, models
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """All families, also those that have no series yet."""
        yield from self.collect_logs()
        changed = GaugeMetricFamily(
            "shortlist_items_changed",
            "items of a version that were changed since its export",
            labels=("model", "version", "change"),
        )
        for model in self.models():
            if isinstance(model.head_in_use, LiveHead):
                for change, items in model.head_in_use.items.count().items():
                    changed.add_metric((model.name, str(model.version), change), items)
        yield changed

    def collect_logs(self) -> Iterator[Metric]:
        """Of each model's log."""
        applied = CounterMetricFamily(
            "shortlist_item_changes", "items put and removed by requests that were acknowledged", labels=("model",)
        )
        position = GaugeMetricFamily(
            "shortlist_item_position", "number of the last batch of changes", labels=("model",)
        )
        size = GaugeMetricFamily("shortlist_item_log_bytes", "bytes of the log of changes", labels=("model",))
        for name, ledger in list(self.ledgers.items()):
            ledger.follow()
            applied.add_metric((name,), ledger.applied_items)
            position.add_metric((name,), ledger.position)
            size.add_metric((name,), ledger.file.size)
        yield from (applied, position, size)
