"""Which classes are the true best, and which equal them: against sets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from shortlist.evaluation.ranking import TrueClasses, rank_scores
from shortlist.evaluation.statistics import compute_precision, mark_hits

CLASSES = 12
SCORES = arrays.arrays(
    np.float32, st.tuples(st.integers(1, 5), st.just(CLASSES)), elements=st.sampled_from([-np.inf, 0.0, 1.0, 2.0, 3.0])
)
ORDERS = st.integers(1, 5).flatmap(lambda rows: st.lists(st.permutations(range(CLASSES)), min_size=5, max_size=5))


def find_equal(best: TrueClasses, row: int) -> set[int]:
    """Classes of the last one's score, as the ranking has them."""
    inside = best.ids[row][best.levels[row] == best.levels[row, -1]]
    runs = zip(*best.runs, strict=True)
    beyond = [id for where, start, stop in runs if where == row for id in range(start, stop)]
    return {*inside.tolist(), *beyond}


def count_best_hits(scores: np.ndarray, ids: list[int], k: int) -> int:
    """Of all sets of k best classes, the most that one shares with `ids`."""
    bar = np.sort(scores)[::-1][k - 1]
    if bar == -np.inf:
        return len({id for id in ids if scores[id] > -np.inf}) + int((scores == -np.inf).sum() - (scores.size - k))
    above, level = np.flatnonzero(scores > bar), np.flatnonzero(scores == bar)
    return len({*above} & {*ids}) + min(k - len(above), len({*level} & {*ids}))


@given(SCORES, st.integers(1, CLASSES))
def test_the_ranking_holds_every_class_of_the_last_score(scores, k):
    best, values = rank_scores(scores, k)
    for row, of_row in enumerate(scores):
        order = np.lexsort((np.arange(CLASSES), -of_row))[:k]
        np.testing.assert_array_equal(values[row], of_row[order])
        np.testing.assert_array_equal(best.ids[row], np.where(np.isneginf(of_row[order]), -1, order))
        if of_row[order[-1]] > -np.inf:
            assert find_equal(best, row) == {*np.flatnonzero(of_row == of_row[order[-1]]).tolist()}
        else:
            assert find_equal(best, row) == {-1}


@given(SCORES, ORDERS, st.integers(1, CLASSES), st.integers(1, CLASSES))
def test_hits_are_those_of_the_best_set_of_equal_classes(scores, orders, depth, k):
    k = min(depth, k)
    best = rank_scores(scores, depth)[0]
    ids = np.array(orders[: len(scores)])
    ids = np.where(np.isneginf(np.take_along_axis(scores, ids, axis=1)), -1, ids)[:, :k]
    expected = [
        count_best_hits(of_row, [id for id in of_ids if id >= 0], k)
        for of_row, of_ids in zip(scores, ids.tolist(), strict=True)
    ]
    hits = mark_hits(ids, best, k)
    for row in range(len(scores)):
        if scores[row].min() > -np.inf:
            assert hits[row].sum() == expected[row]
    cut = best.first_classes(k)
    np.testing.assert_array_equal(mark_hits(ids, cut, k), hits)
    np.testing.assert_array_equal(mark_hits(ids[:2], best.first_rows(2), k), hits[:2])
    np.testing.assert_array_equal(mark_hits(ids[::2], best.take(np.arange(0, len(ids), 2)), k), hits[::2])


@pytest.mark.parametrize("ids", [[[1, 2]], [[3, 1]], [[2, 0]]])
def test_a_better_class_that_is_missing_stays_a_miss(ids):
    best = rank_scores(np.array([[3.0, 1.0, 1.0, 1.0]], np.float32), 2)[0]
    assert compute_precision(np.array(ids), best, 1) == (1.0 if ids[0][0] == 0 else 0.0)
    assert compute_precision(np.array(ids), best, 2) == (1.0 if 0 in ids[0] else 0.5)


def test_scores_of_some_classes_alone():
    ids = np.array([[2, 5, 6, 7, 9]])
    best, values = rank_scores(np.array([[1.0, 4.0, 4.0, 4.0, 4.0]]), 2, ids)
    assert (best.ids.tolist(), best.levels.tolist(), values.tolist()) == ([[5, 6]], [[0, 0]], [[4, 4]])
    assert [part.tolist() for part in best.runs] == [[0, 0], [7, 9], [8, 10]]


def test_a_row_whose_classes_are_all_equal_needs_one_run():
    best = rank_scores(np.zeros((3, 100_000), np.float32), 10)[0]
    assert [part.tolist() for part in best.runs] == [[0, 1, 2], [10] * 3, [100_000] * 3]
    assert compute_precision(np.full((3, 1), 77_777), best, 1) == 1.0
