"""Heads with changed items against the dense layer of what they should hold."""

import numpy as np
import pytest
from shortlist.errors import BadInput
from shortlist.items.batch import ItemBatch
from shortlist.items.live_head import LiveHead
from shortlist.items.overlay import ItemOverlay

from tests.support.heads import grouped
from tests.support.layers import CLASSES, DIM, make_contexts, make_dense, make_head

ROWS = make_contexts(rows=12, seed=6).contexts
WHOLE = {"bias": np.linspace(-1, 1, CLASSES, dtype=np.float32), "logit_scale": 0.7, "soft_cap": 30.0}
LAYERS = {"plain": {}, "whole": WHOLE}


class Catalogue:
    """What the items should be after changes: a dense layer in float64, and the head that has them."""

    def __init__(self, head, dense, *, named):
        self.dense, self.named = dense, named
        self.weight = dense.weight.astype(np.float64)
        self.bias = np.zeros(len(self.weight)) if dense.bias is None else dense.bias.astype(np.float64)
        self.gone = set()
        self.overlay = ItemOverlay(head.manifest, head.names, 0, 1)
        self.head = LiveHead.make(head, self.overlay)

    def change(self, put=(), remove=(), seed=0):
        random = np.random.default_rng(seed)
        vectors = random.standard_normal((len(put), DIM)).astype(np.float32) * 2
        biases = random.standard_normal(len(put)).astype(np.float32)
        keys = [[f"item-{i}" for i in ids] if self.named else list(ids) for ids in (put, remove)]
        batch = ItemBatch.make(keys[0], vectors, keys[1], biases=biases)
        batch.check(DIM, names=self.named)
        self.overlay.apply(self.overlay.position + 1, [batch])
        self.gone |= set(remove)
        for item, vector, bias in zip(put, vectors, biases, strict=True):
            while len(self.weight) <= item:
                self.weight = np.concatenate([self.weight, np.zeros((1, DIM))])
                self.bias = np.append(self.bias, 0.0)
            self.weight[item], self.bias[item] = vector, bias
            self.gone.discard(item)

    def logits(self, contexts):
        logits = (contexts.astype(np.float64) @ self.weight.T + self.bias) * self.dense.logit_scale
        if self.dense.soft_cap is not None:
            logits = self.dense.soft_cap * np.tanh(logits / self.dense.soft_cap)
        logits[:, sorted(self.gone)] = -np.inf
        return logits

    def logprobs(self, contexts):
        logits = self.logits(contexts)
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


@pytest.fixture(scope="module", params=LAYERS)
def heads(request, tmp_path_factory):
    dense = make_dense(**LAYERS[request.param])
    head = make_head(tmp_path_factory.mktemp("items"), dense, method="full", options={})
    return head, dense


@pytest.fixture
def catalogue(heads):
    catalogue = Catalogue(*heads, named=False)
    catalogue.change(put=[300, 301, 302, 5, 6], remove=[7, 8, 9], seed=1)
    catalogue.change(put=[5, 303], remove=[301, 10], seed=2)
    catalogue.change(put=[7], seed=3)
    return catalogue


def rank(logits, k):
    return np.lexsort((np.broadcast_to(np.arange(logits.shape[1]), logits.shape), -logits), axis=1)[:, :k]


@pytest.mark.parametrize("k", [1, 5, 40])
@pytest.mark.parametrize("exact", [False, True])
def test_answers_are_those_of_the_changed_layer(catalogue, k, exact):
    top = catalogue.head.topk(ROWS, k, exact=exact, scores=True)
    logits = catalogue.logits(ROWS)
    np.testing.assert_array_equal(top.ids, rank(logits, k))
    np.testing.assert_allclose(top.scores, np.take_along_axis(logits, top.ids, 1), atol=1e-4)
    np.testing.assert_allclose(top.logprobs, np.take_along_axis(catalogue.logprobs(ROWS), top.ids, 1), atol=1e-4)


