"""Plan `grouped`: what is answered, by compiled loops where they run, else by graphs."""

import numpy as np
import pytest
from shortlist.core.filters import UNRESTRICTED
from shortlist.errors import BadInput
from shortlist.head import load

from tests.support.grouped import CLASSES, DIM, LAYERS, OPTIONS, compiled, contexts, rows
from tests.support.layers import logits_of, logprobs_of, make_dense, make_head

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=LAYERS)
def dense(request):
    return make_dense(CLASSES, DIM, **LAYERS[request.param])


@pytest.fixture(scope="module", params=["2 bits", "int8"])
def options(request):
    """Previews mostly of 2 bits, or all in int8, as bundles had them before."""
    return OPTIONS | ({"int8_width": OPTIONS["width"]} if request.param == "int8" else {"int8_width": "6"})


@pytest.fixture(scope="module")
def head(dense, options, tmp_path_factory):
    return make_head(tmp_path_factory.mktemp("grouped"), dense, contexts, method="grouped", options=options)


def test_answers_are_exactly_scored_distinct_and_never_padding(head, dense):
    top, truth = head.topk(rows, 5), logits_of(dense, rows)
    assert head.manifest.quality.p_at_5 > 0.9  # of 80 rows
    assert ((top.scored >= 200) & (top.scored < 220)).all()
    for row, ids in enumerate(top.ids):
        assert len(set(ids.tolist()) - set(dense.padded.tolist())) == 5
        np.testing.assert_allclose(np.diff(top.logprobs[row]), np.diff(truth[row, ids]), atol=1e-4)
        assert (np.diff(truth[row, ids]) <= 1e-5).all()


def test_a_row_s_answer_is_the_same_alone_and_among_others(head):
    for k in (1, 5, 30):
        whole = head.topk(rows, k)
        for row in range(0, len(rows), 9):
            alone = head.topk(rows[row : row + 1], k)
            np.testing.assert_array_equal(alone.ids[0], whole.ids[row])
            np.testing.assert_allclose(alone.logprobs[0], whole.logprobs[row], atol=1e-5)


@compiled
def test_more_threads_answer_the_same(head):
    one, three = (load(head.folder, threads=threads) for threads in (1, 3))
    three.plan.compiled.threaded_rows.row_seconds = 10.0  # so that every row is worth a thread
    for batch in (1, 7, 8, 80):
        own, other = one.topk_by_plan(rows[:batch], 5), three.topk_by_plan(rows[:batch], 5)
        np.testing.assert_array_equal(own.ids, other.ids)
        np.testing.assert_array_equal(own.logprobs, other.logprobs)
        np.testing.assert_array_equal(own.scored, other.scored)


def test_a_wide_k_widens_and_probabilities_stay(head, dense):
    """The normaliser is raised only where the many classes, scored exactly, add up to more than it had guessed."""
    few, many = head.topk(rows, 5), head.topk(rows, 30)
    raised = (few.logprobs - many.logprobs[:, :5])[few.ids == many.ids[:, :5]]
    assert (raised > -1e-4).all()
    assert (raised < 1e-4).mean() > 0.85
    assert (np.exp(many.logprobs).sum(axis=1) < 1 + 1e-4).all()  # float32's rounding of logits near 200
    assert (many.scored >= 360).all()
    truth = np.argsort(-logits_of(dense, rows), axis=1)[:, :30]
    assert np.mean([len(set(a) & set(b)) / 30 for a, b in zip(many.ids.tolist(), truth.tolist(), strict=True)]) > 0.95
    assert (head.topk(rows[:2], 400).scored == CLASSES).all()  # dense


def test_lists_are_applied_before_the_best_are_taken(head, dense):
    free = head.topk(rows, 5)
    banned = head.topk(rows, 5, ban=free.ids)
    assert not (banned.ids[:, :, None] == free.ids[:, None, :]).any()
    scores = logits_of(dense, rows)
    np.put_along_axis(scores, free.ids, -np.inf, axis=1)
    assert (banned.ids[:, 0] == scores.argmax(axis=1)).mean() > 0.95
    allowed = head.topk(rows, 3, allow=[7, 9])
    assert (np.sort(allowed.ids[:, :2], axis=1) == [7, 9]).all()
    assert (allowed.ids[:, 2] == -1).all()
    assert (np.exp(allowed.logprobs).sum(axis=1) < 1 + 1e-3).all()


def test_log_probabilities_are_near_the_dense_ones(head, dense):
    top = head.topk(rows, 5)
    exact = np.take_along_axis(logprobs_of(dense, rows), top.ids, axis=1)
    assert np.median(np.abs(top.logprobs - exact)) < 0.1
    assert top.normalizer == "estimated"


def test_half_precision_zeros_and_no_rows_are_answered(head):
    assert (head.topk(rows.astype(np.float16), 5).ids == head.topk(rows, 5).ids).mean() > 0.9
    assert np.isfinite(head.topk(np.zeros((1, DIM), np.float32), 5).logprobs).all()
    assert head.topk(rows[:0], 5).ids.shape == (0, 5)


@pytest.mark.parametrize(("number", "text"), [(np.nan, "NaN or infinity"), (3e38, "overflow float32")])
def test_numbers_that_float32_cannot_hold_are_refused(head, number, text):
    with pytest.raises(BadInput, match=text):
        head.topk(np.full((1, DIM), number, np.float32), 5)


def test_topk_and_logprobs_normalise_alike(head, no_numba):
    """Both score as many candidates exactly, by graphs as by loops: an int8 logit is off by more than rounding."""
    for plan in (head.plan, load(head.folder, threads=1).plan):
        best = plan.topk(rows, 5, UNRESTRICTED)
        normalizer = plan.compute_log_normalizer(rows, best.ids, best.logits)
        np.testing.assert_array_equal(normalizer, best.log_normalizer)
