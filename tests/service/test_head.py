"""Meaning of the answers, on real bundles."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from shortlist.bundle.reader import Bundle
from shortlist.errors import BadInput
from shortlist.head import Head
from shortlist.plans.common import list_ways

from tests.support.heads import grouped
from tests.support.layers import CLASSES, DIM, logits_of, logprobs_of, make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    options = {"basis": "context", "width": "8", "full_view": "40"}
    return make_head(tmp_path_factory.mktemp("svd"), make_dense(), options=options)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    return make_head(tmp_path_factory.mktemp("full"), make_dense(), method="full", options={})


rows = make_contexts(64, seed=5).contexts


def test_full_is_the_dense_softmax(full):
    top = full.topk(rows, CLASSES)
    truth = logprobs_of(make_dense(), rows)
    assert (top.ids == np.argsort(-truth, axis=1, kind="stable")).mean() > 0.999  # rounding may swap neighbours
    np.testing.assert_allclose(top.logprobs, np.take_along_axis(truth, top.ids, axis=1), atol=1e-4)
    np.testing.assert_allclose(np.exp(top.logprobs).sum(axis=1), 1, atol=1e-4)
    assert top.normalizer == "exact"
    assert top.scored.tolist() == [CLASSES] * len(rows)
    assert (top.ids.dtype, top.logprobs.dtype, top.scored.dtype) == (np.int64, np.float32, np.int32)


def test_preview_scores_candidates_exactly(head):
    top = head.topk(rows, 5)
    logits = np.take_along_axis(logits_of(make_dense(), rows), top.ids, axis=1)
    differences = np.diff(top.logprobs, axis=1) - np.diff(logits, axis=1)
    np.testing.assert_allclose(differences, 0, atol=1e-4)
    assert top.normalizer == "estimated"
    assert top.scored.tolist() == [40] * len(rows)


def test_exact_is_dense_on_any_bundle(head, full):
    ours, dense = head.topk(rows, 5, exact=True), full.topk(rows, 5)
    assert ours.normalizer == "exact"
    np.testing.assert_array_equal(ours.ids, dense.ids)


def test_a_row_alone_equals_the_row_beside_a_huge_neighbour(head):
    batch = rows.copy()
    batch[1:] *= 1000
    alone, beside = head.topk(batch[:1], 10), head.topk(batch, 10)
    np.testing.assert_array_equal(alone.ids[0], beside.ids[0])
    np.testing.assert_allclose(alone.logprobs[0], beside.logprobs[0], atol=1e-5)
    assert alone.scored[0] == beside.scored[0]


@pytest.mark.parametrize("options", [{}, {"exact": True}, {"ban": [3, 4], "bias": {5: 2.0, 9: -1.0}}])
def test_scores_are_logits_of_the_ids(head, full, options):
    for one in (head, full):
        top = one.topk(rows, 5, scores=True, **options)
        logits = np.take_along_axis(logits_of(make_dense(), rows), top.ids, axis=1)
        np.testing.assert_allclose(top.scores, logits, atol=1e-4)
        assert top.scores.dtype == np.float32
        assert one.topk(rows, 5, **options).scores is None


def test_there_is_no_score_beside_no_id(full):
    top = full.topk(rows[:2], 3, allow=[[7], [1, 2, 8]], scores=True)
    assert np.isneginf(top.scores).tolist() == [[False, True, True], [False] * 3]


def test_k_widens_the_candidates_then_goes_dense(head):
    assert head.topk(rows[:1], 10).scored[0] == 40
    assert head.topk(rows[:1], 15).scored[0] == 60
    many = head.topk(rows[:1], CLASSES)
    assert (many.scored[0], many.normalizer) == (CLASSES, "exact")
    assert sorted(many.ids[0]) == list(range(CLASSES))


def test_lists_change_which_classes_come_back_and_not_their_logprobs(head):
    best = head.topk(rows, 5).ids
    for lists in ({"ban": best[:, :3]}, {"allow": best[:, 3:]}):
        top = head.topk(rows, 2, **lists)
        np.testing.assert_allclose(top.logprobs, head.logprobs(rows, top.ids), atol=0.05)


def test_allow_and_ban_before_the_top_k(head, full):
    truth = full.topk(rows, CLASSES).ids
    for model in (head, full):
        banned = model.topk(rows, 5, ban=truth[:, :3])
        assert not (banned.ids[:, :, None] == truth[:, None, :3]).any()
        allowed = model.topk(rows, 5, allow=truth[:, -8:])
        np.testing.assert_array_equal(allowed.ids, truth[:, -8:-3])
        both = model.topk(rows, 5, allow=[7, 8, 9], ban=[8])
        assert {tuple(sorted(row)) for row in both.ids.tolist()} == {(-1, -1, -1, 7, 9)}
        assert np.isneginf(both.logprobs[:, 2:]).all()


def test_normaliser_does_not_depend_on_lists(full):
    plain, allowed = full.logprobs(rows, np.full((64, 1), 7)), full.topk(rows, 1, allow=[7]).logprobs
    np.testing.assert_allclose(plain, allowed, atol=1e-5)


def test_logprobs_of_given_classes(head, full):
    top = head.topk(rows, 5)
    np.testing.assert_allclose(head.logprobs(rows, top.ids), top.logprobs, atol=1e-5)
    truth = logprobs_of(make_dense(), rows)[:, [3, 299]]
    np.testing.assert_allclose(full.logprobs(rows, np.tile([3, 299], (64, 1))), truth, atol=1e-4)
    assert np.isneginf(full.logprobs(rows, np.full((64, 2), -1))).all()
    assert full.logprobs(rows, np.empty((64, 0), np.int64)).shape == (64, 0)


def test_no_rows(head, full):
    for model in (head, full):
        top = model.topk(np.empty((0, DIM), np.float32), 3)
        assert (top.ids.shape, top.logprobs.shape, top.scored.shape) == ((0, 3), (0, 3), (0,))


def test_more_rows_than_a_chunk(full):
    many = make_contexts(1000, seed=9).contexts
    np.testing.assert_array_equal(full.topk(many, 3).ids[777], full.topk(many[777:778], 3).ids[0])


def test_threads_may_share_a_head(head):
    expected = [head.topk(rows[i : i + 1], 5).ids for i in range(64)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: head.topk(rows[i % 64][None], 5).ids, range(640)))
    assert all((found[i] == expected[i % 64]).all() for i in range(640))


@pytest.mark.parametrize(
    ("contexts", "k", "sentence"),
    [
        (np.full((2, DIM), np.nan), 1, "row 0 holds NaN or infinity"),
        (np.r_[np.zeros((1, DIM)), np.full((1, DIM), np.inf)], 1, "row 1 holds NaN or infinity"),
        (np.zeros((2, DIM + 1)), 1, r"shape \[2, 17\] but lm takes \[rows, 16\]"),
        (np.zeros(DIM), 1, "shape"),
        ([["a"]], 1, "row 0 must be a list of numbers alone"),
        (np.zeros((1, DIM)), 0, "k is 0 but lm answers k from 1 to 300"),
        (np.zeros((1, DIM)), 301, "k is 301"),
        (np.zeros((1, DIM)), 1.5, "k is 1.5"),
        (np.zeros((1, DIM)), True, "k is True"),
        (np.full((1, DIM), 3e38), 1, "overflow float32"),
    ],
)
def test_bad_input(head, full, contexts, k, sentence):
    for model in (head, full):
        with pytest.raises(BadInput, match=sentence):
            model.topk(contexts, k)


def test_scores_that_overflow_are_refused_for_given_classes_too(head, full):
    contexts = np.r_[np.zeros((1, DIM)), np.full((1, DIM), 3e38)]
    for model in (head, full):
        for exact in (False, True):
            with pytest.raises(BadInput, match="row 1 is so large that its scores overflow float32"):
                model.logprobs(contexts, [[1, 2], [3, 4]], exact=exact)


@pytest.mark.parametrize(
    ("lists", "sentence"),
    [
        ([300], "holds id 300"),
        ([-2], "holds id -2"),
        ([0.5], "whole numbers"),
        ([[1], [2], [3]], "3 rows for 2 contexts"),
        ([[[1]]], "whole numbers"),
    ],
)
def test_bad_lists(head, lists, sentence):
    for name in ("allow", "ban"):
        with pytest.raises(BadInput, match=sentence):
            head.topk(rows[:2], 1, **{name: lists})


def test_bad_ids(head):
    for ids in ([[300]], [[0.5]], [[0], [1]]):
        with pytest.raises(BadInput, match="ids"):
            head.logprobs(rows[:1], ids)
    with pytest.raises(BadInput, match=r"ids has 3 rows for 2 contexts"):
        head.logprobs(rows[:2], [[1, 2], [3], [4]])


def test_with_settings_looks_further_and_leaves_the_head_as_it_was(head):
    before = head.topk(rows, 5)
    wide = head.with_settings(full_view=200)
    assert (head.topk(rows, 5).scored.max(), wide.topk(rows, 5).scored.min()) == (40, 200)
    assert (head.manifest.settings.full_view, wide.manifest.settings.full_view) == (40, 200)
    assert (wide.plan.preview, wide.plan.exact_rows, wide.exact) == (
        head.plan.preview,
        head.plan.exact_rows,
        head.exact,
    )
    np.testing.assert_array_equal(head.topk(rows, 5).logprobs, before.logprobs)
    same = wide.with_settings(full_view=40).topk(rows, 5)
    np.testing.assert_array_equal(same.logprobs, before.logprobs)
    np.testing.assert_array_equal(head.with_settings().topk(rows, 5).logprobs, before.logprobs)


def test_with_settings_beside_threads_that_use_the_old_head(head):
    wanted = {count: head.with_settings(full_view=count).topk(rows, 5) for count in (40, 60, 100)}

    def run(turn):
        count = (40, 60, 100)[turn % 3]
        top = (head if count == 40 else head.with_settings(full_view=count)).topk(rows, 5)
        assert (top.scored == count).all()
        np.testing.assert_array_equal(top.logprobs, wanted[count].logprobs)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(60)))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"probes": 2}, "there is no setting 'probes' to change: choose from full_view"),
        ({"full_view": 0}, "setting full_view=0 is wrong: Input should be greater than or equal to 1"),
        ({"tail_shift": 1.0}, "there is no setting 'tail_shift' to change"),
    ],
)
def test_wrong_settings(head, changes, sentence):
    with pytest.raises(BadInput, match=sentence):
        head.with_settings(**changes)


@pytest.mark.parametrize("changes", [{"opened": 100}, {"candidates": 40}])
def test_a_search_that_goes_less_far_than_the_exports_states_neither_promise_nor_risk(promise_head, changes):
    narrow, some = promise_head.with_settings(**changes), grouped.promise_contexts.contexts[:20]
    top, exact = narrow.topk(some, 5, risk=True), narrow.topk(some, 5, risk=True, exact=True)
    assert (narrow.topk(some[:1], 5).promise, top.promise) == (None, None)
    assert np.isnan(top.risk[top.scored < grouped.PROMISE_CLASSES]).all()
    assert (top.scored < grouped.PROMISE_CLASSES).any()
    np.testing.assert_array_equal(exact.risk, 0)
    assert promise_head.topk(some, 5).promise == 0.99


def test_a_dense_head_has_nothing_to_set(full):
    with pytest.raises(BadInput, match="there is no setting 'full_view' to change: this head has none"):
        full.with_settings(full_view=3)


def test_an_open_dense_head_may_be_shared(head, full):
    shared = Head(Bundle(head.folder), "cpu", 1, full.dense)
    assert shared.dense is shared.exact is shared.plan.fallback is full.dense
    for exact in (False, True):
        np.testing.assert_array_equal(
            shared.topk(rows, 5, exact=exact).logprobs, head.topk(rows, 5, exact=exact).logprobs
        )


@pytest.mark.parametrize("method", ["full", "svd", "cascade", "grouped"])
def test_a_head_goes_with_the_last_reference_to_it(method, tmp_path, prove_small_layers, monkeypatch):
    """Who unloads a model gets its memory back: an idle server hardly ever collects cycles of references."""
    monkeypatch.setattr(list_ways, "MIN_CLASSES", 0)
    head = make_head(tmp_path, make_dense(), method=method, options={})
    for ban in (None, [1, 2]):
        head.topk(rows[:2], 5, ban=ban)
    parts = [weakref.ref(part) for part in (head.plan, head.dense, head.certified)]
    gc.disable()
    try:
        del head
        assert [part() for part in parts] == [None] * 3
    finally:
        gc.enable()
