"""The merge of shards, against the sort of everything."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.core.results import PlanResult
from shortlist.fleet.shards.merge import merge_results
from shortlist.fleet.shards.ranges import cut_classes


def rank(logits, weights, k):
    """The k best of [B, V], equal ones by lower id, and the log-normaliser."""
    order = np.argsort(-(logits.astype(np.float64) + weights), axis=1, kind="stable")[:, :k]
    total = np.log(np.exp(logits.astype(np.float64)).sum(axis=1))
    return order, np.take_along_axis(logits, order, 1), np.take_along_axis(weights, order, 1), total.astype(np.float32)


def search_shard(logits, weights, part, k):
    """What a shard gives: ids of the layer, -1 where it has fewer than k classes."""
    size = part.stop - part.start
    order, top, top_weights, total = rank(logits[:, part.start : part.stop], weights[:, part.start : part.stop], k)
    missing = ((0, 0), (0, max(0, k - size)))
    ids = np.pad(order + part.start, missing, constant_values=-1)
    result = np.pad(top, missing, constant_values=-np.inf)
    scored = np.full(len(logits), size, np.int32)
    return PlanResult(ids, result, total, scored, np.pad(top_weights, missing))


@given(st.integers(1, 60), st.integers(1, 8), st.integers(1, 12), st.integers(0, 1000))
def test_the_merge_equals_the_sort_of_all_classes(classes, shards, k, seed):
    """Scores of few values, so that classes of different shards are equal."""
    rng = np.random.default_rng(seed)
    k, parts = min(k, classes), cut_classes(classes, min(shards, classes))
    logits = rng.integers(0, 4, (5, classes)).astype(np.float32)
    weights = rng.integers(0, 2, (5, classes)).astype(np.float32)
    merged = merge_results([search_shard(logits, weights, part, k) for part in parts], k)
    order, top, top_weights, total = rank(logits, weights, k)
    assert merged.ids.tolist() == order.tolist()
    assert np.array_equal(merged.logits, top)
    assert np.array_equal(merged.weights, top_weights)
    assert merged.log_normalizer == pytest.approx(total, abs=1e-5)
    assert (merged.scored == classes).all()


def test_rows_with_too_few_classes_are_short():
    one = PlanResult(
        np.array([[3, -1]]), np.array([[1, -np.inf]], np.float32), np.zeros(1, np.float32), np.ones(1, np.int32)
    )
    none = PlanResult(
        np.array([[-1, -1]]), np.full((1, 2), -np.inf, np.float32), np.zeros(1, np.float32), np.ones(1, np.int32)
    )
    merged = merge_results([none, one], 2)
    assert merged.ids.tolist() == [[3, -1]]
    assert merged.logits.tolist() == [[1, -np.inf]]
    assert merged.weights is None
    assert merged.log_normalizer == pytest.approx(np.log(2))


def test_normalizers_far_apart_do_not_overflow():
    parts = [
        PlanResult(np.array([[i]]), np.zeros((1, 1), np.float32), np.array([z], np.float32), np.ones(1, np.int32))
        for i, z in enumerate((1000, -1000))
    ]
    assert merge_results(parts, 1).log_normalizer.tolist() == [1000]
