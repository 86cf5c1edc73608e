import time

import numpy as np
import pytest
from shortlist_exporter.playground.compare import TIMED_CALLS, Query, compare, time_by_turns

from tests.support.layers import make_contexts, make_dense, make_head


def test_both_sides_of_a_head(grouped_head):
    contexts = make_contexts(4, grouped_head.manifest.dim, seed=5).contexts
    banned = grouped_head.topk(contexts[:1], 1, exact=True).ids[0].tolist()
    comparison = compare(grouped_head, Query(contexts, 3, None, banned, False))
    wanted = grouped_head.topk(contexts, 3, ban=banned, exact=True)
    np.testing.assert_array_equal(comparison.dense.ids, wanted.ids)
    np.testing.assert_allclose(comparison.dense.logprobs, wanted.logprobs, atol=1e-5)
    assert comparison.head_us > 0
    assert comparison.dense_us > 0


@pytest.mark.slow
def test_a_head_without_its_dense_layer(tmp_path):
    head = make_head(tmp_path, make_dense(), keep_dense=False)
    comparison = compare(head, Query(make_contexts(1).contexts, 3, None, None, False))
    assert comparison.dense is None
    assert comparison.dense_us is None


def test_sides_are_timed_by_turns_a_few_times():
    calls = []
    tops, times = time_by_turns({name: lambda name=name: calls.append(name) or name for name in ("a", "b")})
    assert calls == ["a", "b"] * TIMED_CALLS
    assert tops == {"a": "a", "b": "b"}
    assert set(times) == {"a", "b"}


def test_slow_sides_are_timed_once():
    calls = []
    _, times = time_by_turns({"a": lambda: calls.append(time.sleep(0.03))})
    assert len(calls) == 1
    assert times["a"] >= 30_000
