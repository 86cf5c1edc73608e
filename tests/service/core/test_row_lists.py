"""Tables of lists that rows refer to."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from shortlist.core.filters import ClassFilter
from shortlist.core.row_lists import MANY_TIMES, RowLists, mark_members
from shortlist.errors import BadInput

CLASSES = 5000
LISTS = [[3, 1], [], [7, 7, 2], [5]]


@given(st.lists(st.lists(st.integers(0, 50), max_size=6), max_size=6), st.data())
def test_rows_have_the_lists_of_their_numbers(lists, data):
    table = RowLists.from_lists(lists)
    assert [table.get_row(row).tolist() for row in range(len(lists))] == lists
    numbers = data.draw(st.lists(st.integers(-1, len(lists) - 1), min_size=2, max_size=9))
    expected = [None if number < 0 else lists[number] for number in numbers]
    for each in (table.for_rows(numbers), table.for_rows(np.array(numbers)).keep_used_lists()):
        rows = [each.get_row(row) for row in range(len(numbers))]
        assert [None if row is None else row.tolist() for row in rows] == expected
    arrays = RowLists.from_lists([np.array(each, int) for each in lists])
    assert (arrays.ids.tolist(), arrays.offsets.tolist()) == (table.ids.tolist(), table.offsets.tolist())
    part = table.for_rows(numbers)[1:]
    assert len(part) == len(numbers) - 1


def test_used_lists_are_kept_once():
    table = RowLists.from_lists(LISTS).for_rows([2, 2, -1, 2]).keep_used_lists()
    assert (table.ids.tolist(), table.offsets.tolist(), table.numbers.tolist()) == ([7, 7, 2], [0, 3], [0, 0, -1, 0])


def test_lists_are_cut_to_the_ids_that_are_kept():
    table = RowLists.from_lists(LISTS).for_rows([2, 0, -1, 1])
    cut = table.keep_ids(table.ids < 5, 4)
    assert [None if row is None else row.tolist() for row in map(cut.get_row, range(4))] == [[2], [3, 1], None, []]
    assert cut.largest_id == 4


def test_ids_that_stand_twice_in_a_list_are_dropped():
    table = RowLists.from_lists([[3, 1, 3], [], [2**31 - 1, 1, 2**31 - 1], [1]]).drop_repeats()
    assert [table.get_row(row).tolist() for row in range(4)] == [[1, 3], [], [1, 2**31 - 1], [1]]
    assert (table.ids.dtype, table.largest_id) == (np.int32, 2**31 - 1)
    distinct = RowLists.from_lists([[3, 1], [1, 3]])
    assert distinct.drop_repeats() is distinct


def test_rows_that_share_a_list():
    table = RowLists.from_lists(LISTS)
    assert [table.for_rows(numbers).is_shared() for numbers in ([2, 2], [-1, -1], [0], [0, 1], [0, -1])] == [
        *[True] * 3,
        *[False] * 2,
    ]
    assert [table.for_rows(numbers).count_longest() for numbers in ([2, -1, 0], [1], [-1], [3])] == [3, 0, 0, 1]


def test_any_kind_of_numbers():
    table = RowLists.make(torch.tensor([1, 2, 3]), (0, 1, 3), range(2))
    assert (table.ids.dtype, table.get_row(1).tolist(), table.largest_id) == (np.int32, [2, 3], 3)
    assert RowLists.from_lists([]).largest_id == -1


def test_filters_take_tables_and_padded_lists_alike():
    table = RowLists.from_lists(LISTS).for_rows([0, -1, 2])
    padded = np.array([[3, 1], [-1, -1], [7, 2]])
    scores = np.arange(9, dtype=np.float32)
    for row in (0, 2):
        for name in ("allow", "ban"):
            ours, theirs = ClassFilter(**{name: table}), ClassFilter(**{name: padded})
            np.testing.assert_array_equal(ours.mask(np.arange(9), row), theirs.mask(np.arange(9), row))
            np.testing.assert_array_equal(ours.restrict(scores, row), theirs.restrict(scores, row))
    assert ClassFilter(allow=table).mask(np.arange(9), 1).all()  # without a list nothing is restricted
    assert ClassFilter(allow=table).slice_rows(2, 3).allow_list(0).tolist() == [7, 7, 2]


def test_forced_rows_heed_no_lists():
    class_filter = ClassFilter(allow=np.array([[1, 2]]), ban=np.array([[4]]), forced=np.array([4, -1]))
    assert np.flatnonzero(class_filter.mask(np.arange(6), 0)).tolist() == [4]
    assert np.flatnonzero(class_filter.mask(np.arange(6), 1)).tolist() == [1, 2]
    assert np.flatnonzero(class_filter.restrict(np.zeros(6, np.float32), 0) == 0).tolist() == [4]


WRONG = {
    "offsets that fall": (([1, 2], [0, 2, 1, 2]), "offsets must ascend from 0 to the number of ids, 2"),
    "offsets whose differences wrap": (([1, 2, 3], [0, 2**62, -(2**63), -(2**62), 0, 3]), "offsets must ascend from 0"),
    "offsets that end early": (([1, 2], [0, 1]), "offsets must ascend"),
    "no offsets": (([], []), "offsets must ascend"),
    "padding": (([1, -1], [0, 2]), "a list holds id -1: give class ids from 0"),
    "an id too large": (([2**31], [0, 1]), "a list holds id 2147483648"),
    "a number too high": (([1], [0, 1], [0, 1]), "a row has list 1 but the lists go from 0 to 0"),
    "a number too low": (([1], [0, 1], [-2]), "a row has list -2"),
    "nested ids": (([[1]], [0, 1]), r"ids have shape \[1, 1\]"),
    "half ids": (([0.5], [0, 1]), "ids row 0 must be a list of whole numbers"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_table_is_refused(name):
    arguments, sentence = WRONG[name]
    with pytest.raises(BadInput, match=sentence):
        RowLists.make(*arguments)


@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("size", [1, 20, 20 * MANY_TIMES, 4000])
def test_members_are_those_of_the_list_and_padding_is_none(size, is_sorted):
    random = np.random.default_rng(size)
    others = random.choice(CLASSES, size, replace=False)
    others = np.sort(others) if is_sorted else others
    ids = np.concatenate([others[:2], random.integers(0, CLASSES, 17), [CLASSES - 1, -1]])
    np.testing.assert_array_equal(mark_members(ids, others), [id in set(others.tolist()) for id in ids.tolist()])


@pytest.mark.parametrize("wrong", [[2.5], ["a"], [[2]], [True], [2**70]])
def test_a_list_that_is_none_of_ids_is_named(wrong):
    """The sentence said `a list row 0`, whichever of the lists it was."""
    with pytest.raises(BadInput, match="lists row 1 "):
        RowLists.from_lists([[1], wrong])
