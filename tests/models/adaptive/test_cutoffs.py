"""The dynamic programme against exhaustive search, and the shares that it goes by."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from shortlist_models.adaptive.cost_model import CostModel
from shortlist_models.adaptive.cutoffs import (
    MIN_HEAD_COVERAGE,
    Layer,
    choose_cuts,
    choose_fastest,
    list_cut_points,
    measure_opening_shares,
    min_coverage,
    predict_seconds,
    smooth_shares,
    sum_target_shares,
)

pytestmark = pytest.mark.slow

MODEL = CostModel(constant=3e-5, slope=1e-10, flat=3e5, extra=30)


def zipf(classes, total=10_000_000):
    return total / torch.arange(1, classes + 1)


def exhaustive(model, layer, counts, points, number, openings):
    """Every choice of cut points that the rule of coverage permits."""
    coverage = smooth_shares(counts).cumsum(0)
    place = {point: index for index, point in enumerate(points)}
    best = None
    for cutoffs in itertools.combinations(points[:-1], number):
        if any(coverage[cut - 1] < min_coverage(i, layer.div_value) for i, cut in enumerate(cutoffs)):
            continue
        seconds = predict_seconds(model, layer, lambda a, b: float(openings[place[a], place[b]]), cutoffs)
        best = min(best or (seconds, cutoffs), (seconds, cutoffs))
    return best


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("batch", [1, 64, 512])
@pytest.mark.parametrize("power", [0.5, 1.0, 1.5])
def test_chosen_cuts_equal_exhaustive_search(number, batch, power):
    counts = zipf(2000) ** power
    points, layer = list_cut_points(counts, 14), Layer(2000, 128, batch, 2.0)
    openings = sum_target_shares(counts, points)
    result = choose_cuts(MODEL, layer, counts, points, tails=[number])[number]
    seconds, cutoffs = exhaustive(MODEL, layer, counts, points, number, openings)
    assert result.seconds == pytest.approx(seconds, rel=1e-9)
    assert result.cutoffs == cutoffs


@given(
    shares=st.lists(st.floats(0, 1), min_size=64, max_size=64),
    constant=st.floats(0, 1e-3),
    extra=st.floats(0, 100),
    number=st.integers(1, 3),
    div_value=st.sampled_from([1.0, 2.0, 3.5]),
)
def test_chosen_cuts_equal_exhaustive_search_for_any_opening_shares(shares, constant, extra, number, div_value):
    counts, layer = zipf(500), Layer(500, 64, 1, div_value)
    points = list_cut_points(counts, 7)
    openings = torch.tensor(shares[: len(points) ** 2], dtype=torch.float64).reshape(len(points), -1)
    model = CostModel(constant, 1e-9, 0.0, extra)
    result = choose_cuts(model, layer, counts, points, openings, tails=[number]).get(number)
    expected = exhaustive(model, layer, counts, points, number, openings)
    assert (result is None) == (expected is None)
    if result is not None:
        assert result.seconds == pytest.approx(expected[0], rel=1e-9)


@pytest.mark.parametrize("batch", [1, 512])
def test_flat_frequencies_do_not_pay_and_zipf_does(batch):
    counts = torch.full((10_000,), 100.0)
    points = list_cut_points(counts)
    openings = torch.ones(len(points), len(points)) if batch == 1 else None  # a flat head opens every tail
    flat = choose_fastest(choose_cuts(MODEL, Layer(10_000, 200, batch), counts, points, openings))
    assert not flat.pays
    assert "adaptive softmax does not pay here" in flat.sentence()
    steep = choose_fastest(choose_cuts(MODEL, Layer(10_000, 200, batch), zipf(10_000), list_cut_points(zipf(10_000))))
    assert steep.pays
    assert steep.gain > 3
    assert steep.coverage >= MIN_HEAD_COVERAGE


def test_so_few_classes_that_none_is_left_for_a_tail():
    counts = torch.ones(3)
    with pytest.raises(ValueError, match="too few to tell frequent from rare"):
        choose_fastest(choose_cuts(MODEL, Layer(3, 200), counts, list_cut_points(counts)))


def test_more_tails_than_widths_are_left_out():
    counts = zipf(10_000)
    assert max(choose_cuts(MODEL, Layer(10_000, 200), counts, list_cut_points(counts))) == 3  # 50, 12, 3, 0
    with pytest.raises(ValueError, match="width 0"):
        choose_cuts(MODEL, Layer(10_000, 3), counts, list_cut_points(counts))


def test_opening_shares_are_those_of_the_lazy_rule():
    logprobs = torch.randn(50, 40, generator=torch.Generator().manual_seed(0)).mul(3).log_softmax(dim=1)
    points = [5, 10, 25, 40]
    result = measure_opening_shares(logprobs, points, 3)
    for row, start in enumerate(points):
        for column, end in enumerate(points):
            if start < end:
                mass = logprobs[:, start:end].exp().sum(dim=1)
                kth = logprobs.sort(dim=1, descending=True).values[:, 2].exp()
                assert float(result[row, column]) == pytest.approx(float((mass > kth).double().mean()))
