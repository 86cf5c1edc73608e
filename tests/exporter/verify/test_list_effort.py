"""The estimate of a look at rows with lists is fitted to lists that are made up."""

import numpy as np
import pytest
from shortlist.core.filters import ClassFilter
from shortlist.kernels.lists import MOST_LISTED
from shortlist_exporter.verify.list_effort import (
    LISTS,
    MIN_PERMITTED,
    RankedRow,
    draw_size,
    fit_list_effort,
    rank_classes,
    search_permitted,
)

from tests.support.heads.grouped import DIM, PROMISE_CLASSES, promise_contexts
from tests.support.layers import logits_of, make_dense

pytestmark = pytest.mark.slow
dense = make_dense(PROMISE_CLASSES, DIM)
contexts = promise_contexts.contexts[-50:]


@pytest.fixture
def row():
    random = np.random.default_rng(1)
    order = np.argsort(-logits_of(dense, contexts[:1])[0], kind="stable")
    return RankedRow(contexts[:1], order, random.permutation(order), random.permutation(order))


def test_every_context_is_ranked_by_its_own_logits_and_its_best_class(promise_head):
    rows = rank_classes(promise_head.plan, dense.module, contexts[:5], np.random.default_rng(0))
    assert [row.context.tolist() for row in rows] == contexts[:5, None].tolist()
    for row, logits in zip(rows, logits_of(dense, contexts[:5]), strict=True):
        assert np.unique(row.order).size == PROMISE_CLASSES
        np.testing.assert_allclose(logits[row.order], -np.sort(-logits), rtol=1e-5)
        likeness = dense.weight @ dense.weight[row.order[0]]
        np.testing.assert_allclose(likeness[row.like_best], -np.sort(-likeness), rtol=1e-5, atol=1e-6)


def test_sizes_are_as_often_small_as_large():
    random = np.random.default_rng(0)
    sizes = np.array([draw_size(random, 10, 1000) for _ in range(2000)])
    assert sizes.min() >= 10
    assert sizes.max() < 1000
    assert 0.45 < (sizes < 100).mean() < 0.55


@pytest.mark.parametrize("make_list", LISTS)
def test_lists_hold_classes_once(row, make_list):
    permitted = make_list(row, np.random.default_rng(2))
    assert 0 < permitted.size < PROMISE_CLASSES
    assert np.unique(permitted).size == permitted.size


def test_what_a_search_of_a_list_misses_is_counted(promise_head, row):
    """By the same search without an estimate, which takes both looks."""
    plan, allowed = promise_head.plan, row.order[1200:]
    outcome = search_permitted(plan, row, allowed, 10)
    search = plan.plan_search(10, restricts=True)._replace(weights=(), most_listed=MOST_LISTED)
    ids = plan.compiled(row.context, search, ClassFilter(allowed[None])).ids[0]
    assert outcome.missed[0] == 1 - len(set(ids.tolist()) & set(allowed[:10].tolist())) / 10
    assert outcome.missed[0] > 0


def test_a_list_that_is_scored_as_a_whole_tells_nothing(promise_head, row):
    assert search_permitted(promise_head.plan, row, row.order[-MIN_PERMITTED + 1 :], 10) is None


def test_the_estimate_of_rows_without_their_best_classes_is_higher(promise_head):
    plan = promise_head.plan
    weights = np.array(fit_list_effort(plan, dense.module, contexts, 0))
    odds = []
    for first in (0, 1200):
        some = []
        for one in contexts[:20]:
            order = np.argsort(-logits_of(dense, one[None])[0], kind="stable")
            outcome = search_permitted(plan, RankedRow(one[None], order, order, order), order[first : first + 2500], 5)
            assert outcome is not None
            some.append(outcome.features[0] @ weights[:-1] + weights[-1])
        odds.append(np.mean(some))
    assert odds[1] > odds[0] + 1


def test_a_head_of_few_classes_needs_no_estimate(promise_head):
    plan = promise_head.plan
    few = type("Few", (), {"order": plan.order[:100]})()
    assert fit_list_effort(few, dense.module, contexts, 0) == ()
