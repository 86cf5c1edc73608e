"""What a head that previews classes must answer, whatever plan it has."""

from __future__ import annotations

import numpy as np

from tests.support.layers import logits_of


def check_rows_alone(head, rows, ks=(5,), step=9, atol=1e-5):
    """Whether each of some rows, asked alone, is answered as among the others."""
    for k in ks:
        whole = head.topk(rows, k)
        for row in range(0, len(rows), step):
            alone = head.topk(rows[row : row + 1], k)
            np.testing.assert_array_equal(alone.ids[0], whole.ids[row])
            np.testing.assert_allclose(alone.logprobs[0], whole.logprobs[row], atol=atol)
            assert alone.scored[0] == whole.scored[row]


def check_exact_scores(top, dense, rows, k):
    """Whether each row has k classes, none of them padding, in the order of their true logits [rows, V]."""
    truth = logits_of(dense, rows)
    for row, ids in enumerate(top.ids):
        assert len(set(ids.tolist()) - set(dense.padded.tolist())) == k
        np.testing.assert_allclose(np.diff(top.logprobs[row]), np.diff(truth[row, ids]), atol=1e-4)
        assert (np.diff(truth[row, ids]) <= 1e-5).all()


def check_wide_k(head, dense, rows, k=30, dense_k=400):
    """Whether a wide k finds nearly all of the true best classes, and one too wide is answered by dense."""
    ids = head.topk(rows, k).ids
    truth = np.argsort(-logits_of(dense, rows), axis=1)[:, :k]
    assert np.mean([len(set(a) & set(b)) / k for a, b in zip(ids.tolist(), truth.tolist(), strict=True)]) > 0.95
    assert (head.topk(rows[:2], dense_k).scored == dense.classes).all()


def check_lists_come_first(head, dense, rows):
    """Whether lists are applied before the best are taken; the answer to an allow list of two classes."""
    free = head.topk(rows, 5)
    banned = head.topk(rows, 5, ban=free.ids)
    assert not (banned.ids[:, :, None] == free.ids[:, None, :]).any()
    scores = logits_of(dense, rows)
    np.put_along_axis(scores, free.ids, -np.inf, axis=1)
    assert (banned.ids[:, 0] == scores.argmax(axis=1)).mean() > 0.95
    allowed = head.topk(rows, 3, allow=[7, 9])
    assert (np.sort(allowed.ids[:, :2], axis=1) == [7, 9]).all()
    assert (allowed.ids[:, 2] == -1).all()
    return allowed
