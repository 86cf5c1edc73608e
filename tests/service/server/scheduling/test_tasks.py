"""Which tasks are of one kind, and which may take so much longer than others that a thread computes them."""

import numpy as np
from shortlist.core.bias import parse_bias
from shortlist.core.queries import ScoreQuery, TopKQuery
from shortlist.server.scheduling import tasks
from shortlist.server.scheduling.tasks import make_task

ROWS = np.zeros((1, 16), np.float32)


def ask(head, ids=0, k=3, bias=None):
    """A task for the k best classes but for the first so many."""
    ban = np.arange(ids)[None] if ids else None
    return make_task(head, TopKQuery(ROWS, k, ban=ban, bias=bias))


def test_tasks_with_lists_are_of_another_kind_than_those_without(head):
    kinds = [ask(head, ids).kind for ids in (0, 20, 60)]
    assert len(set(kinds)) == 3
    assert ask(head, 20).kind == ask(head, 25).kind


def test_tasks_with_short_lists_are_as_even_as_those_without(head, monkeypatch):
    monkeypatch.setattr(tasks, "MAX_EVEN_LIST_BYTES", 20 * 8)
    assert not ask(head).varies
    assert not ask(head, 20).varies
    assert ask(head, 21).varies


def test_biases_and_given_ids_vary(head):
    assert ask(head, bias=parse_bias([{1: 0.5}])).varies
    assert make_task(head, ScoreQuery(ROWS, np.array([[1]]))).varies
