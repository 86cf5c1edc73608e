"""A head's promise is raised on a real server while live rows are less precise, told in answers, and lowered again."""

from __future__ import annotations

import time

import numpy as np
import pytest
import shortlist
from prometheus_client.parser import text_string_to_metric_families
from shortlist.evaluation.answers import AnswerFigures, judge_answers
from shortlist.evaluation.sequential import HOLD_ROWS
from shortlist.server.models import Model
from shortlist.server.precision.model_precision import ModelPrecision
from shortlist.server.precision.raised_promise import MAX_STEPS, RaisedPromise
from shortlist.server.precision.sampler import Sample

from tests.support.heads import grouped
from tests.support.layers import RunningServer, contexts_elsewhere, make_dense, make_head

pytestmark = pytest.mark.slow

PROMISE, K = 0.9, 4  # of which P@1 alone is counted
ROWS = grouped.promise_contexts.contexts[-2000:]
OTHERS_SHARE = 0.5
PORTION = 200  # rows, which fit the queue of those to be asked again
MAX_ROWS = 12_000  # by which the promise is raised
WAIT_SECONDS = 60.0
ALL = ("--precision-share", "1", "--precision-cpu", "1")
FLAGS = ("--threads", "1", *ALL, "--precision-raise", "--canary-seconds", "1")


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    """A head whose rows are searched as far as its promise wants, within wide bounds."""
    options = grouped.PROMISE_OPTIONS | {"opened": "1000", "candidates": "150", "promise": str(PROMISE)}
    layer = make_dense(grouped.PROMISE_CLASSES, grouped.DIM)
    folder = tmp_path_factory.mktemp("raised")
    return make_head(folder, layer, grouped.promise_contexts, method="grouped", options=options)


def mix_contexts():
    """Rows of which half are in directions that no row of the export had."""
    others = contexts_elsewhere(ROWS[:400], len(ROWS), directions=2)
    is_other = np.random.default_rng(0).random(len(ROWS)) < OTHERS_SHARE
    return np.where(is_other[:, None], others, ROWS).astype(np.float32)


def measure_precision(head, promise, rows):
    top = head.with_settings(promise=promise).topk(rows, K)
    return judge_answers(head, rows, top.ids, top.logprobs, (1,)).hits[1].mean()


def show(server):
    return server.http.get("/v1/models/lm").json()["served_precision"]


def ask_and_wait(server, rows):
    """Ask, and wait until all that can be is asked again."""
    before = (show(server) or {"rows": 0})["rows"]
    with shortlist.Client(server.url) as client:
        for start in range(0, len(rows), 20):
            client.topk("lm", rows[start : start + 20], K)
    end, shown = time.monotonic() + WAIT_SECONDS, None
    while time.monotonic() < end:
        shown = show(server)
        if shown is not None and (shown["rows"] >= before + len(rows) or shown["promise_in_force"] > PROMISE):
            return shown
        time.sleep(0.02)
    raise AssertionError(shown)


def read_gauge(server, name):
    families = text_string_to_metric_families(server.http.get("/metrics").text)
    return [sample.value for family in families for sample in family.samples if sample.name == name]


def ask_json(server, rows, **fields):
    body = {"model": "lm", "contexts": rows.tolist(), "k": K} | fields
    return server.http.post("/v1/topk", json=body).raise_for_status().json()


