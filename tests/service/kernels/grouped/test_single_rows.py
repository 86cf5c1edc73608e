"""Few rows of plan `grouped` by one native call, of every target: the answers of the long way, or none."""

import numpy as np
import pytest
import shortlist
from shortlist.errors import BadInput
from shortlist.kernels.native import library

from tests.support.heads.grouped import DIM, promise_contexts
from tests.support.kernels import list_targets

pytestmark = pytest.mark.slow
rows = promise_contexts.contexts[-60:]


@pytest.fixture(params=list_targets())
def head(request, promise_head, monkeypatch):
    monkeypatch.setenv(library.VARIABLE, request.param)
    yield shortlist.load(promise_head.folder, threads=1)
    library.open_target.cache_clear()


def answer_the_long_way(head, contexts, k, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(head, "row_answers", None)
        return [head.topk(row[None], k) for row in contexts]


@pytest.mark.parametrize("promise", [0.99, None])
def test_answers_are_those_of_the_long_way(promise, head, monkeypatch):
    head = head.with_settings(promise=promise)
    for k in (1, 5, 50, head.row_answers.max_k):
        assert all(head.row_answers(row[None].copy(), k) is not None for row in rows)
        wanted = answer_the_long_way(head, rows, k, monkeypatch)
        for row, other in zip(rows, wanted, strict=True):
            top = head.topk(row[None].copy(), k)
            for name in ("ids", "logprobs", "scored"):
                np.testing.assert_array_equal(getattr(top, name), getattr(other, name))
            assert (top.normalizer, top.promise, top.risk) == (other.normalizer, other.promise, other.risk)


def test_settings_change_what_is_searched(head):
    row = rows[:1].copy()
    wide = head.with_settings(candidates=512, previewed=1024, opened=1024)
    assert wide.topk(row, 5).scored[0] >= 512 > head.with_settings(promise=None).topk(row, 5).scored[0]


@pytest.mark.parametrize("number", [np.nan, np.inf, np.float32(3e38)])
def test_contexts_that_are_no_numbers_are_refused(number, head):
    contexts = np.full((1, DIM), number, np.float32)
    assert head.row_answers(contexts, 5) is None
    with pytest.raises(BadInput, match=r"NaN or infinity|overflow float32"):
        head.topk(contexts, 5)


def test_larger_k_goes_the_long_way(head):
    k = head.row_answers.max_k + 1
    assert head.row_answers(rows[:1].copy(), k) is None
    assert head.topk(rows[:1].copy(), k).ids.shape == (1, k)


@pytest.mark.parametrize("threads", [1, 2])
def test_many_rows_are_answered_as_each_by_itself(threads, head):
    head = shortlist.load(head.folder, threads=threads)
    head.plan.compiled.threaded_rows.note(1.0)  # as if a row took so long that a second thread is worth waking
    answers, limit = head.row_answers, head.manifest.dense_crossover
    assert answers.max_rows >= min(len(rows), (limit or len(rows) + 1) - 1)
    for k in (1, 5, 50):
        several = answers(rows[: answers.max_rows], k)
        single = [answers(row[None].copy(), k) for row in rows[: answers.max_rows]]
        for part, parts in zip(several, zip(*single, strict=True), strict=True):
            np.testing.assert_array_equal(part, np.concatenate(parts))


def test_a_row_that_is_no_number_leaves_all_to_the_long_way(head):
    contexts = rows[:3].copy()
    contexts[1, 0] = np.nan
    assert head.row_answers(contexts, 5) is None
    with pytest.raises(BadInput, match="row 1"):
        head.topk(contexts, 5)


def test_many_rows_are_left_to_dense(head):
    answers = head.plan.open_answers(crossover=4)
    assert answers.max_rows == 3
    assert answers(rows[:4].copy(), 5) is None
    assert answers(rows[:3].copy(), 5)[0].shape == (3, 5)
