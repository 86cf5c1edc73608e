"""The cascade's parts against plain numpy, and what calibration promises."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shortlist_exporter.inputs.sources import Dense
from shortlist_models import FullSoftmax, context_basis
from shortlist_models.rescored.base import fit_least_squares
from shortlist_models.rescored.cascade import CascadeSoftmax, order_by_best_classes

from tests.support.layers import logits_of, make_contexts, make_dense

contexts = torch.from_numpy(make_contexts(500).contexts)


def cascade(dense, common=200, candidates=60, full_view=12, share=0.2):
    layer = FullSoftmax(
        torch.from_numpy(dense.weight),
        None if dense.bias is None else torch.from_numpy(dense.bias),
        logit_scale=dense.logit_scale,
        soft_cap=dense.soft_cap,
        padded=torch.from_numpy(dense.padded),
    )
    order = order_by_best_classes(layer, contexts)
    module = CascadeSoftmax(layer, context_basis(layer.weight, contexts, 8), order, common, candidates, full_view)
    module.calibrate(contexts, share)
    return module


def test_everything_a_candidate_is_the_dense_softmax():
    dense = make_dense(bias=np.linspace(-1, 1, 300, dtype=np.float32), logit_scale=0.5, soft_cap=20.0)
    module = cascade(dense, common=300, candidates=300, full_view=300)
    ids, logprobs = module.topk(contexts[:20], 300)
    exact = module.dense.log_prob(contexts[:20])
    torch.testing.assert_close(logprobs, exact.gather(1, ids), atol=1e-4, rtol=1e-4)
    assert (ids.sort(dim=1).values == torch.arange(300)).all()


def test_classes_go_by_how_often_they_are_answers():
    dense = make_dense(padded=np.array([3, 250]))
    module = cascade(dense)
    counts = np.zeros(300)
    for row in logits_of(dense, contexts.numpy()):
        counts[np.argsort(-row)[:5]] += 1
    order = module.order.numpy()
    assert sorted(order) == [i for i in range(300) if i not in (3, 250)]
    assert counts[order[:50]].sum() > 0.95 * np.sort(counts)[-50:].sum()


def test_the_margin_opens_the_share_that_was_asked_for():
    module = cascade(make_dense(), share=0.3)
    half = contexts[len(contexts) // 2 :]
    is_open = [
        module.choose_from_preview(p, float(r)).opened
        for p, r in zip(module.previews(half), module.reach(half), strict=True)
    ]
    assert np.mean(is_open) == pytest.approx(0.3, abs=0.05)


def test_rows_that_open_find_rare_classes_too():
    module = cascade(make_dense(), common=100, share=1.0)
    candidates = [
        module.choose_from_preview(p, float(r))
        for p, r in zip(module.previews(contexts), module.reach(contexts), strict=True)
    ]
    assert np.mean([one.opened for one in candidates[250:]]) > 0.99
    assert any((one.positions >= 100).any() for one in candidates)
    module.margin = -torch.inf
    candidates = [
        module.choose_from_preview(p, float(r))
        for p, r in zip(module.previews(contexts), module.reach(contexts), strict=True)
    ]
    assert not any((one.positions >= 100).any() for one in candidates)


def test_the_reach_follows_the_best_rare_class():
    plain = make_dense()
    module = cascade(Dense(plain.weight + 2))  # what all classes share is linear in the context
    best = module.multiply_exactly(contexts)[:, 200:].amax(dim=1)
    error = best - module.reach(contexts)
    assert error.std() < 0.5 * best.std()
    assert error.mean().abs() < 0.5 * error.std()


def test_the_tail_makes_the_normaliser_right_in_the_mean():
    module = cascade(make_dense(logit_scale=0.1))
    ids, logprobs = module.topk(contexts, 5)
    error = logprobs - module.dense.log_prob(contexts).gather(1, ids)
    module.tail_limit = -torch.inf  # candidates alone
    _, alone = module.topk(contexts, 5)
    assert error.abs().mean() < 0.5 * (alone - logprobs + error).abs().mean()


@given(st.integers(1, 40), st.integers(1, 8), st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_least_squares_recovers_a_linear_function(rows, dim, seed):
    random = np.random.default_rng(seed)
    x = torch.from_numpy(random.standard_normal((rows * 20, dim)).astype(np.float32))
    vector = torch.from_numpy(random.standard_normal(dim).astype(np.float32))
    result = fit_least_squares(x, x @ vector + 2.0)
    torch.testing.assert_close(result(x), x @ vector + 2.0, atol=0.1, rtol=0.05)


def test_contexts_all_equal_and_of_zeros_are_fitted():
    for rows in (contexts[:1].expand(50, -1), torch.zeros(50, 16)):
        values = torch.full((50,), 3.0)
        torch.testing.assert_close(fit_least_squares(rows, values)(rows), values)
