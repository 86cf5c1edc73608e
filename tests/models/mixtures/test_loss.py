"""The loss of two parts equals torch's cross-entropy of them joined, and so do its gradients."""

import pytest
import torch
from shortlist_models.mixtures.loss import compute_split_cross_entropy


@pytest.mark.parametrize(("first", "second"), [(3, 4), (7, 0), (1, 6)])
def test_it_equals_cross_entropy(first, second):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(9, first + second, generator=generator, dtype=torch.float64).mul_(30).requires_grad_()
    positions = torch.randint(first + second, (9,), generator=generator)
    due = torch.nn.functional.cross_entropy(logits, positions)
    due_grad = torch.autograd.grad(3 * due, logits)[0]
    parts = [part.clone() for part in logits.split([first, second], dim=1)]
    loss = compute_split_cross_entropy(*parts, positions)
    torch.testing.assert_close(loss, due)
    torch.testing.assert_close(torch.autograd.grad(3 * loss, logits)[0], due_grad)
