"""Widths of looks are measured at the export: the least with which little is missed."""

import pytest
from shortlist.bundle.settings import MOST_OPENED_PER_DEPTH
from shortlist.kernels.grouped.effort import list_looks
from shortlist_exporter.verify.effort import change_settings, measure_look
from shortlist_exporter.verify.look_widths import (
    OPENED_PER_DEPTH,
    WIDTHS_PER_K,
    choose_opened_per_depth,
    choose_width_per_k,
    choose_widths,
    find_banned_misses,
)

from tests.support.heads.grouped import find_promise_truth, promise_contexts

pytestmark = pytest.mark.slow
ROWS = 60


@pytest.fixture(scope="module")
def truth():
    return find_promise_truth(promise_contexts.contexts[-ROWS:], 100)


def measure_misses(plan, truth, width):
    wider = change_settings(plan, opened_per_k=width[0], candidates_per_k=width[1])
    return measure_look(wider, list_looks(wider.settings, 100, plan.order.size)[0], truth, 100).missed.mean()


@pytest.mark.parametrize("promise", [0.5, 0.9, 0.99])
def test_the_first_width_that_misses_half_of_what_the_promise_leaves_is_taken(promise_head, truth, promise):
    plan = promise_head.plan
    misses = [measure_misses(plan, truth, width) for width in WIDTHS_PER_K]
    enough = [width for width, missed in zip(WIDTHS_PER_K, misses, strict=True) if missed <= (1 - promise) / 2]
    assert misses[0] > misses[-1]
    assert choose_width_per_k(plan, truth, promise) == (enough or [WIDTHS_PER_K[-1]])[0]


def test_a_head_with_many_candidates_for_any_k_keeps_its_widths(promise_head, truth):
    plan = change_settings(promise_head.plan, candidates=2000, opened_per_k=7, candidates_per_k=3)
    assert choose_width_per_k(plan, truth, 0.99) == (7, 3)


def test_as_few_classes_are_opened_for_bans_as_find_nearly_as_much(promise_head, truth):
    plan = promise_head.plan
    lax, strict = (choose_opened_per_depth(plan, truth, promise) for promise in (0.2, 0.9999))
    assert lax == OPENED_PER_DEPTH[0]
    assert lax <= strict <= MOST_OPENED_PER_DEPTH
    for banned in (20, 50, 95):
        misses = [
            find_banned_misses(change_settings(plan, opened_per_depth=opened), truth, banned)
            for opened in (strict, MOST_OPENED_PER_DEPTH)
        ]
        assert misses[0] <= misses[1] + 0.0001
        assert 0 <= misses[1] < 0.1


def test_rows_of_few_known_classes_tell_nothing_of_bans(promise_head, truth):
    assert choose_opened_per_depth(promise_head.plan, truth.first_classes(20), 0.99) == MOST_OPENED_PER_DEPTH


def test_all_widths_become_settings(promise_head, truth):
    settings = choose_widths(promise_head.plan, truth, 0.9)
    assert (settings.opened_per_k, settings.candidates_per_k) in WIDTHS_PER_K
    assert settings.opened_per_depth in (*OPENED_PER_DEPTH, MOST_OPENED_PER_DEPTH)
    assert settings.candidates == promise_head.plan.settings.candidates
