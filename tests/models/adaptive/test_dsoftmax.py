"""Differentiated softmax against its formula written out."""

import pytest
import torch
from shortlist_models.adaptive.dsoftmax import DSoftmax

CLASSES, DIM, CUTOFFS, WIDTHS = 50, 12, [5, 20], [6, 4, 2]


def make(**extra):
    torch.manual_seed(0)
    return DSoftmax(DIM, CLASSES, CUTOFFS, WIDTHS, torch.randperm(CLASSES), **extra)


@pytest.mark.parametrize("project", [False, True])
def test_logits_are_block_diagonal(project):
    """The paper's picture: one matrix, zero outside the blocks."""
    module, contexts = make(project=project), torch.randn(9, DIM)
    projections = contexts @ module.projection.weight.T if project else contexts
    whole = torch.block_diag(*module.weights)
    expected = torch.empty(9, CLASSES)
    expected[:, module.order] = projections @ whole.T + module.bias
    torch.testing.assert_close(module.logits(contexts), expected)
    torch.testing.assert_close(module.log_prob(contexts).exp().sum(dim=1), torch.ones(9))
    assert module.count_multiply_adds() == (DIM * DIM if project else 0) + 5 * 6 + 15 * 4 + 30 * 2


def test_loss_is_the_mean_negative_log_prob():
    module, contexts, targets = make(), torch.randn(9, DIM), torch.randint(CLASSES, (9,))
    expected = -module.log_prob(contexts).gather(1, targets[:, None]).mean()
    torch.testing.assert_close(module(contexts, targets), expected)


@pytest.mark.parametrize(
    ("cutoffs", "widths", "sentence"),
    [
        ([20, 5], [6, 4, 2], "must be increasing"),
        ([5, 20], [6, 4], "3 buckets but there are 2 widths"),
        ([5, 20], [2, 4, 6], "must fall from at most d = 12"),
        ([5, 20], [6, 6, 0], "to at least 1"),
        ([5, 20], [13, 4, 2], "must fall from at most d = 12"),
        ([5, 20], [6, 4, 1], "must sum to d = 12"),
    ],
)
def test_bad_shapes_are_one_sentence(cutoffs, widths, sentence):
    with pytest.raises(ValueError, match=sentence):
        DSoftmax(DIM, CLASSES, cutoffs, widths, project=False)
