"""P@k, shares with intervals, divergences: against plain transcriptions and Wilson's formula."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.evaluation import statistics

IDS = st.integers(1, 6).flatmap(
    lambda rows: st.lists(st.lists(st.integers(-1, 9), min_size=4, max_size=4), min_size=rows, max_size=rows)
)


def test_precision_counts_shared_classes():
    ids, true = np.array([[1, 2, 3], [4, 5, 6]]), np.array([[1, 3, 9], [7, 8, 9]])
    assert statistics.compute_precision(ids, true, 1) == 0.5
    assert statistics.compute_precision(ids, true, 3) == pytest.approx(2 / 6)


@given(IDS, IDS, st.integers(1, 5))
def test_hits_are_true_classes_among_those_returned(ids, true, k):
    rows = min(len(ids), len(true))
    ids, true = np.array(ids[:rows]), np.array(true[:rows])
    expected = [[one in row[:k] for one in right[:k]] for row, right in zip(ids.tolist(), true.tolist(), strict=True)]
    assert statistics.mark_hits(ids, true, k).tolist() == expected


def test_estimated_precision_is_the_mean_with_an_interval():
    ids, true = np.array([[1, 2], [4, 5], [7, 8]]), np.array([[1, 9], [5, 4], [7, 8]])
    share = statistics.estimate_precision(ids, true, 2)
    assert share.mean == pytest.approx(5 / 6)
    assert share.low < share.mean < share.high


def test_share_is_wilsons_for_hits_and_misses():
    result = statistics.estimate_share(np.r_[np.ones(90), np.zeros(10)])
    assert (result.low, result.mean, result.high) == pytest.approx((0.8256, 0.9, 0.9448), abs=1e-4)


def test_share_of_rows_alike_is_narrower_but_not_blind():
    alike = statistics.estimate_share(np.random.default_rng(0).choice([0.8, 1.0], 1000))
    error = 1.96 * 0.1 / np.sqrt(1000)
    assert alike.high - alike.low == pytest.approx(2 * error, rel=0.05)
    assert statistics.estimate_share(np.full(3, 0.8)).low < 0.4


@pytest.mark.parametrize(("rows", "none", "some"), [(200, 0.005, 0.02), (400, 0.005, 0.02), (400, 0.002, 0.05)])
def test_share_is_under_its_lower_end_for_one_sample_in_forty(rows, none, some):
    """P@5 where few rows miss all and more miss one of five: many samples have none of the few."""
    random, samples = np.random.default_rng(0), 1000
    draws = random.random((samples, rows))
    hits = np.select([draws < none, draws < none + some], [0.0, 0.8], 1.0)
    over = sum(statistics.estimate_share(sample).low > 1 - none - 0.2 * some for sample in hits)
    assert over <= samples / 40


def count_intervals_that_miss(documents, spread, named, mean=0.98, rows=60, samples=400):
    """How many of the intervals of samples whose documents differ in precision do not hold the true one."""
    random, numbers = np.random.default_rng(0), np.repeat(np.arange(documents), rows)
    shares = random.beta(mean * spread, (1 - mean) * spread, (samples, documents))
    hits = (random.random((samples, documents, rows)) < shares[..., None]).reshape(samples, -1).astype(float)
    estimates = [statistics.estimate_share(sample, numbers if named else None) for sample in hits]
    return sum(not share.low <= mean <= share.high for share in estimates)


@pytest.mark.parametrize("documents", [8, 40])
def test_share_of_rows_in_documents_holds_the_mean_of_other_documents(documents):
    assert count_intervals_that_miss(documents, spread=20, named=False) > 400 * 0.2
    assert count_intervals_that_miss(documents, spread=20, named=True) < 400 * 0.1
    assert count_intervals_that_miss(documents, spread=1e6, named=True) < 400 * 0.08


def test_one_document_and_documents_of_a_row_each_are_as_rows():
    hits = np.r_[np.ones(90), np.zeros(10)]
    rows = statistics.estimate_share(hits)
    assert statistics.estimate_share(hits, np.zeros(100, int)) == rows
    assert statistics.estimate_share(hits, np.arange(100)).low == pytest.approx(rows.low, abs=2e-3)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=80))
def test_share_holds_its_mean(hits):
    result = statistics.estimate_share(np.array(hits))
    assert 0 <= result.low <= result.mean + 1e-9
    assert result.mean - 1e-9 <= result.high <= 1


def test_divergence_of_what_is_ruled_out():
    logits = np.array([[0.0, 1.0, -np.inf]], np.float32)
    assert statistics.compute_divergences(logits, logits).tolist() == [0]
    assert statistics.compute_divergences(logits, np.array([[0.0, -np.inf, -np.inf]], np.float32)).tolist() == [np.inf]
    far = np.array([[0.0, -2000.0, -np.inf]], np.float32)
    assert statistics.compute_divergences(far, np.array([[0.0, -np.inf, 0.0]], np.float32)) == pytest.approx(np.log(2))


@pytest.mark.parametrize(("hits", "n"), [(0.5, 400), (0.99, 1000), (1.0, 300)])
def test_interval_of_zeros_and_ones_is_wilsons(hits, n):
    share = statistics.estimate_share(np.repeat([1.0, 0.0], [round(hits * n), n - round(hits * n)]))
    z = 1.96
    centre = (hits + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(hits * (1 - hits) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    if hits < 1:
        assert share.low == pytest.approx(centre - half, abs=1e-6)
        assert share.high == pytest.approx(min(1, centre + half), abs=1e-6)
    assert share.low < share.mean <= share.high


def test_a_perplexity_too_large_for_a_number_is_infinite():
    assert statistics.compute_perplexity(np.array([5000.0])) == np.inf


def test_a_promise_is_no_surer_than_the_rows_that_it_was_measured_on():
    here = {1: statistics.Share(mean=0.9978, low=0.996, high=0.9988)}
    assert statistics.warn_of_promise(here, {1: 1.0}, 500) is None, "no miss in 500 rows may be chance"
    sentence = "these contexts are not like those that the bundle was measured on: P@1 is 0.9978 here, lower than the "
    assert statistics.warn_of_promise(here, {1: 1.0}, 50_000) == f"{sentence}1.0000 at the export"


def test_a_promise_that_held_out_contexts_did_not_keep_is_held_against_these_too():
    """The export measured .95 where the head searches for .99, and .95 here was no breach."""
    here = {1: statistics.Share(mean=0.95, low=0.94, high=0.96), 5: statistics.Share(mean=0.98, low=0.97, high=0.991)}
    measured = {1: 0.95, 5: 0.98}
    assert statistics.warn_of_promise(here, measured, 400) is None
    sentence = "the head searches for 0.99 and does not keep it here: P@1 is 0.9500"
    assert statistics.warn_of_promise(here, measured, 400, 0.99) == sentence
    assert statistics.warn_of_promise(here, {1: 0.999, 5: 0.98}, 4000, 0.99).endswith(
        f"than the 0.9990 at the export; {sentence}"
    )
