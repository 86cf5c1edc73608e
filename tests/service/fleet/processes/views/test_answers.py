"""The answers of several processes as that of one server."""

from __future__ import annotations

import orjson
import pytest
from shortlist.evaluation.statistics import Share
from shortlist.fleet.processes.exchange import Response
from shortlist.fleet.processes.views.answers import merge_models, merge_readiness, merge_statistics
from shortlist.server.precision.schemas import DepthPrecision, ServedPrecision


def make_response(content, status=200):
    body = orjson.dumps(content)
    return Response(status, [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))], body)


def make_statistics(rows, batches, last):
    duration = {"count": rows, "ns": 10 * rows}
    sizes = [{"batch_size": size, "compute_infer": duration} for size in batches]
    entry = {"name": "lm", "version": "1", "last_inference": last, "inference_count": rows, "batch_stats": sizes}
    return make_response({"model_stats": [entry | {"inference_stats": {"success": duration}, "memory_usage": []}]})


def make_model(trials, hits, error, promise=None):
    share = Share(mean=hits / trials, low=0, high=1)
    depth = DepthPrecision(
        promise=0.9,
        precision=share,
        rows=trials,
        trials=trials,
        hits=hits,
        lost_probability=0.5,
        alarm=False,
        alarms=1,
        evidence=hits / 100,
    )
    precision = ServedPrecision(
        rows=trials,
        share=0.5,
        alarm=trials > 15,
        exact_answers=False,
        promise_in_force=promise,
        logprob_error_mean=error,
        logprob_error_max=2 * error,
        at={"1": depth},
    )
    version = {"name": "lm", "version": 1, "state": "ready", "served_precision": precision.model_dump()}
    return make_response(version | {"versions": [version], "aliases": {}})


def test_ready_once_all_are():
    ready, loading = make_response({"ready": True}), make_response({"error": "lm is loading"}, 503)
    assert merge_readiness([ready, ready]) is ready
    assert merge_readiness([ready, loading]) is loading


def test_statistics_add_up_by_batch_size():
    merged = merge_statistics([make_statistics(3, [1, 4], 50), make_statistics(5, [2, 4], 40)])
    (entry,) = orjson.loads(merged.body)["model_stats"]
    assert entry["inference_count"] == 8
    assert entry["last_inference"] == 50
    assert entry["inference_stats"]["success"] == {"count": 8, "ns": 80}
    assert [(each["batch_size"], each["compute_infer"]["count"]) for each in entry["batch_stats"]] == [
        (1, 3),
        (2, 5),
        (4, 8),
    ]
    assert dict(merged.headers)[b"content-length"] == b"%d" % len(merged.body)


def test_served_precision_is_that_of_all_rows():
    content = orjson.loads(merge_models([make_model(10, 9, 0.1), make_model(30, 21, 0.3)]).body)
    precision = content["served_precision"]
    assert precision == content["versions"][0]["served_precision"]
    assert precision["rows"] == 40
    assert precision["alarm"] is True
    assert precision["logprob_error_mean"] == pytest.approx(0.25)
    assert precision["logprob_error_max"] == pytest.approx(0.6)
    depth = precision["at"]["1"]
    assert depth["precision"]["mean"] == pytest.approx(0.75)
    assert precision.keys() == ServedPrecision.model_fields.keys()
    assert depth.keys() == DepthPrecision.model_fields.keys()
    assert (depth["trials"], depth["hits"], depth["alarms"], depth["evidence"]) == (40, 30, 2, 0.21)


@pytest.mark.parametrize(("promises", "weakest"), [((0.99, 0.995), 0.99), ((None, 0.99), 0.99), ((None, None), None)])
def test_the_weakest_promise_is_the_servers(promises, weakest):
    content = orjson.loads(merge_models([make_model(10, 9, 0.1, promise) for promise in promises]).body)
    assert content["served_precision"]["promise_in_force"] == weakest


def test_a_process_that_is_not_ready_is_left_out():
    first = make_model(10, 9, 0.1)
    content = orjson.loads(merge_models([first, make_response({"error": "no"}, 503)]).body)
    assert content["served_precision"]["rows"] == 10
    assert content["name"] == "lm"
