"""Products with rows of a layer equal torch's, and have a gradient where one is asked for."""

import pytest
import torch
from shortlist_models.products import multiply_rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("contexts", "rows", "dim"), [(1, 1, 1), (3, 50, 7), (0, 5, 4), (64, 1000, 33)])
def test_products_equal_those_of_torch(contexts, rows, dim, dtype):
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(count, dim, generator=generator).to(dtype) for count in (contexts, rows))
    products = multiply_rows(left, right)
    assert products.dtype == dtype
    assert products.shape == (contexts, rows)
    torch.testing.assert_close(products, left @ right.T)


def test_a_gradient_goes_through_and_none_is_kept_without():
    left, right = torch.ones(2, 3), torch.ones(4, 3, requires_grad=True)
    multiply_rows(left, right).sum().backward()
    torch.testing.assert_close(right.grad, torch.full((4, 3), 2.0))
    with torch.no_grad():
        assert not multiply_rows(left, right).requires_grad


def test_what_overflows_is_infinite_without_a_warning():
    huge = torch.full((1, 2), 3e38)
    assert multiply_rows(huge, huge).isinf().all()
