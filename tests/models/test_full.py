import numpy as np
import torch
from shortlist_models import FullSoftmax

from tests.support.layers import logprobs_of, make_contexts, make_dense

contexts = make_contexts(8).contexts


def test_log_prob_is_the_softmax_with_scale_cap_and_padding():
    dense = make_dense(logit_scale=0.5, soft_cap=6.0, padded=np.array([4]))
    module = FullSoftmax(
        torch.from_numpy(dense.weight), logit_scale=0.5, soft_cap=6.0, padded=torch.tensor([4])
    )  # fmt: skip
    result = module.log_prob(torch.from_numpy(contexts)).numpy()
    np.testing.assert_allclose(result, logprobs_of(dense, contexts), atol=1e-4)


def test_forward_is_the_mean_negative_log_likelihood():
    module = FullSoftmax(torch.from_numpy(make_dense().weight))
    targets = torch.arange(8)
    result = module(torch.from_numpy(contexts), targets).item()
    expected = -module.log_prob(torch.from_numpy(contexts))[torch.arange(8), targets].mean().item()
    np.testing.assert_allclose(result, expected, rtol=1e-5)
