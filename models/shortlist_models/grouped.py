"""Groups of similar classes, int8 previews of the best groups, int8 rows, exact scores; each stage feeds the next.

Not of one paper. From inverted files (Jegou et al. 2011, "Product quantization for nearest neighbor search"): classes
in groups by k-means, of which the few that score best are looked at. From SVD-softmax (Shim et al. 2017): previews
over a low rank, here in the basis that contexts use, in which groups are made too. From quantised search: candidates
are scored again by whole rows in int8 before a few dozen are scored exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .cascade import CHUNK, Linear, least_squares
from .full import FullSoftmax
from .svd import Basis, quantize_rows

ROUNDS = 12  # of k-means
SPREAD = 1.5  # standard deviations over a group's mean logit at which its best class is expected
ROWS = 8192  # classes whose distances are held at once


class Groups(NamedTuple):
    """order: [m] positions of classes, group by group; starts: [G + 1] where groups begin in it; centres: [G, W]."""

    order: Tensor
    starts: Tensor
    centres: Tensor

    @property
    def sizes(self) -> Tensor:
        """[G]: classes of each group."""
        return self.starts.diff()


def k_means(rows: Tensor, count: int, seed: int) -> Groups:
    """`rows` [m, W] in up to `count` groups by squared distance (Lloyd); groups that end empty are left out."""
    picked = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:count]
    centres = rows[picked].clone()
    for _ in range(ROUNDS):
        group = nearest(rows, centres)
        sizes = torch.bincount(group, minlength=len(centres))
        kept = sizes > 0
        centres = (torch.zeros_like(centres).index_add_(0, group, rows) / sizes[:, None])[kept]
    sizes = torch.bincount(nearest(rows, centres), minlength=len(centres))
    group, kept = nearest(rows, centres), sizes > 0
    starts = torch.cat([sizes.new_zeros(1), sizes[kept].cumsum(0)])
    return Groups(group.argsort(stable=True), starts, centres[kept])


def nearest(rows: Tensor, centres: Tensor) -> Tensor:
    """[m, W], [G, W] -> [m]: the nearest centre of each row."""
    half = 0.5 * (centres**2).sum(dim=1)
    return torch.cat([(part @ centres.T - half).argmax(dim=1) for part in torch.split(rows, ROWS)])


class GroupedSoftmax(nn.Module):
    """order: [m] ids group by group, padding left out; starts: [G + 1]; centre, centre_scale, reach: of the groups.

    A group's score is the int8 product with its mean row plus `reach`, what its best class is expected to have more.
    The groups that score best and hold `previewed` classes are previewed: preview, scale: [m, W] and [m, 1] int8.
    candidates: how many of the previews go on. codes, code_scale: [m, d] and [m, 1] int8 rows. full_view: how many
    candidates are scored exactly. tail: log of the sum of exp(logit) over all that are no candidates, held to at most
    `tail_limit` over that of the candidates.
    """

    order: Tensor

    def __init__(
        self,
        dense: FullSoftmax,
        basis: Basis,
        real: Tensor,
        groups: Groups,
        previewed: int,
        candidates: int,
        full_view: int,
    ) -> None:
        """Quantise; `real` [m] are the ids that `groups` are of. No tail is known until `calibrate`."""
        super().__init__()
        self.dense, self.previewed, self.candidates, self.full_view = dense, previewed, candidates, full_view
        self.register_buffer("order", real[groups.order])
        self.starts, sizes = groups.starts, groups.sizes
        rows = basis.preview[self.order]
        self.preview, self.scale = quantize_rows(rows)
        self.projection = basis.projection
        self.weight = dense.weight[self.order]
        self.codes, self.code_scale = quantize_rows(self.weight)
        self.bias = None if dense.bias is None else dense.bias[self.order]
        self.centre, self.centre_scale = quantize_rows(groups.centres)
        of_class = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        squared = ((rows - groups.centres[of_class]) ** 2).sum(dim=1)
        self.reach = SPREAD * mean_by_group(squared, of_class, sizes).sqrt()
        if self.bias is not None:
            self.reach = self.reach + mean_by_group(self.bias, of_class, sizes)
        self.tail, self.tail_limit = Linear(torch.zeros(dense.weight.shape[1]), -torch.inf), 0.0

    def products(self, contexts: Tensor, weight: Tensor, scale: Tensor, added: Tensor | None) -> Tensor:
        """int8 products [B, n] of `contexts` [B, W or d], and what is `added` to each of n."""
        rows, row_scale = quantize_rows(contexts)
        found = rows @ weight.T * scale.T * row_scale
        return found if added is None else found + added

    def previews(self, contexts: Tensor) -> Tensor:
        """[B, d] -> [B, m], before logit scale and soft-cap; -inf where the class's group is not looked at."""
        projected = contexts @ self.projection
        seen = self.opened(self.products(projected, self.centre, self.centre_scale, self.reach))
        previews = self.products(projected, self.preview, self.scale, self.bias)
        return previews.masked_fill(~seen.repeat_interleave(self.starts.diff(), dim=1), -torch.inf)

    def opened(self, scores: Tensor) -> Tensor:
        """[B, G] -> [B, G]: which groups are previewed."""
        ranked = scores.sort(dim=1, descending=True)
        reached = self.starts.diff()[ranked.indices].cumsum(dim=1) >= min(self.previewed, len(self.order))
        bar = ranked.values.gather(1, reached.int().argmax(dim=1, keepdim=True))
        return scores >= bar

    def choose(self, preview: Tensor) -> Tensor:
        """Positions of one row's candidates, ascending, by its previews [m]."""
        bar = preview.topk(min(self.candidates, len(preview))).values[-1]
        return ((preview >= bar) & preview.isfinite()).nonzero()[:, 0]

    def calibrate(self, contexts: Tensor) -> None:
        """Fit the tail on `contexts` [n, d]."""
        parts = [self.masses(part) for part in torch.split(contexts, CHUNK)]
        inside, outside = (torch.cat(values) for values in zip(*parts, strict=True))
        known = outside.isfinite()
        if known.any():
            self.tail = least_squares(contexts[known], outside[known])
            self.tail_limit = float((outside - inside)[known].max())

    def raw(self, contexts: Tensor) -> Tensor:
        """Exact products with the bias [B, m], before logit scale and soft-cap."""
        found = contexts @ self.weight.T
        return found if self.bias is None else found + self.bias

    def masses(self, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """[B, d] -> [B], [B]: log of the sum of exp(logit) over the candidates, and over all other classes."""
        logits = self.finished(self.raw(contexts))
        inside = torch.full_like(logits, -torch.inf)
        for row, preview in enumerate(self.previews(contexts)):
            positions = self.choose(preview)
            inside[row, positions] = logits[row, positions]
            logits[row, positions] = -torch.inf
        return inside.logsumexp(dim=1), logits.logsumexp(dim=1)

    def finished(self, products: Tensor) -> Tensor:
        """Logit scale and soft-cap of products with the bias [B, m]."""
        return self.dense.finish(products, self.order.expand(len(products), -1))

    def topk(self, contexts: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Ids and log-probabilities [B, k], for k up to `full_view`."""
        codes = self.finished(self.products(contexts, self.codes, self.code_scale, self.bias))
        exact, tails = self.finished(self.raw(contexts)), self.tail(contexts)
        ids, logprobs = [], []
        for row, preview in enumerate(self.previews(contexts)):
            positions = self.choose(preview)
            logits = codes[row, positions]
            kept = logits.topk(min(self.full_view, len(positions))).indices
            logits[kept] = exact[row, positions[kept]]
            best = logits[kept].topk(k)
            ids.append(self.order[positions[kept[best.indices]]])
            inside = logits.logsumexp(dim=0)
            logprobs.append(best.values - torch.logaddexp(inside, tails[row].minimum(inside + self.tail_limit)))
        return torch.stack(ids), torch.stack(logprobs)


def mean_by_group(values: Tensor, group: Tensor, sizes: Tensor) -> Tensor:
    """[m] -> [G]: means of the `values` of each group."""
    return torch.zeros(len(sizes), dtype=values.dtype).index_add_(0, group, values) / sizes
