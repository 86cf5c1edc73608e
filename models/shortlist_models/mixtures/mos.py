"""Mixture of softmaxes: K softmaxes over one weight, mixed as probabilities. A baseline in training, not served.

Yang, Dai, Salakhutdinov and Cohen, "Breaking the Softmax Bottleneck: A High-Rank RNN Language Model", ICLR 2018,
section 2.3: p(x | c) = sum over k of pi_k exp(h_k . w_x) / sum of exp(h_k . w), with pi = softmax(W_pi g) and
h_k = tanh(W_(h,k) g). The authors' code adds biases to h_k and to the logits, as is done here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class MixtureOfSoftmaxes(nn.Module):
    """A drop-in for a linear layer and cross-entropy: contexts [B, d] and targets [B] to a loss."""

    def __init__(self, dim: int, classes: int, components: int = 15) -> None:
        """dim: d. components: K; raises ValueError unless it is 1 at least."""
        super().__init__()
        if components < 1:
            raise ValueError(f"components={components} must be 1 at least")
        self.components = components
        self.prior = nn.Linear(dim, components, bias=False)
        self.hidden = nn.Linear(dim, components * dim)
        self.decoder = nn.Linear(dim, classes)

    def compute_components(self, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """Logs of the priors [B, K] and the vectors h_k [B, K, d] of contexts [B, d]."""
        vectors = self.hidden(contexts).tanh().view(-1, self.components, contexts.shape[1])
        return self.prior(contexts).log_softmax(dim=1), vectors

    def forward(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood of `targets` [B] int64, in nats. Only the targets' probabilities are mixed."""
        priors, vectors = self.compute_components(contexts)
        logprobs = self.decoder(vectors.flatten(0, 1)).log_softmax(dim=1)
        of_targets = logprobs.gather(1, targets.repeat_interleave(self.components)[:, None]).view_as(priors)
        loss: Tensor = -(priors + of_targets).logsumexp(dim=1).mean()
        return loss

    def log_prob(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> log-probabilities [B, V], natural logarithms; one component in memory at a time."""
        priors, vectors = self.compute_components(contexts)
        total = torch.tensor(-torch.inf)
        for number in range(self.components):
            each = self.decoder(vectors[:, number]).log_softmax(dim=1) + priors[:, number, None]
            total = torch.logaddexp(total, each)
        return total
