"""What classes that are no candidates add to a normaliser: a sum of a few exponentials, fitted to contexts.

The sum over thousands of classes of exp(w . h + b) is nearly one over dozens of such terms, whose vectors stand for
many classes each: it bends as the sum itself does, which a linear function of h cannot.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

STEPS = 4_000
BATCH_ROWS = 1024
RATE = 2e-3  # falls to zero at the last step
NEAR_NATS = 0.01  # errors of the normaliser under this count by their squares, others by their sizes


class TailTerms(NamedTuple):
    """The function h -> log of the sum over t terms of exp(h . vector + offset).

    vectors: [t, d] float32. offsets: [t] float32. Without terms it is 0, which changes nothing that it is added to.
    """

    vectors: Tensor
    offsets: Tensor

    def __call__(self, contexts: Tensor) -> Tensor:
        """Contexts [n, d] -> values [n]."""
        if not len(self.offsets):
            return contexts.new_zeros(len(contexts))
        return (contexts @ self.vectors.T + self.offsets).logsumexp(dim=1)


def start_terms(weight: Tensor, bias: Tensor | None, order: Tensor, count: int) -> TailTerms:
    """Terms of which each stands for a run of as many of the classes `order` [m], which lie similar ones together.

    weight: [V, d]. bias: [V]. A vector is the mean of its classes' rows, an offset the log of the sum of exp(bias).
    """
    biases = weight.new_zeros(len(weight)) if bias is None else bias
    runs = torch.tensor_split(order, count)
    vectors, offsets = zip(*((weight[ids].mean(dim=0), biases[ids].logsumexp(dim=0)) for ids in runs), strict=True)
    return TailTerms(torch.stack(vectors), torch.stack(offsets))


def measure_best(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The logs [B] of the sums of exp over the best `count` classes of `logits` [B, V], overwritten, and the others."""
    best = logits.topk(count, dim=1)
    return best.values.logsumexp(dim=1), logits.scatter_(1, best.indices, -torch.inf).logsumexp(dim=1)


def fit_terms(start: TailTerms, contexts: Tensor, inside: Tensor, whole: Tensor, seed: int) -> TailTerms:
    """Change terms until what they give beside the candidates is the normaliser of `contexts` [n, d].

    inside, whole: [n], the log of the sum of exp(logit) over a row's candidates, and over all classes.
    """
    vectors, offsets = (tensor.clone().requires_grad_() for tensor in start)
    optimiser = torch.optim.Adam([vectors, offsets], lr=RATE)
    generator = torch.Generator().manual_seed(seed)
    for step in range(STEPS):
        optimiser.param_groups[0]["lr"] = RATE * (1 - step / STEPS)
        rows = torch.randint(len(contexts), (BATCH_ROWS,), generator=generator)
        estimate = torch.logaddexp(inside[rows], TailTerms(vectors, offsets)(contexts[rows]))
        loss = torch.nn.functional.smooth_l1_loss(estimate, whole[rows], beta=NEAR_NATS)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return TailTerms(vectors.detach(), offsets.detach())
