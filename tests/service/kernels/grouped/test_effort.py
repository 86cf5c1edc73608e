"""Rows are searched until enough is found: by a promise, among permitted classes, for any k."""

from copy import copy

import numpy as np
import pytest
from shortlist.bundle.reader import INDEX_FILE, Bundle
from shortlist.bundle.settings import MOST_OPENED_PER_DEPTH
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.row_lists import RowLists
from shortlist.errors import BadInput
from shortlist.kernels.grouped.effort import list_looks
from shortlist.kernels.grouped.runner import lay_out_groups
from shortlist.plans.grouped.plan import SURE_MISS
from shortlist_exporter.verify.effort import change_settings

from tests.support.heads.grouped import PROMISE_CLASSES, promise_contexts
from tests.support.layers import contexts_elsewhere, logits_of, make_dense
from tests.support.searches import check_rows_alone

pytestmark = pytest.mark.slow
dense = make_dense(PROMISE_CLASSES, promise_contexts.contexts.shape[1])
near = promise_contexts.contexts[-400:]
far = contexts_elsewhere(promise_contexts.contexts)


def find_best(rows, k):
    return np.argsort(-logits_of(dense, rows), axis=1, kind="stable")[:, :k]


def measure_precision(head, rows, k):
    ids, best = head.topk_by_plan(rows, k).ids, find_best(rows, k)
    return (ids[:, :, None] == best[:, None, :]).any(axis=1).mean()


@pytest.mark.parametrize("k", [50, 100])
def test_many_classes_are_found_by_looks_that_tell_their_risk(promise_head, k):
    """Estimates for many classes were fitted to searches for many."""
    result, settings = promise_head.plan.topk(near, k, UNRESTRICTED), promise_head.plan.settings
    assert promise_head.plan.plan_search(k, restricts=False).weights == settings.wide_effort
    assert promise_head.plan.plan_search(10, restricts=False).weights == settings.effort
    assert settings.wide_effort != settings.effort
    assert np.isfinite(result.risk).all()
    assert measure_precision(promise_head, near, k) >= 0.985


@pytest.mark.parametrize("k", [1, 5])
def test_a_promise_is_kept_where_the_first_look_misses(promise_head, k):
    first_look = promise_head.with_settings(promise=None)
    assert measure_precision(first_look, near, k) < 0.9
    assert measure_precision(promise_head, near, k) >= 0.98
    assert measure_precision(promise_head, far, k) > measure_precision(first_look, far, k)


def test_a_larger_promise_takes_more_work_and_finds_more(promise_head):
    scored, precision = [], []
    for promise in (0.5, 0.9, 0.999):
        head = promise_head.with_settings(promise=promise)
        scored.append(head.topk(near, 5).scored.mean())
        precision.append(measure_precision(head, near, 5))
    assert scored == sorted(scored)
    assert precision == sorted(precision)
    assert scored[0] < scored[-1]


@pytest.mark.parametrize(("k", "share"), [(1, 2 / 5), (2, 4 / 7), (5, 4 / 7)])
def test_the_risk_of_a_row_is_under_what_the_promise_leaves_unless_it_was_searched_everywhere(promise_head, k, share):
    """share: what promise .6 leaves: .4 / .6 as odds, times k, at most twice."""
    plan = promise_head.with_settings(promise=0.6).plan
    result = plan.topk(near, k, UNRESTRICTED)
    everywhere = result.scored >= list_looks(plan.settings, k, plan.order.size)[-1].candidates
    assert (result.risk[~everywhere] <= share + 1e-6).all()
    assert (~everywhere).any()


@pytest.mark.parametrize("length", [0.001, 0.1, 100])
def test_a_context_of_any_length_is_searched_as_far_and_has_the_same_risk(promise_head, length):
    rows = np.concatenate([near, far])
    top, other = (promise_head.topk(some, 5, risk=True) for some in (rows, rows * np.float32(length)))
    assert (other.scored == top.scored).mean() >= 0.99
    assert measure_precision(promise_head, near * np.float32(length), 5) >= 0.98
    np.testing.assert_allclose(other.risk, top.risk, rtol=0.05, atol=1e-4)


