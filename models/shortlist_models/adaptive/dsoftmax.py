"""Differentiated softmax: one softmax whose frequent classes are scored in more dimensions than rare ones.

Chen, Grangier and Auli, "Strategies for Training Large Vocabulary Neural Language Models", ACL 2016, section 2.2: the
context vector is cut into parts, and each frequency bucket of classes sees one part alone. A context vector that was
not trained with it has no such parts: with `project`, a projection P that makes them is learnt (not in the paper).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from .softmax import check_cutoffs, join_numbers, rank_targets, validate_order


class DSoftmax(nn.Module):
    """The logit of class s in bucket i is w_s . (P h)[part i] + b_s; order, ranks: as in `AdaptiveSoftmax`."""

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
        """cutoffs: positions at which the second and later buckets begin. widths: of every bucket, falling.

        project: learn P [sum of widths, d]; without it, widths sum to d. Raises ValueError.
        """
        super().__init__()
        check_cutoffs(classes, cutoffs)
        check_buckets(dim, cutoffs, widths, project=project)
        self.dim = dim
        self.widths = list(widths)
        self.cutoffs = [*cutoffs, classes]
        self.projection = nn.Linear(dim, sum(widths), bias=False) if project else None
        if self.projection is not None:
            nn.init.orthogonal_(self.projection.weight)
        self.weights = nn.ParameterList(
            nn.Parameter(weight) for weight in init_bucket_weights(self.widths, self.cutoffs)
        )
        self.bias = nn.Parameter(torch.zeros(classes))
        self.register_buffer("order", validate_order(order, classes))
        self.register_buffer("ranks", self.order.argsort())

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> DSoftmax:
        """Make a module from its state dict, with all sizes read off the shapes. Raises ValueError."""
        weights = read_bucket_weights(state)
        ends = torch.tensor([len(weight) for weight in weights]).cumsum(0).tolist()
        widths = [weight.shape[1] for weight in weights]
        projection = state.get("projection.weight")
        dim = sum(widths) if projection is None else projection.shape[1]
        module = cls(dim, ends[-1], ends[:-1], widths, state.get("order"), project=projection is not None)
        module.load_state_dict({**state, "ranks": module.ranks})
        return module.eval()

    def logits(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> logits [B, V] by class id."""
        return self.sorted_logits(contexts)[:, self.ranks]

    def sorted_logits(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> logits [B, V] by position, the most frequent class first."""
        projected = contexts if self.projection is None else self.projection(contexts)
        parts = torch.split(projected, self.widths, dim=1)
        products = [part @ weight.T for weight, part in zip(self.weights, parts, strict=True)]
        return torch.cat(products, dim=1) + self.bias

    def log_prob(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> log-probabilities [B, V] by class id, natural logarithms."""
        return self.logits(contexts).log_softmax(dim=1)

    def forward(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood of `targets` [B] int64, nats. ValueError for targets that are no class."""
        return nn.functional.cross_entropy(self.sorted_logits(contexts), rank_targets(self.ranks, targets))

    def count_multiply_adds(self) -> int:
        projection = 0 if self.projection is None else self.dim * sum(self.widths)
        return projection + sum(map(Tensor.numel, self.weights))


def read_bucket_weights(state: Mapping[str, Tensor]) -> list[Tensor]:
    """The weights [classes, width] of each bucket in a state dict.

    Raises ValueError where they are not of this module.
    """
    weights: list[Tensor] = []
    while f"weights.{len(weights)}" in state:
        weights.append(state[f"weights.{len(weights)}"])
    projection, bias = state.get("projection.weight"), state.get("bias")
    fit = len(weights) > 1 and all(weight.ndim == 2 for weight in weights)
    if not fit or bias is None or len(bias) != sum(map(len, weights)):
        raise ValueError(
            "a differentiated softmax has tensors weights.0, weights.1, ..., bias [V] and order [V]: save the "
            "state_dict of that module alone"
        )
    if projection is not None and len(projection) != sum(weight.shape[1] for weight in weights):
        raise ValueError(
            f"projection.weight {list(projection.shape)} does not give as many dimensions as the buckets take"
        )
    return weights


def init_bucket_weights(widths: Sequence[int], cutoffs: Sequence[int]) -> list[Tensor]:
    """Weights [classes, width] of each bucket, drawn as `nn.Linear` draws its own."""
    sizes = [end - start for start, end in zip([0, *cutoffs[:-1]], cutoffs, strict=True)]
    return [nn.Linear(width, size, bias=False).weight.detach() for width, size in zip(widths, sizes, strict=True)]


def check_buckets(dim: int, cutoffs: Sequence[int], widths: Sequence[int], *, project: bool) -> None:
    """Raise ValueError unless there is one falling width a bucket and, without a projection, they share d."""
    if len(widths) != len(cutoffs) + 1:
        raise ValueError(f"{len(cutoffs)} cutoffs make {len(cutoffs) + 1} buckets but there are {len(widths)} widths")
    if any(low > high for low, high in zip(widths[1:], widths, strict=False)) or widths[-1] < 1 or widths[0] > dim:
        raise ValueError(f"widths {join_numbers(widths)} must fall from at most d = {dim} to at least 1")
    if not project and sum(widths) != dim:
        raise ValueError(f"widths {join_numbers(widths)} must sum to d = {dim}: the parts share the context vector")
