"""Exact answers of torch modules, against float64."""

import numpy as np
import pytest
import torch
from shortlist.evaluation.truth import compute_truth
from shortlist_exporter.core.torch_scores import compute_logprobs, rank_by_module
from shortlist_exporter.inputs.sources import Dense
from torch import nn

from tests.support.layers import CLASSES, logprobs_of, make_contexts, make_dense

CONTEXTS = make_contexts(100, seed=9).contexts
BIAS = np.random.default_rng(3).standard_normal(CLASSES).astype(np.float32)
DENSE = make_dense(bias=BIAS, logit_scale=0.5, soft_cap=4.0, padded=np.array([0, 299]))


class OwnSoftmax(nn.Module):
    """The same layer as a module with `log_prob`."""

    def log_prob(self, contexts):
        return torch.log_softmax(DENSE.module.logits(contexts), dim=1)


@pytest.mark.parametrize("module", [DENSE.module, OwnSoftmax()])
def test_truth_is_that_of_float64(module):
    exact, counts = logprobs_of(DENSE, CONTEXTS), []
    truth = compute_truth(rank_by_module(module, CONTEXTS), CONTEXTS, 10, progress=counts.append)
    np.testing.assert_allclose(truth.logprobs, -np.sort(-exact, axis=1)[:, :10], atol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(exact, truth.ids, axis=1), truth.logprobs, atol=1e-4)
    assert counts == [64, 36]
    ids = np.random.default_rng(0).integers(1, 299, (20, 7))
    some = compute_logprobs(module, truth, slice(5, 25), ids)
    np.testing.assert_allclose(some, np.take_along_axis(exact[5:25], ids, axis=1), atol=1e-4)


@pytest.mark.parametrize("rows", [1, 3, 7, 64])
def test_equal_rows_have_equal_scores_in_every_product(rows):
    """A matrix product rounds its last columns otherwise than those before, where there are few rows."""
    weight = make_dense(267, 257).weight
    dense = Dense(np.concatenate([weight, weight, weight]))
    contexts = make_contexts(rows, 257, seed=9).contexts
    best = compute_truth(rank_by_module(dense.module, contexts), contexts, 10).best
    assert (best.levels == [[0, 0, 0, 3, 3, 3, 6, 6, 6, 9]] * rows).all()
    assert (best.ids[:, :9].reshape(rows, 3, 3) % 267 == best.ids[:, :9:3, None] % 267).all()
    assert (np.unique(best.runs.rows) == np.arange(rows)).all()


def test_padding_is_never_among_the_best():
    truth = compute_truth(rank_by_module(DENSE.module, CONTEXTS), CONTEXTS, CLASSES)
    assert (truth.ids[:, -2:] == -1).all()
    assert not np.isin(truth.ids, DENSE.padded).any()
    twice = Dense(np.concatenate([DENSE.weight, DENSE.weight]), padded=np.arange(0, 2 * CLASSES, 2))
    best = compute_truth(rank_by_module(twice.module, CONTEXTS), CONTEXTS, 4).best
    assert (best.ids % 2 == 1).all()
    assert (best.levels == [0, 0, 2, 2]).all()