def test_biases_hold_for_added_replaced_and_removed_items(catalogue):
    bias = {300: 40.0, 5: 41.0, 301: 90.0, 8: 90.0, 20: 39.0}
    top = catalogue.head.topk(ROWS, 3, bias=bias)
    weighted = catalogue.logits(ROWS)
    for item, weight in bias.items():
        weighted[:, item] += weight
    np.testing.assert_array_equal(top.ids, rank(weighted, 3))
    np.testing.assert_allclose(top.logprobs, np.take_along_axis(catalogue.logprobs(ROWS), top.ids, 1), atol=1e-4)


def test_lists_hold_for_added_and_removed_items(catalogue):
    logits = catalogue.logits(ROWS)
    allow, ban = [5, 7, 8, 300, 301, 302, 20], [300, 20]
    top = catalogue.head.topk(ROWS, 5, allow=allow, ban=ban)
    masked = np.full_like(logits, -np.inf)
    kept = [5, 7, 302]
    masked[:, kept] = logits[:, kept]
    np.testing.assert_array_equal(top.ids[:, :3], rank(masked, 3))
    assert (top.ids[:, 3:] == -1).all()
    banned = catalogue.head.topk(ROWS, 10, ban=[[300, 1], *[[302]] * 11])
    assert not (banned.ids[0] == 300).any()
    assert not (banned.ids[1:] == 302).any()


def test_biases_are_added_to_changed_items(catalogue):
    logits = catalogue.logits(ROWS)
    top = catalogue.head.topk(ROWS, 5, bias={302: 50.0, 8: 100.0, 3: 40.0})
    logits[:, 302] += 50
    logits[:, 3] += 40
    np.testing.assert_array_equal(top.ids, rank(logits, 5))


def test_log_probabilities_of_given_items(catalogue):
    ids = [300, 301, 5, 8, 20, -1]
    expected = catalogue.logprobs(ROWS)[:, [300, 301, 5, 8, 20]]
    given = catalogue.head.logprobs(ROWS, ids)
    np.testing.assert_allclose(given[:, :5], expected, atol=1e-4)
    assert np.isneginf(given[:, 5]).all()
    with pytest.raises(BadInput, match="classes go from 0 to 303"):
        catalogue.head.logprobs(ROWS, [304])


def test_draws_are_of_the_changed_layer(catalogue):
    rows = np.repeat(ROWS[:1], 4000, axis=0)
    drawn = catalogue.head.sample(rows, np.arange(4000))
    shares = np.bincount(drawn.ids[:, 0], minlength=304) / 4000
    np.testing.assert_allclose(shares, np.exp(catalogue.logprobs(ROWS[:1])[0]), atol=0.03)
    assert not np.isin(drawn.ids, sorted(catalogue.gone)).any()


def test_an_item_equal_to_a_class_ties_by_lower_id(promise_head):
    head, dense = promise_head.with_settings(promise=None), make_dense(grouped.PROMISE_CLASSES, grouped.DIM)
    assert head.exact_rows.loops is not None
    rows = grouped.promise_contexts.contexts[:12]
    best = head.topk(rows, 1).ids[:, 0]
    overlay = ItemOverlay(head.manifest, head.names, 0, 1)
    overlay.apply(1, [ItemBatch.make(list(range(4003, 4015)), dense.weight[best], [])])
    top = LiveHead.make(head, overlay).topk(rows, 2)
    np.testing.assert_array_equal(top.ids[:, 0], best)
    assert (top.ids[:, 1] >= 4003).all()
    np.testing.assert_array_equal(top.logprobs[:, 0], top.logprobs[:, 1])


