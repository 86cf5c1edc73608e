"""The groups and blocks that hold enough, and columns that are alike."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shortlist_models.rescored.grouped import (
    ISOTROPIC_SHARE,
    choose_best_holding,
    factor_errors,
    find_even_columns,
    measure_errors,
)
from shortlist_models.svd import Basis, quantize_rows, quantize_two_bits


def rows_of(count, seed=0):
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))


def even_columns(basis, edges, seed):
    change = find_even_columns(basis.preview, torch.arange(len(basis.preview)), edges, seed)
    preview, projection = change.change_preview(basis.preview), change.change_projection(basis.projection)
    return basis._replace(preview=preview, projection=projection)


@given(st.integers(1, 40), st.integers(1, 300), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_the_best_that_hold_enough(count, least, seed):
    generator = torch.Generator().manual_seed(seed)
    scores, sizes = torch.randn(3, count, generator=generator), torch.randint(1, 20, (count,), generator=generator)
    for row, mask in zip(scores, choose_best_holding(scores, sizes, least), strict=True):
        assert sizes[mask].sum() >= min(least, sizes.sum())
        worst = row.masked_fill(~mask, torch.inf).argmin()
        assert sizes[mask].sum() - sizes[worst] < least
        assert row[mask].min() >= row.masked_fill(mask, -torch.inf).max()


@given(st.integers(1, 12), st.lists(st.integers(1, 12), min_size=1, max_size=3), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_evened_columns_give_the_same_products(width, edges, seed):
    generator = torch.Generator().manual_seed(seed)
    preview = torch.randn(300, width, generator=generator) * torch.logspace(1, -2, width)
    preview[:, width // 2] = 0  # of a layer that uses fewer directions than it has
    basis = Basis(preview, torch.randn(9, width, generator=generator), torch.ones(width))
    edges = sorted({width, *(min(edge, width) for edge in edges)})
    even = even_columns(basis, edges, seed)
    torch.testing.assert_close(even.preview @ even.projection.T, preview @ basis.projection.T, rtol=1e-4, atol=1e-4)
    assert torch.equal(even.preview[:, : edges[0]], preview[:, : edges[0]])
    for start in edges[:-1]:  # what groups are compared by is of columns before an edge: the others add nothing to it
        torch.testing.assert_close(
            even.preview[:, :start] @ even.projection[:, :start].T,
            preview[:, :start] @ basis.projection[:, :start].T,
            rtol=1e-4,
            atol=1e-4,
        )


def test_evened_columns_are_alike():
    preview = rows_of(5000).repeat(1, 4) * torch.logspace(1, -1, 24)
    even = even_columns(Basis(preview, torch.ones(9, 24), torch.ones(24)), [4, 12, 24], 0).preview
    size, before = ((rows[:, 4:] ** 2).mean(dim=0).sqrt() for rows in (even, preview))
    assert before.max() > 40 * before.min()
    assert size.max() < 3 * size.min()


@pytest.mark.parametrize("unit", [0.01, 1.0, 100.0])
def test_evened_columns_lose_less_in_two_bits(unit):
    """Of heavy-tailed rows of falling size, a third of whose columns is nothing; whatever the unit of the weights."""
    width = 48
    preview = unit * rows_of(4000).repeat(1, 8) ** 3 * torch.logspace(0, -1.5, width)
    preview[:, 32:] = 1e-9 * unit * torch.randn(4000, 16, generator=torch.Generator().manual_seed(2))
    contexts = torch.randn(200, width, generator=torch.Generator().manual_seed(1))
    basis = Basis(preview, torch.eye(width), torch.ones(width))

    def error(any_basis):
        codes, scale = quantize_rows(any_basis.preview[:, :4])
        fine, fine_scale = quantize_two_bits(any_basis.preview[:, 4:])
        levels, row_scale = quantize_rows(contexts @ any_basis.projection)
        result = levels @ torch.cat([codes * scale, fine * fine_scale], dim=1).T * row_scale
        return ((result - contexts @ preview.T) ** 2).mean()

    halves = even_columns(basis, [4, *range(5, width + 1)], 0)  # turning columns one by one changes nothing
    rotation = even_columns(basis, [4, 20, width], 0)
    assert error(rotation) < 0.9 * error(halves) < 0.9 * error(basis)


def test_errors_of_previews_are_those_of_contexts_that_go_all_ways_in_part():
    generator = torch.Generator().manual_seed(3)
    weight, previews, projection = (torch.randn(size, generator=generator) for size in ((9, 6), (9, 4), (6, 4)))
    contexts = torch.randn(20_000, 6, generator=generator) * torch.tensor([3.0, 1, 1, 0.1, 0, 0])
    second_moment = (contexts.T @ contexts / len(contexts)).double()
    isotropic = torch.randn(20_000, 6, generator=generator) * second_moment.diagonal().mean().sqrt()
    errors = [((rows @ weight.T - rows @ projection @ previews.T) ** 2).mean(dim=0) for rows in (contexts, isotropic)]
    expected = ((1 - ISOTROPIC_SHARE) * errors[0] + ISOTROPIC_SHARE * errors[1]).sqrt()
    torch.testing.assert_close(
        measure_errors(weight, previews, projection, factor_errors(second_moment)),
        expected.float(),
        rtol=0.03,
        atol=1e-3,
    )


def test_contexts_of_zeros_leave_errors_of_all_directions_alike():
    weight, factor = rows_of(5), factor_errors(torch.zeros(6, 6, dtype=torch.float64))
    errors = measure_errors(weight, torch.zeros(5, 2), torch.zeros(6, 2), factor)
    torch.testing.assert_close(errors, ISOTROPIC_SHARE**0.5 * weight.norm(dim=1))
