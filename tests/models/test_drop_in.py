"""Modules in a training loop of one's own: under autocast, and with targets that are no class."""

import copy

import pytest
import torch
from shortlist_models.adaptive.dsoftmax import DSoftmax
from shortlist_models.adaptive.hierarchical import FrequencyBins
from shortlist_models.adaptive.softmax import AdaptiveSoftmax
from shortlist_models.ds.softmax import DSSoftmax
from shortlist_models.full import FullSoftmax
from shortlist_models.mixtures.mixtape import Mixtape
from torch import Tensor

CLASSES, DIM = 120, 16

generator = torch.Generator().manual_seed(0)
order = torch.randperm(CLASSES, generator=generator)
contexts, targets = torch.randn(50, DIM, generator=generator), torch.randint(CLASSES, (50,), generator=generator)
heads = {
    "adaptive": AdaptiveSoftmax(DIM, CLASSES, [20, 60], 2.0, True, order),
    "dsoftmax": DSoftmax(DIM, CLASSES, [20, 60], [16, 8, 4], order),
    "ds": DSSoftmax.from_dense(FullSoftmax(torch.randn(CLASSES, DIM, generator=generator))),
    "bins": FrequencyBins(DIM, torch.arange(CLASSES, 0, -1), order),
    "mixtape": Mixtape(DIM, CLASSES, order=order),
    "mixtape without rare classes": Mixtape(DIM, CLASSES, frequent=CLASSES),
}


def compute_loss(head, rows, gold) -> Tensor:
    found = head(rows, gold)
    return found if isinstance(found, Tensor) else found.loss


@pytest.mark.parametrize("name", heads)
def test_under_autocast_loss_and_gradients_are_nearly_the_same(name):
    grads, losses = [], []
    for enabled in (False, True):
        head, rows = copy.deepcopy(heads[name]), contexts.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = compute_loss(head, rows, targets)
        loss.backward()
        losses.append(loss.detach())
        grads.append(rows.grad)
    assert losses[1].dtype == torch.float32
    torch.testing.assert_close(losses[1], losses[0], rtol=0.01, atol=0)
    assert float((grads[1] - grads[0]).norm()) < 0.05 * float(grads[0].norm())


@pytest.mark.parametrize("name", heads)
@pytest.mark.parametrize("wrong", [-100, -1, CLASSES])
def test_targets_that_are_no_class_are_refused_and_never_counted_from_the_end(name, wrong):
    with pytest.raises(ValueError, match=f"{wrong} .*classes from 0 to {CLASSES - 1}"):
        compute_loss(heads[name], contexts, targets.index_fill(0, torch.tensor([3]), wrong))
