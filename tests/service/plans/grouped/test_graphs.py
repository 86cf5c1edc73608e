"""Graphs in place of the compiled loops: what was exported with a promise is served as well, if more slowly."""

import numpy as np
import pytest
from shortlist.bundle.reader import Bundle
from shortlist.errors import BundleError
from shortlist.evaluation.canary import check_canary
from shortlist.head import Head
from shortlist.plans.grouped import graphs

from tests.support.heads.grouped import DIM, find_promise_truth
from tests.support.layers import logprobs_of, make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

BANNED = 100  # of a row's own best


@pytest.fixture(params=[0, graphs.FEW_CLASSES], ids=["candidates", "all classes"])
def by_graphs(promise_head, no_library, monkeypatch, request):
    """Some candidates, and all classes as of a layer of few."""
    monkeypatch.setattr(graphs, "FEW_CLASSES", request.param)
    head = Head(Bundle(promise_head.folder), "cpu", 1)
    assert head.plan.compiled is None
    return head


@pytest.fixture(scope="module")
def truth():
    contexts = make_contexts(200, DIM, seed=9).contexts
    return find_promise_truth(contexts, BANNED + 5)


def test_a_head_with_a_promise_passes_its_canary(by_graphs):
    """It failed: all classes beside the fitted candidates were counted, some of them twice."""
    assert check_canary(by_graphs, Bundle(by_graphs.folder)) > 0.97


def test_the_promise_is_kept(by_graphs, truth):
    for k in (1, 5, 20):
        ids = by_graphs.topk(truth.contexts, k).ids
        assert (ids[:, :, None] == truth.best.ids[:, None, :k]).any(axis=2).mean() > 0.98


def test_flat_log_probabilities_are_as_near_to_exact_ones_as_those_of_loops(tmp_path, monkeypatch):
    """Many candidates have much of the probability here: those that the guess of the rest holds count once."""
    layer, contexts = make_dense(5000, DIM, logit_scale=0.02), make_contexts(3000, DIM, seed=5)
    head = make_head(tmp_path, layer, contexts, method="grouped", options={"width": "60"})
    assert head.plan.compiled is not None
    loops = measure_error(head, layer, contexts.contexts[:200])
    monkeypatch.setattr(head.plan, "compiled", None)
    monkeypatch.setattr(head, "row_answers", None)
    with pytest.raises(BundleError, match="log-probabilities off"):  # loops have to give what they gave
        check_canary(head, Bundle(head.folder))
    monkeypatch.setattr(head, "kernels", None)
    assert measure_error(head, layer, contexts.contexts[:200]) < loops + 0.005
    assert check_canary(head, Bundle(head.folder)) > 0.97


def measure_error(head, layer, contexts):
    """Mean |difference| of the log-probabilities of the best five classes to exact ones, nats."""
    top = head.topk(contexts, 5)
    return np.abs(top.logprobs - np.take_along_axis(logprobs_of(layer, contexts), top.ids, axis=1)).mean()


def test_bans_of_a_row_s_own_best_are_made_up_for(by_graphs, truth):
    ids = by_graphs.topk(truth.contexts, 5, ban=truth.best.ids[:, :BANNED]).ids
    found = (ids[:, :, None] == truth.best.ids[:, None, BANNED:]).any(axis=2)
    assert found.mean() > 0.97
