"""GreedyMIPS meets the rows that its paper's heap meets."""

import heapq

import numpy as np
import pytest

from benchmarks.contenders.peers import greedy_mips


def greedy_by_heap(rows, query, budget):
    """Rows in the order in which the paper's heap of conditional iterators meets them."""
    entries = query * rows
    order = np.argsort(-entries, axis=0)
    heap = [(-entries[order[0, axis], axis], axis, 0) for axis in range(query.size)]
    heapq.heapify(heap)
    candidates = []
    while len(candidates) < budget:
        _, axis, place = heapq.heappop(heap)
        row = order[place, axis]
        if row not in candidates:
            candidates.append(row)
        if place + 1 < len(rows):
            heapq.heappush(heap, (-entries[order[place + 1, axis], axis], axis, place + 1))
    return candidates


@pytest.mark.parametrize("budget", [1, 2, 17, 60, 150, 300])
@pytest.mark.parametrize("peaked", [False, True])
def test_greedy_meets_the_rows_that_the_heap_meets(budget, peaked):
    random = np.random.default_rng(budget)
    rows = random.standard_normal((300, 9)).astype(np.float32)
    lists = greedy_mips.sort_lists(rows, 300)
    for _ in range(5):
        query = random.standard_normal(9).astype(np.float32)
        query[3] *= 50 if peaked else 1  # one list gives nearly all entries
        result = greedy_mips.visit_rows(lists, query, budget)
        assert list(result) == greedy_by_heap(rows, query, budget)
        largest = np.argsort(-(query * rows).max(axis=1), kind="stable")[:budget]
        assert set(result) == set(largest)


def test_lists_are_read_no_further_than_their_limit():
    rows = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
    query = np.array([1, -2, 0.5, 3], np.float32)
    whole, cut = greedy_mips.sort_lists(rows, 100), greedy_mips.sort_lists(rows, 20)
    assert list(greedy_mips.visit_rows(cut, query, 20)) == list(greedy_mips.visit_rows(whole, query, 20))
    assert len(greedy_mips.visit_rows(cut, query, 50)) == 20
