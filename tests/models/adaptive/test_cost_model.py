"""The cost model, its fit, and its samples."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist_models.adaptive.cost_model import CostModel, Sample, fit_cost_model, time_training

pytestmark = pytest.mark.slow


@given(
    constant=st.floats(1e-6, 1e-3),
    slope=st.floats(1e-12, 1e-9),
    flat=st.sampled_from([0.0, 1e5]),
    extra=st.sampled_from([0.0, 16.0]),
)
def test_fit_finds_a_model_that_predicts_what_made_the_samples(constant, slope, flat, extra):
    truth = CostModel(constant, slope, flat, extra)
    shapes = itertools.product((1, 32, 256), (64, 1024, 8192), (12, 50, 200))
    samples = [Sample(rows, size, width, truth.seconds(size, rows, width)) for rows, size, width in shapes]
    result = fit_cost_model(samples)
    for one in samples:
        assert result.seconds(one.classes, one.rows, one.width) == pytest.approx(one.seconds, rel=0.35)


def test_cost_is_the_papers_g():
    """max(c + lambda k0 B0, c + lambda k B) with lambda = slope d, k0 B0 = flat / d, at width d and no extra."""
    model, dim, batch = CostModel(2e-5, 1e-10, 1e6), 200, 64
    k0, lam = model.k0(dim, batch), model.slope * dim
    for classes in (1, 50, 100, 1000):
        expected = max(model.constant + lam * k0 * batch, model.constant + lam * classes * batch)
        assert model.seconds(classes, batch, dim) == pytest.approx(expected)


def test_training_steps_are_timed_at_every_size():
    samples = time_training(16, 8, sizes=(16, 64))
    assert {(one.rows, one.classes, one.width) for one in samples} == set(
        itertools.product((1, 8), (16, 64), (1, 4, 16))
    )
    assert all(one.seconds > 0 for one in samples)
