"""Hierarchical softmax over bins of equal frequency: a training baseline, not a head that is served.

Two levels, p(w | h) = p(bin | h) p(w | bin, h), words in bins by falling frequency so that every bin has about the same
share of the targets (Mikolov et al., ICASSP 2011); "HSM (freq)" of Grave et al., ICML 2017, Table 2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .softmax import rank_targets


class FrequencyBins(nn.Module):
    """p(w | h) = p(bin | h) p(w | bin, h).

    bins: where each bin begins, [C + 1]; order, ranks: as in `AdaptiveSoftmax`.
    """

    order: Tensor
    ranks: Tensor
    bins: Tensor

    def __init__(self, dim: int, counts: Tensor, order: Tensor, bins: int | None = None) -> None:
        """counts: [V] of the class at each position, falling. bins: how many, sqrt(V) by default."""
        super().__init__()
        classes = len(counts)
        self.register_buffer("order", order)
        self.register_buffer("ranks", order.argsort())
        self.register_buffer("bins", cut_equal_bins(counts, bins or math.isqrt(classes)))
        self.router = nn.Linear(dim, len(self.bins) - 1)
        sizes = self.bins.diff().tolist()  # a layer a bin, so that the gradient of one does not touch the others
        self.words = nn.ModuleList(nn.Linear(dim, size) for size in sizes)

    def forward(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood of `targets` [B] int64, in nats.

        A bin's words are scored for its own rows only. Raises ValueError for targets that are no class.
        """
        positions = rank_targets(self.ranks, targets)
        target_bins = torch.bucketize(positions, self.bins, right=True) - 1
        total = nn.functional.cross_entropy(self.router(contexts), target_bins, reduction="sum")
        for number in torch.unique(target_bins).tolist():
            rows = (target_bins == number).nonzero()[:, 0]
            logits = self.words[number](contexts[rows])
            within = positions[rows] - self.bins[number]
            total = total + nn.functional.cross_entropy(logits, within, reduction="sum")
        return total / len(targets)

    def log_prob(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> log-probabilities [B, V] by class id, natural logarithms."""
        routes = self.router(contexts).log_softmax(dim=1)
        parts = [
            routes[:, number, None] + words(contexts).log_softmax(dim=1) for number, words in enumerate(self.words)
        ]
        return torch.cat(parts, dim=1)[:, self.ranks]


def cut_equal_bins(counts: Tensor, bins: int) -> Tensor:
    """Where bins begin, [C + 1] int64: at most `bins` bins of about equal sums of `counts` [V], none of them empty."""
    cumulative = counts.double().cumsum(0)
    levels = cumulative[-1] * torch.arange(1, bins, dtype=torch.float64) / bins
    cuts = torch.searchsorted(cumulative, levels) + 1
    bounds = [0, *cuts.clamp(max=len(counts) - 1).tolist(), len(counts)]
    return torch.tensor(sorted(set(bounds)))
