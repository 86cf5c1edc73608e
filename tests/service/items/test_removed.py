"""Heads of which most items were removed, or all: log-probabilities are those of what is left."""

import warnings

import numpy as np
import pytest
from shortlist.errors import BadInput
from shortlist.items.batch import ItemBatch
from shortlist.items.live_head import LiveHead
from shortlist.items.overlay import ItemOverlay, Snapshot
from shortlist.items.search import choose_least_share

from tests.support.layers import logits_of, make_contexts, make_dense, make_head

CLASSES, DIM = 3000, 24
contexts = make_contexts(1200, DIM)
ROWS = contexts.contexts[-200:] * np.float32(0.5)
DENSE = make_dense(CLASSES, DIM)


@pytest.fixture(scope="module", params=["grouped", "cascade", "full"])
def head(request, tmp_path_factory):
    return make_head(tmp_path_factory.mktemp("removed"), DENSE, contexts, method=request.param, options={})


def remove(head, ids):
    """The head without these items."""
    overlay = ItemOverlay(head.manifest, head.names, 0, 1, head.exact_rows.loops)
    for position, start in enumerate(range(0, len(ids), 1000), 1):
        gone = [int(each) for each in ids[start : start + 1000]]
        overlay.apply(position, [ItemBatch.make([], np.empty((0, DIM), np.float32), gone)])
    return LiveHead.make(head, overlay)


def measure_errors(top, rows, gone):
    """By how much the log-probabilities [B, k] of answers are off, in nats."""
    logits = logits_of(DENSE, rows).astype(np.float64)
    logits[:, gone] = -np.inf
    peak = logits.max(axis=1, keepdims=True)
    logits -= peak + np.log(np.exp(logits - peak).sum(axis=1, keepdims=True))
    return np.abs(top.logprobs - np.take_along_axis(logits, top.ids, axis=1))


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("share", [0.9, 0.99])
def test_estimates_of_which_little_is_left_are_summed_anew(head, share, native, monkeypatch):
    gone = np.random.default_rng(0).choice(CLASSES, int(share * CLASSES), replace=False)
    if not native:
        monkeypatch.setattr(Snapshot, "merge", None)
    live = remove(head, gone)
    assert measure_errors(live.topk(ROWS, 3), ROWS, gone).max() < 0.2
    assert np.isfinite(live.logprobs(ROWS, live.topk(ROWS, 3).ids)).all()


@pytest.mark.parametrize("scale", [1, 4])
def test_exact_answers_agree_with_the_layer_that_is_left(head, scale):
    gone = np.random.default_rng(0).choice(CLASSES, CLASSES // 2, replace=False)
    rows = ROWS * np.float32(scale)
    assert measure_errors(remove(head, gone).topk(rows, 3, exact=True), rows, gone).max() < 2e-4


@pytest.mark.parametrize(("error", "share"), [(0, 0.1), (0.001, 0.1), (0.03, 0.3), (4, 0.5)])
def test_the_share_that_has_to_be_left_grows_with_the_error(error, share):
    assert choose_least_share(error) == pytest.approx(share)


def test_a_head_without_any_item_answers_that_there_is_none(head):
    live = remove(head, np.arange(CLASSES))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in (ROWS[:1], ROWS[:3]):
            for top in (live.topk(rows, 2), live.topk(rows, 2, exact=True), live.sample(rows, seed=1)):
                assert (top.ids == -1).all()
                assert (top.logprobs == -np.inf).all()
            assert (live.logprobs(rows, [1, 2]) == -np.inf).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # by cascade, of whatever head
def test_overflow_is_told_of_a_changed_head_as_of_any(head):
    live = remove(head, np.arange(5))
    with pytest.raises(BadInput, match="overflow float32"):
        live.topk(np.full((1, DIM), 3e38, np.float32), 2)
