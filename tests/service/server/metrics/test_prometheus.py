"""Names, labels and buckets of the metrics are a contract with deploy/."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as TheirHistogram
from prometheus_client.parser import text_string_to_metric_families
from shortlist.server.metrics.families import COUNTERS, GAUGES, HISTOGRAMS
from shortlist.server.metrics.histogram import Histogram
from shortlist.server.metrics.notes import RequestNote
from shortlist.server.metrics.prometheus import MAX_ENDED_PLACES, Metrics
from shortlist.server.metrics.series import UNKNOWN_MODEL, RequestSeries

from tests.support.layers import RunningServer

pytestmark = pytest.mark.slow

LABELS = {
    "shortlist_requests_total": {"model", "version", "endpoint", "code"},
    "shortlist_request_duration_seconds_bucket": {"model", "version", "endpoint", "le"},
    "shortlist_phase_duration_seconds_bucket": {"model", "version", "phase", "le"},
    "shortlist_batch_rows_bucket": {"model", "version", "le"},
    "shortlist_scored_classes_bucket": {"model", "version", "le"},
    "shortlist_rescored_classes_bucket": {"model", "version", "le"},
    "shortlist_rows_total": {"model", "version", "answered"},
    "shortlist_model_info": {"model", "version", "method", "plan", "device", "normalizer"},
    "shortlist_model_quality": {"model", "version", "metric"},
    "shortlist_build_info": {"version"},
    "shortlist_ready": set(),
    "shortlist_repository_present": set(),
}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def server(small_repository):
    with RunningServer(small_repository) as running:
        yield running


def scrape(server: RunningServer) -> Samples:
    families = text_string_to_metric_families(server.http.get("/metrics").text)
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(samples: Samples, name: str, **labels: str) -> float:
    label_items = labels.items()
    return sum(result for (series, of), result in samples.items() if series == name and label_items <= dict(of).items())


def ask(server: RunningServer, **fields: object) -> int:
    content = {"model": "lm", "contexts": [[0.5] * 16] * 3, "k": 2} | fields
    return server.http.post("/v1/topk", json=content).status_code


def test_names_and_labels(server):
    ask(server)
    result: dict[str, set[str]] = {}
    for name, labels in scrape(server):
        result.setdefault(name, set()).update(label for label, _ in labels)
    assert {name: result.get(name) for name in LABELS} == LABELS
    assert not any(name.endswith("_created") for name in result)


def test_each_family_of_the_tables_is_an_attribute():
    families = COUNTERS | GAUGES | HISTOGRAMS
    assert list(Metrics.__annotations__) == list(families)
    assert len(families) == len(COUNTERS) + len(GAUGES) + len(HISTOGRAMS)


def test_help_texts_are_whole_phrases(server):
    for family in text_string_to_metric_families(server.http.get("/metrics").text):
        if family.name.startswith("shortlist_"):
            assert len(family.documentation.split()) > 3, family
            assert not re.match("of |from |sum over them", family.documentation), family


def test_a_request_is_counted_once(server):
    before = scrape(server)
    assert ask(server, exact=True) == 200
    after = scrape(server)

    def growth(name: str, **labels: str) -> float:
        labels |= {"model": "lm", "version": "1"}
        return value(after, name, **labels) - value(before, name, **labels)

    assert growth("shortlist_requests_total", endpoint="topk", code="200") == 1
    assert growth("shortlist_request_duration_seconds_count", endpoint="topk") == 1
    assert growth("shortlist_rows_total", answered="dense") == 3
    assert growth("shortlist_batch_rows_sum") == 3
    assert growth("shortlist_scored_classes_count") == 3
    assert growth("shortlist_scored_classes_sum") == 3 * 300
    assert growth("shortlist_scored_classes_bucket", le="256.0") == 0
    assert growth("shortlist_scored_classes_bucket", le="512.0") == 3
    for phase in ("decode", "compute", "encode"):
        assert growth("shortlist_phase_duration_seconds_count", phase=phase) == 1


def test_failures_are_counted_under_their_code(server):
    before = scrape(server)
    assert ask(server, k=0) == 400
    assert (
        value(scrape(server), "shortlist_requests_total", model="lm", code="400")
        - value(before, "shortlist_requests_total", model="lm", code="400")
        == 1
    )


def test_names_from_requests_make_no_series(server):
    for name in ("made-up", "other"):
        assert ask(server, model=name) == 404
    server.http.post("/v2/models/third/infer", content=b"{}")
    samples = scrape(server)
    models = {dict(labels).get("model") for _, labels in samples} - {None}
    assert models == {"lm", "dense", "unknown"}
    assert value(samples, "shortlist_requests_total", model="unknown", code="404") == 3


def test_buckets_start_at_50_microseconds(server):
    ask(server)
    bounds = {
        float(dict(labels)["le"])
        for name, labels in scrape(server)
        if name == "shortlist_phase_duration_seconds_bucket"
    }
    assert sorted(bounds)[:-1] == pytest.approx([50e-6 * 2**i for i in range(18)])


def test_info_quality_and_readiness(server):
    samples = scrape(server)
    assert value(samples, "shortlist_ready") == 1
    assert value(samples, "shortlist_repository_present") == 1
    assert value(samples, "shortlist_model_info", model="lm", method="svd", plan="preview", device="cpu") == 1
    assert 0 < value(samples, "shortlist_model_quality", model="lm", metric="p_at_1") <= 1


@given(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=20), max_size=5))
def test_our_histogram_equals_prometheus_own(batches):
    bounds = [1, 2, 4, 8, 16]
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    histogram = Histogram("h", "text", ["model"], bounds, ours).labels("m")
    reference = TheirHistogram("h", "text", ["model"], buckets=bounds, registry=theirs).labels("m")
    for batch in batches:
        histogram.observe_all(np.array(batch, np.int32))
        for number in batch:
            reference.observe(number)

    def samples(registry: CollectorRegistry) -> dict:
        return {
            (s.name, *s.labels.values()): s.value
            for family in registry.collect() for s in family.samples if not s.name.endswith("_created")
        }  # fmt: skip

    assert {key: result for key, result in samples(ours).items()} == samples(theirs)


def test_two_servers_in_one_process_do_not_meet():
    Metrics("1")
    Metrics("2")


def test_tritons_names_hold_what_its_dashboards_query(small_repository):
    names = ("request_success", "request_failure", "count", "exec_count", "request_duration_us", "queue_duration_us")
    with RunningServer(small_repository) as server:
        assert (ask(server), ask(server, k=0)) == (200, 400)
        samples = scrape(server)
    result = {name: value(samples, f"nv_inference_{name}", model="lm", version="1") for name in names}
    assert (result["request_success"], result["request_failure"], result["count"], result["exec_count"]) == (1, 1, 3, 1)
    assert result["request_duration_us"] > 0
    with RunningServer(small_repository, "--no-triton-metrics") as server:
        ask(server)
        assert not any(name.startswith("nv_") for name, _ in scrape(server))


def test_an_unloaded_model_is_no_longer_said_to_be_ready(small_repository):
    with RunningServer(small_repository, "--model-control", "explicit") as server:
        assert value(scrape(server), "shortlist_model_info", model="lm") == 1
        server.http.post("/v2/repository/models/lm/unload").raise_for_status()
        assert value(scrape(server), "shortlist_model_info", model="lm") == 0
        server.http.post("/v2/repository/models/lm/load").raise_for_status()
        assert value(scrape(server), "shortlist_model_info", model="lm") == 1


def test_endpoints_by_name_are_there_from_the_start_and_any_other_once_it_comes():
    metrics = Metrics("1", CollectorRegistry(), ["topk", "score"])
    series = RequestSeries(metrics, UNKNOWN_MODEL)
    assert set(series.duration) == {"topk", "score"}
    series.count([RequestNote("new", 200, 0.5, (0.0, 0.0, 0.0, 0.0), None, False, None)])
    labels = {"model": "unknown", "version": "unknown", "endpoint": "new"}
    assert metrics.registry.get_sample_value("shortlist_request_duration_seconds_count", labels) == 1
    assert metrics.registry.get_sample_value("shortlist_requests_total", labels | {"code": "200"}) == 1


def test_where_nobody_scrapes_only_the_last_versions_that_are_over_are_kept():
    metrics = Metrics("1", CollectorRegistry(), ["topk"])
    places = [("lm", str(version)) for version in range(5 * MAX_ENDED_PLACES)]
    for place in places:
        metrics.start_series(place)
        RequestSeries(metrics, place).count([RequestNote("topk", 200, 0.5, (0.0, 0.0, 0.0, 0.0), None, False, None)])
        metrics.end_series(place)
    kept = [("lm", version) for version in re.findall(r'requests_total.*version="(\d+)"', metrics.render().decode())]
    assert kept == places[-MAX_ENDED_PLACES - 1 :]
    assert 'model="lm"' not in metrics.render().decode()


def test_a_version_that_is_served_again_keeps_its_series():
    metrics = Metrics("1", CollectorRegistry(), ["topk"])
    place = ("lm", "1")
    metrics.start_series(place)
    RequestSeries(metrics, place).count([RequestNote("topk", 200, 0.5, (0.0, 0.0, 0.0, 0.0), None, False, None)])
    metrics.start_series(place)
    metrics.end_series(place)
    for _ in range(2):
        assert b'shortlist_requests_total{code="200"' in metrics.render()
