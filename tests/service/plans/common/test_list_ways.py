"""Each way gives the answers of the plan's own search, of a plan that is exact."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from shortlist.bundle.list_costs import ListCosts
from shortlist.core.filters import ClassFilter, Members, restrict_to_members
from shortlist.core.results import PlanResult
from shortlist.core.row_lists import RowLists
from shortlist.plans.common.base import Plan, take_best
from shortlist.plans.common.list_ways import ListWays, mark_shared_list, search_free_rows_apart
from shortlist.plans.common.normalizer import log_sum_exp
from shortlist.plans.common.way_choice import EXACT, LISTED, OWN, count_asked

CLASSES, DIM, K = 70_000, 8, 10
RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.standard_normal((CLASSES, DIM)).astype(np.float32)
CONTEXTS = RANDOM.standard_normal((4, DIM)).astype(np.float32)
CHEAP, DEAR = 1.0, 1e6


class WholePlan(Plan):
    """Scores everything, and counts its calls with lists."""

    def __init__(self):
        self.listed_calls = 0

    def max_rows(self):
        return 4

    def topk(self, contexts, k, class_filter):
        self.listed_calls += class_filter.restricts
        logits = contexts @ WEIGHT.T
        rows = [take_best(class_filter.restrict(each, row), None, k) for row, each in enumerate(logits)]
        ids, best = (np.stack(part) for part in zip(*rows, strict=True))
        normalizer = np.array([log_sum_exp(each) for each in logits], np.float32)
        return PlanResult(ids, best, normalizer, np.full(len(contexts), CLASSES, np.int32))


class Rows:
    def score_row(self, context, ids):
        return WEIGHT[ids] @ context


def make_ways(exact=DEAR, asked=DEAR, listed=DEAR, asked_few=None):
    """Ways that cost so much; asked_few: what a search for K classes costs where that is not `asked`."""
    plan = WholePlan()
    plan.fallback = WholePlan()
    costs = ListCosts(ks=(K, 512), asked=(asked_few or asked, asked), listed=listed, exact=exact)
    return ListWays(plan, Rows(), CLASSES, costs)


def choose(share, seed=0):
    return np.sort(np.random.default_rng(seed).choice(CLASSES, int(share * CLASSES), replace=False))


def list_filters():
    best = np.argsort(-(CONTEXTS @ WEIGHT.T), axis=1)
    marked = np.zeros(CLASSES, bool)
    marked[choose(0.1)] = True
    own_bans = ClassFilter(ban=best[:, :3])
    return {
        "tenth": ClassFilter(allow=choose(0.1)[None]),
        "half and bans": ClassFilter(choose(0.5)[None], best[:, :40]),
        "the worst": ClassFilter(allow=best[0, -5_000:][None]),
        "own best banned": ClassFilter(ban=best[:, :1_000]),
        "few banned": ClassFilter(ban=best[:, 5:6]),
        "short list": ClassFilter(allow=best[:, :5]),
        "several lists": ClassFilter(allow=RowLists.from_lists([best[0, :20], choose(0.2)], [0, 1, -1, 1])),
        "set": restrict_to_members(ClassFilter(), Members(marked)),
        "without set": restrict_to_members(ClassFilter(), Members(~marked)),
        "set and bans": restrict_to_members(own_bans, Members(~marked)),
    }


@pytest.mark.parametrize("name", list(list_filters()))
@pytest.mark.parametrize(
    "costs",
    [{"exact": CHEAP}, {"asked": CHEAP}, {"listed": CHEAP / CLASSES, "asked_few": CHEAP}],
    ids=["exact", "asked", "listed"],
)
def test_every_way_gives_the_same(name, costs):
    lists, ways = list_filters()[name], make_ways(**costs)
    result, expected = ways.topk(CONTEXTS, K, lists), WholePlan().topk(CONTEXTS, K, lists)
    np.testing.assert_array_equal(result.ids, expected.ids)
    np.testing.assert_allclose(result.logits, expected.logits, atol=1e-5)
    np.testing.assert_allclose(result.log_normalizer, expected.log_normalizer, atol=1e-5)


def test_the_cheapest_way_is_taken():
    lists = ClassFilter(allow=choose(0.1)[None])
    assert set(make_ways(exact=CHEAP).choose_ways(4, K, lists)) == {EXACT}
    assert set(make_ways(listed=CHEAP / CLASSES, asked=CHEAP).choose_ways(4, K, lists)) == {count_asked(K, 0.1)}
    assert set(make_ways(listed=CHEAP / CLASSES, asked=CHEAP).choose_ways(4, 100, lists)) == {LISTED}
    assert set(make_ways(listed=CHEAP / CLASSES, asked_few=CHEAP).choose_ways(4, K, lists)) == {LISTED}


def test_a_row_whose_misses_are_estimated_is_not_asked_for_so_many_that_they_are_not(monkeypatch):
    ways, lists = make_ways(asked=CHEAP), ClassFilter(allow=choose(0.1)[None])
    monkeypatch.setattr(ways.plan, "estimates_misses", lambda k: k <= K)
    assert set(ways.choose_ways(4, K, lists)) == {OWN}
    assert set(ways.choose_ways(4, K + 1, lists)) == {count_asked(K + 1, 0.1)}, "there is no estimate anyway"
    other = make_ways(asked=CHEAP)
    monkeypatch.setattr(other.plan, "estimates_misses", lambda k: k <= 512)
    assert set(other.choose_ways(4, K, lists)) == {count_asked(K, 0.1)}


def test_short_lists_and_bans_are_the_plans_own_affair():
    ways = make_ways(listed=CHEAP / CLASSES, asked=CHEAP, exact=CHEAP)
    for lists in (ClassFilter(allow=choose(0.02)[None]), ClassFilter(ban=choose(0.2)[None])):
        assert set(ways.choose_ways(4, K, lists)) == {OWN}
    assert set(ways.choose_ways(4, K, ClassFilter(ban=choose(0.3)[None]))) == {count_asked(K, 0.7)}


def test_asking_for_more_spares_the_search_with_lists():
    ways = make_ways(asked=CHEAP)
    ways.topk(CONTEXTS, K, ClassFilter(allow=choose(0.5)[None]))
    assert ways.plan.listed_calls == 0


def test_a_long_list_that_all_rows_share_is_marked_where_marks_are_searched(monkeypatch):
    ways, lists = make_ways(asked=CHEAP), ClassFilter(allow=choose(0.1)[None])
    mark = partial(mark_shared_list, ways.plan, CLASSES, K)
    assert mark(lists) is lists
    monkeypatch.setattr(ways.plan, "searches_marks", lambda k, permitted: permitted > 100)
    assert mark(lists).permitted.nonzero()[0].tolist() == lists.allow[0].tolist()
    for other in (ClassFilter(allow=np.arange(50)[None]), ClassFilter(allow=np.append(choose(0.1), -1)[None])):
        assert mark(other) is other, "short, or padded"
    assert set(ways.choose_ways(4, K, mark(lists))) == {OWN}


def test_a_row_takes_its_way_whatever_the_others_do():
    ways, lists = make_ways(asked=CHEAP), list_filters()["several lists"]
    together = ways.topk(CONTEXTS, K, lists)
    for row in range(4):
        alone = ways.topk(CONTEXTS[row : row + 1], K, lists.slice_rows(row, row + 1))
        np.testing.assert_array_equal(alone.ids[0], together.ids[row])
        assert alone.scored[0] == together.scored[row]


def test_a_list_that_adds_up_to_more_than_the_estimate_takes_its_place(monkeypatch):
    ways, allowed = make_ways(), choose(0.1)
    monkeypatch.setattr(ways.plan, "compute_log_normalizer", lambda contexts, ids, logits: logits.min(axis=1))
    result = ways.score_lists(CONTEXTS, K, ClassFilter(allow=allowed[None]))
    expected = np.logaddexp.reduce(CONTEXTS @ WEIGHT[allowed].T, axis=1, dtype=np.float64)
    np.testing.assert_allclose(result.log_normalizer, expected, atol=1e-5)


def test_a_list_of_which_every_class_is_banned_leaves_none():
    result = make_ways().score_lists(CONTEXTS, K, ClassFilter(allow=np.array([[3, 5]]), ban=np.array([[5, 3]])))
    assert (result.ids == -1).all()
    assert np.isfinite(result.log_normalizer).all()


@pytest.mark.parametrize("more", [{"hidden": np.array([[-1], [3], [5], [-1]])}, {"forced": np.array([-1, 3, 5, -1])}])
def test_a_row_is_searched_as_alone_beside_rows_with_hidden_or_forced_classes(more):
    lists = ClassFilter(allow=RowLists.from_lists([choose(0.1)], [0, 0, -1, -1]))
    searched = []

    def search(contexts, k, class_filter):
        searched.append((len(contexts), class_filter.allow is None, class_filter.hidden, class_filter.forced))
        return WholePlan().topk(contexts, k, class_filter)

    result = search_free_rows_apart(search, CONTEXTS, K, replace(lists, **more))
    assert searched[:2] == [(1, True, None, None), (1, False, None, None)]
    assert [each[0] for each in searched] == [1, 1, 2]
    np.testing.assert_array_equal(result.ids, WholePlan().topk(CONTEXTS, K, replace(lists, **more)).ids)


def test_a_row_that_dense_answered_has_a_risk_of_zero_beside_one_that_lists_send_to_exact_answers():
    ways, lists = make_ways(exact=CHEAP), list_filters()["several lists"]
    assert set(ways.choose_ways(4, K, lists)) == {OWN, EXACT}
    result = ways.topk(CONTEXTS, K, lists)
    assert result.risk is not None
    assert not result.topk("estimated").complete_risk(CLASSES).any()


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.999, 1.0])
def test_so_many_asked_for_hold_enough_nearly_always(share):
    asked = count_asked(K, share)
    held = np.random.default_rng(1).binomial(asked, share, 10_000)
    assert (held >= K).mean() > 0.99
