"""Searches by the marks of named sets: they keep the promise among the permitted classes, however these are spread."""

import numpy as np
import pytest
from shortlist.core.filters import ClassFilter, Members, restrict_to_members
from shortlist.core.results import NO_CLASS
from shortlist.core.row_lists import RowLists
from shortlist.errors import BadInput
from shortlist.kernels.grouped.effort import EFFORT_FEATURES, list_looks
from shortlist.kernels.native.library import open_kernels
from shortlist.plans.common.list_costs import guess_costs
from shortlist.plans.common.list_ways import ListWays

from tests.support.heads.grouped import PROMISE_CLASSES as CLASSES
from tests.support.heads.grouped import promise_contexts
from tests.support.layers import logits_of, make_dense

pytestmark = pytest.mark.skipif(open_kernels() is None, reason="graphs read lists")

K = 5
ROWS = promise_contexts.contexts[-200:]
LOGITS = logits_of(make_dense(CLASSES, ROWS.shape[1]), ROWS)
SIZE = np.linalg.norm(make_dense(CLASSES, ROWS.shape[1]).weight, axis=1)
PLACES = np.random.default_rng(3).permutation(CLASSES)
SETS = {
    "a tenth": PLACES < CLASSES // 10,
    "a half": PLACES < CLASSES // 2,
    "nearly all": PLACES < CLASSES * 19 // 20,
    "none of the best of a row": np.argsort(np.argsort(LOGITS[0])) < CLASSES // 2,
    "the smaller half": np.argsort(np.argsort(SIZE)) < CLASSES // 2,
}


@pytest.fixture
def marked_head(promise_head, monkeypatch):
    """A head that searches every set by its marks, and knows those above by their names."""
    monkeypatch.setattr(promise_head.plan, "most_listed", 100)
    monkeypatch.setattr(promise_head.plan, "searches", {})
    monkeypatch.setattr(promise_head.row_answers, "listed", {})  # both keep how long a list was before
    monkeypatch.setattr(promise_head.sets, "find", lambda within, without: Members(SETS[within]))
    return promise_head


@pytest.mark.parametrize("name", SETS)
def test_the_promise_is_kept_among_the_permitted_classes(marked_head, name):
    best = np.argsort(-np.where(SETS[name], LOGITS, -np.inf), axis=1, kind="stable")[:, :K]
    top = marked_head.topk(ROWS, K, within=name)
    assert SETS[name][top.ids].all()
    assert (top.ids[:, 0] == best[:, 0]).mean() >= marked_head.manifest.promise
    assert np.mean([np.isin(*pair).mean() for pair in zip(best, top.ids, strict=True)]) >= 0.98


@pytest.mark.parametrize("name", SETS)
def test_whole_answers_are_those_of_the_long_way(marked_head, name, monkeypatch):
    ban = np.arange(0, CLASSES, 7)
    for lists in ({}, {"ban": ban}):
        assert marked_head.row_answers.answer_marked(ROWS, K, Members(SETS[name]), lists.get("ban")) is not None
        top = marked_head.topk(ROWS, K, within=name, **lists)
        with monkeypatch.context() as patched:
            patched.setattr(marked_head, "row_answers", None)
            wanted = marked_head.topk(ROWS, K, within=name, **lists)
        np.testing.assert_array_equal(top.ids, wanted.ids)
        np.testing.assert_allclose(top.logprobs, wanted.logprobs, atol=1e-5)
        assert not np.isin(top.ids, lists.get("ban", [])).any()


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("ban", [None, np.arange(0, CLASSES, 7)])
def test_a_long_list_of_ids_gets_what_a_named_set_of_them_does(marked_head, name, ban):
    """In any order, repeated, of few bytes, and as a table of one list."""
    wanted, ids = marked_head.topk(ROWS, K, within=name, ban=ban), SETS[name].nonzero()[0]
    mixed = np.random.default_rng(4).permutation(np.append(ids, ids[:50]))
    for allow in (ids, mixed, ids[None].astype(np.int32), RowLists.from_lists([ids])):
        top = marked_head.topk(ROWS, K, allow=allow, ban=ban)
        np.testing.assert_array_equal(top.ids, wanted.ids)
        np.testing.assert_array_equal(top.logprobs, wanted.logprobs)


