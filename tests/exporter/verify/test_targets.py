"""Gold classes under softmaxes, against float64."""

import numpy as np
import pytest
from shortlist.evaluation.truth import compute_truth
from shortlist_exporter.core.torch_scores import rank_by_module
from shortlist_exporter.verify.targets import measure_softmax

from tests.support.layers import CLASSES, logprobs_of, make_contexts, make_dense

CONTEXTS = make_contexts(150, seed=9).contexts
TARGETS = np.random.default_rng(2).integers(0, CLASSES, 150)


def test_figures_of_a_softmax():
    module, exact = make_dense().module, logprobs_of(make_dense(), CONTEXTS)
    truth = compute_truth(rank_by_module(module, CONTEXTS), CONTEXTS, 10, targets=TARGETS)
    figures = measure_softmax(module, truth)
    ranks = (exact > exact[np.arange(150), TARGETS][:, None]).sum(axis=1)
    shares = [float((ranks < k).mean()) for k in (1, 5, 10)]
    assert [figures.top_1, figures.top_5, figures.top_10] == pytest.approx(shares)
    assert figures.perplexity == pytest.approx(np.exp(-exact[np.arange(150), TARGETS].mean()), rel=1e-3)
    assert figures.impossible == 0
    served = measure_softmax(module, truth, {1: TARGETS[:, None], 5: TARGETS[:, None] + 1, 10: TARGETS[:, None]})
    assert (served.top_1, served.top_5, served.top_10) == (1, 0, 1), "each of the request for so many"
    assert served.perplexity == figures.perplexity


def test_a_perplexity_that_is_no_number_is_null():
    """So that the manifest's digest, which is of its JSON, is that of what is written."""
    contexts = CONTEXTS * 100
    truth = compute_truth(rank_by_module(make_dense().module, contexts), contexts, 10, targets=TARGETS)
    assert truth.log_normalizer.mean() > 710, "exp of so much is too large for float64"
    figures = measure_softmax(make_dense().module, truth)
    assert figures.perplexity is None
    assert np.isfinite(figures.top_10)


def test_targets_that_a_softmax_rules_out_are_counted_apart():
    module = make_dense(padded=np.array([7])).module
    targets = np.where(np.arange(150) < 30, 7, 5)
    truth = compute_truth(rank_by_module(module, CONTEXTS), CONTEXTS, 10, targets=targets)
    figures = measure_softmax(module, truth)
    assert figures.impossible == pytest.approx(0.2)
    assert np.isfinite(figures.perplexity)
