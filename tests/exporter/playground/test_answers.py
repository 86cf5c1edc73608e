import math
from functools import partial

import numpy as np
from shortlist.core.results import TopK, make_label_array, read_labels
from shortlist_exporter.playground.answers import find_probability, make_rows, make_side


def test_padding_of_short_rows_is_left_out():
    side = make_side([4, 2, -1], [-0.5, -1.0, None], [2, 9, -1], None)
    assert [(c.id, c.place) for c in side.candidates] == [(4, None), (2, 1)]
    assert [c.label for c in side.candidates] == [None, None]


def test_items_that_were_added_since_the_export_have_no_label():
    side = make_side([1, 3, 2, -1], [-0.5, -1.0, -1.5, None], [3], partial(read_labels, make_label_array(["a", "b"])))
    assert [(c.id, c.label) for c in side.candidates] == [(1, "b"), (3, None), (2, None)]


def test_probabilities_are_of_log_probabilities():
    assert find_probability(None) is None
    assert find_probability(-math.inf) is None
    assert find_probability(1e-7) == 1.0
    assert find_probability(math.log(0.25)) == 0.25


def test_both_sides_and_whether_they_agree():
    answer = {"ids": [[1, 2], [1, 2]], "logprobs": [[-1.0, -2.0]] * 2, "scored": [7, 8], "risk": [0.5, 0.0]}
    ids, logprobs = np.array([[1, 3], [2, 1]]), np.full((2, 2), -1.0, np.float32)
    dense = TopK(ids, logprobs, np.array([20, 20], np.int32), "exact")
    one, other = make_rows(answer, dense, None)
    assert one.agrees
    assert not other.agrees
    assert (one.head.scored, one.head.risk, one.dense.scored, one.dense.risk) == (7, 0.5, 20, None)
    assert [c.place for c in other.head.candidates] == [2, 1]


def test_a_head_without_a_dense_layer_has_one_side():
    (row,) = make_rows({"ids": [[1]], "logprobs": [[-1.0]], "scored": [3], "risk": [None]}, None, None)
    assert row.dense is None
    assert row.agrees
