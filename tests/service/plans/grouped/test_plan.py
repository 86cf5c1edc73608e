"""Plan `grouped`: what is answered, by compiled loops where they run, else by graphs."""

import numpy as np
import pytest
from shortlist.bundle.settings import MAX_EFFORT_K
from shortlist.core.filters import UNRESTRICTED
from shortlist.errors import BadInput
from shortlist.evaluation.statistics import mark_hits
from shortlist.head import load
from shortlist.kernels.grouped.effort import list_looks
from shortlist.plans.grouped import plan as grouped
from shortlist_exporter.graphs import certificate

from tests.support.heads.grouped import DIM, rows
from tests.support.layers import logits_of, logprobs_of, make_contexts, make_dense, make_head
from tests.support.searches import check_exact_scores, check_lists_come_first, check_rows_alone, check_wide_k

pytestmark = pytest.mark.slow


def test_answers_are_exactly_scored_distinct_and_never_padding(grouped_head, grouped_dense):
    top = grouped_head.topk(rows, 5)
    assert grouped_head.manifest.quality.p_at_5 > 0.9  # of 80 rows
    assert ((top.scored >= 200) & (top.scored < 220)).all()
    check_exact_scores(top, grouped_dense, rows, 5)


def test_a_row_s_answer_is_the_same_alone_and_among_others(grouped_head):
    check_rows_alone(grouped_head, rows, (1, 5, 30))


def test_more_threads_answer_the_same(grouped_head):
    one, three = (load(grouped_head.folder, threads=threads) for threads in (1, 3))
    three.plan.compiled.threaded_rows.row_seconds = 10.0  # so that every row is worth a thread
    for batch in (1, 7, 8, 80):
        own, other = one.topk_by_plan(rows[:batch], 5), three.topk_by_plan(rows[:batch], 5)
        np.testing.assert_array_equal(own.ids, other.ids)
        np.testing.assert_array_equal(own.logprobs, other.logprobs)
        np.testing.assert_array_equal(own.scored, other.scored)


def test_looks_grow_with_k_over_ten(grouped_head):
    size = 100_000
    settings = grouped_head.plan.settings.model_copy(update={"opened_per_k": 300, "candidates_per_k": 9})
    first, second, third = list_looks(settings, 10, size)
    assert (first.opened, first.candidates) == (settings.classes_opened, settings.candidates)
    assert first == list_looks(settings, 1, size)[0]._replace(full_view=first.full_view)
    for k in (20, 100, 500):
        wide_first, wide_second, wide_third = list_looks(settings, k, size)
        assert wide_first.opened == max(first.opened, 300 * (k - 10))
        assert wide_first.candidates == first.candidates + 9 * (k - 10)
        assert wide_first.candidates <= wide_first.previewed <= wide_first.opened
        wider = (first, wide_first), (second, wide_second), (third, wide_third)
        for before, after in (*wider, (wide_first, wide_second), (wide_second, wide_third)):
            assert all(one <= other for one, other in zip(before[:-1], after[:-1], strict=True))
            assert after.raise_share <= before.raise_share


def test_a_wide_k_widens_and_probabilities_stay(grouped_head, grouped_dense):
    """The normaliser is raised only where the many classes, scored exactly, add up to more than it had guessed."""
    few, many = grouped_head.topk(rows, 5), grouped_head.topk(rows, 30)
    raised = (few.logprobs - many.logprobs[:, :5])[few.ids == many.ids[:, :5]]
    assert (raised > -1e-4).all()
    assert (raised < 1e-4).mean() > 0.85
    assert (np.exp(many.logprobs).sum(axis=1) < 1 + 1e-4).all()  # float32's rounding of logits near 200
    assert (many.scored >= 360).all()
    check_wide_k(grouped_head, grouped_dense, rows)


def test_loops_search_a_small_layer_for_up_to_half_of_its_classes(tmp_path):
    """Dense, where they ended at a twelfth of a quarter before, took four times as long for one class more."""
    layer = make_dense(600, DIM)
    head = make_head(tmp_path, layer, make_contexts(600, DIM), method="grouped", options={})
    assert head.plan.compiled is not None
    assert head.plan.find_largest_k() == MAX_EFFORT_K < 300
    some = make_contexts(20, DIM, seed=5).contexts
    best = np.argsort(-logits_of(layer, some), axis=1)
    for k in (13, 100, MAX_EFFORT_K):
        assert mark_hits(head.topk(some, k).ids, best, k).mean() > 0.98
    head.plan.compiled = None
    assert head.plan.find_largest_k() == 12, "graphs are as slow as they were"


