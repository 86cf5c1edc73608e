"""SVD-softmax against a plain transcription of the paper's Algorithm 1."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from shortlist_models import FullSoftmax, SVDSoftmax, context_basis, weight_basis
from shortlist_models.svd import quantize_rows, quantize_two_bits

from tests.support.layers import make_contexts, make_dense

contexts = make_contexts(50).contexts


def algorithm_1(weight, bias, h, width, full_view, k):
    """Shim et al. 2017, Algorithm 1, line by line, for one context vector, in float64."""
    u, s, vt = np.linalg.svd(weight.astype(np.float64), full_matrices=False)
    b = u * s  # B = U Sigma
    h_tilde = vt @ h  # h~ = V^T h
    z = b[:, :width] @ h_tilde[:width] + bias  # previews for all words
    candidates = np.argsort(-z)[:full_view]  # C_n: the N largest previews
    for i in candidates:
        z[i] = b[i] @ h_tilde + bias[i]  # full view
    normalizer = np.exp(z).sum()
    best = candidates[np.argsort(-z[candidates])][:k]
    return best, np.log(np.exp(z[best]) / normalizer)


@pytest.mark.parametrize(("width", "full_view", "k"), [(2, 15, 5), (8, 30, 10), (16, 300, 300), (1, 1, 1)])
def test_equals_algorithm_1(width, full_view, k):
    dense = make_dense(bias=np.random.default_rng(2).standard_normal(300).astype(np.float32))
    weight, bias = torch.from_numpy(dense.weight), torch.from_numpy(dense.bias)
    module = SVDSoftmax(FullSoftmax(weight, bias), weight_basis(weight, width), full_view, quantized=False)
    ids, logprobs = module.topk(torch.from_numpy(contexts), k)
    for row, h in enumerate(contexts):
        expected_ids, expected = algorithm_1(dense.weight, dense.bias, h, width, full_view, k)
        np.testing.assert_allclose(logprobs[row], expected, atol=1e-4)
        assert set(ids[row].tolist()) == set(expected_ids.tolist()) or np.allclose(logprobs[row], expected, atol=1e-5)


def test_full_width_bases_are_exact():
    weight, h = torch.from_numpy(make_dense().weight), torch.from_numpy(contexts)
    for basis in (weight_basis(weight, 16), context_basis(weight, h, 16)):
        torch.testing.assert_close(h @ basis.projection @ basis.preview.T, h @ weight.T, atol=1e-3, rtol=1e-3)


def test_contexts_of_zeros_give_the_weight_s_own_basis():
    weight = torch.from_numpy(make_dense().weight)
    result, weights_basis = context_basis(weight, torch.zeros(5, 16), 4), weight_basis(weight, 4)
    torch.testing.assert_close(
        result.preview @ result.projection.T, weights_basis.preview @ weights_basis.projection.T, atol=1e-3, rtol=1e-3
    )


def test_context_basis_has_the_least_error_on_its_contexts():
    weight, h = torch.from_numpy(make_dense().weight), torch.from_numpy(contexts)
    exact = h @ weight.T
    errors = [
        (h @ basis.projection @ basis.preview.T - exact).square().mean().item()
        for basis in (context_basis(weight, h, 6), weight_basis(weight, 6))
    ]
    assert errors[0] < errors[1]
    # Eckart-Young: the error is the energy of the dropped singular values of W L
    singular = torch.linalg.svdvals(weight.double() @ torch.linalg.cholesky(h.T.double() @ h.double() / len(h)))
    np.testing.assert_allclose(errors[0] * weight.shape[0], singular[6:].square().sum().item(), rtol=0.02)


@given(st.integers(0, 1000), st.integers(1, 30))
def test_quantized_rows_are_within_half_a_level(seed, width):
    values = torch.randn(7, width, generator=torch.Generator().manual_seed(seed))
    values[3] = 0
    integers, scale = quantize_rows(values)
    assert integers.abs().max() <= 127
    assert ((integers * scale - values).abs() <= scale / 2 + 1e-7).all()


def test_calibrated_tail_brings_z_closer():
    dense = make_dense(4000)
    weight, h = torch.from_numpy(dense.weight), torch.from_numpy(make_contexts(600).contexts)
    layer = FullSoftmax(weight)
    module = SVDSoftmax(layer, context_basis(weight, h[:500], 4), 20, quantized=False)

    def error():
        ids, logprobs = module.topk(h[500:], 1)
        return (logprobs - layer.log_prob(h[500:]).gather(1, ids)).abs().mean().item()

    before = error()
    module.calibrate_tail(h[:500])
    assert module.tail_shift > 0
    assert error() < before


def test_a_context_gets_a_share_of_the_shift_by_its_squared_length():
    h = torch.from_numpy(make_contexts(600).contexts)
    weight = torch.from_numpy(make_dense(4000).weight)
    module = SVDSoftmax(FullSoftmax(weight), context_basis(weight, h, 4), 20, quantized=False)
    assert module.measure_shares(h[:2]).tolist() == [1, 1], "before it is calibrated"
    module.calibrate_tail(h)
    unit = torch.nn.functional.normalize(h[:1]) * module.tail_size**0.5
    rows = torch.cat([0 * unit, 0.5 * unit, unit, 3 * unit])
    torch.testing.assert_close(module.measure_shares(rows), torch.tensor([0, 0.25, 1, 1]))


def test_two_bits_are_odd_numbers_and_zeros_stay():
    values = torch.randn(50, 40, generator=torch.Generator().manual_seed(0))
    values[3] = 0
    odd, scale = quantize_two_bits(values)
    assert (odd % 2 == 1).all()
    assert odd.abs().max() == 3
    assert (odd[3] * scale[3] == 0).all()
    error = ((odd * scale - values) ** 2).sum(dim=1)
    assert (error[values.any(dim=1)] < 0.35 * (values**2).sum(dim=1)[values.any(dim=1)]).all()
    assert quantize_two_bits(values[:, :0])[0].shape == (50, 0)
