"""Over what odds of a miss a row looks further, and how far."""

from math import exp

import numpy as np
import pytest
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.kernels.grouped.effort import EFFORT_FEATURES, find_bars, list_looks
from shortlist_exporter.verify.effort import change_settings

from tests.support.heads.grouped import PROMISE_CLASSES, promise_contexts
from tests.support.layers import contexts_elsewhere


def to_odds(share):
    return share / (1 - share)


@pytest.mark.parametrize(("k", "factor"), [(1, 1), (2, 2), (100, 2)])
def test_the_odds_of_a_row_that_stays_are_in_proportion_to_the_promise_s(k, factor):
    for promise in (0.9, 0.999):
        bar = find_bars(promise, k, has_exact=False, has_list_effort=True)["bar"]
        assert exp(bar) == pytest.approx(factor * to_odds(1 - promise))


def test_rows_are_answered_exactly_over_odds_that_are_higher_still():
    for k in (1, 2, 50):
        bars = find_bars(0.99, k, has_exact=True, has_list_effort=True)
        assert bars["bar"] < bars["doubt_bar"] < bars["list_doubt_bar"]


def test_nothing_is_answered_exactly_where_nothing_can_nor_for_lists_without_their_own_weights():
    assert set(find_bars(0.99, 5, has_exact=False, has_list_effort=True)) == {"bar"}
    assert set(find_bars(0.99, 5, has_exact=True, has_list_effort=False)) == {"bar", "doubt_bar"}


@pytest.mark.slow
@pytest.mark.parametrize(("k", "factor"), [(1, 1), (5, 2)])
def test_rows_whose_odds_are_over_the_bar_look_further(promise_head, k, factor):
    rows = np.concatenate([promise_contexts.contexts[-300:], contexts_elsewhere(promise_contexts.contexts)[:300]])
    plan, result = promise_head.plan, promise_head.topk(rows, k, risk=True)
    first, second, _ = list_looks(plan.settings, k, plan.order.size)
    stay = result.scored < (first.candidates + second.candidates) / 2
    assert 0 < stay.sum() < len(rows)
    assert to_odds(result.risk[stay]).max() <= factor * to_odds(1 - plan.settings.promise) * 1.001


@pytest.mark.slow
def test_where_one_class_is_asked_for_the_second_look_opens_more(promise_head):
    settings, classes = promise_head.plan.settings, 49_152
    one, two = (list_looks(settings, k, classes)[1].opened for k in (1, 2))
    assert (one, two) == (classes * 2 // 3, classes // 2)


def be_unsure_of(plan, looks):
    """The plan, of whose looks so many state a miss of every row, and the next ones of none."""
    constants = [50.0] * looks + [-50.0] * (len(plan.settings.effort) - looks)
    weights = tuple((0.0,) * EFFORT_FEATURES + (constant,) for constant in constants)
    return change_settings(plan, effort=weights, wide_effort=weights, list_effort=weights[0])


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 5, 20])
@pytest.mark.parametrize("unsure", [0, 1, 2])
def test_a_row_takes_looks_until_one_is_sure(promise_head, k, unsure):
    plan, rows = be_unsure_of(promise_head.plan, unsure), promise_contexts.contexts[-20:]
    look = list_looks(plan.settings, k, plan.order.size)[unsure]
    result = plan.topk(rows, k, UNRESTRICTED)
    assert (result.scored >= look.candidates).all()
    assert (result.scored <= look.candidates * 33 / 32).all()


@pytest.mark.slow
def test_rows_of_which_no_look_is_sure_are_answered_exactly(promise_head):
    plan, rows = be_unsure_of(promise_head.plan, 3), promise_contexts.contexts[-20:]
    exact = plan.search_exactly(rows, 5, UNRESTRICTED)
    np.testing.assert_array_equal(plan.topk(rows, 5, UNRESTRICTED).ids, exact.ids)


@pytest.mark.slow
@pytest.mark.parametrize("unsure", [0, 1, 2])
def test_a_ban_that_forbids_none_of_what_is_found_changes_no_answer(promise_head, unsure):
    """Nor how far its row is searched: rows whose lists forbid next to nothing take as many looks as those without."""
    plan, rows = be_unsure_of(promise_head.plan, unsure), promise_contexts.contexts[-20:]
    free = plan.topk(rows, 5, UNRESTRICTED)
    worst = plan.fallback.topk(-rows, 1, UNRESTRICTED).ids
    banned = plan.topk(rows, 5, ClassFilter(ban=worst))
    np.testing.assert_array_equal(banned.ids, free.ids)
    np.testing.assert_allclose(banned.logits, free.logits)


@pytest.mark.slow
def test_rows_whose_lists_forbid_many_classes_take_no_third_look(promise_head):
    plan, rows = be_unsure_of(promise_head.plan, 2), promise_contexts.contexts[-20:]
    allowed = ClassFilter(allow=np.arange(0, PROMISE_CLASSES, 2)[None])
    exact = plan.search_exactly(rows, 5, allowed)
    np.testing.assert_array_equal(plan.topk(rows, 5, allowed).ids, exact.ids)
