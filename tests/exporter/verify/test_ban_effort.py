"""The estimate of looks at rows whose own best classes are banned is fitted to such rows."""

from dataclasses import replace

import numpy as np
import pytest
from shortlist.bundle.settings import LOOKS
from shortlist.core.filters import ClassFilter, Members, restrict_to_members
from shortlist.evaluation.statistics import mark_hits
from shortlist_exporter.verify.ban_effort import (
    MOST_BANNED,
    SEARCHES_PER_DEPTH,
    BannedRows,
    draw_searches,
    fit_ban_efforts,
    measure_banned,
)
from shortlist_exporter.verify.effort import change_settings

from tests.support.heads.grouped import PROMISE_CLASSES, find_promise_truth, promise_contexts

pytestmark = pytest.mark.slow
K = 5


@pytest.fixture(scope="module")
def truth(promise_head):
    return find_promise_truth(promise_contexts.contexts[-600:], MOST_BANNED + K)


@pytest.fixture(scope="module")
def searches(promise_head, truth):
    return draw_searches(promise_head.plan, truth, K, np.random.default_rng(1))


def test_as_often_few_classes_are_banned_as_many(searches):
    banned = np.repeat([rows.banned for rows in searches], [len(rows.truth.contexts) for rows in searches])
    assert banned.size == SEARCHES_PER_DEPTH
    assert (banned.min(), banned.max()) == (1, MOST_BANNED)
    assert 0.4 < (banned < 11).mean() < 0.6


@pytest.mark.parametrize(("known", "most"), [(30, 25), (6, 1), (5, 0)])
def test_no_more_are_banned_than_leave_k_known_classes(promise_head, truth, known, most):
    searches = draw_searches(promise_head.plan, truth.first_classes(known), K, np.random.default_rng(1))
    assert max([rows.banned for rows in searches], default=0) == most


def test_what_looks_miss_is_counted_among_the_classes_after_the_banned_ones(promise_head, searches):
    """By the same search in the same looks, without estimates."""
    rows = searches[15]
    search = promise_head.plan.plan_search(K, restricts=True)
    search = search._replace(looks=search.looks[:2], weights=(), free_looks=2)
    bans = ClassFilter(ban=rows.truth.ids[:, : rows.banned])
    ids = promise_head.plan.compiled(rows.truth.contexts, search, bans).ids
    found = [
        len({*found.tolist()} & {*best[rows.banned : rows.banned + K].tolist()})
        for found, best in zip(ids, rows.truth.ids, strict=True)
    ]
    np.testing.assert_allclose(measure_banned(promise_head.plan, rows, 1).missed, 1 - np.array(found) / K)


def test_classes_of_equal_score_stand_for_each_other(promise_head, truth):
    """Where all known classes of a row score alike, any of them are as good as the next ones."""
    alike = replace(truth.best, levels=np.zeros_like(truth.best.levels))
    rows = BannedRows(K, 10, replace(truth, best=alike))
    apart = rows._replace(truth=truth)
    assert (
        measure_banned(promise_head.plan, rows, 0).missed.mean()
        < measure_banned(promise_head.plan, apart, 0).missed.mean() / 2
    )


def test_a_look_that_goes_further_misses_less(promise_head, searches):
    first, *_, last = (
        np.mean([measure_banned(promise_head.plan, rows, number).missed.mean() for rows in searches])
        for number in range(LOOKS)
    )
    assert last < first / 3


@pytest.mark.parametrize("banned", [2, 10, 40])
def test_what_is_stated_of_such_rows_is_not_less_than_what_they_miss(promise_head, truth, banned):
    result = promise_head.plan.topk(truth.contexts, K, ClassFilter(ban=truth.ids[:, :banned]))
    missed = 1 - mark_hits(result.ids, truth.ids[:, banned:], K).mean()
    assert missed <= 1 - promise_head.plan.settings.promise
    assert result.risk.mean() >= missed / 2


def test_rows_whose_best_classes_are_banned_go_by_these_weights_and_no_others_do(promise_head, truth):
    """An estimate that is sure of every miss sends them to exact answers; other bans do not."""
    plan = change_settings(promise_head.plan, opened=PROMISE_CLASSES // 2)  # a first look that finds what is banned
    doubtful = tuple((*row[:-1], 50.0) for row in plan.settings.ban_effort)
    changed = change_settings(plan, ban_effort=doubtful, wide_ban_effort=doubtful)
    rows, own, others = truth.contexts[:50], ClassFilter(ban=truth.ids[:50, :3]), ClassFilter(ban=truth.ids[:50, -1:])
    for k in (K, 20):
        result = changed.topk(rows, k, own)
        np.testing.assert_array_equal(result.ids, plan.search_exactly(rows, k, own).ids)
        assert (result.scored == PROMISE_CLASSES).all()
        assert (plan.topk(rows, k, own).scored < PROMISE_CLASSES).all()
        np.testing.assert_array_equal(changed.topk(rows, k, others).risk, plan.topk(rows, k, others).risk)


def test_rows_of_a_named_set_whose_best_members_are_banned_go_by_them_too(promise_head, truth, monkeypatch):
    plan, marks = promise_head.plan, np.arange(PROMISE_CLASSES) % 3 > 0
    monkeypatch.setattr(plan, "most_listed", 100)  # so that the set is searched by its marks
    monkeypatch.setattr(plan, "searches", {})  # which keep how long a list was before
    doubtful = tuple((*row[:-1], 50.0) for row in plan.settings.ban_effort)
    changed = change_settings(plan, ban_effort=doubtful)
    rows, members = truth.contexts[:50], [row[marks[row]] for row in truth.ids[:50]]
    own = restrict_to_members(ClassFilter(ban=np.array([row[:3] for row in members])), Members(marks))
    others = restrict_to_members(ClassFilter(ban=np.array([row[-1:] for row in members])), Members(marks))
    assert plan.searches_marks(K, own.count_marked())
    shares = [(each.topk(rows, K, own).scored == PROMISE_CLASSES).mean() for each in (plan, changed)]
    assert shares[0] < 0.1
    assert shares[1] > 0.4  # of the others the narrow first look hardly finds what is banned
    np.testing.assert_array_equal(changed.topk(rows, K, others).risk, plan.topk(rows, K, others).risk)


def test_a_head_of_so_few_classes_that_none_is_left_has_no_weights(promise_head, truth):
    assert fit_ban_efforts(promise_head.plan, truth.first_classes(1), seed=0) == {}


def test_bans_make_no_row_surer(promise_head, truth):
    """Where the estimate of such rows is sure of all, the one of rows without bans counts."""
    plan, settings = promise_head.plan, promise_head.plan.settings
    sure = tuple((*row[:-1], -50.0) for row in settings.ban_effort)
    doubtful = tuple((*row[:-1], 50.0) for row in settings.effort)
    bans = ClassFilter(ban=truth.ids[:50, :3])
    exact = plan.search_exactly(truth.contexts[:50], K, bans)
    result = change_settings(plan, ban_effort=sure, effort=doubtful).topk(truth.contexts[:50], K, bans)
    np.testing.assert_array_equal(result.ids, exact.ids)
