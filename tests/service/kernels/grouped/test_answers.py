"""Whole answers of rows that share lists, by one native call: they are those of the long way, errors included."""

import numpy as np
import pytest
from shortlist.core.filters import Members
from shortlist.core.row_lists import RowLists
from shortlist.errors import BadInput
from shortlist.kernels.lists import take_list
from shortlist.kernels.native.library import open_kernels
from shortlist_exporter.verify.effort import change_settings

from tests.support.heads.grouped import PROMISE_CLASSES as CLASSES
from tests.support.heads.grouped import promise_contexts
from tests.support.layers import logits_of, make_dense

pytestmark = pytest.mark.skipif(open_kernels() is None, reason="graphs answer every row the long way")

K = 5
ROWS = promise_contexts.contexts[-8:]
BEST = np.argsort(-logits_of(make_dense(CLASSES, ROWS.shape[1]), ROWS[:1])[0], kind="stable")
SHARED = {
    "a ban": {"ban": [3]},
    "bans twice and in disorder": {"ban": [9, 3, 3, 9, 1]},
    "padding": {"ban": np.array([7, -1, -1])},
    "many bans": {"ban": np.arange(0, CLASSES, 3)},
    "nearly all banned": {"ban": np.arange(4, CLASSES)},
    "the best of one row banned": {"ban": BEST[:300]},
    "few allowed": {"allow": np.array([[11, 12, 13]], np.int32)},
    "many allowed": {"allow": np.arange(0, CLASSES, 2)},
    "both": {"allow": np.arange(0, CLASSES, 2), "ban": [0, 2, 4]},
    "none is left": {"allow": [1, 2], "ban": [2, 1]},
}
WITHIN = {"half": 1000, "most": 1990, "all": 2001}  # of each 2,001 classes
WRONG = {
    "no class": [CLASSES],
    "true among numbers": [1, True],
    "a fraction": [1, 2.5],
    "too large a number": [2**70],
}


def answer(head, monkeypatch, *, long_way, rows=ROWS, k=K, **lists):
    with monkeypatch.context() as patched:
        if long_way:
            patched.setattr(head, "row_answers", None)
        return head.topk(rows, k, risk=True, **lists)


def limit_bans(head, **limits):
    """The same head with these settings, as an export may have measured them."""
    other = head.with_settings()
    other.plan = change_settings(head.plan, **limits)
    other.row_answers = other.plan.open_answers(None)
    return other


@pytest.mark.parametrize("name", SHARED)
def test_shared_lists_are_answered_as_by_the_long_way(promise_head, name, monkeypatch):
    lists = SHARED[name]
    assert promise_head.row_answers.answer_listed(ROWS, K, lists.get("allow"), lists.get("ban")) is not None
    top, wanted = (answer(promise_head, monkeypatch, long_way=way, **lists) for way in (False, True))
    np.testing.assert_array_equal(top.ids, wanted.ids)
    np.testing.assert_allclose(top.logprobs, wanted.logprobs, atol=1e-5)
    np.testing.assert_array_equal(top.risk, wanted.risk)


@pytest.mark.parametrize("lists", [{}, *SHARED.values()], ids=["none", *SHARED])
@pytest.mark.parametrize("most", [0, 1, 2, 400])
def test_rows_with_many_bans_are_answered_exactly_by_each_way(promise_head, most, lists, monkeypatch):
    """Also where a ban list is in disorder, padded or empty, and for any list where no ban is too few."""
    head = limit_bans(promise_head, most_bans=most)
    bans = np.sum(np.array(lists.get("ban", [])) >= 0)
    for row in ROWS[:, None]:
        top, wanted = (answer(head, monkeypatch, long_way=way, rows=row, **lists) for way in (False, True))
        np.testing.assert_array_equal(top.ids, wanted.ids)
        np.testing.assert_array_equal(top.risk, wanted.risk)
        np.testing.assert_allclose(top.logprobs, wanted.logprobs, atol=1e-5)
        if bans > most or (lists and not most):
            exact = promise_head.topk(row, K, exact=True, **lists)
            assert (top.scored.tolist(), top.risk.tolist()) == ([CLASSES], [0])
            np.testing.assert_array_equal(top.ids, exact.ids)