def test_an_approximate_head_is_exact_for_changed_items(head):
    catalogue = Catalogue(head, make_dense(), named=True)
    catalogue.change(put=range(300, 340), remove=range(0, 100), seed=4)
    top = catalogue.head.topk(ROWS, 5, names=True)
    logits = catalogue.logits(ROWS)
    changed = logits[:, 300:].max(axis=1) > logits[:, :300].max(axis=1)
    assert changed.any()
    np.testing.assert_array_equal(top.ids[changed, 0], 300 + logits[changed, 300:].argmax(axis=1))
    assert not np.isin(top.ids, np.arange(100)).any()
    assert top.names[changed][0, 0] == f"item-{top.ids[changed][0, 0]}"
    named = catalogue.head.topk(ROWS, 2, allow=["item-310", "item-311"])
    assert set(named.ids.ravel().tolist()) == {310, 311}


@pytest.mark.parametrize("gone", ["best", "half", "most", "all"])
@pytest.mark.parametrize("exact", [False, True])
def test_removed_classes_leave_the_best_of_the_others(heads, gone, exact):
    catalogue = Catalogue(*heads, named=False)
    orders = np.random.default_rng(3).permutation(CLASSES)
    removed = {"best": rank(catalogue.logits(ROWS[:1]), 60)[0], "half": orders[:150], "most": orders[4:], "all": orders}
    catalogue.change(put=[300, 301], remove=removed[gone].tolist())
    top = catalogue.head.topk(ROWS, 5, exact=exact)
    logits = catalogue.logits(ROWS)
    expected = np.where(np.sort(-logits)[:, :5] < np.inf, rank(logits, 5), -1)
    np.testing.assert_array_equal(top.ids, expected)
    logprobs = np.take_along_axis(catalogue.logprobs(ROWS), np.maximum(expected, 0), 1)
    np.testing.assert_allclose(top.logprobs, np.where(expected < 0, -np.inf, logprobs), atol=1e-4)


def test_rows_are_gathered_where_that_saves_something(promise_head):
    overlay = ItemOverlay(promise_head.manifest, promise_head.names, 0, 1)
    live = LiveHead.make(promise_head, overlay)
    live.threads = 1
    assert not live.computes_rows_alone(live.plan)
    overlay.apply(1, [ItemBatch.make([], np.empty((0, 0), np.float32), [5])])
    assert live.computes_rows_alone(live.plan)
    assert not live.computes_rows_alone(live.exact)
    live.threads = 2
    assert not live.computes_rows_alone(live.plan)


def test_answers_of_a_moment_stay_as_they_were(heads):
    catalogue = Catalogue(*heads, named=False)
    catalogue.change(put=[300, 5], remove=[7], seed=1)
    snapshot, before = catalogue.overlay.snapshot, catalogue.head.topk(ROWS, 5)
    catalogue.change(put=[5, 301], remove=[300, *before.ids[:, 0].tolist()[:1], 9], seed=2)
    assert not (catalogue.head.topk(ROWS, 5).ids == before.ids).all()
    catalogue.overlay.snapshot = snapshot
    np.testing.assert_array_equal(catalogue.head.topk(ROWS, 5).ids, before.ids)


def test_many_changes_leave_no_dead_rows(heads):
    catalogue = Catalogue(*heads, named=False)
    for step in range(40):
        catalogue.change(put=range(300, 400), seed=step)
    catalogue.change(remove=range(300, 390))
    assert catalogue.overlay.table.size < 3000
    np.testing.assert_array_equal(catalogue.head.topk(ROWS, 5).ids, rank(catalogue.logits(ROWS), 5))
    assert catalogue.overlay.count() == {"added": 10, "replaced": 0, "removed": 0}


def test_a_head_without_changes_answers_as_before(heads):
    head, dense = heads
    live = Catalogue(head, dense, named=False).head
    np.testing.assert_array_equal(live.topk(ROWS, 3).ids, head.topk(ROWS, 3).ids)
    np.testing.assert_array_equal(live.base.topk(ROWS, 3).logprobs, head.topk(ROWS, 3).logprobs)
    assert not live.is_changed
