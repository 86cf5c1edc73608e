"""The promised head is set to a mean precision on rows that it was not fitted on, by settings that are measured."""

import numpy as np
import pytest

from benchmarks.common.truth import load_truth
from benchmarks.datasets.base import DataSet
from benchmarks.sweep import tuned
from tests.support.heads import grouped
from tests.support.layers import make_dense

pytestmark = pytest.mark.slow


@pytest.fixture
def data(tmp_path):
    dense = make_dense(grouped.PROMISE_CLASSES, grouped.DIM)
    test = load_truth(tmp_path / "test.safetensors", dense, grouped.promise_contexts.contexts[:50], None)
    return DataSet("made up", dense, grouped.promise_contexts, test)


def test_the_fastest_precise_setting_is_found_and_kept(promise_head, data, tmp_path, monkeypatch):
    monkeypatch.setattr(tuned, "LEAST_P1", 0.9)
    monkeypatch.setattr(tuned, "LEAST_P5", 0.9)
    head = tuned.tune_head(promise_head, data, tmp_path)
    truth = tuned.load_tune_rows(data, tmp_path)
    assert tuned.measure_setting(head, truth)[1]
    assert head.manifest.settings != promise_head.manifest.settings
    monkeypatch.setattr(tuned, "find_setting", None)  # what is kept is not searched again
    assert tuned.tune_head(promise_head, data, tmp_path).manifest.settings == head.manifest.settings


def test_where_no_setting_is_precise_enough_the_head_stays(promise_head, data, tmp_path, monkeypatch):
    monkeypatch.setattr(tuned, "LEAST_P1", 1.0)
    monkeypatch.setattr(tuned, "LEAST_P5", 1.0)
    head = tuned.tune_head(promise_head, data, tmp_path)
    assert head.manifest.settings == promise_head.manifest.settings


def test_rows_were_held_out_by_the_export(promise_head, data, tmp_path):
    rows = tuned.load_tune_rows(data, tmp_path).contexts
    fitted = np.flatnonzero((grouped.promise_contexts.contexts[:, None, 0] == rows[None, :, 0]).any(axis=1))
    assert fitted.size == len(rows)
    assert fitted.min() >= len(grouped.promise_contexts.contexts) * 0.85
