"""Which rows are chosen: as many as wanted, all alike, whatever they hold."""

from __future__ import annotations

import numpy as np
import pytest
from shortlist.core.queries import BeamQuery, ScoreQuery, TopKQuery
from shortlist.server.precision.sampler import MAX_WAITING_ROWS, Sampler
from shortlist.server.scheduling.tasks import make_task

from tests.support.layers import make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=60, seed=5).contexts


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    options = {"basis": "context", "width": "8", "full_view": "40"}
    return make_head(tmp_path_factory.mktemp("sampler"), make_dense(), options=options)


def offer(sampler, head, rows=1, k=5, **fields):
    task = make_task(head, TopKQuery(ROWS[:rows], k, **fields))
    sampler.offer(task, task.compute())


def ignore():
    """Nobody waits for rows here."""


@pytest.mark.parametrize("rows", [1, 3, 50])
def test_one_of_so_many_rows_is_chosen(head, rows):
    sampler, period, requests = Sampler(20, ignore), 20, 1000
    task = make_task(head, TopKQuery(ROWS[:rows], 5))
    result, count = task.compute(), 0
    for _ in range(requests):
        sampler.offer(task, result)
        while sampler.waiting:
            count += len(sampler.take_next().contexts)
    assert sampler.rows == requests * rows
    assert abs(count - requests * rows / period) <= 1


def test_the_gaps_cannot_be_foreseen(head):
    sampler, task = Sampler(20, ignore), make_task(head, TopKQuery(ROWS[:1], 5))
    result, numbers = task.compute(), []
    for number in range(8000):
        sampler.offer(task, result)
        if sampler.waiting:
            sampler.take_next()
            numbers.append(number % 20)
    assert np.bincount(numbers, minlength=20).min() > 0, "every place within a period"
    assert np.bincount(numbers).max() < 60, "about as often"


def test_every_row_of_large_requests_is_chosen_as_often(head):
    sampler, counts = Sampler(7, ignore), np.zeros(20)
    task = make_task(head, TopKQuery(ROWS[:20], 5))
    result = task.compute()
    for _ in range(2000):
        sampler.offer(task, result)
        while sampler.waiting:
            for row in sampler.take_next().contexts:
                counts[np.flatnonzero((ROWS[:20] == row).all(axis=1))] += 1
    assert np.abs(counts - 2000 / 7).max() < 5 * np.sqrt(2000 / 7)


def test_two_servers_choose_otherwise(head):
    task = make_task(head, TopKQuery(ROWS[:1], 5))
    result, choices = task.compute(), []
    for _ in range(2):
        sampler, chosen = Sampler(3, ignore), []
        for _ in range(100):
            sampler.offer(task, result)
            chosen.append(len(sampler.waiting))
        choices.append(chosen)
    assert choices[0] != choices[1]


def test_a_sample_is_the_answer_that_was_given(head):
    sampler = Sampler(1, ignore)
    offer(sampler, head, rows=9, k=7)
    sample = sampler.take_next()
    top = head.topk(ROWS[:9], 7)
    assert np.array_equal(sample.contexts, ROWS[:9])
    assert np.array_equal(sample.ids, top.ids[:, :5])
    assert np.allclose(sample.logprobs, top.logprobs[:, :5], atol=1e-5)
    assert not np.shares_memory(sample.contexts, ROWS)
    assert (sample.depth, sampler.waiting_rows) == (5, 0)


@pytest.mark.parametrize(("k", "depth"), [(1, 1), (4, 1), (5, 5), (12, 5)])
def test_depths(head, k, depth):
    sampler = Sampler(1, ignore)
    offer(sampler, head, k=k)
    sample = sampler.take_next()
    assert (sample.depth, sample.ids.shape) == (depth, (1, depth))


def test_rows_of_beam_steps_are_chosen_too(head):
    sampler = Sampler(1, ignore)
    lists = {"eos": np.empty(0, np.int64), "temperature": np.ones(1)}
    query = BeamQuery(ROWS[:4], np.zeros(4), np.zeros(4, bool), beam=2, n=6, **lists)
    task = make_task(head, query)
    sampler.offer(task, task.compute())
    sample = sampler.take_next()
    top = head.topk(ROWS[:4], 5)
    assert np.array_equal(sample.ids, top.ids)
    assert np.allclose(sample.logprobs, top.logprobs, atol=1e-5)


def test_requests_of_which_nothing_was_promised_are_left_out(head):
    sampler = Sampler(1, ignore)
    for fields in ({"exact": True}, {"allow": np.arange(50)[None]}, {"ban": np.arange(5)[None]}):
        offer(sampler, head, **fields)
    score = make_task(head, ScoreQuery(ROWS[:2], np.array([[1, 2]])))
    sampler.offer(score, score.compute())
    assert (sampler.rows, len(sampler.waiting)) == (0, 0)


def test_while_exact_answers_are_given_these_are_chosen(head):
    sampler = Sampler(1, ignore)
    sampler.exact = True
    offer(sampler, head)
    offer(sampler, head, exact=True)
    assert sampler.rows == 1
    assert sampler.take_next().ids is None


def test_rows_over_the_bound_are_dropped_and_counted(head):
    sampler = Sampler(1, ignore)
    for _ in range(MAX_WAITING_ROWS // 60 + 2):
        offer(sampler, head, rows=60)
    kept = MAX_WAITING_ROWS // 60 * 60
    assert sampler.waiting_rows == kept
    assert dict(sampler.outcomes) == {"queue_full": sampler.rows - kept}
    sampler.withdraw()
    assert (sampler.waiting_rows, sampler.outcomes["withdrawn"]) == (0, kept)


@pytest.mark.parametrize("request_options", [{"method": "full", "options": {}}, {"keep_dense": False}])
def test_heads_without_another_exact_way_are_left_out(tmp_path, request_options):
    sampler = Sampler(1, ignore)
    offer(sampler, make_head(tmp_path, make_dense(), **request_options))
    assert (len(sampler.waiting), sampler.outcomes) == (0, {})
