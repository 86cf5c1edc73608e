"""Doubly Sparse Softmax with SVD-softmax inside its large experts: Liao et al. 2019, section 4.6; Shim et al. 2017.

The gate picks one expert as before. In an expert that has a preview, all classes are scored in W dimensions, the N best
of them exactly; the normaliser takes exact logits for those and previews for the others.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shortlist_models.svd import Basis, context_basis, weight_basis

from .softmax import DSSoftmax


class PreviewedDS(nn.Module):
    """previews: a basis of the rows of some experts, by expert. full_view: N, how many classes are scored exactly.

    Experts without a preview are scored whole.
    """

    def __init__(self, experts: DSSoftmax, previews: dict[int, Basis], full_view: int) -> None:
        super().__init__()
        self.experts = experts
        self.previews = previews
        self.full_view = full_view

    def log_prob(self, contexts: Tensor) -> Tensor:
        """[B, d] -> [B, V] natural logarithms of the experts without previews: what previews approximate."""
        return self.experts.log_prob(contexts)

    @torch.no_grad()
    def topk(self, contexts: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Ids [B, k] int64 and log-probabilities [B, k], as the service answers, for k up to the smallest expert."""
        experts = self.experts
        weights, biases = torch.split(experts.weight, experts.sizes), torch.split(experts.bias, experts.sizes)
        ids = torch.empty(len(contexts), k, dtype=torch.int64)
        logprobs = contexts.new_empty(len(contexts), k)
        for rows, expert, value in experts.route(contexts):
            own_contexts = contexts[rows]
            logits = exact = (own_contexts @ weights[expert].T + biases[expert]) * value[:, None]
            best = exact.topk(k, dim=1)
            if expert in self.previews:
                basis = self.previews[expert]
                logits = (own_contexts @ basis.projection @ basis.preview.T + biases[expert]) * value[:, None]
                near = logits.topk(min(logits.shape[1], max(self.full_view, 4 * k)), dim=1).indices
                logits = logits.scatter(1, near, exact.gather(1, near))
                best = torch.full_like(exact, -torch.inf).scatter(1, near, exact.gather(1, near)).topk(k, dim=1)
            ids[rows] = experts.sets[expert][best.indices]
            logprobs[rows] = best.values - logits.logsumexp(dim=1, keepdim=True)
        return ids, logprobs


@torch.no_grad()
def fit_previews(
    experts: DSSoftmax, contexts: Tensor, min_classes: int, width: int, *, weighted: bool
) -> dict[int, Basis]:
    """A basis of `width` for every expert of more than `min_classes` classes, by expert.

    weighted: the basis that is best for the contexts of the expert among `contexts` [n, d], or for all of them where
    the expert gets fewer than d; else the plain SVD of the expert's rows.
    """
    expert_of_row = experts.gates(contexts).argmax(dim=1)
    weights, bases = torch.split(experts.weight.detach(), experts.sizes), {}
    for expert, weight in enumerate(weights):
        if len(weight) <= min_classes:
            continue
        expert_contexts = contexts[expert_of_row == expert]
        fit_contexts = expert_contexts if len(expert_contexts) >= contexts.shape[1] else contexts
        bases[expert] = context_basis(weight, fit_contexts, width) if weighted else weight_basis(weight, width)
    return bases
