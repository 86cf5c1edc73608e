"""A cascade for the best k classes: a screen, int8 previews, int8 rows, exact scores; each stage feeds the next.

Not of one paper. From SVD-softmax (Shim et al. 2017): previews over a low rank, here in the basis that contexts use,
and exact scores for the best. From Learning to Screen (Chen et al. 2019): a linear screen decides what is scored;
here whether the rare classes are previewed at all. From adaptive softmax (Grave et al. 2017): classes by falling
frequency, in two blocks. From quantised search: candidates are scored again by whole rows in int8 before a few dozen
are scored exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist_models.full import FullSoftmax
from shortlist_models.svd import Basis, pack_rows

from .base import LinearFunction, RescoredSoftmax, count_chunk_rows, fit_least_squares, multiply_int8

REACH_RANK = 5  # the screen's reach is compared with the preview of this rank
ORDER_DEPTH = 5  # best classes of a context that are counted
ORDER_TEMPERATURE = 2.0  # of the softmax that orders classes that are counted equally often


class Candidates(NamedTuple):
    """Candidates of one context: positions [n] in `order`, ascending, and whether the rare classes were previewed."""

    positions: Tensor
    opened: bool


class CascadeSoftmax(RescoredSoftmax):
    """order: [m] ids by falling frequency, padding left out; the first `common` are previewed for every context.

    preview, scale: [m, W] int8 and [m, 1], the previews; projection [d, W]. candidates: about how many
    classes the previews leave. stride: the threshold that leaves them is estimated from each stride-th common class.
    reach: an estimate of the best product among the rare classes; these are previewed where the best preview of rank
    `REACH_RANK` is less than `margin` above it. The other attributes are those of RescoredSoftmax.
    """

    def __init__(
        self, dense: FullSoftmax, basis: Basis, order: Tensor, common: int, candidates: int, full_view: int
    ) -> None:
        """Quantise weights and previews. Every context opens the rare classes until `calibrate`."""
        super().__init__(dense, order, full_view)
        self.common, self.candidates = common, candidates
        self.preview, self.scale = pack_rows(basis.preview, order)
        self.projection = basis.projection
        self.reach, self.margin = LinearFunction(torch.zeros(dense.weight.shape[1]), 0.0), torch.inf

    @property
    def stride(self) -> int:
        return max(1, min(32, self.candidates // 8, self.common // 64))

    def previews(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> previews [B, m] by position, before logit scale and soft-cap."""
        return multiply_int8(contexts @ self.projection, self.preview, self.scale, self.bias)

    def choose_from_preview(self, preview: Tensor, reach: float) -> Candidates:
        """The candidates of one context, by its previews [m] and its estimated reach."""
        common = preview[: self.common]
        sample = common[:: self.stride]
        rank = min(len(sample), max(1, round(self.candidates / self.stride)))
        bar = sample.topk(rank).values[-1]
        level = common.topk(min(REACH_RANK, len(common))).values[-1]
        opened = self.common < len(preview) and bool(level - reach < self.margin)
        visible = preview if opened else common
        positions = (visible >= bar).nonzero()[:, 0]
        if len(positions) < self.full_view:
            positions = visible.topk(min(self.full_view, len(visible))).indices.sort().values
        return Candidates(positions, opened)

    def calibrate(self, contexts: Tensor, share: float) -> None:
        """Fit `reach` to the first half of `contexts` [n, d], `margin` to the second, and the tail to all.

        A single context is both halves.
        share: of the contexts that preview the rare classes.
        """
        half, rows = len(contexts) // 2, count_chunk_rows(len(self.order))
        first = contexts[: max(1, half)]
        if 0 < self.common < len(self.order):
            best = torch.cat(
                [self.multiply_exactly(part)[:, self.common :].amax(dim=1) for part in torch.split(first, rows)]
            )
            self.reach = fit_least_squares(first, best)
            levels = torch.cat([self.common_level(part) for part in torch.split(contexts[half:], rows)])
            self.margin = float((levels - self.reach(contexts[half:])).quantile(share))
        self.fit_tail(contexts)

    def choose_candidates(self, contexts: Tensor) -> Iterator[Tensor]:
        for preview, reach in zip(self.previews(contexts), self.reach(contexts), strict=True):
            yield self.choose_from_preview(preview, float(reach)).positions

    def common_level(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> the best preview of rank `REACH_RANK` among the common classes [B]."""
        return self.previews(contexts)[:, : self.common].topk(min(REACH_RANK, self.common), dim=1).values[:, -1]


def order_by_best_classes(dense: FullSoftmax, contexts: Tensor) -> Tensor:
    """Ids [m] of all classes but padding, by how often they are among the `ORDER_DEPTH` best of `contexts` [n, d].

    Equally frequent classes come by their mean probability at `ORDER_TEMPERATURE`.
    """
    classes = len(dense.weight)
    score = torch.zeros(classes, dtype=torch.float64)
    for part in torch.split(contexts, count_chunk_rows(classes)):
        logits = dense.logits(part)
        score += (logits / ORDER_TEMPERATURE).softmax(dim=1).sum(dim=0).double()
        best = logits.topk(min(ORDER_DEPTH, classes), dim=1).indices.reshape(-1)
        score += torch.bincount(best, minlength=classes)
    real = torch.ones(classes, dtype=torch.bool) if dense.padding is None else dense.padding == 0
    order = score.argsort(descending=True, stable=True)
    return order[real[order]]
