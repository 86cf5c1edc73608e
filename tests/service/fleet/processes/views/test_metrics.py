"""The metrics of several processes as those of one."""

from __future__ import annotations

import json
import math

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge
from shortlist.fleet.processes.views.metrics import (
    keep_counts,
    keep_places,
    list_places,
    merge_families,
    parse_families,
    read_families,
    render_families,
)
from shortlist.server.metrics.histogram import Histogram


def make_process(requests=3, held=2, canary=1, promise=0.99, hits=9.0, version="1"):
    registry = CollectorRegistry()
    labels = ["model", "version"]
    Counter("shortlist_requests", "r", [*labels, "code"], registry=registry).labels("lm", version, "200").inc(requests)
    Gauge("shortlist_held_rows", "h", registry=registry).set(held)
    Gauge("shortlist_canary", "c", labels, registry=registry).labels("lm", version).set(canary)
    name = "shortlist_precision_promise_in_force"
    Gauge(name, "f", labels, registry=registry).labels("lm", version).set(promise)
    Gauge("shortlist_model_info", "i", labels, registry=registry).labels("lm", version).set(1)
    Gauge("shortlist_precision", "p", [*labels, "k", "bound"], registry=registry).labels("lm", "1", "1", "mean").set(0)
    for name, value in (("trials", 10), ("hits", hits)):
        Counter(f"shortlist_precision_{name}", name, [*labels, "k"], registry=registry).labels("lm", "1", "1").inc(
            value
        )
    histogram = Histogram("shortlist_batch_rows", "b", labels, [1, 2], registry)
    histogram.labels("lm", version).observe_all(np.array([1, 2, 5]))
    return parse_families(json.loads(json.dumps(read_families(registry))))


def read(families):
    lines = render_families(families).decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_counters_and_histograms_add_up_and_gauges_follow_their_rule():
    values = read(merge_families([make_process(3, 2), make_process(4, 5, canary=0, promise=0.995)]))
    assert values['shortlist_requests_total{code="200",model="lm",version="1"}'] == 7
    assert values['shortlist_batch_rows_bucket{le="2.0",model="lm",version="1"}'] == 4
    assert values['shortlist_batch_rows_count{model="lm",version="1"}'] == 6
    assert values["shortlist_held_rows"] == 7
    assert values['shortlist_canary{model="lm",version="1"}'] == 0
    assert values['shortlist_model_info{model="lm",version="1"}'] == 1
    assert values['shortlist_precision_promise_in_force{model="lm",version="1"}'] == 0.99


def test_precision_is_that_of_all_rows():
    values = read(merge_families([make_process(hits=9), make_process(hits=6)]))
    name = 'shortlist_precision{bound="%s",k="1",model="lm",version="1"}'
    assert values[name % "mean"] == 0.75
    assert values[name % "low"] < 0.75 < values[name % "high"]


def test_one_process_is_shown_as_it_is():
    process = make_process()
    values, merged = read(process), read(merge_families([process]))
    assert {key: value for key, value in merged.items() if "shortlist_precision{" not in key} == {
        key: value for key, value in values.items() if "shortlist_precision{" not in key
    }


def test_of_one_that_has_ended_the_counts_stay():
    families = keep_counts(make_process())
    assert {family.kind for family in families.values()} == {"counter", "histogram"}
    values = read(merge_families([make_process(), families]))
    assert values['shortlist_requests_total{code="200",model="lm",version="1"}'] == 6
    assert values["shortlist_held_rows"] == 2


def test_versions_that_nobody_serves_are_dropped():
    live, ended = make_process(version="2"), keep_counts(make_process(version="1"))
    values = read(merge_families([live, keep_places(ended, list_places(live))]))
    assert not any("requests_total" in key and 'version="1"' in key for key in values)
    assert values['shortlist_requests_total{code="200",model="lm",version="2"}'] == 3


def test_counts_of_a_model_without_a_version_stay_while_a_process_has_some():
    registry = CollectorRegistry()
    changes = Counter("shortlist_item_changes", "i", ["model"], registry=registry)
    changes.labels("lm").inc(5)
    process = parse_families(read_families(registry))
    values = read(merge_families([process, keep_places(keep_counts(process), list_places(process))]))
    assert values['shortlist_item_changes_total{model="lm"}'] == 10
    assert not any(keep_places(keep_counts(process), list_places(make_process()))["shortlist_item_changes"].series)


def test_nan_is_sent_as_nothing():
    content = [["x", "gauge", "text", [["x", {}, None]]]]
    assert math.isnan(parse_families(content)["x"].series["x", ()])
