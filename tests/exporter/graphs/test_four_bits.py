"""Rows of 4 bits: what bounds their errors, one by one and together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist_exporter.graphs.four_bits import (
    BLOCK_CLASSES,
    LARGEST,
    STEP_ERROR,
    FourBitRows,
    bound_largest,
    bound_products,
    choose_steps,
    pack_four_bits,
    round_to_levels,
)

seeds = st.integers(0, 1 << 32)


def unpack(codes, classes, dim):
    """[V, d] of what `pack_four_bits` wrote."""
    blocks, lines = codes.shape[:2]
    halves = np.stack([codes & 15, codes >> 4])  # [2, blocks, lines, 16, 4]
    return halves.transpose(1, 3, 2, 0, 4).reshape(blocks * 16, lines * 8)[:classes, :dim]


@pytest.mark.parametrize("shape", [(1, 1), (16, 8), (17, 9), (100, 61)])
def test_codes_come_back(shape):
    codes = np.random.default_rng(0).integers(0, 16, shape, dtype=np.uint8)
    packed = pack_four_bits(codes)
    assert packed.shape == (-(-shape[0] // 16), -(-shape[1] // 8), 16, 4)
    np.testing.assert_array_equal(unpack(packed, *shape), codes)


def test_steps_weigh_what_is_cut_off_against_what_is_rounded():
    rows = np.random.default_rng(0).standard_normal((300, 400)) * np.geomspace(1e-20, 1e20, 300)[:, None]
    rows[7] = 0
    steps = choose_steps(rows).astype(np.float64)
    assert steps[7] == 0
    some = np.delete(np.arange(300), 7)
    scaled = rows[some] / steps[some, None]
    errors = np.linalg.norm(scaled - round_to_levels(scaled), axis=1)
    assert (errors <= STEP_ERROR * 20 * 1.001).all()
    plain = np.abs(rows[some]).max(axis=1) / LARGEST  # nothing is cut off
    assert (steps[some] < 0.9 * plain).all()


@given(st.integers(1, 30), st.integers(1, 40), st.integers(1, 64), seeds)
def test_the_sum_of_squared_products_is_bounded(dim, count, directions, seed):
    random = np.random.default_rng(seed)
    rows = random.standard_normal((count, dim)) * 10.0 ** random.integers(-6, 6) + random.standard_normal(dim)
    products = rows.T @ rows
    weight, some = bound_products(products, directions, count)
    assert some.shape == (min(dim, directions), dim)
    vectors = [*random.standard_normal((20, dim)), *np.linalg.eigh(products)[1].T]
    for g in vectors:
        bound = weight * g @ g + ((some.astype(np.float64) @ g) ** 2).sum()
        assert np.linalg.norm(rows @ g) <= np.sqrt(bound)
        assert np.sqrt(bound) <= bound_largest(weight, some) * np.linalg.norm(g) * (1 + 1e-9)


@given(st.integers(1, 300), st.integers(1, 40), seeds)
def test_errors_are_bounded_one_by_one_and_together(classes, dim, seed):
    """For any context g in levels, and what these leave of it: as in the module's docstring, without rounding."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((classes, dim)) * 10.0 ** random.integers(-3, 3, (classes, 1))
    rows[random.random(classes) < 0.1] = 0
    parts = FourBitRows(classes, dim)
    chunk = BLOCK_CLASSES * int(random.integers(1, 8))
    for start in range(0, classes, chunk):
        parts.add(rows[start : start + chunk], 0.0)
    four_bits = parts.finish(1.0, 0.0)
    factors = four_bits.factors.astype(np.float64)
    levels = unpack(four_bits.codes, classes, dim) - LARGEST
    scale = four_bits.scale.astype(np.float64)
    for g in random.standard_normal((10, dim)) * 10.0 ** random.integers(-3, 3):
        level = np.abs(g).max() / 127
        whole = np.round(g / level)
        rest = g - level * whole
        errors = np.abs(rows @ g - scale * level * (levels @ whole))
        reach = factors[0] * np.linalg.norm(g) + factors[1] * np.linalg.norm(rest)
        assert (errors <= scale * reach + 1e-12 * np.abs(rows @ g)).all()
        squares = [
            weight * x @ x + ((directions.astype(np.float64) @ x) ** 2).sum()
            for weight, directions, x in (
                (factors[3], four_bits.error_directions, g), (factors[4], four_bits.level_directions, rest)
            )
        ]  # fmt: skip
        deviation = sum(np.sqrt(squares)) + factors[5] * np.linalg.norm(g)
        some = scale > 0
        assert np.linalg.norm(errors[some] / scale[some]) <= deviation
