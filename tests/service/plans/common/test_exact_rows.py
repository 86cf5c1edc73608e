"""Exact logits of given classes: by compiled loops and by rows.onnx, through the real runtime."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shortlist.bundle.reader import Bundle
from shortlist.plans.common.exact_rows import ExactRows

from tests.support.layers import logits_of, make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

CLASSES = 2003  # more than a graph holds itself
LAYERS = {
    "plain": {"dim": 68},
    "d = 7, bias": {"dim": 7, "bias": np.random.default_rng(3).standard_normal(CLASSES).astype(np.float32)},
    "scale, soft cap, padding": {"dim": 130, "logit_scale": 0.7, "soft_cap": 9.0, "padded": np.array([5, 1999])},
}


@pytest.fixture(scope="module", params=LAYERS)
def dense(request):
    return make_dense(CLASSES, **LAYERS[request.param])


@pytest.fixture(scope="module")
def bundle(dense, tmp_path_factory):
    contexts = make_contexts(200, dense.dim)
    return Bundle(make_head(tmp_path_factory.mktemp("rows"), dense, contexts, method="svd").folder)


@pytest.fixture(scope="module")
def rows(bundle):
    return ExactRows(bundle, "cpu", 1)


@pytest.fixture(scope="module")
def by_graph(bundle):
    return ExactRows(bundle, "cpu", 4)  # threads: more than loops are for


def asked(dense, batch, count, seed=0):
    random = np.random.default_rng(seed)
    contexts = random.standard_normal((batch, dense.dim)).astype(np.float32)
    return contexts, random.integers(0, CLASSES, (batch, count))


@given(batch=st.integers(0, 4), count=st.integers(0, 21), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_loops_and_graph_give_the_dense_logits(rows, by_graph, dense, batch, count, seed):
    pytest.importorskip("numba")
    contexts, ids = asked(dense, batch, count, seed)
    assert rows.loops is not None
    truth = np.take_along_axis(logits_of(dense, contexts), ids, axis=1)
    for found in (rows(contexts, ids), by_graph(contexts, ids)):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-4)


def test_padding_is_no_class(rows, by_graph, dense):
    contexts, _ = asked(dense, 2, 1)
    ids = np.tile(dense.padded, (2, 1)).astype(np.int64)
    assert np.isneginf(rows(contexts, ids)).all()
    assert np.isneginf(by_graph(contexts, ids)).all()


def test_one_row_is_the_row_of_a_batch(rows, dense):
    contexts, ids = asked(dense, 3, 50)
    np.testing.assert_array_equal(rows.score_row(contexts[1], ids[1]), rows(contexts, ids)[1])


def test_what_a_graph_gathers_is_bounded(by_graph, dense, monkeypatch):
    contexts, ids = asked(dense, 5, 40)
    whole = by_graph(contexts, ids)
    for gathered in (1, 7, 40, 90):
        monkeypatch.setattr(by_graph, "gather_classes", gathered)
        np.testing.assert_allclose(by_graph(contexts, ids), whole, rtol=1e-5, atol=1e-5)


def test_nothing_is_compiled_after_the_load(rows, dense):
    pytest.importorskip("numba")
    from shortlist.kernels.exact_rows import gather_products

    contexts, ids = asked(dense, 6, 30)
    usual, known = rows(contexts, ids), gather_products.signatures[:]
    ids.flags.writeable = contexts.flags.writeable = False
    np.testing.assert_array_equal(rows(contexts, ids), usual)
    np.testing.assert_array_equal(rows(contexts[::2], ids[::2, ::3]), usual[::2, ::3])
    assert gather_products.signatures == known


def test_products_that_overflow_are_no_numbers_and_no_warning(rows, dense):
    contexts, ids = asked(dense, 1, 30)
    found = rows(np.copysign(np.float32(3e38), contexts), ids)
    if dense.soft_cap is None:
        assert not np.isfinite(found).all()


@pytest.mark.parametrize("wrong", [-1, CLASSES, 1 << 60])
def test_an_id_that_is_none_reads_nothing(rows, dense, wrong):
    pytest.importorskip("numba")
    contexts, ids = asked(dense, 2, 9)
    ids[1, 4] = wrong
    with pytest.raises(IndexError, match="ids must be 0 to 2002"):
        rows(contexts, ids)


@pytest.mark.parametrize("threads", [1, 4])
def test_graphs_answer_without_numba_and_with_many_threads(bundle, dense, threads, request):
    if threads == 1:
        request.getfixturevalue("no_numba")
    found = ExactRows(bundle, "cpu", threads)
    assert found.loops is None
    contexts, ids = asked(dense, 2, 9)
    truth = np.take_along_axis(logits_of(dense, contexts), ids, axis=1)
    np.testing.assert_allclose(found(contexts, ids), truth, rtol=1e-5, atol=1e-4)


def test_small_layers_go_by_their_graph(tmp_path):
    dense = make_dense(300)
    head = make_head(tmp_path, dense, method="svd")
    assert head.rows.loops is None
    contexts, ids = make_contexts(3).contexts, np.array([[1, 2], [0, 299], [7, 7]])
    truth = np.take_along_axis(logits_of(dense, contexts), ids, axis=1)
    np.testing.assert_allclose(head.rows(contexts, ids), truth, rtol=1e-5, atol=1e-4)
