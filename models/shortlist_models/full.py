"""The dense softmax layer, which every other head stands for.

logits = cap(scale * (W h + b)), with cap(x) = soft_cap * tanh(x / soft_cap) where the model has a soft-cap.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .products import multiply_rows


class FullSoftmax(nn.Module):
    """p(class | h) = softmax(logits). weight: W [V, d]. bias: b [V] or None.

    padding: [V], -inf at padded rows, or None.
    """

    weight: Tensor
    bias: Tensor | None
    padding: Tensor | None

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        logit_scale: float = 1.0,
        soft_cap: float | None = None,
        padded: Tensor | None = None,
    ) -> None:
        """weight: [V, d]. bias: [V]. padded: [m] int64 ids of rows that are no class; their logit is -inf."""
        super().__init__()
        self.logit_scale = logit_scale
        self.soft_cap = soft_cap
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        padding = None
        if padded is not None and padded.numel():
            padding = weight.new_zeros(len(weight)).index_fill(0, padded, -torch.inf)
        self.register_buffer("padding", padding)

    def logits(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> logits [B, V]."""
        products = multiply_rows(contexts, self.weight)
        return self.finish(products if self.bias is None else products + self.bias)

    def finish(self, products: Tensor, ids: Tensor | None = None) -> Tensor:
        """Apply scale, soft-cap and padding to W h + b: [B, V], or [B, n] of the classes `ids` [B, n].

        A layer without any of them gives `products` themselves: logits of millions of classes are not copied.
        """
        logits = products if self.logit_scale == 1 else products * self.logit_scale
        if self.soft_cap is not None:
            logits = self.soft_cap * torch.tanh(logits / self.soft_cap)
        if self.padding is None:
            return logits
        return logits + (self.padding if ids is None else self.padding[ids])

    def log_prob(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> log-probabilities [B, V], natural logarithms."""
        return self.logits(contexts).log_softmax(dim=1)

    def forward(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood of `targets` [B] int64, in nats."""
        return nn.functional.cross_entropy(self.logits(contexts), targets)