def test_groups_whose_scores_overflow_are_opened_all_the_same(promise_head):
    """The best logit is 2.5e38 where float32 ends at 3.4e38: scores of groups are over their classes' logits."""
    head = promise_head.with_settings(promise=None)
    plain = head.topk_by_plan(near, 1)
    factors = 2.5e38 / logits_of(dense, near).max(axis=1, keepdims=True)
    scaled = head.topk_by_plan((near * factors).astype(np.float32), 1)
    assert (scaled.ids == plain.ids).mean() >= 0.9


def test_centres_of_bundles_of_before_have_one_scale(promise_head):
    arrays = Bundle(promise_head.folder).tensors(INDEX_FILE)
    own = lay_out_groups(arrays)
    before = lay_out_groups({name: array for name, array in arrays.items() if name != "group_fine_scale"})
    assert (own["centre_fine_scale"] != own["centre_scale"]).any()
    assert (before["centre_fine_scale"] == own["centre_scale"]).all()


@pytest.mark.parametrize("count", [60, 480, 2000])
def test_all_classes_of_a_short_allow_list_are_scored(promise_head, count):
    """A first look's candidates hold only some of them, and not always the best."""
    random = np.random.default_rng(count)
    lists = np.stack([random.choice(PROMISE_CLASSES, count, replace=False) for _ in near])
    top = promise_head.topk(near, 5, allow=lists, risk=True)
    assert (top.scored >= count).all()
    assert (top.risk == 0).all()
    wanted = promise_head.topk(near, 5, allow=lists, exact=True)
    assert (top.ids[:, :, None] == wanted.ids[:, None, :]).any(axis=1).mean() >= 0.999


@pytest.mark.parametrize(("first", "last"), [(30, 3000), (300, 3000), (1500, PROMISE_CLASSES)])
def test_rows_whose_best_classes_are_not_permitted_keep_the_promise(promise_head, first, last):
    """Of classes of neighbouring ranks previews tell little, so that such rows are answered exactly."""
    lists = np.sort(find_best(near, last)[:, first:], axis=1)
    for k in (1, 5):
        top = promise_head.topk(near, k, allow=lists, risk=True)
        wanted = find_best(near, first + k)[:, first:]
        assert (top.ids[:, :, None] == wanted[:, None, :]).any(axis=1).mean() >= 0.98
        assert (top.risk == 0).any()


@pytest.mark.parametrize("count", [60, 2000, 2900])
def test_a_short_allow_list_need_not_be_in_order(promise_head, count):
    """One that ascends is not marked; duplicates, padding and bans ask for that, and change no answer."""
    permitted = np.sort(np.random.default_rng(count).choice(PROMISE_CLASSES, count, replace=False))
    shuffled = np.random.default_rng(1).permutation(np.concatenate([permitted, permitted[:20], [-1]]))
    others = np.setdiff1d(np.arange(PROMISE_CLASSES), permitted)[:30]
    plain = promise_head.topk(near, 5, allow=permitted)
    with_bans = promise_head.topk(near, 5, allow=np.concatenate([others, permitted]), ban=others)
    for top in (promise_head.topk(near, 5, allow=shuffled), with_bans):
        np.testing.assert_array_equal(top.ids, plain.ids)
        np.testing.assert_allclose(top.logprobs, plain.logprobs, atol=1e-4)  # sums in another order
        np.testing.assert_array_equal(top.scored, plain.scored)


def test_a_long_allow_list_can_be_scored_whole(promise_head):
    """As the ways to answer lists ask for it where that costs least."""
    lists = np.sort(find_best(near, 3500)[:, 500:], axis=1)
    result = promise_head.plan.score_lists(near, 5, ClassFilter(allow=lists))
    wanted = promise_head.topk(near, 5, allow=lists, exact=True)
    np.testing.assert_array_equal(result.ids, wanted.ids)
    assert (result.risk == 0).all()
    assert (result.scored >= 3000).all()


def test_a_list_means_the_same_as_what_it_permits_or_forbids(promise_head):
    """Where the last look finds everything, as the widest one does, and a promise asks every row for it."""
    plan = change_settings(promise_head.plan, opened_per_depth=MOST_OPENED_PER_DEPTH, promise=0.99999)
    for count in (1500, 3000, 3900):
        allow, ban = (ids[None] for ids in (np.arange(count), np.arange(count, PROMISE_CLASSES)))
        by_allow, by_ban = (plan.topk(near, 5, one) for one in (ClassFilter(allow=allow), ClassFilter(ban=ban)))
        np.testing.assert_array_equal(by_allow.ids, by_ban.ids)


