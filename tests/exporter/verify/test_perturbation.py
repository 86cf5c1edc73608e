"""Calibration rows that stand for other kinds of text."""

import numpy as np
import pytest
from shortlist.evaluation.statistics import mark_hits
from shortlist_exporter.export import promise
from shortlist_exporter.inputs.sources import Contexts
from shortlist_exporter.verify.perturbation import perturb_contexts

from tests.support.heads.grouped import (
    DIM,
    PROMISE_CLASSES,
    PROMISE_OPTIONS,
    find_promise_truth,
    promise_contexts,
)
from tests.support.layers import contexts_elsewhere, make_dense, make_head

contexts = promise_contexts.contexts
unit = contexts / np.linalg.norm(contexts, axis=1, keepdims=True)


@pytest.mark.parametrize(("rows", "perturbed"), [(200, 80), (1_000, 400), (4_000, 400)])
def test_so_many_rows_are_perturbed_some_little_and_some_much(rows, perturbed):
    changed = perturb_contexts(unit[:rows], 0)
    assert changed.shape == (perturbed, DIM)
    assert changed.dtype == np.float32
    likeness = (changed @ unit[:rows].T).max(axis=1)
    assert likeness.max() > 0.99
    assert likeness.min() < 0.9


def test_the_same_seed_perturbs_alike_and_another_otherwise():
    given = contexts[:500]
    np.testing.assert_array_equal(perturb_contexts(given, 3), perturb_contexts(given, 3))
    assert not np.array_equal(perturb_contexts(given, 3), perturb_contexts(given, 4))


def test_directions_that_no_context_has_stay_unused():
    given = contexts[:300].copy()
    given[:, 10:] = 0
    assert np.abs(perturb_contexts(given, 0)[:, 10:]).max() < 1e-5 * np.abs(given).max()


@pytest.mark.parametrize("length", [0, 1e-30, 1, 1e30])
def test_rows_of_any_length_keep_it(length):
    changed = perturb_contexts((unit[:300] * length).astype(np.float32), 0)
    np.testing.assert_allclose(np.linalg.norm(changed.astype(np.float64), axis=1), length, rtol=1e-4)


def test_estimates_know_what_is_missed_of_rows_like_the_perturbed_ones(tmp_path, monkeypatch):
    """An export fits its estimates to perturbed rows: where these lie elsewhere, rows from there state their risk."""
    elsewhere = contexts_elsewhere(contexts, 1_200)
    monkeypatch.setattr(promise, "perturb_contexts", lambda given, seed: elsewhere[:400])
    rows, best = elsewhere[400:], find_promise_truth(elsewhere[400:], 1).best
    answer = export_head(tmp_path / "elsewhere").topk(rows, 1, risk=True)
    assert answer.risk.mean() > 0.5 * (1 - mark_hits(answer.ids, best, 1).mean())
    monkeypatch.undo()
    answer = export_head(tmp_path / "perturbed").topk(rows, 1, risk=True)
    assert answer.risk.mean() < 0.1 * (1 - mark_hits(answer.ids, best, 1).mean())


def export_head(folder):
    dense = make_dense(PROMISE_CLASSES, DIM)
    return make_head(folder, dense, Contexts(contexts), method="grouped", options=PROMISE_OPTIONS)
