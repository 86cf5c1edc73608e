"""Masks of allow and ban lists, whatever their lengths and order."""

import numpy as np
import pytest
from shortlist.core.filters import ClassFilter, Members, parse_filter, restrict_to_members
from shortlist.core.row_lists import RowLists

CLASSES = 5000


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


@pytest.mark.parametrize(("first", "second"), [([[3]], [[4], [5]]), ([[3], [-1]], [[4]])])
def test_what_is_hidden_stays_so_beside_more(first, second):
    lists = ClassFilter(ban=np.array([[1]])).hide(np.array(first)).hide(np.array(second))
    banned = [set(np.concatenate(lists.list_bans(row)).tolist()) for row in range(2)]
    assert banned == [{1, *(part[min(row, len(part) - 1)][0] for part in (first, second))} - {-1} for row in range(2)]
    assert ClassFilter().hide(np.array(first)).mask(np.array([3, 6]), 0).tolist() == [False, True]


def test_a_filter_takes_as_many_bytes_as_its_lists():
    assert ClassFilter().nbytes == 0
    assert ClassFilter(TABLE, np.array([[1, 2]]), np.array([[3]])).nbytes == TABLE.nbytes + 24


def test_to_tell_how_much_memory_members_take_makes_none_of_their_lists():
    """Each set that a head kept held the ids of all classes that are not in it: 18 MB of 2.2 million."""
    members = Members(np.arange(9) == 3)
    assert members.nbytes == 9 * (1 + 8)
    assert set(vars(members)) == {"permitted"}
