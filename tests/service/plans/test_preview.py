"""Plan `preview` where its previews are no numbers."""

import numpy as np
import pytest
from shortlist.errors import BadInput

from tests.support.layers import DIM, logits_of, logprobs_of, make_contexts, make_dense, make_head

ROWS = make_contexts(6, seed=9).contexts
LARGE = {
    "all alike": np.full(DIM, 3e38, np.float32),
    "both signs": np.where(np.arange(DIM) % 2, 3e38, -3e38).astype(np.float32),
    "one number": np.eye(DIM, dtype=np.float32)[0] * np.float32(3.4e38),
}


@pytest.fixture(scope="module", params=[{}, {"full_view": "3"}, {"basis": "context", "preview": "fp32"}], ids=str)
def head(request, tmp_path_factory):
    return make_head(tmp_path_factory.mktemp("svd"), make_dense() if request.param else make_dense(6000), **{
        "options": request.param
    })  # fmt: skip


@pytest.mark.parametrize("large", LARGE)
def test_a_row_whose_previews_overflow_is_named(head, large):
    contexts = np.concatenate([ROWS[:3], LARGE[large][None], ROWS[3:]])
    for rows, number in ((contexts, 3), (LARGE[large][None], 0)):
        for call in (
            lambda rows: head.topk(rows, 5),
            lambda rows: head.topk(rows, 5, allow=[1, 2, 3, 4, 5, 6]),
            lambda rows: head.topk(rows, 5, ban=[1]),
            lambda rows: head.topk(rows, 5, exact=True),
            lambda rows: head.logprobs(rows, np.zeros((len(rows), 1), np.int64)),
        ):
            with pytest.raises(BadInput, match=f"contexts row {number} is so large that its scores overflow float32"):
                call(rows)


def test_an_infinite_preview_is_refused_though_the_candidates_are_numbers(head, monkeypatch):
    previews = head.plan.preview

    def overflow(context):
        logits = previews(context=context)[0]
        logits[:, 7] = np.inf
        return [logits]

    monkeypatch.setattr(head.plan, "preview", overflow)
    with pytest.raises(BadInput, match="contexts row 0 is so large"):
        head.topk(ROWS, 2)


@pytest.mark.parametrize("bias", [None, np.linspace(-2, 2, 300, dtype=np.float32)], ids=["plain", "biases"])
def test_short_contexts_are_not_given_the_tail_of_long_ones(tmp_path, bias):
    """A context of zeros was 3 nats off: its logits are the biases, of which previews lack nothing."""
    dense = make_dense(bias=bias)
    head = make_head(tmp_path, dense, options={"basis": "context", "width": "4", "full_view": "20"})
    assert head.plan.settings.tail_shift > 0.5
    zeros = np.zeros((2, DIM), np.float32)
    truth = logprobs_of(dense, zeros)
    ids = np.tile(np.arange(20), (2, 1))
    np.testing.assert_allclose(head.logprobs(zeros, ids), truth[:, :20], atol=1e-4)
    top = head.topk(zeros, 5)
    np.testing.assert_allclose(top.logprobs, np.take_along_axis(truth, top.ids, axis=1), atol=1e-4)
    for scale, nats in ((1e-3, 0.01), (1e-2, 0.1)):
        rows = ROWS * np.float32(scale)
        top = head.topk(rows, 5)
        exact = np.take_along_axis(logprobs_of(dense, rows), top.ids, axis=1)
        assert np.abs(top.logprobs - exact).max() < nats


def test_no_log_probability_is_over_0(head):
    """A shift that is taken off exact logits and added to their sum loses an ulp of either."""
    ids, shift = np.array([1]), np.float32(23.850971)
    for logit in np.random.default_rng(0).uniform(100, 200, 50).astype(np.float32):
        preview = np.full(3, -1e3, np.float32)
        assert head.plan.normalize(preview, ids, np.array([logit]), shift) >= logit


@pytest.mark.parametrize("bias", [None, np.linspace(-2, 2, 300, dtype=np.float32)], ids=["plain", "biases"])
def test_all_given_classes_take_the_place_of_their_previews(tmp_path, bias):
    """More than are rescored did so by the best of their previews alone."""
    dense = make_dense(bias=bias)
    head = make_head(tmp_path, dense, options={"basis": "context", "width": "4", "full_view": "20"})
    ids = np.random.default_rng(0).integers(-1, 300, (len(ROWS), 150))
    logits, distribution = logits_of(dense, ROWS), head.plan.compute_distribution(ROWS).astype(np.float64)
    for row, given in enumerate(ids):
        distribution[row, given[given >= 0]] = logits[row, given[given >= 0]]
    truth = logits - np.log(np.exp(distribution).sum(axis=1, keepdims=True))
    wanted = np.where(ids < 0, -np.inf, np.take_along_axis(truth, ids, axis=1))
    np.testing.assert_allclose(head.logprobs(ROWS, ids), wanted, atol=1e-4)
    np.testing.assert_allclose(head.logprobs(ROWS[:1], ids[:1]), wanted[:1], atol=1e-4)
