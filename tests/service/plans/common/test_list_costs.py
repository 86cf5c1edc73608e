"""Times of the ways to answer rows with lists."""

import time

import numpy as np
from shortlist.core.results import empty_result
from shortlist.plans.common.base import Plan
from shortlist.plans.common.list_costs import MIN_PER_LISTED, estimate_listed, measure_costs

CLASSES = 40_000
CONTEXTS = np.ones((2, 4), np.float32)
SEARCH_SECONDS, LIST_SECONDS = 2e-2, 1e-6  # of a search, and of each class of a list


class SlowSearch(Plan):
    """Takes longer to search than to score a whole list."""

    def max_rows(self):
        return 1

    def topk(self, contexts, k, class_filter):
        del class_filter
        time.sleep(SEARCH_SECONDS)
        return empty_result(len(contexts), k)

    def score_lists(self, contexts, k, class_filter):
        time.sleep(LIST_SECONDS * class_filter.allow.size)
        return empty_result(len(contexts), k)


class FlatLists(SlowSearch):
    """Scores a long list in less time than a short one."""

    def score_lists(self, contexts, k, class_filter):
        time.sleep(2e-2 if class_filter.allow.size < 2_000 else 0)
        return empty_result(len(contexts), k)


def measure(plan):
    return measure_costs(plan, None, None, CLASSES, CONTEXTS)


def test_a_class_of_a_list_costs_what_a_longer_list_takes_longer():
    costs = measure(SlowSearch())
    assert costs.listed > 0.3e6 * LIST_SECONDS
    assert costs.exact is None
    assert estimate_listed(costs, 1000) > costs.asked[0] >= 1e6 * SEARCH_SECONDS


def test_lists_whose_length_hardly_shows_cost_something():
    assert measure(FlatLists()).listed == MIN_PER_LISTED
