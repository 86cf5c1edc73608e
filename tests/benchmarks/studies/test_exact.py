"""Proved answers against float64: a judge that finds what is wrong."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from shortlist.core.results import PlanResult
from shortlist_exporter.inputs.sources import Dense

from benchmarks.studies.exact import PROVED_K, judge_rows, read_rows
from tests.support.layers import logits_of, make_contexts, make_dense

random = np.random.default_rng(0)
DENSE = Dense(make_dense().weight, random.standard_normal(300).astype(np.float32), padded=np.array([7]))
ROWS = make_contexts(40).contexts


def answers(ids=None):
    logits = logits_of(DENSE, ROWS)
    ids = np.argsort(-logits, axis=1)[:, :PROVED_K] if ids is None else ids
    peak = logits.max(axis=1)
    log_z = peak + np.log(np.exp(logits - peak[:, None]).sum(axis=1))
    best_logits = np.take_along_axis(logits, ids, axis=1).astype(np.float32)
    return PlanResult(ids, best_logits, log_z.astype(np.float32), np.full(len(ids), 9, np.int32))


@pytest.mark.parametrize("brute", [True, False])
def test_right_answers_are_right_and_every_wrong_one_is_found(brute):
    right = judge_rows(DENSE, ROWS, answers(), brute=brute)
    assert not right.wrong.any()
    assert right.error.max() < 1e-4
    best = np.argsort(-logits_of(DENSE, ROWS), axis=1)
    for wrong in (
        best[:, [0, 1, 2, 3, 5]],
        best[:, [1, 2, 3, 4, 5]],
        best[:, [0, 0, 1, 2, 3]],
        best[:, [0, 1, 2, 3, 200]],
    ):
        assert (judge_rows(DENSE, ROWS, answers(wrong), brute=brute).wrong > 0).all()


def test_order_among_equals_is_no_mismatch():
    dense = Dense(np.repeat(DENSE.weight, 2, axis=0))
    ids = np.argsort(-logits_of(dense, ROWS), axis=1, kind="stable")[:, :PROVED_K]
    result = PlanResult(ids ^ 1, np.zeros(ids.shape, np.float32), np.zeros(40, np.float32), np.full(40, 9, np.int32))
    mismatches = judge_rows(dense, ROWS, result, brute=False).wrong
    assert not mismatches[(np.sort(ids ^ 1, axis=1) == np.sort(ids, axis=1)).all(axis=1)].any()


def test_rows_are_the_tests_then_others_of_the_fit():
    data = SimpleNamespace(
        test=SimpleNamespace(contexts=ROWS), fit=SimpleNamespace(contexts=make_contexts(200).contexts)
    )
    assert sum(len(part) for part in read_rows(data, 30)) == 30
    parts = np.concatenate(list(read_rows(data, 150)))
    assert len(parts) == 150
    assert (parts[:40] == ROWS).all()
    assert len(np.unique(parts[40:], axis=0)) == 110