def test_more_classes_than_loops_search_are_proved(tmp_path, monkeypatch):
    """By graphs k = 513 took ten times as long as 512, and three to eight times as long as an exact answer."""
    monkeypatch.setattr(certificate, "MIN_WEIGHTS", 0)
    monkeypatch.setattr(grouped, "MAX_GROUPED_K", 60)
    head = make_head(tmp_path, make_dense(4_000, DIM), make_contexts(600, DIM), method="grouped", options={})
    assert not head.plan.prefers_dense(100)
    for lists in ({}, {"ban": [1, 2, 3]}, {"allow": np.arange(0, 4_000, 2)}):
        top = head.topk(rows, 100, risk=True, **lists)
        exact = [head.topk(row[None], 100, exact=True, **lists).ids for row in rows]
        np.testing.assert_array_equal(top.ids, np.concatenate(exact))
        np.testing.assert_array_equal(top.risk, 0)
    assert head.plan.graphs.sessions.preview.value is None, "opened, though nothing needs it"


def test_lists_are_applied_before_the_best_are_taken(grouped_head, grouped_dense):
    allowed = check_lists_come_first(grouped_head, grouped_dense, rows)
    assert (np.exp(allowed.logprobs).sum(axis=1) < 1 + 1e-3).all()


def test_log_probabilities_are_near_the_dense_ones(grouped_head, grouped_dense):
    top = grouped_head.topk(rows, 5)
    exact = np.take_along_axis(logprobs_of(grouped_dense, rows), top.ids, axis=1)
    assert np.median(np.abs(top.logprobs - exact)) < 0.12
    assert top.normalizer == "estimated"


def test_half_precision_zeros_and_no_rows_are_answered(grouped_head):
    assert (grouped_head.topk(rows.astype(np.float16), 5).ids == grouped_head.topk(rows, 5).ids).mean() > 0.9
    assert np.isfinite(grouped_head.topk(np.zeros((1, DIM), np.float32), 5).logprobs).all()
    assert grouped_head.topk(rows[:0], 5).ids.shape == (0, 5)


@pytest.mark.parametrize(("number", "text"), [(np.nan, "NaN or infinity"), (3e38, "overflow float32")])
def test_numbers_that_float32_cannot_hold_are_refused(grouped_head, number, text):
    with pytest.raises(BadInput, match=text):
        grouped_head.topk(np.full((1, DIM), number, np.float32), 5)


def test_topk_and_logprobs_normalise_alike(grouped_head, no_library):
    """Both score as many candidates exactly, by graphs as by loops: an int8 logit is off by more than rounding."""
    for plan in (grouped_head.plan, load(grouped_head.folder, threads=1).plan):
        best = plan.topk(rows, 5, UNRESTRICTED)
        normalizer = plan.compute_log_normalizer(rows, best.ids, best.logits)
        np.testing.assert_array_equal(normalizer, best.log_normalizer)


@pytest.mark.parametrize("method", ["cascade", "grouped"])
def test_nothing_is_guessed_where_every_class_is_a_candidate(method, tmp_path):
    dense, contexts = make_dense(12, 8), make_contexts(200, 8)
    head = make_head(tmp_path, dense, contexts, method=method, options={"full_view": "12"})
    some = np.concatenate([np.zeros((1, 8), np.float32), contexts.contexts[:20]])
    top = head.topk_by_plan(some, 3)
    truth = np.take_along_axis(logprobs_of(dense, some), top.ids, axis=1)
    np.testing.assert_allclose(top.logprobs, truth, atol=1e-4)


def test_the_last_look_at_millions_is_twice_the_first(grouped_head):
    settings = grouped_head.plan.settings.with_changes({"opened": 150_000, "previewed": 150_000})
    assert list_looks(settings, 10, 2_200_000)[1].opened == 300_000
    assert list_looks(settings, 10, 500_000)[1].opened == 250_000
    assert list_looks(grouped_head.plan.settings, 10, 2_200_000)[1].opened == 1 << 18


@pytest.mark.parametrize("scale", [0.01, 0.1, 1, 10])
def test_normalisers_of_short_and_long_contexts_are_off_by_little(scale, grouped_head, grouped_dense, no_library):
    """No more than docs/answers.md says, by loops as by graphs; the contexts that were fitted have a scale of 1."""
    some = (scale * rows).astype(np.float32)
    truth = logits_of(grouped_dense, some).max(axis=1) - logprobs_of(grouped_dense, some).max(axis=1)
    for plan in (grouped_head.plan, load(grouped_head.folder, threads=1).plan):
        errors = plan.topk(some, 5, UNRESTRICTED).log_normalizer - truth
        assert errors.max() < np.log(2 * plan.order.size / plan.settings.candidates) + 0.01
        assert np.median(np.abs(errors)) < 1.3
