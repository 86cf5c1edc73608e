"""Cross-entropy over logits that come in two parts, without joining or copying them.

Equals `cross_entropy(cat([first, second], dim=1), positions)`, but the logits' own memory takes the probabilities, and
then the gradient: no array of their size is made.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class SplitCrossEntropy(torch.autograd.Function):
    """Keeps the probabilities of both parts, and where each row's target is in them."""

    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor, positions: Tensor) -> Tensor:
        """[B, S], [B, R], [B] -> the mean negative log-likelihood; overwrites both parts with probabilities."""
        ctx.parts, ctx.places = (first, second), find_places(positions, first.shape[1])
        parts = [part for part in ctx.parts if part.shape[1]]
        targets = torch.empty_like(first[:, 0])
        for part, (rows, columns) in zip(ctx.parts, ctx.places, strict=True):
            targets[rows] = part[rows, columns]
        peak = torch.stack([part.amax(dim=1) for part in parts]).amax(dim=0)
        total = torch.stack([part.sub_(peak[:, None]).exp_().sum(dim=1) for part in parts]).sum(dim=0)
        for part in parts:
            part.div_(total[:, None])
        return (peak + total.log() - targets).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        """The gradients of both parts: probabilities, less 1 at the target, over B."""
        first, second = ctx.parts
        share = grad / len(first)
        for part, (rows, columns) in zip(ctx.parts, ctx.places, strict=True):
            part.mul_(share)
            part[rows, columns] -= share
        ctx.parts = ()
        return first, second, None


def find_places(positions: Tensor, cut: int) -> list[tuple[Tensor, Tensor]]:
    """Rows and columns of the `positions` [B] that are before `cut`, and of the others."""
    is_first = positions < cut
    rows = [mask.nonzero()[:, 0] for mask in (is_first, ~is_first)]
    return [(some, positions[some] - start) for some, start in zip(rows, (0, cut), strict=True)]


def compute_split_cross_entropy(first: Tensor, second: Tensor, positions: Tensor) -> Tensor:
    """Mean negative log-likelihood, nats, of `positions` [B] int64 among logits [B, S] and, after them, [B, R].

    R may be 0. Overwrites both parts: they must be nobody else's, and the result takes one backward pass.
    """
    loss: Tensor = SplitCrossEntropy.apply(first, second, positions)  # type: ignore[no-untyped-call]
    return loss
