"""Adaptive softmax: frequent classes in a head, the others in tails, each narrower than the one before.

Grave, Joulin, Cisse, Grangier and Jegou, "Efficient softmax approximation for GPUs", ICML 2017. The arithmetic is
`torch.nn.AdaptiveLogSoftmaxWithLoss`. Added are the user's class ids, tails of any width, and errors for settings that
torch accepts but cannot train.

p(w | h) = softmax(head h)[w] for a class of the head, and softmax(head h)[tail i] softmax(L_i P_i h)[w] for one of tail
i: the head scores its classes and one entry a tail; P_i [width, d] and L_i [classes, width] are the tail's two layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

HEAD_WEIGHT = "head.weight"


class AdaptiveSoftmax(nn.AdaptiveLogSoftmaxWithLoss):
    """A drop-in for `torch.nn.AdaptiveLogSoftmaxWithLoss` whose targets and predictions are the user's class ids.

    order: [V] int64, the class at each position, the most frequent first; by default positions are the ids.
    ranks: [V] int64, the position of each class. Parameters have torch's names, so that state dicts go
    both ways but for `order` and `ranks`.
    """

    order: Tensor
    ranks: Tensor

    def __init__(
        self,
        dim: int,
        classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        order: Tensor | None = None,
    ) -> None:
        """dim: d. cutoffs: positions at which tails begin. Tail i has width int(d / div_value^i). Raises ValueError."""
        check_cutoffs(classes, cutoffs)
        check_widths(compute_tail_widths(dim, len(cutoffs), div_value))
        super().__init__(dim, classes, list(cutoffs), div_value, head_bias)
        self.register_buffer("order", validate_order(order, classes))
        self.register_buffer("ranks", self.order.argsort())

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> AdaptiveSoftmax:
        """Make a module from the state dict of torch's or of this one, with all sizes read off the shapes.

        Raises ValueError.
        """
        tails = read_tail_weights(state)
        head = state[HEAD_WEIGHT]
        first = len(head) - len(tails)
        ends = torch.tensor([first, *(len(last) for _, last in tails)]).cumsum(0).tolist()
        module = cls(head.shape[1], ends[-1], ends[:-1], 1.0, "head.bias" in state, state.get("order"))
        check_widths([len(narrow) for narrow, _ in tails])
        for index, (narrow, last) in enumerate(tails):
            module.tail[index] = nn.Sequential(make_linear(narrow), make_linear(last))
        module.head = make_linear(head, state.get("head.bias"))
        return module.eval()

    @property
    def widths(self) -> list[int]:
        """The dimensions of each tail's classes."""
        return [len(narrow) for narrow, _ in self.tail_layers()]

    def tail_layers(self) -> list[tuple[Tensor, Tensor]]:
        """Weights P [width, d] and L [classes, width] of each tail, without gradients."""
        state = self.state_dict()
        return [(state[f"tail.{i}.0.weight"], state[f"tail.{i}.1.weight"]) for i in range(self.n_clusters)]

    def sections(self) -> list[Tensor]:
        """Class ids of the head and of each tail."""
        return list(torch.split(self.order, [end - start for start, end in self.position_ranges()]))

    def position_ranges(self) -> list[tuple[int, int]]:
        """First position, and the one after the last, of the head and of each tail."""
        return list(zip([0, *self.cutoffs[:-1]], self.cutoffs, strict=True))

    def forward(self, contexts: Tensor, targets: Tensor) -> Any:
        """Contexts [B, d], targets [B] int64 -> torch's (output [B]: their log-probabilities, loss: the negative mean).

        Under autocast it computes in the weights' own type, since torch's module mixes types there and fails. Raises
        ValueError for targets that are no class.
        """
        positions, device = rank_targets(self.ranks, targets), contexts.device.type
        if not torch.is_autocast_enabled(device):
            return super().forward(contexts, positions)
        with torch.autocast(device, enabled=False):
            return super().forward(contexts.to(self.head.weight.dtype), positions)

    def log_prob(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> log-probabilities [B, V] by class id, natural logarithms."""
        return super().log_prob(contexts)[:, self.ranks]

    def predict(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> the likeliest class [B] int64."""
        return self.order[super().predict(contexts)]

    def count_multiply_adds(self, opening_shares: Sequence[float]) -> float:
        """Expected multiply-adds of a query that opens tail i with probability `opening_shares[i]`."""
        dim, head = self.in_features, self.head_size
        tails = zip(opening_shares, self.widths, self.position_ranges()[1:], strict=True)
        return dim * head + sum(share * width * (dim + end - start) for share, width, (start, end) in tails)


def compute_tail_widths(dim: int, tails: int, div_value: float) -> list[int]:
    """Torch's rule for the width of tail i = 1, 2, ...: int(d // div_value^i)."""
    return [int(dim // div_value ** (tail + 1)) for tail in range(tails)]


def check_widths(widths: Sequence[int]) -> None:
    """Raise ValueError at a tail of width 0, which torch accepts though its classes would all score the same."""
    if 0 in widths:
        raise ValueError(
            f"tail {widths.index(0) + 1} would have width 0 (widths {join_numbers(widths)}): choose a smaller "
            "div_value or fewer cutoffs"
        )


def check_cutoffs(classes: int, cutoffs: Sequence[int]) -> None:
    """Raise ValueError unless there are cutoffs and they rise from 1 to V - 1."""
    rising = all(low < high for low, high in zip([0, *cutoffs], [*cutoffs, classes], strict=True))
    if not cutoffs or not rising:
        raise ValueError(
            f"cutoffs {join_numbers(cutoffs)} must be increasing, from 1 to {classes - 1}: sort and bound them"
        )


def join_numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "(none)"


def validate_order(order: Tensor | None, classes: int) -> Tensor:
    """A copy of `order` as int64 [V], the identity for None; raises ValueError unless every class is in it once."""
    if order is None:
        return torch.arange(classes)
    if order.shape != (classes,) or not torch.equal(order.long().sort().values, torch.arange(classes)):
        raise ValueError(f"order must hold each of the {classes} classes once: give the ids by falling frequency")
    return order.long().clone()


def rank_targets(ranks: Tensor, targets: Tensor) -> Tensor:
    """The positions [n] of `targets` [n], by those of all classes, `ranks` [V].

    Raises ValueError for targets that are no class: a negative one, as -100 for none, would count from the end.
    """
    if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < len(ranks):
        raise ValueError(
            f"targets go from {int(targets.min())} to {int(targets.max())} but classes from 0 to {len(ranks) - 1}: "
            "leave rows without a class out"
        )
    return ranks[targets]


def order_by_frequency(targets: Tensor, classes: int) -> Tensor:
    """Class ids [V] by falling count in `targets` [n]; equal counts by lower id."""
    return torch.bincount(targets, minlength=classes).argsort(descending=True, stable=True)


def check_order(counts: Tensor, cutoffs: Sequence[int]) -> None:
    """Raise ValueError where a tail's classes are more frequent, in the mean, than those before it.

    counts: [V], of the class at each position. Such a module needs a mapping from positions to ids (`order`).
    """
    parts = torch.tensor_split(counts.double(), list(cutoffs))
    means = [float(part.mean()) for part in parts]
    for index, (before, mean) in enumerate(pairwise(means)):
        if mean > before:
            raise ValueError(
                f"classes of tail {index + 1} occur {mean:.3g} times each in the targets, those before it "
                f"{before:.3g}: ids must be sorted by falling frequency; give their order as a tensor `order` [V]"
            )


def read_tail_weights(state: Mapping[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Weights P [width, d] and L [classes, width] of each tail in a state dict.

    Raises ValueError where there are none.
    """
    tails: list[tuple[Tensor, Tensor]] = []
    while f"tail.{len(tails)}.0.weight" in state:
        name = f"tail.{len(tails)}"
        if f"{name}.1.weight" not in state:
            raise ValueError(f"there is no tensor {name}.1.weight beside {name}.0.weight: save the whole state dict")
        tails.append((state[f"{name}.0.weight"], state[f"{name}.1.weight"]))
    head = state.get(HEAD_WEIGHT)
    if head is None or not tails:
        raise ValueError(
            "an adaptive softmax has tensors head.weight, tail.0.0.weight, tail.0.1.weight, ...: save the state_dict "
            "of that module alone"
        )
    check_shapes(head, tails)
    return tails


def check_shapes(head: Tensor, tails: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Raise ValueError where the shapes of head and tails do not fit each other."""
    fit = head.ndim == 2 and len(head) > len(tails)
    for narrow, last in tails:
        fit = fit and narrow.ndim == last.ndim == 2 and narrow.shape == (last.shape[1], head.shape[1])
    if not fit:
        shapes = ", ".join(f"{list(narrow.shape)} {list(last.shape)}" for narrow, last in tails)
        raise ValueError(f"head {list(head.shape)} and tails {shapes} do not fit: tail i is [w, d], then [classes, w]")


def make_linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A linear layer over float32 copies of `weight` and `bias`."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().float().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().float().clone())
    return layer
