"""Rows that are measured, and their figures put together."""

import numpy as np
import pytest
from shortlist.errors import BadInput
from shortlist.evaluation.measurement import RowFigures, TargetRows, choose_distinct_rows, concatenate_figures

ROWS = np.array([[0, 1], [2, 3], [0, 1], [4, 5]], np.float32)


def test_rows_are_distinct_and_few():
    assert sorted(map(tuple, ROWS[choose_distinct_rows(ROWS, 9, 0)])) == [(0, 1), (2, 3), (4, 5)]
    assert len(choose_distinct_rows(ROWS, 2, 0)) == 2
    with pytest.raises(BadInput, match="measure at least 1"):
        choose_distinct_rows(ROWS, 0, 0)


def test_parts_are_joined_field_by_field():
    def part(number):
        values = np.full(2, number)
        return RowFigures(
            values, None, TargetRows({1: values, 5: values + 1}, None, values), TargetRows({1: values}, values, None)
        )

    whole = concatenate_figures([part(1.0), part(2.0)])
    assert whole.scored.tolist() == [1, 1, 2, 2]
    assert whole.truth is None
    assert {k: hits.tolist() for k, hits in whole.head_targets.hits.items()} == {1: [1, 1, 2, 2], 5: [2, 2, 3, 3]}
    assert whole.head_targets.nll is None
    assert whole.dense_targets.nll.tolist() == [1, 1, 2, 2]
