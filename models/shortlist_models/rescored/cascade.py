"""A cascade for the best k classes: a screen, int8 previews, int8 rows, exact scores; each stage feeds the next.

Not of one paper. From SVD-softmax (Shim et al. 2017): previews over a low rank, here in the basis that contexts use,
and exact scores for the best. From Learning to Screen (Chen et al. 2019): a linear screen decides what is looked at;
here whether the rare classes are looked at at all. From adaptive softmax (Grave et al. 2017): classes by falling
frequency, in two blocks. From quantised search: candidates are scored again by whole rows in int8 before a few dozen
are scored exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist_models.full import FullSoftmax
from shortlist_models.svd import Basis, quantize_rows

from .base import CHUNK, Linear, RescoredSoftmax, int8_products, least_squares

RANK = 5  # the preview that the screen's reach is held against


class Candidates(NamedTuple):
    """Of one context: positions [n] in `order`, ascending, and whether the rare classes were looked at."""

    positions: Tensor
    opened: bool


class CascadeSoftmax(RescoredSoftmax):
    """order: [m] ids by falling frequency, padding left out; the first `common` are previewed for every context.

    preview, scale: [m, W] and [m, 1] int8 previews; projection [d, W]. candidates: about how many previews go on.
    stride: every how many-th preview of the common classes is looked at for the threshold. reach: the best product
    among the rare classes; they are looked at where the `RANK`-th best preview is less than `margin` above it. For the
    rest see RescoredSoftmax.
    """

    def __init__(
        self, dense: FullSoftmax, basis: Basis, order: Tensor, common: int, candidates: int, full_view: int
    ) -> None:
        """Quantise; nothing is screened, and no tail is known, until `calibrate`."""
        super().__init__(dense, order, full_view)
        self.common, self.candidates = common, candidates
        self.preview, self.scale = quantize_rows(basis.preview[order])
        self.projection = basis.projection
        self.reach, self.margin = Linear(torch.zeros(dense.weight.shape[1]), 0.0), torch.inf

    @property
    def stride(self) -> int:
        """See the class."""
        return max(1, min(32, self.candidates // 8, self.common // 64))

    def previews(self, contexts: Tensor) -> Tensor:
        """[B, d] -> [B, m], before logit scale and soft-cap."""
        return int8_products(contexts @ self.projection, self.preview, self.scale, self.bias)

    def choose(self, preview: Tensor, reach: float) -> Candidates:
        """What of one row [m] goes on."""
        common = preview[: self.common]
        sample = common[:: self.stride]
        rank = min(len(sample), max(1, round(self.candidates / self.stride)))
        bar = sample.topk(rank).values[-1]
        level = common.topk(min(RANK, len(common))).values[-1]
        opened = self.common < len(preview) and bool(level - reach < self.margin)
        seen = preview if opened else common
        positions = (seen >= bar).nonzero()[:, 0]
        if len(positions) < self.full_view:
            positions = seen.topk(min(self.full_view, len(seen))).indices.sort().values
        return Candidates(positions, opened)

    def calibrate(self, contexts: Tensor, share: float) -> None:
        """Fit the screen on the first half of `contexts` [n, d]; on the second its margin, and then the tail on all.

        share: of contexts that look at the rare classes.
        """
        half = len(contexts) // 2
        if 0 < self.common < len(self.order):
            best = torch.cat(
                [self.raw(part)[:, self.common :].amax(dim=1) for part in torch.split(contexts[:half], CHUNK)]
            )
            self.reach = least_squares(contexts[:half], best)
            level = torch.cat([self.level(part) for part in torch.split(contexts[half:], CHUNK)])
            self.margin = float((level - self.reach(contexts[half:])).quantile(share))
        self.fit_tail(contexts)

    def candidates_of(self, contexts: Tensor) -> Iterator[Tensor]:
        """See RescoredSoftmax."""
        for preview, reach in zip(self.previews(contexts), self.reach(contexts), strict=True):
            yield self.choose(preview, float(reach)).positions

    def level(self, contexts: Tensor) -> Tensor:
        """[B, d] -> [B]: the `RANK`-th best preview of the common classes."""
        return self.previews(contexts)[:, : self.common].topk(min(RANK, self.common), dim=1).values[:, -1]


def by_frequency(dense: FullSoftmax, contexts: Tensor, depth: int = 5, temperature: float = 2.0) -> Tensor:
    """Ids [m] of all classes but padding, those first that are most often among the best `depth` of `contexts` [n, d].

    Classes that never are follow by their mean probability at `temperature`.
    """
    classes = len(dense.weight)
    score = torch.zeros(classes, dtype=torch.float64)
    for part in torch.split(contexts, CHUNK):
        logits = dense.logits(part)
        score += (logits / temperature).softmax(dim=1).sum(dim=0).double()
        best = logits.topk(min(depth, classes), dim=1).indices.reshape(-1)
        score += torch.bincount(best, minlength=classes)
    real = torch.ones(classes, dtype=torch.bool) if dense.padding is None else dense.padding == 0
    order = score.argsort(descending=True, stable=True)
    return order[real[order]]
