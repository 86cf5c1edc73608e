"""Prometheus' view of served precision, read off the records at a scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .model_precision import ModelPrecision
from .record import DepthRecord, PrecisionRecord

MODEL_LABELS = ("model", "version")
Place = tuple[str, str]


class PrecisionSeries(Collector):
    """The series of all model versions that are served. list_precisions: theirs."""

    def __init__(self, list_precisions: Callable[[], Iterable[ModelPrecision]], registry: CollectorRegistry) -> None:
        self.list_precisions = list_precisions
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """All families, also those that have no series yet."""
        precisions = {
            (precision.model.name, str(precision.model.version)): precision for precision in self.list_precisions()
        }
        yield from collect_rows(precisions)
        records = {place: each.record for place, each in precisions.items() if each.record is not None}
        yield from collect_errors(records)
        depths: dict[tuple[str, ...], DepthRecord] = {}
        depths |= {(*place, str(k)): depth for place, record in records.items() for k, depth in record.depths.items()}
        yield from collect_counts(depths)
        yield from collect_figures(depths)


def collect_rows(precisions: dict[Place, ModelPrecision]) -> Iterator[Metric]:
    """What became of the rows that were chosen, the share that was asked again, and the promise in force."""
    outcomes = CounterMetricFamily(
        "shortlist_precision_rows",
        "rows chosen to be asked again, by what became of them",
        labels=(*MODEL_LABELS, "outcome"),
    )
    share = GaugeMetricFamily(
        "shortlist_precision_share",
        "share of the live rows that were asked again exactly, among those that could be",
        labels=MODEL_LABELS,
    )
    in_force = GaugeMetricFamily(
        "shortlist_precision_promise_in_force",
        "mean P@k that searches of a head with a promise are to keep now",
        labels=MODEL_LABELS,
    )
    for place, precision in precisions.items():
        share.add_metric(place, precision.share)
        if precision.promise_in_force is not None:
            in_force.add_metric(place, precision.promise_in_force)
        for outcome, rows in list(precision.sampler.outcomes.items()):
            outcomes.add_metric((*place, outcome), rows)
    yield from (outcomes, share, in_force)


def collect_errors(records: dict[Place, PrecisionRecord]) -> Iterator[Metric]:
    """Errors of log-probabilities."""
    mean = CounterMetricFamily(
        "shortlist_precision_logprob_error",
        "mean |error| of the log-probabilities of each row asked again, nats, summed over rows",
        labels=MODEL_LABELS,
    )
    largest = GaugeMetricFamily(
        "shortlist_precision_logprob_error_max",
        "largest |error| of a log-probability so far, nats",
        labels=MODEL_LABELS,
    )
    for place, record in records.items():
        mean.add_metric(place, record.error)
        largest.add_metric(place, record.max_error)
    yield from (mean, largest)


def collect_counts(depths: dict[tuple[str, ...], DepthRecord]) -> Iterator[Metric]:
    """Trials, hits and lost probability, by k."""
    names = {
        "trials": "rows that were asked again exactly, to compare their k best classes with those answered",
        "hits": "share of the k best classes that was answered, summed over the rows asked again",
        "lost_probability": "exact probability of those of the k best classes that were not answered, summed over rows",
    }
    families = [
        CounterMetricFamily(f"shortlist_precision_{name}", text, labels=(*MODEL_LABELS, "k"))
        for name, text in names.items()
    ]
    for place, depth in depths.items():
        for family, value in zip(families, (depth.trials, depth.hits, depth.lost), strict=True):
            family.add_metric(place, value)
    yield from families


def collect_figures(depths: dict[tuple[str, ...], DepthRecord]) -> Iterator[Metric]:
    """The figure with its interval, the promise and the alarm, by k."""
    figure = GaugeMetricFamily(
        "shortlist_precision",
        "P@k of the last rows asked again, and an interval that holds at all times with 95 %",
        labels=(*MODEL_LABELS, "k", "bound"),
    )
    promise = GaugeMetricFamily("shortlist_precision_promise", "P@k that is promised", labels=(*MODEL_LABELS, "k"))
    alarm = GaugeMetricFamily(
        "shortlist_precision_alarm",
        "1 while P@k of live rows is under the promise, else 0",
        labels=(*MODEL_LABELS, "k"),
    )
    for place, depth in depths.items():
        for bound, value in depth.window.estimate().model_dump().items():
            figure.add_metric((*place, bound), value)
        if depth.promise is not None:
            promise.add_metric(place, depth.promise)
            alarm.add_metric(place, depth.alarm)
    yield from (figure, promise, alarm)
