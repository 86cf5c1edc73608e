"""The basis of bounds, and what is taken off all rows."""

from __future__ import annotations

import numpy as np
import pytest
from shortlist_exporter.graphs.balanced_basis import choose_common, round_to_halves


def make_rows(kind):
    random = np.random.default_rng(0)
    rows = random.standard_normal((500, 8))
    shift = 3 * np.ones(8)
    return {
        "with a mean": rows + shift,
        "without": rows,
        "mostly zeros": (rows + shift) * (np.arange(500) < 20)[:, None],
        "one huge row": rows * np.where(np.arange(500) == 7, 1e9, 1)[:, None],
        "norms of all sizes": (rows + shift) * np.geomspace(1e-9, 1e9, 500)[:, None],
        "zeros": np.zeros((500, 8)),
        "one row": rows[:1],
    }[kind].astype(np.float32)


@pytest.mark.parametrize(
    "kind", ["with a mean", "without", "mostly zeros", "one huge row", "norms of all sizes", "zeros", "one row"]
)
def test_what_is_taken_off_never_makes_rows_longer(kind):
    rows = make_rows(kind).astype(np.float64)
    norms = np.linalg.norm(rows, axis=1)
    common = choose_common(make_rows(kind))
    assert common.dtype == np.float32
    some = norms > 0
    assert not some.any() or (np.linalg.norm(rows - common, axis=1)[some] / norms[some]).mean() <= 1


def test_rows_with_a_mean_get_shorter():
    rows = make_rows("with a mean")
    assert np.linalg.norm(rows - choose_common(rows)) < 0.5 * np.linalg.norm(rows)
    assert not choose_common(make_rows("norms of all sizes")).any()


def test_rounded_numbers_need_sixteen_bits_and_are_near():
    numbers = np.random.default_rng(1).standard_normal((40, 40)) * 10.0 ** np.arange(-20, 20)
    rounded = round_to_halves(numbers)
    assert not (rounded.view(np.uint32) & 0xFFFF).any()
    np.testing.assert_allclose(rounded, numbers, rtol=2.0**-8)
