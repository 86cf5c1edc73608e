"""Exact logits of given classes: by compiled loops and by rows.onnx, through the real runtime."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shortlist.bundle.reader import Bundle
from shortlist.kernels.exact_rows import CompiledGather
from shortlist.kernels.native.library import VARIABLE
from shortlist.plans.common.exact_rows import ExactRows

from tests.support.kernels import list_targets
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompiledGather, "open", lambda *_: None)
        return ExactRows(bundle, "cpu", 4)


def asked(dense, batch, count, seed=0):
    random = np.random.default_rng(seed)
    contexts = random.standard_normal((batch, dense.dim)).astype(np.float32)
    return contexts, random.integers(0, CLASSES, (batch, count))


@given(batch=st.integers(0, 4), count=st.integers(0, 21), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_loops_and_graph_give_the_dense_logits(rows, by_graph, dense, batch, count, seed):
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


def test_arrays_of_any_layout_are_taken(rows, dense):
    contexts, ids = asked(dense, 6, 30)
    usual = rows(contexts, ids)
    ids.flags.writeable = contexts.flags.writeable = False
    np.testing.assert_array_equal(rows(contexts, ids), usual)
    np.testing.assert_array_equal(rows(contexts[::2], ids[::2, ::3]), usual[::2, ::3])


def test_products_that_overflow_are_no_numbers_and_no_warning(rows, dense):
    contexts, ids = asked(dense, 1, 30)
    found = rows(np.copysign(np.float32(3e38), contexts), ids)
    if dense.soft_cap is None:
        assert not np.isfinite(found).all()


@pytest.mark.parametrize("wrong", [-1, CLASSES, 1 << 60])
def test_an_id_that_is_none_reads_nothing(rows, dense, wrong):
    contexts, ids = asked(dense, 2, 9)
    ids[1, 4] = wrong
    with pytest.raises(IndexError, match="ids must be 0 to 2002"):
        rows(contexts, ids)


def test_more_threads_give_the_same_bits(bundle, rows, dense):
    more = ExactRows(bundle, "cpu", 3)
    contexts, ids = asked(dense, 5, 300)
    wanted = rows(contexts, ids)
    for batch in (1, 5):
        more.loops.threaded_rows.row_seconds = 10.0  # so that every part is worth a thread
        np.testing.assert_array_equal(more(contexts[:batch], ids[:batch]), wanted[:batch])
    ids[0, 290] = -1
    with pytest.raises(IndexError, match="ids must be 0 to 2002"):
        more(contexts, ids)


def test_every_target_gives_the_same_bits(bundle, rows, dense, monkeypatch):
    contexts, ids = asked(dense, 3, 70)
    wanted = rows(contexts, ids)
    for target in list_targets():
        monkeypatch.setenv(VARIABLE, target)
        np.testing.assert_array_equal(ExactRows(bundle, "cpu", 1)(contexts, ids), wanted)


@given(classes=st.integers(1, 40), dim=st.integers(1, 130), batch=st.integers(1, 3), count=st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_odd_shapes_are_scored_alike_by_every_target(classes, dim, batch, count):
    random = np.random.default_rng(classes + dim)
    weight, bias = random.standard_normal((classes, dim), np.float32), random.standard_normal(classes, np.float32)
    contexts, ids = random.standard_normal((batch, dim), np.float32), random.integers(0, classes, (batch, count))
    truth = np.take_along_axis(contexts.astype(np.float64) @ weight.T.astype(np.float64) + bias, ids, axis=1)
    results = []
    for target in list_targets():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(VARIABLE, target)
            results.append(CompiledGather(weight, bias=bias)(contexts, ids))
        np.testing.assert_allclose(results[-1], truth, atol=1e-4)
        np.testing.assert_array_equal(results[-1], results[0])


def test_graphs_answer_without_the_library(bundle, dense, no_library):
    plain = ExactRows(bundle, "cpu", 1)
    assert plain.loops is None
    contexts, ids = asked(dense, 2, 9)
    truth = np.take_along_axis(logits_of(dense, contexts), ids, axis=1)
    np.testing.assert_allclose(plain(contexts, ids), truth, rtol=1e-5, atol=1e-4)


def test_small_layers_go_by_their_graph(tmp_path):
    dense = make_dense(300)
    head = make_head(tmp_path, dense, method="svd")
    assert head.exact_rows.loops is None
    contexts, ids = make_contexts(3).contexts, np.array([[1, 2], [0, 299], [7, 7]])
    truth = np.take_along_axis(logits_of(dense, contexts), ids, axis=1)
    np.testing.assert_allclose(head.exact_rows(contexts, ids), truth, rtol=1e-5, atol=1e-4)
