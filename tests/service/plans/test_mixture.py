"""Plan `mixture`: exact answers are the module's, searched ones nearly so, and their log-probabilities one whole."""

import numpy as np
import pytest
from shortlist.errors import BadInput

from tests.support.heads.adaptive import brute_force
from tests.support.heads.mixtape import SIZES, compute_logprobs, make, make_module
from tests.support.layers import make_contexts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=SIZES)
def served(request, tmp_path_factory):
    """A head, 60 contexts, and the module's log-probabilities of them."""
    head, module = make(tmp_path_factory.mktemp("mixture"), request.param)
    rows = make_contexts(60, module.dim, seed=5).contexts
    return head, rows, compute_logprobs(module, rows)


def test_exact_answers_are_the_modules_for_every_k(served):
    head, rows, truth = served
    for k in range(1, 101):
        ids, logprobs = brute_force(truth, k)
        top = head.topk(rows, k, exact=True)
        np.testing.assert_allclose(top.logprobs, logprobs, atol=2e-5)
        np.testing.assert_allclose(np.take_along_axis(truth, top.ids, axis=1), logprobs, atol=2e-5)
        assert (top.ids == ids).mean() > 0.99  # float rounding may order near-equal classes differently
        assert top.normalizer == "exact"
        assert (top.scored == truth.shape[1]).all()


def test_no_rows_have_no_answers_by_graphs_too(served, monkeypatch):
    head, rows, _ = served
    monkeypatch.setattr(head.plan.front, "compiled", None)
    for lists in ({}, {"ban": [3]}, {"exact": True}, {"bias": {3: 1.0}}):
        assert head.topk(rows[:0], 5, **lists).ids.shape == (0, 5)
    assert head.sample(rows[:0], seed=1).ids.shape == (0, 1)


@pytest.mark.parametrize(("components", "tree"), [(1, False), (2, True), (8, True), (3, False)])
def test_any_number_of_components_is_served(tmp_path, components, tree):
    module = make_module(*SIZES["graphs"], components, tree)
    head, _ = make(tmp_path, module=module, report=False)
    rows = make_contexts(20, module.dim, seed=5).contexts
    expected = brute_force(compute_logprobs(module, rows), 300)[1]
    np.testing.assert_allclose(head.topk(rows, 300, exact=True).logprobs, expected, atol=2e-5)


def test_searched_answers_are_near_and_say_so(served):
    head, rows, truth = served
    top = head.topk(rows, 5)
    assert (top.ids[:, 0] == truth.argmax(axis=1)).mean() > 0.97
    assert top.normalizer == "estimated"
    assert (top.scored < truth.shape[1]).all()
    exact = np.take_along_axis(truth, top.ids, axis=1)
    assert np.abs(top.logprobs - exact).mean() < 0.2
    differences = (top.logprobs - exact) - (top.logprobs - exact)[:, :1]  # numerators are exact, one normaliser a row
    np.testing.assert_allclose(differences, 0, atol=5e-5)
    alone = [head.topk(row[None], 5) for row in rows]
    np.testing.assert_allclose(np.concatenate([one.logprobs for one in alone]), top.logprobs, atol=5e-5)


def test_lists_act_inside_and_change_no_log_probability(served):
    head, rows, truth = served
    for exact in (False, True):
        best = head.topk(rows, 30, exact=True).ids
        masked = truth.copy()
        np.put_along_axis(masked, best, -np.inf, axis=1)
        banned = head.topk(rows, 5, ban=best, exact=exact)
        assert (banned.ids[:, 0] == masked.argmax(axis=1)).mean() > 0.9
        assert not any(set(one) & set(other) for one, other in zip(banned.ids.tolist(), best.tolist(), strict=True))
        few = head.topk(rows, 5, allow=[3, 99, 200], ban=[99], exact=exact)
        assert (np.sort(few.ids, axis=1)[:, -2:] == [3, 200]).all()
        assert (few.ids[:, 2:] == -1).all()
        assert (few.logprobs[:, 2:] == -np.inf).all()
    np.testing.assert_allclose(few.logprobs[:, 0], truth[:, [3, 200]].max(axis=1), atol=2e-5)


def test_given_ids_have_their_log_probabilities(served):
    head, rows, truth = served
    ids = np.random.default_rng(0).integers(-1, truth.shape[1], (len(rows), 9))
    expected = np.where(ids < 0, -np.inf, np.take_along_axis(truth, np.maximum(ids, 0), axis=1))
    np.testing.assert_allclose(head.logprobs(rows, ids, exact=True), expected, atol=2e-5)
    searched = head.logprobs(rows, ids)
    assert np.abs(np.where(ids < 0, 0, searched - np.where(ids < 0, 0, expected))).mean() < 0.2
    top = head.topk(rows, 5)
    np.testing.assert_allclose(head.logprobs(rows, top.ids), top.logprobs, atol=5e-5)


def test_probabilities_of_all_classes_are_at_most_one(served):
    head, rows, truth = served
    everything = np.tile(np.arange(truth.shape[1]), (len(rows), 1))
    assert (np.exp(head.logprobs(rows, everything)).sum(axis=1) <= 1 + 1e-5).all()


def test_settings_of_the_search_change_it(served):
    head, rows, _ = served
    wider = head.with_settings(candidates=90, previewed=200)
    assert (wider.topk(rows, 5).scored > head.topk(rows, 5).scored).all()
    with pytest.raises(BadInput, match="there is no setting 'promise'"):
        head.with_settings(promise=0.9)
