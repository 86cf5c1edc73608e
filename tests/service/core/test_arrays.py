"""Lists and foreign arrays as numpy arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.core.arrays import parse_contexts, parse_float_rows, parse_id_rows, to_float_array, to_id_array
from shortlist.errors import BadInput

FLOATS = st.floats(-(2.0**100), 2.0**100, width=32)


@given(st.integers(0, 6), st.integers(1, 5), st.data())
def test_rows_of_floats_equal_numpy(rows, width, data):
    lists = data.draw(st.lists(st.lists(FLOATS, min_size=width, max_size=width), min_size=rows, max_size=rows))
    expected = np.array(lists, np.float32).reshape(rows, width)
    assert np.array_equal(parse_float_rows("x", lists, width), expected)


@given(st.lists(st.lists(st.integers(-1, 2**62), max_size=4), min_size=1, max_size=5))
def test_ragged_ids_are_padded(lists):
    padded = parse_id_rows("x", lists)
    assert padded.shape == (len(lists), max(map(len, lists)))
    for row, ids in zip(padded.tolist(), lists, strict=True):
        assert row == ids + [-1] * (len(row) - len(ids))


def test_flat_ids_stay_flat():
    assert parse_id_rows("x", [3, 1]).tolist() == [3, 1]
    assert parse_id_rows("x", []).shape == (0,)
    assert to_id_array("x", np.array([[1, 2]], np.uint8)).dtype == np.int64


@pytest.mark.parametrize(
    "data",
    [
        [[1, "2"]],
        [[1, None]],
        [[2, 3], [1, True]],
        [[False, 2]],
        [[1, [2]]],
        [[1], 2],
        [1, 2],
        "12",
        {"a": 1},
        None,
        [[1], [1, 2]],
    ],
)
def test_what_is_no_rectangle_of_numbers_is_refused(data):
    with pytest.raises(BadInput, match=r"^x "):
        parse_float_rows("x", data, 2)


@pytest.mark.parametrize(
    "data",
    [[1.5], ["1"], [True], [[2], [False]], [np.array([0.5])], [None], [2**63], [[1], 2], [1, [2]], "1", {"a": 1}],
)
def test_what_is_no_id_is_refused(data):
    with pytest.raises(BadInput, match=r"^x "):
        parse_id_rows("x", data)


def shift(array):
    """The same numbers at addresses that are none of their dtype's, in a writable array."""
    memory = bytearray(b"?" + array.tobytes())
    shifted = np.frombuffer(memory, array.dtype, offset=1).reshape(array.shape)
    assert not shifted.flags.aligned
    return shifted


def test_numbers_at_odd_addresses_are_copied():
    contexts, ids = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(6).reshape(2, 3)
    halves = contexts.astype(np.float16)
    for parsed, wanted in (
        (to_float_array("contexts", shift(contexts)), contexts),
        (to_float_array("contexts", shift(halves)), halves),
        (parse_contexts(shift(contexts), "lm", 3), contexts),
        (to_id_array("ids", shift(ids)), ids),
    ):
        assert parsed.flags.aligned
        assert parsed.flags.c_contiguous
        assert np.array_equal(parsed, wanted)


def test_what_overflows_becomes_infinite_without_a_warning():
    assert np.isinf(to_float_array("x", np.array([[1e300]]))).all()
    assert np.isinf(parse_float_rows("x", [[1e300]], 1)).all()


def test_float16_is_kept_for_the_wire():
    assert to_float_array("x", np.ones((1, 2), np.float16)).dtype == np.float16
    assert to_float_array("x", np.ones((1, 2), int)).dtype == np.float32


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        ({1, 2}, "set"),
        (np.zeros(4, bool), r"bool of shape \[4\]"),
        (np.ones(3), r"float64 of shape \[3\]"),
        (np.array([None]), r"object of shape \[1\]"),
    ],
)
def test_ids_of_another_kind_are_named(ids, kind):
    with pytest.raises(BadInput, match=f"seen must be whole numbers .*, not {kind}: give a list or an array"):
        to_id_array("seen", ids)


@pytest.mark.parametrize("rows", [[[3, 4], [5], []], [np.array([3, 4]), np.array([5]), np.array([], int)]])
def test_an_array_of_lists_is_the_list_of_them(rows):
    column = np.empty(len(rows), np.object_)  # as pandas makes of lists
    column[:] = rows
    assert to_id_array("seen", column).tolist() == [[3, 4], [5, -1], [-1, -1]]
    assert to_id_array("seen", Column(column)).tolist() == [[3, 4], [5, -1], [-1, -1]]


class Column:
    """A table's column of lists or vectors, which tells its own dtype, as those of polars and pyarrow do."""

    dtype = "list"

    def __init__(self, rows):
        self.rows = rows

    def __array__(self, dtype=None, copy=None):
        return self.rows


@pytest.mark.parametrize("convert", [np.array, list, np.float16])
def test_a_column_of_vectors_is_the_matrix_of_them(convert):
    column = np.empty(2, np.object_)
    column[:] = [convert([1.0, 2.0, 3.0]), convert([4.0, 5.0, 6.0])]
    for each in (column, Column(column)):
        assert parse_contexts(each, "lm", 3).tolist() == [[1, 2, 3], [4, 5, 6]]


def test_a_column_of_other_than_vectors_is_refused_by_row():
    column = np.empty(2, np.object_)
    column[:] = [np.ones(3), None]
    with pytest.raises(BadInput, match="contexts row 1 must be a list of numbers alone"):
        parse_contexts(column, "lm", 3)
    column[1] = np.ones(2)
    with pytest.raises(BadInput, match="contexts row 1 has 2 numbers but row 0 has 3: make them equal"):
        parse_contexts(column, "lm", 3)
    with pytest.raises(BadInput, match=r"contexts must be numbers of shape .*, not object: convert them to float32"):
        parse_contexts(np.ones((2, 3), object), "lm", 3)
