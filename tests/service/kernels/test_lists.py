"""Lists as the loops take them: tables of lists, hidden classes and forced ones beside free rows, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.row_lists import RowLists
from shortlist.kernels.dense_rows import CompiledRanking
from shortlist.kernels.lists import pack_lists, point_at_lists
from shortlist.kernels.native.arguments import point_at
from shortlist.kernels.native.library import open_target
from shortlist.plans.full import rank_rows

from tests.support.kernels import list_targets

ROWS, CLASSES = 4, 50
ids = np.array([[3, 4, 5, -1], [7, -1, -1, -1], [0, 1, 2, 3], [9, 9, -1, 8]])
table = RowLists.from_lists([[3, 4, 5, 6], [7]], [0, 1, -1, 0])
FILTERS = {
    "table, allowed": ClassFilter(allow=table),
    "table, banned": ClassFilter(ban=table),
    "one list of a table, allowed": ClassFilter(allow=table.for_rows([0] * ROWS)),
    "one list of a table, banned": ClassFilter(ban=table.for_rows([0] * ROWS), hidden=np.arange(10, 40)[None]),
    "one allowed, others banned": ClassFilter(allow=table.for_rows([0] * ROWS), ban=table),
    "allow": ClassFilter(allow=ids),
    "ban of all rows": ClassFilter(ban=np.arange(20)[None]),
    "hidden": ClassFilter(ban=ids, hidden=np.arange(10, 40)[None]),
    "forced": ClassFilter(ban=np.arange(20)[None], forced=np.array([-1, 7, -1, 3])),
    "forced and allowed": ClassFilter(allow=ids, ban=ids[:, :1], forced=np.array([11, -1, -1, -1])),
    "empty": ClassFilter(ban=np.empty((1, 0), np.int64)),
}


@pytest.mark.parametrize("name", FILTERS)
def test_ranks_are_those_of_numpy(name):
    logits = np.random.default_rng(2).standard_normal((ROWS, CLASSES)).astype(np.float32)
    ranked = CompiledRanking(1).rank(logits.copy(), 5, FILTERS[name])
    wanted = rank_rows(logits.copy(), 5, FILTERS[name])
    np.testing.assert_array_equal(ranked.ids, wanted.ids)
    np.testing.assert_array_equal(ranked.logits, wanted.logits)
    np.testing.assert_allclose(ranked.log_normalizer, wanted.log_normalizer, atol=1e-5)


def test_no_lists_are_no_pointer():
    assert point_at_lists(UNRESTRICTED, ROWS) is None


@pytest.mark.parametrize("target", list_targets())
@given(st.lists(st.integers(-2, 42)))
@settings(max_examples=100, deadline=None)
def test_a_list_is_marked_unless_an_id_is_of_no_class(target, ids):
    marks, listed = np.zeros(41, bool), np.array(ids, np.int64)
    is_marked = open_target(target).mark_list(listed.ctypes.data, listed.size, 41, point_at(marks))
    assert is_marked == all(0 <= id < 41 for id in ids)
    if is_marked:
        np.testing.assert_array_equal(marks.nonzero()[0], np.unique(listed))


@pytest.mark.parametrize(("numbers", "shape"), [([0] * ROWS, (1, 4)), ([0, 0, 0, 1], (ROWS, 4)), ([1], (1, 1))])
def test_a_list_that_all_rows_share_is_packed_once(numbers, shape):
    """64 rows of a list of 4 million ids took 2 GiB."""
    shared = table.for_rows(numbers)
    assert pack_lists(ClassFilter(ban=shared), ROWS)[1].shape == shape
    allow, ban = pack_lists(ClassFilter(allow=shared, ban=table), ROWS)
    assert (allow.shape, ban.shape) == (shape, (ROWS, 4))
