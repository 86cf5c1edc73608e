"""The hierarchical baseline is a distribution, and its loss is that distribution's."""

import pytest
import torch
from shortlist_models.adaptive.hierarchical import FrequencyBins, cut_equal_bins


@pytest.mark.parametrize("bins", [1, 4, 9])
def test_loss_is_that_of_its_own_distribution(bins):
    torch.manual_seed(0)
    counts = (1000 / torch.arange(1, 61)).round()
    module = FrequencyBins(8, counts, torch.randperm(60), bins)
    contexts, targets = torch.randn(40, 8), torch.randint(60, (40,))
    logprobs = module.log_prob(contexts)
    torch.testing.assert_close(logprobs.exp().sum(dim=1), torch.ones(40))
    expected = -logprobs.gather(1, targets[:, None]).mean()
    torch.testing.assert_close(module(contexts, targets), expected)


def test_bins_hold_about_equal_shares():
    counts = 1e6 / torch.arange(1, 5001) ** 0.8
    cuts = cut_equal_bins(counts, 20)
    assert (cuts[0], cuts[-1], len(cuts)) == (0, 5000, 21)
    shares = torch.stack([part.sum() for part in torch.tensor_split(counts, cuts[1:-1].tolist())]) / counts.sum()
    assert float(shares.max()) < 0.05 + float(counts[0] / counts.sum())
    assert (cuts.diff() > 0).all()
