"""Effort by the row: what is fitted, and what an export makes of it."""

import numpy as np
import pytest
from shortlist.kernels.grouped.effort import EFFORT_FEATURES, SIZE_FEATURES, list_looks
from shortlist_exporter.export.promise import NO_PROMISE
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_exporter.verify.effort import (
    NEW_KIND_LOG_ODDS,
    Outcomes,
    fit_effort,
    fit_looks,
    fit_regression,
    raise_estimate,
)

from tests.support.heads.grouped import (
    DIM,
    PROMISE_CLASSES,
    PROMISE_OPTIONS,
    find_promise_truth,
    promise_contexts,
)
from tests.support.layers import make_contexts, make_dense, make_head

contexts = make_contexts(1500, DIM).contexts


def test_the_regression_finds_the_odds_that_made_the_outcomes():
    rng = np.random.default_rng(0)
    features = rng.standard_normal((20_000, 3)) * [1.0, 0.1, 10.0] + [0.0, 5.0, -1.0]
    odds = features @ [1.0, -8.0, 0.0] + 38.0
    missed = (rng.random(len(odds)) < 1 / (1 + np.exp(-odds))).astype(float)
    weights = fit_regression([Outcomes(features[:9000], missed[:9000]), Outcomes(features[9000:], missed[9000:])])
    np.testing.assert_allclose(weights, [1.0, -8.0, 0.0, 38.0], rtol=0.15, atol=0.01)


@pytest.mark.parametrize("missed", [0.0, 1.0])
def test_outcomes_that_are_all_alike_are_estimated_as_such(missed):
    """Without the ridge no weights would be likeliest."""
    features = np.random.default_rng(2).standard_normal((500, 4))
    *weights, constant = fit_regression([Outcomes(features, np.full(500, missed))])
    odds = features @ weights + constant
    assert (odds < -4).all() if missed == 0 else (odds > 4).all()


def test_a_context_s_length_alone_tells_nothing():
    rng = np.random.default_rng(1)
    features = rng.standard_normal((20_000, EFFORT_FEATURES))
    odds = 2 * (features[:, 9] - features[:, 0]) - features[:, 2]
    weights = np.array(fit_looks([Outcomes(features, (rng.random(len(odds)) < 1 / (1 + np.exp(-odds))).astype(float))]))
    assert weights[[0, 2, 9, 10]] == pytest.approx([-2, -1, 2, 0], abs=0.1)
    assert weights[list(SIZE_FEATURES)].sum() == pytest.approx(0, abs=1e-9)


def test_a_raised_estimate_states_so_many_times_the_odds():
    fitted = (1.5, -0.5, -7.0)
    raised = raise_estimate(fitted, np.log(1.5))
    assert raised[:-1] == fitted[:-1]
    assert np.exp(raised[-1] - fitted[-1]) == pytest.approx(1.5)
    assert 1.1 < np.exp(NEW_KIND_LOG_ODDS) < 1.5


def test_looks_at_all_classes_are_no_part_of_the_estimates_for_few(promise_head):
    """With them, rows unlike the fitting rows were taken for surer: .82 of their best classes for .88."""
    plan, truth = promise_head.plan, find_promise_truth(promise_contexts.contexts[-300:], 100)
    assert [look.opened < PROMISE_CLASSES for look in list_looks(plan.settings, 100, PROMISE_CLASSES)] == [False] * 3
    few, parts, whole = (
        fit_effort(plan, [truth], depths, whole=is_whole)
        for depths, is_whole in (([1, 5], True), ([1, 5, 100], False), ([1, 5, 100], True))
    )
    assert few[0] == parts[0] != whole[0]


@pytest.mark.parametrize(("options", "rows", "notes"), [({"promise": "0"}, 600, []), ({}, 440, [NO_PROMISE])])
def test_no_promise_is_made_where_none_is_asked_for_and_where_contexts_are_few(tmp_path, options, rows, notes):
    manifest = make_promise_head(tmp_path, contexts[:rows], options).manifest
    assert manifest.settings.promise is None
    assert manifest.settings.effort == ()
    assert [note for note in manifest.provenance.get("notes", []) if "no promise" in note] == notes


def test_a_promise_of_few_contexts_is_kept(tmp_path):
    head = make_promise_head(tmp_path, contexts[:460], {"promise": "0.99"})
    assert head.manifest.settings.promise == 0.99
    assert NO_PROMISE not in head.manifest.provenance.get("notes", [])
    best = head.topk(contexts[460:], 1, exact=True).ids[:, 0]
    answers = [head.topk(row, 1, risk=True) for row in contexts[460:, None]]
    assert np.mean([answer.ids[0, 0] for answer in answers] == best) > 0.98
    assert np.mean([answer.risk[0] for answer in answers]) < 0.02


def test_rows_whose_classes_all_score_alike_have_a_promise_and_a_risk(tmp_path):
    rows = 2 * np.random.default_rng(0).standard_normal((600, 16)).astype(np.float32)
    head = make_head(tmp_path, Dense(np.tile(rows[:1], (500, 1))), Contexts(rows), method="grouped", options={})
    assert head.manifest.settings.promise == 0.99
    assert np.isfinite(head.topk(rows[:50], 5, risk=True).risk).all()


def make_promise_head(folder, rows, options):
    options = PROMISE_OPTIONS | options
    return make_head(folder, make_dense(2003, DIM), Contexts(rows), method="grouped", options=options)