def test_rows_that_share_many_bans_need_no_long_way(promise_head, monkeypatch):
    head, bans = limit_bans(promise_head, most_bans=2), np.array([3, 4, 5])
    ids, _, scored = head.row_answers.answer_listed(ROWS, K, None, bans)
    np.testing.assert_array_equal(ids, answer(head, monkeypatch, long_way=True, ban=bans).ids)
    assert (scored == CLASSES).all()


def test_bans_of_each_row_say_whether_it_is_answered_exactly(promise_head):
    head = limit_bans(promise_head, most_bans=2)
    bans = [[3, 4], [3, 4, 5], [], [5, 6, 7, 8]] * 2
    scored = head.topk(ROWS, K, ban=bans).scored
    assert (scored == CLASSES).tolist() == [False, True] * 4
    alone = [head.topk(row, K, ban=each) for row, each in zip(ROWS[:, None], bans, strict=True)]
    np.testing.assert_array_equal(head.topk(ROWS, K, ban=bans).ids, np.concatenate([top.ids for top in alone]))


@pytest.mark.parametrize("most", [None, 10])
@pytest.mark.parametrize("within", ["half", "most", "all"])
@pytest.mark.parametrize("lists", [{}, {"ban": BEST[:3]}], ids=["no bans", "bans"])
def test_sets_that_are_not_marked_are_answered_as_by_the_long_way(promise_head, monkeypatch, most, within, lists):
    """Which takes a set of more than half of all classes for a ban list of the others."""
    head, members = limit_bans(promise_head, most_bans=most), Members(np.arange(CLASSES) % 2001 < WITHIN[within])
    assert not head.plan.searches_marks(K, members.count)
    monkeypatch.setattr(head.sets, "find", lambda within, without: members)
    for k in (K, 100):
        assert head.row_answers.answer_marked(ROWS[:1], k, members, lists.get("ban")) is not None
        top, wanted = (answer(head, monkeypatch, long_way=way, k=k, within=within, **lists) for way in (False, True))
        np.testing.assert_array_equal(top.ids, wanted.ids)
        np.testing.assert_array_equal(top.scored, wanted.scored)
        np.testing.assert_array_equal(top.risk, wanted.risk)


def test_searches_that_go_less_far_state_no_risk(promise_head):
    assert np.isnan(promise_head.with_settings(opened=150).topk(ROWS, K, risk=True).risk).all()


def test_a_native_call_takes_shared_lists(promise_head):
    answers = promise_head.row_answers
    assert answers.answer_listed(ROWS, K, None, RowLists.from_lists([[3]]).for_rows([0])) is not None
    assert answers.answer_listed(ROWS, K, None, RowLists.from_lists([[3]] * len(ROWS))) is None
    assert answers.answer_listed(ROWS, K, None, [[3]] * len(ROWS)) is None


@pytest.mark.parametrize("ids", [[3, 5], np.array([3, 5])])
def test_a_native_call_takes_the_list_of_a_single_row(promise_head, ids):
    alone, flat = (promise_head.row_answers.answer_listed(ROWS[:1], K, None, ban) for ban in ([ids], ids))
    np.testing.assert_array_equal(alone[0], flat[0])
    assert promise_head.row_answers.answer_listed(ROWS[:1], K, None, [[ids]]) is None


@pytest.mark.parametrize("name", WRONG)
def test_wrong_lists_are_refused(promise_head, name):
    with pytest.raises(BadInput, match="ban"):
        promise_head.topk(ROWS, K, ban=WRONG[name])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_lists_at_odd_addresses_are_copied_for_the_loops(promise_head, dtype):
    ids = np.arange(0, CLASSES, 2, dtype=dtype)
    shifted = np.frombuffer(bytearray(b"?" + ids.tobytes()), dtype, offset=1)
    assert not shifted.flags.aligned
    assert take_list(shifted, CLASSES, CLASSES).flags.aligned
    for name in ("allow", "ban"):
        top, wanted = (promise_head.topk(ROWS, K, **{name: each}) for each in (shifted, ids))
        np.testing.assert_array_equal(top.ids, wanted.ids)
