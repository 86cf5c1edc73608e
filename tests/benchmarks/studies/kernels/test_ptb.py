"""Heads of Penn Treebank's layer: the least margin that keeps the precision."""

import pytest

from benchmarks.common.truth import load_truth
from benchmarks.datasets.registry import DataSet
from benchmarks.studies.kernels import ptb
from tests.support.layers import make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("precision", "margin"), [(0.0, 0.0), (1.1, None)])
def test_the_least_margin_that_keeps_the_precision(tmp_path, monkeypatch, precision, margin):
    monkeypatch.setattr(ptb, "PTB_PRECISION", precision)
    dense, sample = make_dense(), make_contexts(130, seed=7)
    truth = load_truth(tmp_path / "t.safetensors", dense, sample.contexts, None)
    options = {"clusters": "6", "budget": "60", "rounds": "0", "second_probe": "0.3"}
    head = make_head(tmp_path, dense, make_contexts(), method="l2s", options=options)
    sentences = []
    kept = ptb.keep_precision(head, DataSet("small", dense, make_contexts(), truth), sentences.append)
    assert (None if kept is None else kept.manifest.settings.probe_margin) == margin
    assert len(sentences) == 1


def test_without_data_nothing_is_measured(tmp_path):
    sentences = []
    assert ptb.measure_ptb(tmp_path, None, sentences.append) is None
    assert sentences == ["ptb: not measured, give DATA, a folder with ptb/"]
