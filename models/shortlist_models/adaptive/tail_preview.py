"""SVD-softmax inside a tail of an adaptive softmax: a low-rank preview of its classes, the best scored exactly.

Shim et al., "SVD-Softmax", NIPS 2017, section 5.3 names the combination. The basis fits the inputs of the tail's last
layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist_models.svd import context_basis


@dataclass(frozen=True)
class TailPreview:
    """preview: [n, W], projection: [w, W], for a tail of n classes and width w.

    full_view: N, classes scored exactly.
    """

    preview: Tensor
    projection: Tensor
    full_view: int

    @staticmethod
    def fit(last: Tensor, inner: Tensor, width: int, full_view: int) -> TailPreview:
        """Fit a preview of `width` to a tail's last layer [n, w], for inputs like `inner` [m, w]."""
        basis = context_basis(last, inner, width)
        return TailPreview(basis.preview, basis.projection, min(full_view, len(last)))

    def log_prob(self, inner: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs `inner` [b, w] -> positions [b, N] of candidates and their log-probabilities in the tail [b, N]."""
        previews = inner @ self.projection @ self.preview.T
        candidates = previews.topk(self.full_view, dim=1).indices
        exact = torch.einsum("bnw,bw->bn", last[candidates], inner)
        return candidates, exact - previews.scatter(1, candidates, exact).logsumexp(dim=1, keepdim=True)
