"""Differentiated softmax: one softmax whose frequent classes are scored in more dimensions than rare ones.

Chen, Grangier and Auli, "Strategies for Training Large Vocabulary Neural Language Models", ACL 2016, section 2.2: the
context vector is cut into parts, and each frequency bucket of classes sees its own part alone. A context vector that
was not trained with it has no such parts: `project` learns the turn that makes them (not in the paper).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from .softmax import check_cutoffs, checked_order, listed


class DSoftmax(nn.Module):
    """logit of class s in bucket i = w_s . (P h)[part i] + b_s. order, ranks: as in `AdaptiveSoftmax`."""

    order: Tensor
    ranks: Tensor

    def __init__(
        self,
        dim: int,
        classes: int,
        cutoffs: Sequence[int],
        widths: Sequence[int],
        order: Tensor | None = None,
        *,
        project: bool = True,
    ) -> None:
        """cutoffs: positions at which further buckets begin. widths: of every bucket, falling. Raises ValueError."""
        super().__init__()
        check_cutoffs(classes, cutoffs)
        check_buckets(dim, cutoffs, widths, project=project)
        self.dim = dim
        self.widths = list(widths)
        self.cutoffs = [*cutoffs, classes]
        self.projection = nn.Linear(dim, sum(widths), bias=False) if project else None
        if self.projection is not None:
            nn.init.orthogonal_(self.projection.weight)
        self.weights = nn.ParameterList(nn.Parameter(weight) for weight in first_weights(self.widths, self.cutoffs))
        self.bias = nn.Parameter(torch.zeros(classes))
        self.register_buffer("order", checked_order(order, classes))
        self.register_buffer("ranks", self.order.argsort())

    @classmethod
    def of_state(cls, state: Mapping[str, Tensor]) -> DSoftmax:
        """A state dict of this module: every size is read off the shapes. Raises ValueError."""
        weights = bucket_weights(state)
        ends = torch.tensor([len(weight) for weight in weights]).cumsum(0).tolist()
        widths = [weight.shape[1] for weight in weights]
        turn = state.get("projection.weight")
        dim = sum(widths) if turn is None else turn.shape[1]
        module = cls(dim, ends[-1], ends[:-1], widths, state.get("order"), project=turn is not None)
        module.load_state_dict({**state, "ranks": module.ranks})
        return module.eval()

    def logits(self, contexts: Tensor) -> Tensor:
        """[B, d] -> [B, V], in the order of the user's ids."""
        return self.sorted_logits(contexts)[:, self.ranks]

    def sorted_logits(self, contexts: Tensor) -> Tensor:
        """[B, d] -> [B, V], by position."""
        turned = contexts if self.projection is None else self.projection(contexts)
        parts = torch.split(turned, self.widths, dim=1)
        products = [part @ weight.T for weight, part in zip(self.weights, parts, strict=True)]
        return torch.cat(products, dim=1) + self.bias

    def log_prob(self, contexts: Tensor) -> Tensor:
        """[B, d] -> [B, V] natural logarithms."""
        return self.logits(contexts).log_softmax(dim=1)

    def forward(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood of `targets` [B] int64, in nats."""
        return nn.functional.cross_entropy(self.sorted_logits(contexts), self.ranks[targets])

    def multiply_adds(self) -> int:
        """Of a query."""
        projection = 0 if self.projection is None else self.dim * sum(self.widths)
        return projection + sum(map(Tensor.numel, self.weights))


def bucket_weights(state: Mapping[str, Tensor]) -> list[Tensor]:
    """[classes, width] of each bucket; raises ValueError where the tensors are not of this module."""
    weights: list[Tensor] = []
    while f"weights.{len(weights)}" in state:
        weights.append(state[f"weights.{len(weights)}"])
    turn, bias = state.get("projection.weight"), state.get("bias")
    fit = len(weights) > 1 and all(weight.ndim == 2 for weight in weights)
    if not fit or bias is None or len(bias) != sum(map(len, weights)):
        raise ValueError("a differentiated softmax has tensors weights.0, weights.1, ..., bias [V] and order [V]")
    if turn is not None and len(turn) != sum(weight.shape[1] for weight in weights):
        raise ValueError(f"projection.weight {list(turn.shape)} does not give as many dimensions as the buckets take")
    return weights


def first_weights(widths: Sequence[int], cutoffs: Sequence[int]) -> list[Tensor]:
    """[classes, width] of each bucket, uniform as in `nn.Linear`."""
    sizes = [end - start for start, end in zip([0, *cutoffs[:-1]], cutoffs, strict=True)]
    return [nn.Linear(width, size, bias=False).weight.detach() for width, size in zip(widths, sizes, strict=True)]


def check_buckets(dim: int, cutoffs: Sequence[int], widths: Sequence[int], *, project: bool) -> None:
    """Raise ValueError unless there is one falling width a bucket and, without a projection, they share d."""
    if len(widths) != len(cutoffs) + 1:
        raise ValueError(f"{len(cutoffs)} cutoffs make {len(cutoffs) + 1} buckets but there are {len(widths)} widths")
    if any(low > high for low, high in zip(widths[1:], widths, strict=False)) or widths[-1] < 1 or widths[0] > dim:
        raise ValueError(f"widths {listed(widths)} must fall from at most d = {dim} to at least 1")
    if not project and sum(widths) != dim:
        raise ValueError(f"widths {listed(widths)} must sum to d = {dim}: the parts share the context vector")