@pytest.mark.parametrize("has_ways", [True, False])
@pytest.mark.parametrize("name", SETS)
def test_a_long_list_gets_the_same_answer_the_long_way(marked_head, name, has_ways, monkeypatch):
    """By the ways of heads with many classes, and of others without; also where ids are repeated, or in a table."""
    ways = ListWays(marked_head.plan, marked_head.exact_rows, CLASSES, guess_costs(ROWS.shape[1]))
    monkeypatch.setattr(marked_head, "ways", ways if has_ways else None)
    ids, answers = SETS[name].nonzero()[0], marked_head.row_answers
    for k in (1, K):
        for allow in (ids, np.repeat(ids[:1990], 2), np.repeat(ids[:30], 100), RowLists.from_lists([ids])):
            tops = []
            for each in (answers, None):
                monkeypatch.setattr(marked_head, "row_answers", each)
                tops.append(marked_head.topk(ROWS, k, allow=allow, risk=True))
            at_once, told = tops
            np.testing.assert_array_equal(at_once.ids, told.ids)
            np.testing.assert_array_equal(at_once.scored, told.scored)
            np.testing.assert_array_equal(at_once.risk, told.risk)
            np.testing.assert_allclose(at_once.logprobs, told.logprobs, atol=1e-5)


@pytest.mark.parametrize("has_ways", [True, False])
@pytest.mark.parametrize("kind", ["lists", "a table", "one of all in a table"])
def test_a_row_with_a_long_list_is_answered_as_beside_any_other(marked_head, has_ways, kind, monkeypatch):
    """Beside longer lists, short ones, and rows without a list."""
    ways = ListWays(marked_head.plan, marked_head.exact_rows, CLASSES, guess_costs(ROWS.shape[1]))
    monkeypatch.setattr(marked_head, "ways", ways if has_ways else None)
    lists = [SETS[name].nonzero()[0] for name in SETS] + [np.arange(9)]
    table = RowLists.from_lists(lists, [0, 1, 2, 3, 4, 5, -1] if kind == "a table" else [1] * 6)
    allow = [ids.tolist() for ids in lists] if kind == "lists" else table
    rows = ROWS[: len(allow)]
    together = marked_head.topk(rows, K, allow=allow, ban=[3], risk=True)
    for row, context in enumerate(rows):
        own = lists[row] if kind == "lists" else table.get_row(row)
        alone = marked_head.topk(context[None], K, allow=own, ban=[3], risk=True)
        np.testing.assert_array_equal(together.ids[row], alone.ids[0])
        np.testing.assert_array_equal(together.scored[row], alone.scored[0])
        np.testing.assert_array_equal(together.risk[row], alone.risk[0])


def test_a_long_list_with_padding_or_of_no_class_is_left_to_others(marked_head):
    ids = SETS["a half"].nonzero()[0]
    padded = np.append(ids, NO_CLASS)
    assert marked_head.row_answers.answer_listed(ROWS, K, padded, None) is None
    assert np.isin(marked_head.topk(ROWS, K, allow=padded).ids, ids).all()
    with pytest.raises(BadInput, match=f"allow holds id {CLASSES} but classes go from 0"):
        marked_head.topk(ROWS, K, allow=np.append(ids, CLASSES))


@pytest.mark.parametrize("name", SETS)
def test_an_answer_depends_on_its_row_alone(marked_head, name):
    together = marked_head.topk(ROWS, K, within=name)
    for row in range(0, len(ROWS), 9):
        alone = marked_head.topk(ROWS[row : row + 1], K, within=name)
        np.testing.assert_array_equal(alone.ids[0], together.ids[row])


