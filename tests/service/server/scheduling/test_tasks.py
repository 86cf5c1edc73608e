"""What tasks hold, which are of one kind, and which may take so much longer than others that a thread computes them.

A task that waits holds the arrays of its query, all of them; lists as rows while it is computed.
"""

import numpy as np
import pytest
from shortlist.core.bias import parse_bias
from shortlist.core.draws.sampling import parse_sampling
from shortlist.core.queries import SampleQuery, ScoreQuery, TopKQuery
from shortlist.core.row_lists import RowLists
from shortlist.decoding.arguments import make_beam_query
from shortlist.items.live_head import LiveHead
from shortlist.items.overlay import ItemOverlay
from shortlist.server.scheduling import slices, tasks
from shortlist.server.scheduling.slices import Slice
from shortlist.server.scheduling.tasks import make_task

ROWS = np.zeros((4, 16), np.float32)
ROW = ROWS[:1]
BIAS = parse_bias([dict.fromkeys(range(100), 0.5)] * 4)
TABLE = RowLists.from_lists([[1, 2], range(5, 105)])
QUERIES = {
    "the k best": lambda bias=None, ban=None: TopKQuery(ROWS, 3, ban=ban, bias=bias),
    "draws": lambda bias=None, ban=None: SampleQuery(ROWS, parse_sampling(4, 1), None, ban, bias),
}


@pytest.mark.parametrize("kind", QUERIES)
def test_biases_are_counted(head, kind):
    without, beside = (make_task(head, QUERIES[kind](bias)).argument_bytes for bias in (None, BIAS))
    assert beside - without == BIAS.nbytes == 4 * 100 * 12


@pytest.mark.parametrize("kind", QUERIES)
def test_lists_are_counted_as_rows_of_the_longest_where_rows_have_different_ones(head, kind):
    free, shared, mixed = (
        make_task(head, QUERIES[kind](ban=numbers and TABLE.for_rows(numbers))).argument_bytes
        for numbers in (None, [1, 1, 1, 1], [0, 1, 1, -1])
    )
    assert shared - free == TABLE.for_rows([1] * 4).nbytes
    assert mixed - shared == 4 * 100 * 8


@pytest.mark.parametrize("kind", QUERIES)
def test_rows_of_long_lists_are_computed_a_few_at_a_time(head, kind, monkeypatch):
    """64 rows of 4 million ids each would take 2 GiB."""
    task = make_task(head, QUERIES[kind](ban=TABLE.for_rows([0, 1, 1, -1])))
    (wanted,), whole = task.compute_slices([Slice(task, 0, 4)]), task.compute()
    monkeypatch.setattr(slices, "MAX_PACKED_IDS", 250)
    assert slices.split_rows(task.class_filter, 1, 4) == [(1, 3), (3, 4)]
    assert task.argument_bytes - 250 * 8 == ROWS.nbytes + task.class_filter.ban.nbytes
    (part,) = task.compute_slices([Slice(task, 0, 4)])
    assert np.array_equal(part.ids, wanted.ids)
    assert np.array_equal(task.compute().ids, whole.ids)


def ask(head, ids=0, k=3, bias=None):
    """A task for the k best classes but for the first so many."""
    ban = np.arange(ids)[None] if ids else None
    return make_task(head, TopKQuery(np.zeros((1, head.manifest.dim)), k, ban=ban, bias=bias))


def test_tasks_with_lists_are_of_another_kind_than_those_without(head):
    kinds = [ask(head, ids).kind for ids in (0, 20, 60)]
    assert len(set(kinds)) == 3
    assert ask(head, 20).kind == ask(head, 25).kind


def test_kinds_are_few_whatever_k_is_asked_for(promise_head):
    kinds = [ask(promise_head, ids, k).kind for k in range(1, 1001) for ids in (0, 20)]
    assert len({promise_head.plan.width(k) for k in range(1, 1001)}) == 1000
    assert len(set(kinds)) < 50
    assert ask(promise_head, k=5).kind == ask(promise_head, k=6).kind != ask(promise_head, k=40).kind


def test_tasks_with_short_lists_are_as_even_as_those_without(head, monkeypatch):
    monkeypatch.setattr(tasks, "UNEVEN_LIST_BYTES", 21 * 8)
    assert not ask(head).varies
    assert not ask(head, 20).varies
    assert ask(head, 21).varies


def test_biases_given_ids_and_forced_classes_vary(head):
    assert ask(head, bias=parse_bias([{1: 0.5}])).varies
    assert make_task(head, ScoreQuery(ROW, np.array([[1]]))).varies
    steps = [make_task(head, make_beam_query(ROW, [0.0], beam=1, n=2, forced=forced)) for forced in (None, [5])]
    assert [step.varies for step in steps] == [False, True]
    assert len({step.kind for step in steps}) == 2


def test_lists_vary_among_items_that_were_changed(head):
    live = LiveHead.make(head, ItemOverlay(head.manifest, head.names, 0, 1, head.exact_rows.loops))
    assert not ask(live).varies
    assert ask(live, 1).varies
