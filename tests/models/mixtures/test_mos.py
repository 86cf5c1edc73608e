"""The mixture of softmaxes against a transcription, in float64."""

import pytest
import torch
from shortlist_models.mixtures.mos import MixtureOfSoftmaxes

CLASSES, DIM = 30, 4


@pytest.mark.parametrize("components", [1, 2, 15])
def test_it_is_the_weighted_mean_of_softmaxes(components):
    torch.manual_seed(0)
    module = MixtureOfSoftmaxes(DIM, CLASSES, components).double()
    contexts, targets = torch.randn(5, DIM, dtype=torch.float64), torch.randint(CLASSES, (5,))
    state, total = module.state_dict(), torch.zeros(5, CLASSES, dtype=torch.float64)
    priors = (contexts @ state["prior.weight"].T).softmax(dim=1)
    for number in range(components):
        some = slice(number * DIM, (number + 1) * DIM)
        vector = torch.tanh(contexts @ state["hidden.weight"][some].T + state["hidden.bias"][some])
        logits = vector @ state["decoder.weight"].T + state["decoder.bias"]
        total += priors[:, number, None] * logits.softmax(dim=1)
    torch.testing.assert_close(module.log_prob(contexts), total.log())
    torch.testing.assert_close(module(contexts, targets), -total.log().gather(1, targets[:, None]).mean())


def test_it_has_a_component_at_least():
    with pytest.raises(ValueError, match="components=0 must be 1 at least"):
        MixtureOfSoftmaxes(DIM, CLASSES, 0)