def test_a_row_s_answer_is_the_same_alone_and_among_others(promise_head):
    check_rows_alone(promise_head, near, (1, 5, 30))


@pytest.mark.parametrize("banned", [1, 30, 300])
def test_bans_of_the_best_classes_leave_the_best_of_the_others(promise_head, banned):
    best = find_best(near, banned + 5)
    top = promise_head.topk(near, 5, ban=best[:, :banned])
    assert (top.ids[:, :, None] == best[:, None, banned:]).any(axis=1).mean() >= 0.98
    assert not (top.ids[:, :, None] == best[:, None, :banned]).any()


def test_risk_under_bans_of_the_best_classes_covers_what_is_missed(promise_head):
    missed, stated = [], []
    for banned in (10, 20, 40, 60):
        best = find_best(near, banned + 5)
        top = promise_head.topk(near, 5, ban=best[:, :banned], risk=True)
        missed.append(1 - (top.ids[:, :, None] == best[:, None, banned:]).any(axis=1).mean())
        stated.append(top.risk.mean())
    assert np.mean(missed) / 2 <= np.mean(stated) <= 0.015


@pytest.mark.parametrize("k", [1, 5, 20])
def test_a_ban_of_no_class_that_matters_changes_nothing(promise_head, k):
    rows = np.concatenate([near[:100], far[:100]])
    worst = np.argsort(logits_of(dense, rows), axis=1)[:, :3]
    free, banned = (promise_head.plan.topk(rows, k, lists) for lists in (UNRESTRICTED, ClassFilter(ban=worst)))
    np.testing.assert_array_equal(banned.ids, free.ids)
    np.testing.assert_allclose(banned.risk, free.risk, rtol=0.001)


def test_log_probabilities_of_given_ids_are_normalised_exactly_where_answers_are_exact(promise_head):
    """Of rows that stay doubtful after the last look."""
    head, rows = promise_head.with_settings(promise=0.9999), np.concatenate([near[:100], far[:100]])
    top = head.topk(rows, head.manifest.settings.full_view, risk=True)
    exact = top.risk == 0
    assert exact.any()
    given = head.logprobs(rows, [0, 1])
    np.testing.assert_allclose(given[exact], head.logprobs(rows, [0, 1], exact=True)[exact], atol=1e-3)


def test_rows_under_deep_bans_are_answered_exactly_and_keep_their_risk_without_dense(promise_head):
    plan, without = promise_head.plan, copy(promise_head.plan)
    without.fallback = without.prover = None
    assert plan.prover is promise_head.certified
    rows, banned = near[:32], 1000
    best = find_best(rows, banned + 5)
    result, other = (each.topk(rows, 5, ClassFilter(ban=best[:, :banned])) for each in (plan, without))
    deep, exact = other.risk > SURE_MISS, result.risk == 0
    assert deep.any()
    assert exact[deep].all()
    np.testing.assert_array_equal(result.ids[exact], best[exact, banned:])
    np.testing.assert_array_equal(result.risk[~exact], other.risk[~exact])
    assert (other.ids[deep][:, :, None] == best[deep, None, banned:]).any(axis=1).mean() >= 0.9


@pytest.mark.parametrize("k", [1, 5])
def test_rows_that_stay_doubtful_after_the_last_look_are_answered_exactly(promise_head, k):
    head, rows = promise_head.with_settings(promise=0.999), np.concatenate([near[:100], far[:100]])
    top, head.row_answers = head.topk(rows, k), None
    told = head.topk(rows, k, risk=True)  # the long way
    left = told.risk == 0
    assert 0 < left.sum() < len(rows)
    np.testing.assert_array_equal(told.ids[left], find_best(rows[left], k))
    np.testing.assert_array_equal(top.ids, told.ids)
    np.testing.assert_allclose(top.logprobs, told.logprobs, atol=1e-5)
    assert (told.risk <= 2 * 1.5 * 0.001).all()


