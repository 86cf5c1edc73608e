"""Masks of allow and ban lists, whatever their lengths and order."""

import numpy as np
import pytest
from shortlist.core.filters import MANY_TIMES, ClassFilter, Members, mark_members, parse_filter, restrict_to_members
from shortlist.core.row_lists import RowLists

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


TABLE = RowLists.from_lists([[3], [4, 5]])
FORBID_NOTHING = {
    "none": None,
    "padding": np.full((1, 2), -1),
    "padding of each row": np.full((2, 3), -1),
    "no ids": np.empty((1, 0), np.int64),
    "rows without a list": TABLE.for_rows([-1, -1]),
}


@pytest.mark.parametrize("ban", FORBID_NOTHING.values(), ids=FORBID_NOTHING)
def test_a_ban_of_nothing_is_no_ban(ban):
    assert not parse_filter(None, ban, 2, CLASSES).restricts
    assert parse_filter([7], ban, 2, CLASSES).ban is None


@pytest.mark.parametrize("ban", [[-1, 3], [[-1, -1], [3, -1]], TABLE.for_rows([-1, 1])], ids=["all", "second", "table"])
def test_a_ban_for_one_row_is_one(ban):
    assert parse_filter(None, ban, 2, CLASSES).restricts


def test_an_allow_list_of_nothing_permits_nothing():
    assert parse_filter([-1], None, 2, CLASSES).mask(np.arange(3), 0).tolist() == [False] * 3


def test_members_that_are_all_classes_restrict_nothing():
    assert not restrict_to_members(ClassFilter(), Members(np.ones(9, bool))).restricts
