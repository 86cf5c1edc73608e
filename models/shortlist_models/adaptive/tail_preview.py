"""SVD-softmax inside a tail of an adaptive softmax: a low-rank preview of its classes, the best scored exactly.

Shim et al., "SVD-Softmax", NIPS 2017, section 5.3 names the combination. The basis is that of the tail's own inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist_models.svd import context_basis


@dataclass(frozen=True)
class TailPreview:
    """preview: [n, W]. projection: [w, W]. full_view: N, classes scored exactly."""

    preview: Tensor
    projection: Tensor
    full_view: int

    @staticmethod
    def of(last: Tensor, inner: Tensor, width: int, full_view: int) -> TailPreview:
        """Of a tail's last layer [n, w], for inputs like `inner` [m, w]."""
        basis = context_basis(last, inner, width)
        return TailPreview(basis.preview, basis.projection, min(full_view, len(last)))

    def log_prob(self, inner: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """[b, w] -> positions [b, N] of the candidates and their log-probabilities within the tail, [b, N]."""
        previews = inner @ self.projection @ self.preview.T
        chosen = previews.topk(self.full_view, dim=1).indices
        exact = torch.einsum("bnw,bw->bn", last[chosen], inner)
        return chosen, exact - previews.scatter(1, chosen, exact).logsumexp(dim=1, keepdim=True)
