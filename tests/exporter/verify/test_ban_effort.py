"""The estimate of looks at rows whose own best classes are banned is fitted to such rows."""

import numpy as np
import pytest
from shortlist.bundle.settings import LOOKS
from shortlist.core.filters import ClassFilter
from shortlist.evaluation.statistics import mark_hits
from shortlist_exporter.verify.ban_effort import (
    MOST_BANNED,
    SEARCHES_PER_DEPTH,
    draw_searches,
    fit_ban_efforts,
    measure_banned,
)
from shortlist_exporter.verify.effort import change_settings

from tests.support.heads.grouped import find_promise_truth, promise_contexts

pytestmark = pytest.mark.slow
K = 5


@pytest.fixture(scope="module")
def truth(promise_head):
    return find_promise_truth(promise_contexts.contexts[-600:], MOST_BANNED + K)


@pytest.fixture(scope="module")
def searches(promise_head, truth):
    return draw_searches(promise_head.plan, truth, K, truth.ids.shape[1], np.random.default_rng(1))


def test_a_search_bans_a_row_s_best_classes_and_asks_for_the_next_ones(searches, truth):
    ids = {context.tobytes(): best for context, best in zip(truth.contexts, truth.ids, strict=True)}
    for row in range(50):
        best, banned = ids[searches.contexts[row].tobytes()], searches.bans.get_row(row)
        np.testing.assert_array_equal(banned, best[: banned.size])
        np.testing.assert_array_equal(searches.best[row], best[banned.size : banned.size + K])


def test_as_often_few_classes_are_banned_as_many(searches):
    sizes = np.diff(searches.bans.offsets)
    assert sizes.size == SEARCHES_PER_DEPTH
    assert sizes.min() == 1
    assert sizes.max() == MOST_BANNED
    assert 0.4 < (sizes < 11).mean() < 0.6


def test_a_look_that_goes_further_misses_less(promise_head, searches):
    first, *_, last = (measure_banned(promise_head.plan, searches, number).missed.mean() for number in range(LOOKS))
    assert last < first / 3


@pytest.mark.parametrize("banned", [2, 10, 40])
def test_what_is_stated_of_such_rows_is_not_less_than_what_they_miss(promise_head, truth, banned):
    result = promise_head.plan.topk(truth.contexts, K, ClassFilter(ban=truth.ids[:, :banned]))
    missed = 1 - mark_hits(result.ids, truth.ids[:, banned:], K).mean()
    assert missed <= 1 - promise_head.plan.settings.promise
    assert result.risk.mean() >= missed / 2


def test_rows_whose_best_classes_are_banned_go_by_these_weights_and_no_others_do(promise_head, truth):
    """An estimate that is sure of every miss sends them to the last look and to exact answers; other bans do not."""
    plan = promise_head.plan
    doubtful = tuple((*row[:-1], 50.0) for row in plan.settings.ban_effort)
    plan = change_settings(plan, ban_effort=doubtful, wide_ban_effort=doubtful)
    rows, own, others = truth.contexts[:50], truth.ids[:50, :3], truth.ids[:50, -1:]
    for k in (K, 20):
        exact = plan.search_exactly(rows, k, ClassFilter(ban=own))
        np.testing.assert_array_equal(plan.topk(rows, k, ClassFilter(ban=own)).ids, exact.ids)
        before = promise_head.plan.topk(rows, k, ClassFilter(ban=others))
        np.testing.assert_array_equal(plan.topk(rows, k, ClassFilter(ban=others)).risk, before.risk)


def test_a_head_of_so_few_classes_that_none_is_left_has_no_weights(promise_head, truth):
    assert fit_ban_efforts(promise_head.plan, truth.first_classes(1), seed=0) == {}
