"""Over what odds of a miss a row looks further, and how far."""

from math import exp

import numpy as np
import pytest
from shortlist.kernels.grouped.effort import find_bars, list_looks

from tests.support.heads.grouped import promise_contexts
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
    first, last = list_looks(plan.settings, k, plan.order.size)
    stay = result.scored < (first.candidates + last.candidates) / 2
    assert 0 < stay.sum() < len(rows)
    assert to_odds(result.risk[stay]).max() <= factor * to_odds(1 - plan.settings.promise) * 1.001


@pytest.mark.slow
def test_where_one_class_is_asked_for_the_last_look_opens_more(promise_head):
    settings, classes = promise_head.plan.settings, 49_152
    one, two = (list_looks(settings, k, classes)[-1].opened for k in (1, 2))
    assert (one, two) == (classes * 2 // 3, classes // 2)
