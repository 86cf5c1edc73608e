"""Which clusters a row opens."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.plans.screen.router import ClusterRouter, count_clusters


def settings_of(probes=1, probe_margin=0.0, dense_margin=0.0):
    return SimpleNamespace(probes=probes, probe_margin=probe_margin, dense_margin=dense_margin, full_view=0)


def route(scores, use_dense=True, **settings):
    """By a screen that gives these scores, whatever the contexts."""
    router = ClusterRouter(lambda context: [np.array(scores, np.float32)])
    return router.route(np.zeros((len(scores), 2), np.float32), settings_of(**settings), use_dense).routes


def test_the_best_cluster_is_opened_and_of_equal_ones_the_first():
    assert route([[1, 3, 2], [5, 5, 5], [-1, -3, -1]]) == [(1,), (0,), (0,)]


def test_several_clusters_come_best_first_and_never_more_than_there_are():
    assert route([[1, 3, 2], [2, 2, 1]], probes=2) == [(1, 2), (0, 1)]
    assert route([[1, 3, 2]], probes=9) == [(1, 2, 0)]


def test_close_rows_open_one_more():
    assert route([[10, 9, 0], [10, 1, 0]], probe_margin=0.5) == [(0, 1), (0,)]
    assert route([[10, 9, 0], [10, 1, 0]], probe_margin=0.5, probes=2) == [(0, 1, 2), (0, 1)]


def test_the_closest_rows_go_to_dense_where_there_is_one():
    scores = [[10, 9.9, 0], [10, 9, 0], [10, 1, 0]]
    assert route(scores, probe_margin=0.5, dense_margin=0.05) == [(), (0, 1), (0,)]
    assert route(scores, use_dense=False, probe_margin=0.5, dense_margin=0.05) == [(0, 1), (0, 1), (0,)]


def test_a_single_cluster_is_never_close():
    assert route([[3], [0]], probe_margin=9, dense_margin=9) == [(0,), (0,)]
    assert count_clusters([[3.0], [0.0]], 1, settings_of(probe_margin=9.0, dense_margin=9.0), True) == [1, 1]


def test_a_margin_is_over_the_best_scores_size_and_over_one_where_that_is_zero():
    one_more = settings_of(probe_margin=0.5)
    assert count_clusters([[-2.0, -2.5], [-2.0, -3.5], [0.0, -0.4], [0.0, -0.6]], 3, one_more, False) == [2, 1, 2, 1]


def test_no_rows_have_no_routes():
    assert (
        ClusterRouter(lambda context: [np.empty((0, 3), np.float32)])
        .route(np.empty((0, 2), np.float32), settings_of(probe_margin=1.0), True)
        .routes
        == []
    )


@given(st.integers(1, 30), st.integers(1, 8), st.integers(0, 1 << 32), st.integers(1, 3), st.booleans())
def test_rows_at_once_are_rows_alone(rows, clusters, seed, probes, use_dense):
    scores = np.random.default_rng(seed).integers(-3, 4, (rows, clusters)).astype(np.float32)
    settings = {"probes": probes, "probe_margin": 0.8, "dense_margin": 0.3}
    together = route(scores, use_dense, **settings)
    assert together == [route([row], use_dense, **settings)[0] for row in scores]
    two = [sorted(row, reverse=True)[:2] for row in scores.tolist()]
    assert [len(clusters) for clusters in together] == count_clusters(two, clusters, settings_of(**settings), use_dense)
    for row, opened in zip(scores, together, strict=True):
        assert opened == tuple(np.argsort(-row, kind="stable")[: len(opened)])


@pytest.mark.parametrize("use_dense", [True, False])
def test_scores_that_overflow_open_something(use_dense):
    """What their logits overflow to is refused by the head."""
    with np.errstate(all="raise"):
        assert route([[np.inf, np.inf], [np.inf, 1]], use_dense, probe_margin=0.5, dense_margin=0.2) == [(0,), (0,)]
