"""Rows that are computed together are answered as if each were alone."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shortlist.core.queries import ScoreQuery, TopKQuery
from shortlist.server.scheduling.batcher import Batcher
from shortlist.server.scheduling.tasks import make_task
from shortlist_exporter.inputs.sources import Contexts

from tests.support.heads.grouped import promise_contexts
from tests.support.layers import CLASSES, make_contexts, make_dense, make_head
from tests.support.servers.stepped_pool import SteppedPool, outcome, step_to_end

pytestmark = pytest.mark.slow

SCREEN = {"clusters": "6", "budget": "40", "rounds": "1", "epochs": "1"}
SECOND = {"second_stage": "int8", "width": "12", "full_view": "30"}
HEADS = {
    "full": ("full", {}),
    "preview, published": ("svd", {"width": "4", "full_view": "20"}),
    "preview": ("svd", {"basis": "context", "width": "8", "full_view": "40"}),
    "screen": ("l2s", SCREEN),
    "screen, two probes": ("l2s", SCREEN | {"probes": "2"}),
    "screen, second stage": ("l2s", SCREEN | SECOND),
    "screen, second stage, two probes": ("l2s", SCREEN | SECOND | {"probes": "2"}),
    "screen, fall-back": ("l2s", SCREEN | {"fallback": "0.3"}),
    "screen, second probe": ("l2s", SCREEN | {"second_probe": "0.3"}),
    "screen, low-rank tail": ("l2s", SCREEN | {"tail_rank": "3"}),
}
SAMPLE = Contexts(make_contexts(600).contexts / 4)  # so that float32 holds their logits to 1e-6
ROWS = SAMPLE.contexts[-100:]


@pytest.fixture(scope="module", params=HEADS)
def head(request, tmp_path_factory):
    method, options = HEADS[request.param]
    return make_head(tmp_path_factory.mktemp("head"), make_dense(), SAMPLE, method=method, options=options)


IDS = st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=20, unique=True)
TOPK = st.builds(
    lambda start, rows, k, allow, ban, exact: TopKQuery(ROWS[start : start + rows], k, allow, ban, exact),
    st.integers(0, 99),
    st.integers(1, 24),
    st.one_of(st.integers(1, 12), st.integers(1, CLASSES)),
    st.none() | IDS.map(np.array),
    st.none() | IDS.map(np.array),
    st.booleans(),
)
PLAIN = st.builds(lambda start, rows, k: TopKQuery(ROWS[start : start + rows], k),
                  st.integers(0, 99), st.integers(1, 24), st.integers(1, 30))  # fmt: skip
SCORE = st.builds(lambda start, rows, ids: ScoreQuery(ROWS[start : start + rows], np.array(ids)),
                  st.integers(0, 99), st.integers(1, 24), IDS)  # fmt: skip


def compute_together(tasks, batch_rows):
    """Answers of tasks that are computed together, as far as they may be."""

    async def scenario():
        pool = SteppedPool()
        batcher = Batcher(pool, batch_rows)
        first = batcher.submit(tasks[0])  # starts a batch: the others gather behind it
        entries = [batcher.submit(task) for task in tasks[1:]]
        await step_to_end(batcher)
        return [each.future.result() for each in (first, *entries)]

    return asyncio.run(scenario())


@settings(max_examples=15)
@given(
    queries=st.lists(PLAIN | PLAIN | TOPK | SCORE, min_size=2, max_size=6), batch_rows=st.sampled_from([1, 16, 64, 200])
)
def test_a_rows_answer_is_the_same_alone_and_gathered(head, queries, batch_rows):
    tasks = [make_task(head, query) for query in queries]
    for query, task, result in zip(queries, tasks, compute_together(tasks, batch_rows), strict=True):
        assert len(result.logprobs) == len(query.contexts)
        whole = task.compute()
        assert result.normalizer == whole.normalizer
        np.testing.assert_array_equal(result.ids, whole.ids)
        np.testing.assert_allclose(result.logprobs, whole.logprobs, atol=1e-5, rtol=1e-6)
        if isinstance(query, TopKQuery):
            np.testing.assert_array_equal(result.scored, whole.scored)
            for row in range(task.rows):
                check_row(head, task, row, result)


@pytest.mark.parametrize("others", [ROWS[50:57], ROWS[50:57] * 1e6, ROWS[50:57] * 0], ids=["other", "large", "zero"])
def test_what_the_other_rows_hold_changes_no_answer(head, others):
    first = head.topk(np.concatenate([ROWS[:1], ROWS[1:8]]), 5)
    second = head.topk(np.concatenate([ROWS[:1], others]), 5)
    np.testing.assert_array_equal(first.ids[0], second.ids[0])
    np.testing.assert_allclose(first.logprobs[0], second.logprobs[0], atol=1e-5, rtol=1e-6)


def check_row(head, task, row, result):
    """By itself, by the same plan."""
    alone = head.run(task.plan, task.contexts[row : row + 1], task.k, task.class_filter.slice_rows(row, row + 1))
    assert alone.ids[0].tolist() == result.ids[row].tolist()
    logprobs = alone.logits[0] - alone.log_normalizer[0]
    np.testing.assert_allclose(logprobs, result.logprobs[row], atol=1e-5, rtol=1e-6)


def test_different_k_share_a_call_and_get_no_more_than_they_asked_for(head):
    tasks = [make_task(head, TopKQuery(ROWS[i : i + 1], k)) for i, k in enumerate((3, 1, 2, 5, 4, 10, 7))]
    for task, result in zip(tasks, compute_together(tasks, 64), strict=True):
        assert result.ids.shape == (1, task.k)
        assert result.ids.tolist() == task.compute().ids.tolist()


def test_a_promise_is_kept_for_the_k_of_each_request(promise_head):
    rows = promise_contexts.contexts[-60:]
    tasks = [make_task(promise_head, TopKQuery(rows[i : i + 1], i % 5 + 1)) for i in range(len(rows))]
    for task, result in zip(tasks, compute_together(tasks, 64), strict=True):
        whole = task.compute()
        np.testing.assert_array_equal(result.ids, whole.ids)
        np.testing.assert_array_equal(result.scored, whole.scored)
        np.testing.assert_allclose(result.risk, whole.risk, rtol=1e-4)
        np.testing.assert_allclose(result.logprobs, whole.logprobs, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("k", [20, 41, 60])
def test_a_k_over_a_clusters_set_is_answered_alike_alone_and_gathered(head, k):
    tasks = [make_task(head, TopKQuery(ROWS[start : start + 5], k)) for start in range(0, 60, 5)]
    for task, result in zip(tasks, compute_together(tasks, 64), strict=True):
        for row in range(task.rows):
            check_row(head, task, row, result)


def test_scores_that_overflow_fail_their_own_request_alone(head):
    contexts = ROWS[:3].copy()
    contexts[1] = 3e38
    many = ROWS[:40].copy()
    many[37] = 3e38
    tasks = [make_task(head, TopKQuery(rows, 2)) for rows in (ROWS[:1], ROWS[1:3], contexts, ROWS[3:5])]
    tasks += [make_task(head, TopKQuery(many, 2)), make_task(head, ScoreQuery(many, np.array([1, 2])))]

    async def scenario():
        pool = SteppedPool()
        batcher = Batcher(pool, 64)
        entries = [batcher.submit(task) for task in tasks]
        await step_to_end(batcher)
        return [outcome(each.future) for each in entries]

    result = asyncio.run(scenario())
    assert "contexts row 1 is so large" in str(result[2])
    assert ["contexts row 37 is so large" in str(one) for one in result[4:]] == [True, True]
    for index in (0, 1, 3):
        np.testing.assert_array_equal(result[index].ids, tasks[index].compute().ids)
