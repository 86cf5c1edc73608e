"""Classes that are nearly alike: int8 rows cannot tell them apart, so more than `full_view` are scored exactly."""

import numpy as np
import pytest
from shortlist.kernels.native.library import open_kernels
from shortlist_exporter.inputs.sources import Dense

from tests.support.layers import CLASSES, logits_of, make_contexts, make_dense, make_head

pytestmark = pytest.mark.skipif(open_kernels() is None, reason="graphs score `full_view` classes exactly")

COPIES = 40  # of one row, more than `full_view`
FIRST_LOOK = {"promise": "0", "opened": f"{CLASSES}", "previewed": f"{CLASSES}"}


@pytest.fixture(scope="module")
def catalogue():
    """A layer with near copies of its first row, which is long; and contexts that like it."""
    rng = np.random.default_rng(0)
    weight = make_dense().weight.copy()
    weight[:COPIES] = 3 * weight[0] * (1 + 1e-3 * rng.standard_normal((COPIES, weight.shape[1])))
    contexts = weight[:1] + 0.3 * make_contexts(60).contexts
    return Dense(weight), contexts.astype(np.float32)


@pytest.mark.parametrize("lists", [{}, {"ban": [3]}], ids=["free", "a ban"])
def test_classes_that_int8_rows_cannot_tell_apart_are_scored_exactly(catalogue, lists, tmp_path):
    dense, contexts = catalogue
    head = make_head(tmp_path, dense, method="grouped", options=FIRST_LOOK)
    logits = logits_of(dense, contexts)
    logits[:, lists.get("ban", [])] = -np.inf
    best = np.argsort(-logits, axis=1, kind="stable")[:, :5]
    assert (best < COPIES).mean() > 0.9
    np.testing.assert_array_equal(np.sort(head.topk(contexts, 5, **lists).ids), np.sort(best))
