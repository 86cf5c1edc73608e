"""Proved answers of any layer, ordinary or adversarial, against float64 brute force."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from shortlist.core import rounding
from shortlist.runtime.session import Graph
from shortlist_exporter.inputs.sources import Contexts, Dense

from tests.support.layers import logits_of, logprobs_of, make_dense
from tests.support.proofs import CLASSES, DIM, TIE, check_best, check_bounds, proved, rows

ROUNDING = 1e-4  # nats, of float32 logits and sums

pytestmark = [pytest.mark.usefixtures("prove_small_layers"), pytest.mark.slow]


def test_bias_scale_cap_and_padding(tmp_path):
    dense = make_dense(
        CLASSES, DIM,
        bias=np.random.default_rng(3).standard_normal(CLASSES).astype(np.float32),
        logit_scale=0.5,
        soft_cap=4.0,
        padded=np.array([0, 1, 599]),
    )  # fmt: skip
    head = proved(tmp_path, dense)
    check_bounds(head, dense, rows)
    for lists in ({}, {"ban": [5, 6]}, {"allow": [0, 7, 8, 9]}):
        logits = logits_of(dense, rows)
        legal = np.isin(np.arange(CLASSES), lists.get("allow", np.arange(CLASSES)))
        legal[lists.get("ban", [])] = False
        logits[:, ~legal] = -np.inf
        check_best(head.topk(rows, 5, exact=True, **lists), logits, 5)


KINDS = {
    "plain": lambda random, v, d: random.standard_normal((v, d)),
    "equal rows": lambda random, v, d: np.tile(random.standard_normal((1, d)), (v, 1)),
    "nearly equal rows": lambda random, v, d: random.standard_normal((1, d)) + 1e-6 * random.standard_normal((v, d)),
    "each row twice": lambda random, v, d: np.repeat(random.standard_normal((v, d)), 2, axis=0)[:v],
    "one huge row": lambda random, v, d: (
        random.standard_normal((v, d)) * np.where(np.arange(v) == v // 2, 1e6, 1)[:, None]
    ),
    "norms of all sizes": lambda random, v, d: random.standard_normal((v, d)) * np.geomspace(1e-12, 1e6, v)[:, None],
    "constant rows": lambda random, v, d: np.tile(random.standard_normal((v, 1)), (1, d)),
    "zero rows": lambda random, v, d: random.standard_normal((v, d)) * (random.random((v, 1)) < 0.3),
    "zeros": lambda random, v, d: np.zeros((v, d)),
    "whole numbers": lambda random, v, d: random.integers(-3, 4, (v, d)),
    "one column": lambda random, v, d: random.standard_normal((v, d)) * (np.arange(d) == 0),
    "tiny": lambda random, v, d: random.standard_normal((v, d)) * 1e-25,
}


SIZES = {"plain": 1.0, "small": 1e-6, "large": 1e6, "tiny": 1e-30, "zero": 0.0}


@given(
    st.sampled_from(sorted(KINDS)), st.sampled_from(sorted(SIZES)), st.integers(1, 300), st.integers(1, 40),
    st.integers(1, 12), st.booleans(), st.sampled_from([None, 3.0]), st.integers(0, 2**32 - 1), st.data(),
)  # fmt: skip
def test_any_layer(tmp_path_factory, kind, size, classes, dim, k, bias, cap, seed, data):
    random = np.random.default_rng(seed)
    weight = KINDS[kind](random, classes, dim).astype(np.float32)
    biases = random.standard_normal(classes).astype(np.float32) if bias else None
    padded = np.flatnonzero(random.random(classes - 1) < 0.1) if cap else np.empty(0, np.int64)
    dense = Dense(weight, biases, soft_cap=cap, padded=padded)
    spread = random.standard_normal((8, dim)) * np.geomspace(1, 1e-3, dim) + 3 * random.standard_normal(dim)
    fit = Contexts(np.vstack([spread, spread]).astype(np.float32))
    contexts = (spread * SIZES[size]).astype(np.float32)
    contexts[0] = weight[random.integers(classes)]  # a context that is a row
    head = proved(tmp_path_factory.mktemp("any"), dense, fit)
    k = min(k, head.manifest.max_k)
    ban = data.draw(st.none() | st.lists(st.integers(0, classes - 1), max_size=classes))
    check_bounds(head, dense, contexts)
    logits = logits_of(dense, contexts)
    top = head.topk(contexts, k, ban=ban, exact=True)
    proved_rows = top.scored < classes
    truth = np.take_along_axis(logprobs_of(dense, contexts), np.maximum(top.ids, 0), axis=1)
    size_of = np.abs(np.where(np.isfinite(logits), logits, 0)).max()
    error = np.where(top.ids >= 0, np.abs(top.logprobs - truth), 0)
    if proved_rows.any():
        assert error[proved_rows].max() <= head.manifest.certificate.logprob_bound
    assert error.max() <= ROUNDING + TIE * size_of or proved_rows.any()
    logits[:, ban or []] = -np.inf
    check_best(top, logits, k)


def test_tanh_is_as_exact_as_the_proof_needs(tmp_path):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Tanh", ["x"], ["y"])], "tanh", values[:1], values[1:])
    path = tmp_path / "tanh.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), str(path))
    x = np.r_[np.linspace(-20, 20, 2_000_001), np.geomspace(1e-30, 1e30, 200_001)].astype(np.float32)
    for tanh in (Graph(path, "cpu", 1)(x=x)[0], np.tanh(x)):
        assert np.abs(tanh - np.tanh(x.astype(np.float64))).max() < rounding.TANH_ERROR
