"""Masks of allow and ban lists, whatever their lengths and order."""

import numpy as np
import pytest
from shortlist.core.filters import MANY_TIMES, ClassFilter, mark_members

CLASSES = 5000


@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("size", [1, 20, 20 * MANY_TIMES, 4000])
def test_members_are_those_of_the_list_and_padding_is_none(size, is_sorted):
    random = np.random.default_rng(size)
    others = random.choice(CLASSES, size, replace=False)
    others = np.sort(others) if is_sorted else others
    ids = np.concatenate([others[:2], random.integers(0, CLASSES, 17), [CLASSES - 1, -1]])
    np.testing.assert_array_equal(mark_members(ids, others), [id in set(others.tolist()) for id in ids.tolist()])


def test_a_mask_takes_both_lists_of_a_row():
    lists = ClassFilter(allow=np.arange(1000)[None, ::-1], ban=np.arange(0, 1000, 2)[None, ::-1])
    np.testing.assert_array_equal(lists.mask(np.array([0, 1, 999, 1001]), 0), [False, True, True, False])
