"""Doubly Sparse Softmax with SVD-softmax inside its large experts (Liao et al. 2019, section 4.6; Shim et al. 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shortlist_models.svd import Basis, context_basis, weight_basis

from .softmax import DSSoftmax


class PreviewedDS(nn.Module):
    """previews: by expert, a basis of its rows. full_view: N, how many of the best previews are scored exactly."""

    def __init__(self, experts: DSSoftmax, previews: dict[int, Basis], full_view: int) -> None:
        """Experts without a preview are scored whole."""
        super().__init__()
        self.experts = experts
        self.previews = previews
        self.full_view = full_view

    def log_prob(self, contexts: Tensor) -> Tensor:
        """[B, d] -> [B, V]: exact, what the previews are held against."""
        return self.experts.log_prob(contexts)

    @torch.no_grad()
    def topk(self, contexts: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Ids and log-probabilities [B, k], for k up to the smallest expert: as the service."""
        experts = self.experts
        weights, biases = torch.split(experts.weight, experts.sizes), torch.split(experts.bias, experts.sizes)
        ids = torch.empty(len(contexts), k, dtype=torch.int64)
        logprobs = contexts.new_empty(len(contexts), k)
        for rows, expert, value in experts.routed(contexts):
            own = contexts[rows]
            logits = exact = (own @ weights[expert].T + biases[expert]) * value[:, None]
            best = exact.topk(k, dim=1)
            if expert in self.previews:
                basis = self.previews[expert]
                logits = (own @ basis.projection @ basis.preview.T + biases[expert]) * value[:, None]
                near = logits.topk(min(logits.shape[1], max(self.full_view, 4 * k)), dim=1).indices
                logits = logits.scatter(1, near, exact.gather(1, near))
                best = torch.full_like(exact, -torch.inf).scatter(1, near, exact.gather(1, near)).topk(k, dim=1)
            ids[rows] = experts.sets[expert][best.indices]
            logprobs[rows] = best.values - logits.logsumexp(dim=1, keepdim=True)
        return ids, logprobs


@torch.no_grad()
def previews_of(experts: DSSoftmax, contexts: Tensor, over: int, width: int, *, weighted: bool) -> dict[int, Basis]:
    """A basis of `width` for every expert of more than `over` classes.

    weighted: for the contexts [n, d] that the gate gives it, of which few are made up for by the others'; else the
    plain SVD of its rows.
    """
    chosen = experts.gates(contexts).argmax(dim=1)
    weights, found = torch.split(experts.weight.detach(), experts.sizes), {}
    for expert, weight in enumerate(weights):
        if len(weight) <= over:
            continue
        own = contexts[chosen == expert]
        seen = own if len(own) >= contexts.shape[1] else contexts
        found[expert] = context_basis(weight, seen, width) if weighted else weight_basis(weight, width)
    return found
