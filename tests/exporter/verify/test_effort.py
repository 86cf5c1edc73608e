"""Effort by the row: what is fitted, and what an export makes of it."""

import numpy as np
import pytest
from shortlist_exporter.verify.effort import Outcomes, expect_new_kinds, fit_regression

from tests.support.heads.grouped import DIM, OPTIONS
from tests.support.layers import make_contexts, make_dense, make_head


def test_the_regression_finds_the_odds_that_made_the_outcomes():
    rng = np.random.default_rng(0)
    features = rng.standard_normal((20_000, 3)) * [1.0, 0.1, 10.0] + [0.0, 5.0, -1.0]
    odds = features @ [1.0, -8.0, 0.0] + 38.0
    missed = (rng.random(len(odds)) < 1 / (1 + np.exp(-odds))).astype(float)
    weights = fit_regression([Outcomes(features[:9000], missed[:9000]), Outcomes(features[9000:], missed[9000:])])
    np.testing.assert_allclose(weights, [1.0, -8.0, 0.0, 38.0], rtol=0.15, atol=0.01)


def test_other_kinds_of_text_are_expected_to_miss_twice_as_often():
    def find_probability(weights):
        return 1 / (1 + np.exp(-weights[-1]))

    fitted = (1.5, -0.5, -7.0)
    assert expect_new_kinds(fitted)[:-1] == fitted[:-1]
    assert 2 < find_probability(expect_new_kinds(fitted)) / find_probability(fitted) < 2.5


@pytest.mark.slow
@pytest.mark.parametrize(("options", "rows"), [({"promise": "0"}, 6000), ({}, 3000)])
def test_no_promise_is_made_where_none_is_asked_for_and_where_contexts_are_few(tmp_path, options, rows):
    head = make_head(
        tmp_path, make_dense(2003, DIM), make_contexts(rows, DIM), method="grouped", options=OPTIONS | options
    )
    assert head.manifest.settings.promise is None
    assert head.manifest.settings.effort == ()