def test_a_row_that_the_loops_leave_is_answered_as_if_it_came_with_others(promise_head, monkeypatch):
    """A single row goes to exact answers by what the loops say of it, without a second search."""
    rows, banned = near[:16], find_best(near[:16], 1000)
    together = promise_head.topk(rows, 5, ban=banned, risk=True)
    left = (together.risk == 0).nonzero()[0]
    assert left.size
    monkeypatch.setattr(promise_head.plan, "topk", None)
    for row in left:
        alone = promise_head.topk(rows[row : row + 1], 5, ban=banned[row])
        np.testing.assert_array_equal(alone.ids[0], together.ids[row])
        np.testing.assert_allclose(alone.logprobs[0], together.logprobs[row], atol=1e-5)


def test_all_classes_that_long_bans_of_the_best_leave_are_compared_closely(promise_head):
    """They differ by less than int8 rows tell, and none of them can have been missed."""
    rows, left = near[:64], 1500
    best = find_best(rows, PROMISE_CLASSES - left + 5)
    result = promise_head.plan.topk(rows, 5, ClassFilter(ban=best[:, :-5]))
    assert (result.risk == 0).all()
    assert (result.ids[:, :, None] == best[:, None, -5:]).any(axis=1).mean() >= 0.999


@pytest.mark.parametrize("size", [3, 100, 2500])
def test_the_best_of_an_allow_list_are_found(promise_head, size):
    allowed = np.random.default_rng(size).permutation(PROMISE_CLASSES)[:size]
    k = min(5, size)
    scores = np.full((len(near), PROMISE_CLASSES), -np.inf)
    scores[:, allowed] = logits_of(dense, near)[:, allowed]
    best = np.argsort(-scores, axis=1)[:, :k]
    top = promise_head.topk(near, 5, allow=allowed)
    assert (top.ids[:, :k, None] == best[:, None, :]).any(axis=1).mean() >= 0.98
    assert (top.ids[:, k:] == -1).all()
    assert np.isin(top.ids[:, :k], allowed).all()
    assert (np.exp(top.logprobs).sum(axis=1) < 1 + 1e-4).all()


def test_every_form_of_lists_gives_the_same_answers(promise_head):
    """Padded arrays, tables that rows refer to, and rows of which only one class is permitted."""
    plan, rows = promise_head.plan, near[:4]
    ban = find_best(rows, 3)
    table = RowLists.from_lists([row.tolist() for row in ban])
    padded, by_table = (plan.topk(rows, 5, ClassFilter(ban=lists)) for lists in (ban, table))
    hidden = plan.topk(rows, 5, ClassFilter(hidden=ban))
    for other in (by_table, hidden):
        np.testing.assert_array_equal(padded.ids, other.ids)
        np.testing.assert_array_equal(padded.logits, other.logits)
    forced = plan.topk(rows, 2, ClassFilter(forced=np.array([7, -1, 9, -1])))
    np.testing.assert_array_equal(forced.ids[[0, 2]], [[7, -1], [9, -1]])
    np.testing.assert_array_equal(forced.ids[[1, 3]], plan.topk(rows[[1, 3]], 2, UNRESTRICTED).ids)


@pytest.mark.parametrize("name", ["ban", "allow"])
def test_the_normaliser_of_rows_with_lists_is_that_without(promise_head, name):
    """Where the first look may have missed the best class of all, a further one looks for it."""
    lists = {"ban": find_best(near, 20), "allow": np.tile(np.arange(200), (len(near), 1))}
    wanted = promise_head.plan.topk(near, 5, UNRESTRICTED).log_normalizer
    top = promise_head.plan.topk(near, 5, ClassFilter(**{name: lists[name]}))
    np.testing.assert_allclose(top.log_normalizer, wanted, atol=0.01)


def test_a_promise_needs_an_export_that_made_one(grouped_head):
    with pytest.raises(BadInput, match="no effort to be kept by"):
        grouped_head.with_settings(promise=0.9)


def test_answers_name_the_promise_that_they_were_searched_by(promise_head):
    head = promise_head.with_settings(promise=0.9)
    assert [head.topk(rows, 5).promise for rows in (near, near[:1])] == [0.9, 0.9]
    assert head.topk(near[:1], 5, exact=True).promise is None
    assert promise_head.with_settings(promise=None).topk(near, 5).promise is None
    assert [head.manifest.find_promise("estimated", k) for k in (256, 257)] == [
        0.9,
        None,
    ]
