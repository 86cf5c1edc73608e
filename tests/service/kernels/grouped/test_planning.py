"""How a search for k classes is planned, and that it is planned once."""

from copy import copy
from math import inf


def test_a_search_is_planned_once_for_each_k_with_lists_and_without(promise_head):
    plan = promise_head.plan
    assert plan.plan_search(3, restricts=False) is plan.plan_search(3, restricts=False)
    assert plan.plan_search(3, restricts=True) is not plan.plan_search(3, restricts=False)


def test_of_marks_none_is_kept(promise_head):
    plan = promise_head.plan
    kept = len(plan.searches)
    assert (
        plan.plan_search(3, restricts=True, marked=700).looks != plan.plan_search(3, restricts=True, marked=900).looks
    )
    assert len(plan.searches) == kept


def test_a_last_look_alone_has_the_last_looks_estimates(promise_head):
    plan = promise_head.plan
    search = plan.plan_search(20, restricts=True, marked=400)
    assert search.looks[0] == search.looks[1]
    assert search.weights == (plan.settings.wide_effort[1],) * 2
    assert search.ban_weights == (plan.settings.wide_ban_effort[1],) * 2


def test_other_settings_are_other_searches(promise_head):
    promise_head.plan.plan_search(1, restricts=False)
    other = promise_head.with_settings(promise=0.9).plan
    assert other.plan_search(1, restricts=False).bar > promise_head.plan.plan_search(1, restricts=False).bar


def test_without_anything_exact_no_row_is_left_to_it(promise_head):
    promise_head.plan.plan_search(1, restricts=False)
    without = copy(promise_head.plan)
    without.fallback = without.prover = None
    assert without.plan_search(1, restricts=False).doubt_bar == inf
    assert promise_head.plan.plan_search(1, restricts=False).doubt_bar < inf
