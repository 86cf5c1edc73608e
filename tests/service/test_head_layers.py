"""Meaning of the answers on any layer, against a plain transcription."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.errors import BadInput
from shortlist_exporter.inputs.sources import Contexts, Dense

from tests.support.layers import CLASSES, logits_of, logprobs_of, make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

rows = make_contexts(64, seed=5).contexts
whole = st.integers(-3, 3).map(float)


@st.composite
def layers(draw):
    """Small whole numbers, so that float32 is exact and ties are many; then duplicated rows."""
    classes, dim = draw(st.integers(1, 30)), draw(st.integers(1, 4))
    weight = np.array(draw(st.lists(st.lists(whole, min_size=dim, max_size=dim), min_size=classes, max_size=classes)))
    weight = np.vstack([weight, weight[: draw(st.integers(0, classes))]])
    contexts = np.array(draw(st.lists(st.lists(whole, min_size=dim, max_size=dim), min_size=1, max_size=5)))
    return Dense(weight.astype(np.float32)), contexts.astype(np.float32)


@given(layers(), st.data())
def test_any_layer_any_k_any_lists(tmp_path_factory, layer, data):
    dense, contexts = layer
    classes = st.integers(0, dense.classes - 1)
    k = data.draw(st.integers(1, dense.classes))
    allow = data.draw(st.none() | st.lists(classes, max_size=dense.classes))
    ban = data.draw(st.none() | st.lists(classes, max_size=dense.classes))
    method = data.draw(st.sampled_from(["full", "svd"]))
    width, full_view = data.draw(st.integers(1, dense.dim)), data.draw(st.integers(1, dense.classes))
    options = {"basis": "context", "width": str(width), "full_view": str(full_view)} if method == "svd" else {}
    fit = Contexts(np.vstack([contexts, contexts]))
    head = make_head(tmp_path_factory.mktemp("any"), dense, fit, method=method, options=options)

    top = head.topk(contexts, k, allow=allow, ban=ban, exact=True)

    logits = logits_of(dense, contexts)
    legal = np.ones(dense.classes, bool)
    if allow is not None:
        legal = np.isin(np.arange(dense.classes), allow)
    legal[ban or []] = False
    logits[:, ~legal] = -np.inf
    order = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    expected = np.where(np.isneginf(np.take_along_axis(logits, order, axis=1)), -1, order)
    np.testing.assert_array_equal(top.ids, expected)
    assert (np.isneginf(top.logprobs) == (expected == -1)).all()

    sparse = head.topk(contexts, k, allow=allow, ban=ban)
    assert ((sparse.ids == -1).sum(axis=1) == (expected == -1).sum(axis=1)).all(), "as many legal classes as there are"
    for ids in sparse.ids:
        own = ids[ids >= 0]
        assert legal[own].all()
        assert len(set(own.tolist())) == len(own)


def test_bias_scale_cap_and_padding(tmp_path):
    rng = np.random.default_rng(3)
    dense = make_dense(
        bias=rng.standard_normal(CLASSES).astype(np.float32),
        logit_scale=0.5,
        soft_cap=4.0,
        padded=np.array([0, 1, 299]),
    )
    head = make_head(tmp_path, dense, options={"basis": "context", "full_view": "60", "width": "12"})
    truth = logprobs_of(dense, rows)
    top = head.topk(rows, 5, exact=True)
    np.testing.assert_allclose(top.logprobs, np.take_along_axis(truth, top.ids, axis=1), atol=1e-4)
    assert head.manifest.max_k == CLASSES - 3
    for answer in (head.topk(rows, CLASSES - 3), head.topk(rows, 5), head.topk(rows, 3, allow=[0, 1, 2])):
        assert not np.isin(answer.ids, [0, 1, 299]).any(), "padding is never returned"
    assert np.isneginf(head.logprobs(rows[:1], [[0]])).all()
    assert (head.topk(rows, 1).ids == top.ids[:, :1]).mean() > 0.95, "the preview is capped alike"


@pytest.mark.parametrize("method", ["full", "svd"])
def test_rows_whose_scores_all_overflow_downwards_are_refused(tmp_path, method):
    """Their normaliser is the log of 0, by which log-probabilities were NaN."""
    dense = Dense(np.linspace(10, 20, 300, dtype=np.float32)[:, None])
    contexts = Contexts(np.linspace(0.1, 1, 200, dtype=np.float32)[:, None])
    head = make_head(tmp_path, dense, contexts, method=method, options={})
    rows = np.array([[0.5], [-3e38]], np.float32)
    assert np.isfinite(head.topk(rows[:1], 3).logprobs).all()
    for some in (rows, rows[1:]):
        with pytest.raises(BadInput, match=f"contexts row {len(some) - 1} is so large that its scores overflow"):
            head.topk(some, 3)
