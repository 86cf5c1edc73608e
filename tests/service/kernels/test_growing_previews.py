"""Sums over classes by their previews against float64, for every target, and while classes are appended."""

import numpy as np
import pytest
from shortlist.kernels.changes import RowSet
from shortlist.kernels.exact_rows import CompiledGather
from shortlist.kernels.growing_previews import MIN_BLOCKS, GrowingPreviews
from shortlist.kernels.native import library
from shortlist.kernels.primitives.layout import LANES

from tests.support.kernels import list_targets

CLASSES, ROWS = 4000, 5
LAYERS = {
    "plain": {"dim": 64},
    "d = 19": {"dim": 19},
    "bias, padding, scale, soft cap": {"dim": 64, "bias": True, "logit_scale": 0.7, "soft_cap": 30.0},
}


@pytest.fixture(params=list_targets())
def target(request, monkeypatch):
    monkeypatch.setenv(library.VARIABLE, request.param)
    yield request.param
    library.open_target.cache_clear()


@pytest.fixture(params=LAYERS)
def rows(request, target):
    """The exact rows of a layer."""
    layer = dict(LAYERS[request.param])
    random = np.random.default_rng(0)
    weight = random.standard_normal((CLASSES, layer.pop("dim")), np.float32) * random.uniform(0.1, 1, (CLASSES, 1))
    if not layer.pop("bias", False):
        return CompiledGather(weight.astype(np.float32), **layer)
    bias = random.standard_normal(CLASSES, np.float32)
    padding = np.where(np.arange(CLASSES) % 7, 0, -np.inf).astype(np.float32)
    return CompiledGather(weight.astype(np.float32), bias=bias, padding=padding, **layer)


def make_contexts(rows, scale):
    random = np.random.default_rng(1)
    return (random.standard_normal((ROWS, rows.arrays[0].shape[1])) * scale).astype(np.float32)


def sum_exactly(rows, contexts, ids):
    logits = rows(contexts, np.broadcast_to(ids, (len(contexts), ids.size))).astype(np.float64)
    return np.log(np.exp(logits).sum(axis=1))


@pytest.mark.parametrize("scale", [0.05, 0.5, 1.5])
def test_sums_are_near_exact_ones(rows, scale):
    ids = np.random.default_rng(2).permutation(CLASSES)[:3000]
    previews = GrowingPreviews(rows)
    previews.append(ids)
    contexts = make_contexts(rows, scale)
    sums = RowSet(rows, ids, previews).sum(contexts)
    np.testing.assert_allclose(sums, sum_exactly(rows, contexts, ids), atol=0.003)


def test_few_classes_are_summed_exactly(rows):
    previews, ids = GrowingPreviews(rows), np.array([5, 3999, 17])
    previews.append(ids)
    contexts = make_contexts(rows, 1)
    for count in (1, 2, 3):
        sums = RowSet(rows, ids[:count], previews).sum(contexts)
        np.testing.assert_allclose(sums, sum_exactly(rows, contexts, ids[:count]), atol=1e-4)


def test_classes_appended_later_change_no_sum(rows):
    """A sum stays what it was while its last block is filled, and when all blocks are copied to have room."""
    previews, ids = GrowingPreviews(rows), np.arange(1, CLASSES)
    previews.append(ids[:1001])
    before, contexts = RowSet(rows, ids[:1001], previews), make_contexts(rows, 0.3)
    sums = before.sum(contexts)
    previews.append(ids[1001:1005])
    late = RowSet(rows, ids[:1001], previews)
    previews.append(ids[1005:])
    assert previews.scale.size > MIN_BLOCKS * LANES
    whole = RowSet(rows, ids, previews)
    anew = RowSet(rows, ids[:1001], previews)
    for opened in (before, late, anew):
        np.testing.assert_array_equal(opened.sum(contexts), sums)
    np.testing.assert_allclose(whole.sum(contexts), sum_exactly(rows, contexts, ids), atol=0.003)


def test_no_classes_and_rows_of_zeros(target):
    rows = CompiledGather(np.zeros((40, 8), np.float32))
    previews = GrowingPreviews(rows)
    previews.append(np.arange(0))
    assert not previews.size
    previews.append(np.arange(33))
    sums = RowSet(rows, np.arange(33), previews).sum(np.ones((2, 8), np.float32))
    np.testing.assert_allclose(sums, np.log(33), atol=1e-5)
