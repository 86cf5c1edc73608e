"""Rows and contexts in int8 score as rounded ones do."""

import numpy as np
import pytest

from benchmarks.contenders.peers import ort_int8
from tests.support.contenders import fit_contender, make_fading_layer


@pytest.mark.parametrize("bias", [True, False])
def test_int8_scores_are_those_of_rounded_rows_and_contexts(bias):
    dense, contexts = make_fading_layer(bias=bias)
    contender = fit_contender(ort_int8.OnnxInt8, {"basis": "raw"}, dense, contexts)
    ids = contender.basis.ids
    weight_scale = np.abs(dense.weight[ids]).max(axis=1, keepdims=True) / 127
    scale = np.abs(contexts[:9]).max(axis=1, keepdims=True) / 127
    sums = np.round(contexts[:9] / scale) @ np.round(dense.weight[ids] / weight_scale).T
    expected = sums * scale * weight_scale.T + (dense.bias[ids] if bias else 0)
    assert np.allclose(contender.graph(query=contexts[:9])[0], expected, atol=1e-4)
