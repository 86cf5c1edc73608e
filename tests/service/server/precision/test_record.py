"""What is promised of a head, and what is counted of its rows."""

from __future__ import annotations

import numpy as np
import pytest
from shortlist.evaluation.answers import AnswerFigures
from shortlist.evaluation.sequential import FALSE_ALARM_ROWS
from shortlist.server.precision.record import PrecisionRecord, read_promise

from tests.support.layers import make_dense, make_head

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    options = {"basis": "context", "width": "8", "full_view": "40"}
    return make_head(tmp_path_factory.mktemp("record"), make_dense(), options=options).manifest


def make_figures(first, fifth, rows=1):
    zeros = np.zeros(rows)
    hits = {1: np.full(rows, first), 5: np.full(rows, fifth)}
    return AnswerFigures(hits, {1: 1 - hits[1], 5: 1 - hits[5]}, zeros + 0.25, zeros + 0.5)


def test_a_measured_figure_is_held_to_what_its_sample_proves(manifest):
    quality = manifest.quality.model_copy(update={"p_at_1": 0.99, "p_at_5": 1.0, "rows": 1000})
    promise = read_promise(manifest.model_copy(update={"quality": quality}))
    assert promise[1] == pytest.approx(0.9817, abs=1e-3)  # Wilson's interval
    assert promise[5] == pytest.approx(0.9962, abs=1e-3)


def test_a_head_that_was_made_to_keep_a_promise_is_held_to_that(promise_head):
    assert read_promise(promise_head.manifest) == {1: 0.99, 5: 0.99}


def test_nothing_is_promised_where_nothing_was_measured(manifest):
    record = PrecisionRecord(manifest.model_copy(update={"quality": None}))
    assert record.add(make_figures(0.0, 0.0, rows=5000)) == []
    assert not record.alarm
    assert record.describe()["at"]["1"]["promise"] is None


def test_counts(manifest):
    record = PrecisionRecord(manifest)
    record.add(make_figures(1.0, 0.8, rows=10))
    record.add(make_figures(0.0, 0.6, rows=5))
    shown = record.describe()
    assert (shown["rows"], shown["logprob_error_mean"], shown["logprob_error_max"]) == (15, 0.25, 0.5)
    assert (shown["at"]["1"]["trials"], shown["at"]["1"]["hits"]) == (15, 10)
    assert shown["at"]["5"]["hits"] == pytest.approx(11)
    assert shown["at"]["5"]["lost_probability"] == pytest.approx(4 / 15)
    interval = shown["at"]["1"]["precision"]
    assert interval["low"] < interval["mean"] == 2 / 3 < interval["high"]


def test_an_alarm_names_its_k_and_both_share_the_bound_on_false_alarms(manifest):
    record = PrecisionRecord(manifest)
    assert record.add(make_figures(1.0, 0.0, rows=1000)) == [5]
    assert record.alarm
    assert record.describe()["at"]["1"]["alarm"] is False
    assert {depth.detector.false_alarm_rows for depth in record.depths.values()} == {2 * FALSE_ALARM_ROWS}
