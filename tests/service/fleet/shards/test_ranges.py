"""Ranges of classes, and lists within them."""

from __future__ import annotations

import numpy as np
import pytest
import shortlist
from shortlist.core.bias import Bias
from shortlist.core.filters import ClassFilter
from shortlist.core.row_lists import RowLists
from shortlist.fleet.shards.ranges import ClassRange, cut_classes


@pytest.mark.parametrize(("classes", "shards"), [(10, 3), (7, 7), (300, 8), (5, 1)])
def test_ranges_cover_all_classes_and_differ_by_one_at_most(classes, shards):
    parts = cut_classes(classes, shards)
    assert [i for part in parts for i in range(*part)] == list(range(classes))
    sizes = {part.stop - part.start for part in parts}
    assert max(sizes) - min(sizes) <= 1
    assert len(parts) == shards


@pytest.mark.parametrize("shards", [0, 11])
def test_a_layer_is_not_cut_into_nothing(shards):
    with pytest.raises(shortlist.errors.BadInput, match=f"into {shards} shards"):
        cut_classes(10, shards)


def test_lists_keep_their_meaning_within_a_range():
    part = ClassRange(10, 20)
    lists = np.array([[3, 12, -1], [19, 10, 20]])
    local = part.localize_filter(ClassFilter(allow=lists, ban=RowLists.from_lists([[12, 3], [25]], [1, 0, -1])))
    assert local.allow.tolist() == [[-1, 2, -1], [9, 0, -1]]
    assert [None if row is None else row.tolist() for row in map(local.ban.get_row, range(3))] == [[], [2], None]
    assert part.localize_filter(ClassFilter()) == ClassFilter()


def test_an_allow_list_of_other_classes_permits_none_of_the_range():
    local = ClassRange(10, 20).localize_filter(ClassFilter(allow=np.array([[3, 25]])))
    assert not local.mask(np.arange(10), 0).any()


def test_biases_of_other_classes_are_left_out():
    bias = Bias(np.array([[3, 12]]), np.array([[1, 2]], np.float32))
    local = ClassRange(10, 20).localize_bias(bias)
    assert (local.ids.tolist(), local.weights.tolist()) == ([[-1, 2]], [[0, 2]])
    assert ClassRange(20, 30).localize_bias(bias) is None
    assert ClassRange(20, 30).localize_bias(None) is None
