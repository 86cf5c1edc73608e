"""The metrics of all processes as those of one server: counters and histograms add up, gauges as `GAUGES` says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from shortlist.evaluation.sequential import bound_share

Labels = tuple[tuple[str, str], ...]
Series = dict[tuple[str, Labels], float]  # by the sample's name and its sorted labels
Place = tuple[str | None, str | None]  # the model and version that a series is of

PRECISION = "shortlist_precision"
MODELS = "shortlist_model_info"
SUMMED_KINDS = ("counter", "histogram", "unknown")
# Of gauges that are not named, the largest value is that of the server.
GAUGES: dict[str, Callable[[Iterable[float]], float]] = {
    "shortlist_held_rows": sum,
    "shortlist_held_bytes": sum,
    "shortlist_cache_entries": sum,
    "shortlist_canary": min,
    "shortlist_ready": min,
    "shortlist_repository_present": min,
    "shortlist_precision_promise_in_force": min,
    "shortlist_precision_share": lambda values: fmean(list(values)),
}


class Family(NamedTuple):
    """A metric family of one process, or of all."""

    kind: str
    text: str
    series: Series


Families = dict[str, Family]


def read_families(registry: CollectorRegistry) -> list[Any]:
    """All families of a process's registry, as they are sent to the supervisor."""
    return [
        [family.name, family.type, family.documentation, [[s.name, s.labels, s.value] for s in family.samples]]
        for family in registry.collect()
    ]


def parse_families(content: list[Any]) -> Families:
    """The families that `read_families` sent."""
    return {name: Family(kind, text, dict(map(parse_sample, samples))) for name, kind, text, samples in content}


def parse_sample(sample: list[Any]) -> tuple[tuple[str, Labels], float]:
    """The key of one series, and its value; NaN is sent as nothing."""
    name, labels, value = sample
    return (name, tuple(sorted(labels.items()))), float("nan") if value is None else value


def merge_families(processes: Sequence[Families]) -> Families:
    """The families of one server whose processes have these."""
    kinds = {name: family for families in processes for name, family in families.items()}
    merged = {
        name: Family(kind, text, merge_series(name, kind, [each[name].series for each in processes if name in each]))
        for name, (kind, text, _) in kinds.items()
    }
    if PRECISION in merged:
        merged[PRECISION] = merged[PRECISION]._replace(series=estimate_precision(merged))
    return merged


def merge_series(name: str, kind: str, processes: Sequence[Series]) -> Series:
    """One family's series of all processes."""
    combine = sum if kind in SUMMED_KINDS else GAUGES.get(name, max)
    keys = dict.fromkeys(key for series in processes for key in series)
    return {key: combine(series[key] for series in processes if key in series) for key in keys}


def estimate_precision(families: Families) -> Series:
    """P@k of live rows with its interval, from the counters of all processes: those of rows and of their hits."""
    trials = find_values(families, f"{PRECISION}_trials", f"{PRECISION}_trials_total")
    hits = find_values(families, f"{PRECISION}_hits", f"{PRECISION}_hits_total")
    return {
        (PRECISION, tuple(sorted((*labels, ("bound", bound))))): value
        for labels, rows in trials.items()
        for bound, value in bound_share(hits[labels], int(rows)).model_dump().items()
    }


def find_values(families: Families, name: str, sample: str) -> dict[Labels, float]:
    """The values of one sample of a family, by their labels."""
    series = families[name].series if name in families else {}
    return {labels: value for (other, labels), value in series.items() if other == sample}


def keep_counts(families: Families) -> Families:
    """What stays of a process that has ended: a counter that fell would look as if the server had begun anew."""
    return {name: family for name, family in families.items() if family.kind in SUMMED_KINDS}


def keep_places(families: Families, places: set[Place]) -> Families:
    """The series of these versions, and those of none."""
    return {
        name: family._replace(
            series={key: value for key, value in family.series.items() if find_place(key[1]) in places}
        )
        for name, family in families.items()
    }


def find_place(labels: Labels) -> Place:
    """The version that a series is of."""
    by_name = dict(labels)
    return by_name.get("model"), by_name.get("version")


def list_places(families: Families) -> set[Place]:
    """The versions that are served, and what series of none have; `unknown` models are of none, too.

    Changes of items are counted by model alone, for as long as a process has the model's log.
    """
    served = {find_place(labels) for labels in find_values(families, MODELS, MODELS)}
    places = {find_place(labels) for family in families.values() for _, labels in family.series}
    return served | {place for place in places if place[1] is None} | {(None, None), ("unknown", "unknown")}


class Snapshot(Collector):
    """Families as prometheus-client writes them."""

    def __init__(self, families: Families) -> None:
        self.families = families

    def collect(self) -> Iterable[Metric]:
        for name, (kind, text, series) in self.families.items():
            metric = Metric(name, text, kind)
            for (sample, labels), value in series.items():
                metric.add_sample(sample, dict(labels), value)
            yield metric


def render_families(families: Families) -> bytes:
    """The text exposition."""
    registry = CollectorRegistry()
    registry.register(Snapshot(families))
    return generate_latest(registry)
