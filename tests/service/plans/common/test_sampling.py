"""The nucleus of a distribution."""

import warnings

import numpy as np
from shortlist.plans.common.sampling import keep_nucleus


def test_the_nucleus_of_no_class_is_none():
    scores = np.full(3, -np.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(keep_nucleus(scores, 0.5), scores)


def test_the_nucleus_holds_the_fewest_best_that_reach_the_share():
    scores = np.log([0.2, 0.5, 0.0, 0.3], where=[True, True, False, True], out=np.full(4, -np.inf))
    np.testing.assert_array_equal(keep_nucleus(scores, 0.6) > -np.inf, [False, True, False, True])
