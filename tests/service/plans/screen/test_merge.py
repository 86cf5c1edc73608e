"""Merging what clusters gave for a row, and what groups of rows were answered with."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.core.results import NO_CLASS, PlanResult
from shortlist.kernels.unscored import TO_DENSE, TO_GRAPHS
from shortlist.plans.screen.merge import RowGroup, SecondCluster, make_unscored, merge_second, rank_row, scatter


def result_of(rows, k=2):
    """Whose every number tells the row."""
    rows = np.array(rows)
    return PlanResult(
        np.repeat(rows[:, None], k, axis=1).astype(np.int64),
        np.repeat(rows[:, None], k, axis=1).astype(np.float32),
        rows.astype(np.float32),
        (rows + 1).astype(np.int32),
    )


def assert_equal(result, wanted):
    for name in ("ids", "logits", "log_normalizer", "scored"):
        values, expected = getattr(result, name), getattr(wanted, name)
        np.testing.assert_array_equal(values, expected, err_msg=name)
        assert values.dtype == expected.dtype


def test_groups_come_back_in_the_order_of_the_rows():
    groups = [RowGroup(rows, result_of(rows)) for rows in ([1, 4], [0], [2, 3])]
    assert_equal(scatter(groups, 5, 2), result_of(range(5)))


def test_rows_in_no_group_are_for_dense():
    result = scatter([RowGroup([1], result_of([1]))], 3, 2)
    assert result.scored.tolist() == [TO_DENSE, 2, TO_DENSE]
    assert result.ids[1].tolist() == [1, 1]
    assert scatter([], 2, 3).scored.tolist() == [TO_DENSE] * 2
    assert make_unscored(2, 3, TO_GRAPHS).scored.tolist() == [TO_GRAPHS] * 2


def test_one_group_of_all_rows_is_not_copied():
    whole = result_of(range(3))
    assert scatter([RowGroup([0, 1, 2], whole)], 3, 2) is whole
    assert scatter([], 0, 4).ids.shape == (0, 4)


def test_a_row_is_ranked_and_normalised_with_its_tail():
    logits, ids = np.array([1, 3, 2, 3], np.float32), np.array([4, 5, 7, 9])
    result = rank_row(logits.copy(), ids, 3, logits.copy(), np.float32(0.25))
    assert result.ids.tolist() == [[5, 9, 7]]
    assert result.logits.tolist() == [[3, 3, 2]]
    assert result.log_normalizer[0] == pytest.approx(np.log(np.exp(logits).sum()) + 0.25, rel=1e-6)
    assert result.scored.tolist() == [4]


def test_a_row_with_fewer_legal_classes_than_k_is_short():
    logits = np.array([-np.inf, 3, -np.inf], np.float32)
    result = rank_row(logits, np.arange(3), 2, np.ones(3, np.float32), np.float32(0))
    assert result.ids.tolist() == [[1, NO_CLASS]]
    assert result.log_normalizer[0] == pytest.approx(1 + np.log(3))


@given(st.lists(st.integers(0, 20), min_size=8, max_size=40), st.integers(0, 1 << 32), st.integers(1, 4))
def test_two_clusters_merged_are_their_union(values, seed, k):
    rng, all_logits = np.random.default_rng(seed), np.array(values, np.float32) / 4
    sets = [np.sort(rng.choice(len(values), rng.integers(4, len(values) + 1), replace=False)) for _ in range(2)]
    tail = np.float32(0.5 if len(sets[0]) < len(values) else 0)  # of the first cluster
    first, second = (rank_row(all_logits[ids], ids, k, all_logits[ids], tail) for ids in sets)
    new = ~np.isin(sets[1], sets[0])
    other = SecondCluster(second.ids[0], second.logits[0], ~np.isin(second.ids[0], sets[0]), all_logits[sets[1][new]])
    merged = merge_second(first, other, tail, len(values))
    union = np.union1d(*sets)
    outside = tail if union.size < len(values) else np.float32(0)
    wanted = rank_row(all_logits[union], union, k, all_logits[union], outside)
    np.testing.assert_array_equal(merged.ids, wanted.ids)
    np.testing.assert_array_equal(merged.logits, wanted.logits)
    np.testing.assert_array_equal(merged.scored, wanted.scored)
    np.testing.assert_allclose(merged.log_normalizer, wanted.log_normalizer, rtol=1e-5)
    assert {value.dtype for value in (merged.ids, merged.logits, merged.log_normalizer, merged.scored)} == {
        np.dtype(np.int64), np.dtype(np.float32), np.dtype(np.int32)
    }  # fmt: skip