def test_the_promise_is_raised_until_live_rows_keep_it(head):
    rows, raised = mix_contexts(), 0.95
    assert measure_precision(head, PROMISE, ROWS) > PROMISE
    assert measure_precision(head, PROMISE, rows) < PROMISE - 0.01
    assert measure_precision(head, raised, rows) > PROMISE
    with RunningServer(head.folder.parents[1], *FLAGS) as server:
        assert ask_json(server, ROWS[:1])["promise"] == PROMISE
        assert ask_and_wait(server, ROWS[:PORTION])["promise_in_force"] == PROMISE, "what the export knew needs no more"
        count = 0
        while show(server)["promise_in_force"] == PROMISE and count < MAX_ROWS:
            ask_and_wait(server, rows[count % len(rows) :][:PORTION])
            count += PORTION
        shown = show(server)
        print(f"{count} rows until the promise was raised")
        assert shown["promise_in_force"] == raised
        assert (shown["alarm"], shown["at"]["1"]["promise"]) == (True, PROMISE)
        assert read_gauge(server, "shortlist_precision_promise_in_force") == [raised]
        answer = ask_json(server, rows[:PORTION])
        assert answer["promise"] == raised
        assert answer["ids"] == head.with_settings(promise=raised).topk(rows[:PORTION], K).ids.tolist()
        tensor = {"name": "context", "datatype": "FP32", "shape": [1, grouped.DIM], "data": rows[0].tolist()}
        response = server.http.post("/v2/models/lm/infer", json={"inputs": [tensor], "parameters": {"k": K}}).json()
        assert response["parameters"]["promise"] == raised
        assert "promise" not in ask_json(server, rows[:1], exact=True), "nothing is missed there"
        time.sleep(1.5)
        assert read_gauge(server, "shortlist_canary") == [1], "which is of the head as it was loaded"
    with RunningServer(head.folder.parents[1], *FLAGS) as server:
        assert ask_json(server, rows[:1])["promise"] == PROMISE, "after a restart"


def test_an_alarm_says_the_precision_of_the_rows_that_raised_it(head):
    """Not that of the rows after it, of which there are none yet, so that every such line said 1.0000."""
    model = Model("lm", 1, head.folder)
    model.load("cpu", 1)
    precision = ModelPrecision(model, 1, lambda: None, remedy=False, raises=True)
    hits = np.tile([1.0, 0.5], 100)
    figures = AnswerFigures({1: hits}, {1: 1 - hits}, np.zeros(200), np.zeros(200))
    reason = precision.add([Sample(model.head_in_use, ROWS[:200], 1, None, None)], figures)
    assert reason == "P@1 is 0.7500 on live rows, 0.9000 promised"
    assert precision.promise_in_force == pytest.approx(0.95)
    no_alarm = AnswerFigures({1: np.ones(1)}, {1: np.zeros(1)}, np.zeros(1), np.zeros(1))
    assert precision.add([Sample(model.head_in_use, ROWS[:1], 1, None, None)], no_alarm) == ""


def test_steps_up_and_down(head):
    raised = RaisedPromise(head)

    def observe(rows, alarm):
        changed = raised.observe(rows, alarm=alarm)
        return None if changed is None else changed.manifest.settings.promise

    assert observe(50_000, alarm=False) is None, "there is nothing to lower"
    assert observe(1, alarm=True) == pytest.approx(0.95)
    assert observe(HOLD_ROWS - 1, alarm=False) is None
    assert observe(0, alarm=True) == pytest.approx(0.975)
    assert observe(HOLD_ROWS, alarm=False) == pytest.approx(0.95)
    assert observe(HOLD_ROWS - 1, alarm=False) is None, "one step at a time"
    assert observe(1, alarm=False) == PROMISE
    assert observe(50_000, alarm=False) is None
    promises = [observe(1, alarm=True) for _ in range(MAX_STEPS + 2)]
    assert promises[MAX_STEPS - 1] == pytest.approx(1 - (1 - PROMISE) / 2**MAX_STEPS)
    assert promises[MAX_STEPS:] == [None, None], "the last step"


def test_a_model_that_was_loaded_again_is_not_changed(head):
    model = Model("lm", 1, head.folder)
    model.load("cpu", 1)
    former = model.head
    assert model.adjust(former, former.with_settings(promise=0.95))
    assert model.head.manifest.settings.promise == 0.95
    assert not model.adjust(former, former.with_settings(promise=0.99))
    assert model.head.manifest.settings.promise == 0.95