@pytest.mark.parametrize("banned", [100, 1_000, 1_800])
@pytest.mark.parametrize("own", [False, True])
def test_bans_of_members_and_of_others_leave_the_promise_as_it_is(marked_head, banned, own):
    """Few of the members, half of them, and nearly all; or classes that the set does not hold."""
    marks = SETS["a half"]
    pool = (marks if own else ~marks).nonzero()[0]
    ban = np.random.default_rng(banned).permutation(pool)[:banned]
    permitted = marks & ~np.isin(np.arange(CLASSES), ban)
    best = np.argsort(-np.where(permitted, LOGITS, -np.inf), axis=1, kind="stable")[:, :K]
    for allow in ({"within": "a half"}, {"allow": marks.nonzero()[0]}):
        ids = marked_head.topk(ROWS, K, ban=ban, **allow).ids
        assert permitted[ids].all()
        assert (ids[:, 0] == best[:, 0]).mean() >= 0.985
        assert np.mean([np.isin(*pair).mean() for pair in zip(best, ids, strict=True)]) >= 0.98


@pytest.mark.parametrize("name", ["a half", "nearly all"])
def test_bans_of_the_best_members_ask_for_a_closer_search(marked_head, name):
    order = np.argsort(-np.where(SETS[name], LOGITS, -np.inf), axis=1, kind="stable")
    ids = marked_head.topk(ROWS, K, within=name, ban=order[:, :60]).ids
    wanted = order[:, 60 : 60 + K]
    assert np.mean([np.isin(*pair).mean() for pair in zip(wanted, ids, strict=True)]) >= 0.98


def test_few_members_are_all_given(marked_head):
    members = SETS["a tenth"].nonzero()[0]
    top = marked_head.topk(ROWS, K, within="a tenth", ban=members[3:], risk=True)
    assert (np.sort(top.ids[:, :3], axis=1) == members[:3]).all()
    assert (top.ids[:, 3:] == NO_CLASS).all()
    assert not top.risk.any()


def test_hidden_classes_of_a_row_are_not_found(marked_head):
    lists = restrict_to_members(ClassFilter(), Members(SETS["a half"]))
    best = marked_head.plan.topk(ROWS, K, lists)
    hidden = ClassFilter(allow=lists.allow, permitted=lists.permitted, hidden=best.ids[:, :2])
    others = marked_head.plan.topk(ROWS, K, hidden)
    assert not (others.ids[:, :, None] == best.ids[:, None, :2]).any()
    np.testing.assert_array_equal(others.ids[:, 0], best.ids[:, 2])


def test_a_set_whose_best_classes_are_few_is_searched_more_closely(marked_head):
    plain, odd = (marked_head.topk(ROWS[:1], K, within=name) for name in ("a half", "none of the best of a row"))
    assert odd.scored[0] > plain.scored[0]


@pytest.mark.parametrize("name", ["a tenth", "a half", "nearly all"])
def test_the_fewer_classes_are_permitted_the_less_sure_a_look_is(marked_head, name):
    """Of the same features a third of the logarithm of how many times as many classes there are counts as doubt."""
    plan, features = marked_head.plan, np.zeros((len(ROWS), EFFORT_FEATURES), np.float32)
    look = list_looks(plan.settings, K, CLASSES)[-1]
    search = plan.prepare_search(K)((look,), weights=plan.settings.effort[-1:], list_looks=1)
    risk = plan.compiled(ROWS, search, restrict_to_members(ClassFilter(), Members(SETS[name])), features).risk
    *weights, constant = plan.settings.effort[-1]
    odds = np.exp(features.astype(np.float64) @ weights + constant) * SETS[name].mean() ** -0.35
    has_risk = risk > 0  # what is left to exact answers has none
    assert has_risk.mean() > 0.9
    np.testing.assert_allclose(risk[has_risk], (odds / (1 + odds))[has_risk], rtol=0.001)


def test_a_head_without_a_promise_reads_the_list(marked_head):
    head = marked_head.with_settings(promise=None)
    assert not head.plan.searches_marks(K, CLASSES // 2)
    lists = restrict_to_members(ClassFilter(), Members(SETS["a half"]))
    assert lists.without_marks().permitted is None
    ids = head.plan.topk(ROWS, K, lists).ids
    np.testing.assert_array_equal(ids, head.plan.topk(ROWS, K, lists.without_marks()).ids)
    assert (ids != NO_CLASS).all()
