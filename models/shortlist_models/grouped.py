"""Groups of similar classes, previews of the best groups, int8 rows, exact scores; each stage feeds the next.

Not of one paper. From inverted files (Jegou et al. 2011, "Product quantization for nearest neighbor search"): classes
in groups by k-means, of which the few that score best are looked at. From SVD-softmax (Shim et al. 2017): previews
over a low rank, here in the basis that contexts use, in which groups are made too. From quantised search: candidates
are scored again by whole rows in int8 before a few dozen are scored exactly. In that basis contexts' components are all
of one size, while rows' fall: the first few columns are in int8, the others, ten times as small, in 4 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .full import FullSoftmax
from .rescored import RescoredSoftmax, int8_products
from .svd import Basis, quantize_nibbles, quantize_rows

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


def similar_classes(preview: Tensor, bias: Tensor | None, count: int, seed: int) -> Groups:
    """Groups of classes whose logits are alike: of the rows `preview` [m, W] and, where there is one, of `bias` [m].

    A bias is a column for which every context has 1: without it, the few classes that win by their bias alone would be
    in groups of others that do not, and never be looked at.
    """
    if bias is None:
        return k_means(preview, count, seed)
    groups = k_means(torch.column_stack([preview, bias]), count, seed)
    return groups._replace(centres=groups.centres[:, :-1].contiguous())


def nearest(rows: Tensor, centres: Tensor) -> Tensor:
    """[m, W], [G, W] -> [m]: the nearest centre of each row."""
    half = 0.5 * (centres**2).sum(dim=1)
    return torch.cat([(part @ centres.T - half).argmax(dim=1) for part in torch.split(rows, ROWS)])


class GroupedSoftmax(RescoredSoftmax):
    """order: [m] ids group by group, padding left out; starts: [G + 1]; centre, centre_scale, reach: of the groups.

    A group's score is the int8 product with its mean row plus `reach`, what its best class is expected to have more.
    projection: [d, W], its columns rounded to int8: projection_codes [W, d] times projection_scale [W, 1].
    The groups that score best and hold `previewed` classes are previewed: preview, scale: [m, C] and [m, 1], the first
    columns in int8, nibbles, nibble_scale: [m, W - C] and [m, 1], the others in 4 bits. Contexts are in int8.
    candidates: how many of the previews go on. For the rest see RescoredSoftmax.
    """

    def __init__(
        self,
        dense: FullSoftmax,
        basis: Basis,
        real: Tensor,
        groups: Groups,
        int8_width: int,
        previewed: int,
        candidates: int,
        full_view: int,
    ) -> None:
        """Quantise; `real` [m] are the ids that `groups` are of. No tail is known until `fit_tail`."""
        super().__init__(dense, real[groups.order], full_view)
        self.previewed, self.candidates = previewed, candidates
        self.starts, sizes = groups.starts, groups.sizes
        rows = basis.preview[self.order]
        self.preview, self.scale = quantize_rows(rows[:, :int8_width])
        self.nibbles, self.nibble_scale = quantize_nibbles(rows[:, int8_width:])
        self.projection_codes, self.projection_scale = quantize_rows(basis.projection.T)
        self.projection = (self.projection_codes * self.projection_scale).T
        self.centre, self.centre_scale = quantize_rows(groups.centres)
        of_class = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        squared = ((rows - groups.centres[of_class]) ** 2).sum(dim=1)
        biases = torch.zeros(len(rows)) if self.bias is None else self.bias
        level = mean_by_group(biases, of_class, sizes)
        squared = squared + (biases - level[of_class]) ** 2
        self.reach = level + SPREAD * mean_by_group(squared, of_class, sizes).sqrt()

    def previews(self, contexts: Tensor) -> Tensor:
        """[B, d] -> [B, m], before logit scale and soft-cap; -inf where the class's group is not looked at."""
        projected = contexts @ self.projection
        seen = self.opened(int8_products(projected, self.centre, self.centre_scale, self.reach))
        levels, row_scale = quantize_rows(projected)
        wide = self.preview.shape[1]
        previews = levels[:, :wide] @ self.preview.T * self.scale.T
        previews = (previews + levels[:, wide:] @ self.nibbles.T * self.nibble_scale.T) * row_scale
        previews = previews if self.bias is None else previews + self.bias
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

    def candidates_of(self, contexts: Tensor) -> Iterator[Tensor]:
        """See RescoredSoftmax."""
        return map(self.choose, self.previews(contexts))


def mean_by_group(values: Tensor, group: Tensor, sizes: Tensor) -> Tensor:
    """[m] -> [G]: means of the `values` of each group."""
    return torch.zeros(len(sizes), dtype=values.dtype).index_add_(0, group, values) / sizes
