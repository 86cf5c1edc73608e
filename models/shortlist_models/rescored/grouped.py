"""Groups of similar classes, blocks of more similar ones, previews, int8 rows, exact scores; each stage feeds the next.

Not of one paper. From inverted files (Jegou et al. 2011, "Product quantization for nearest neighbor search"): classes
in groups by k-means, of which the few that score best are looked at; here each group is in blocks of sixteen, as many
as compiled loops score side by side, of which again the best are looked at. From SVD-softmax (Shim et al. 2017):
previews over a low rank, here in the basis that contexts use, in which groups are made too. From quantised search:
candidates are scored again by whole rows in int8 before the best few are scored exactly. In that basis contexts'
components are all of one size, while rows' fall: the first few columns are in int8, the others, much smaller ones, are
made alike (`evened`) and in 2 bits; and the first two fifths of all say nearly as well as all how good a group or a
block may be. Columns are made alike as for SmoothQuant (Xiao et al. 2023), and turned as for QuIP (Chee et al. 2023).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist_models.full import FullSoftmax
from shortlist_models.svd import Basis, quantize_rows, quantize_two_bits

from .base import RescoredSoftmax

ROUNDS = 12  # of k-means
BLOCK = 16  # classes of a block; the last of a group has fewer
HALVINGS = 6  # rounds in which a group's halves are made alike
SPREAD = 1.5  # standard deviations over the mean logit of a group or block at which its best class is expected
DEAD = 1e-3  # of the largest column's size: a smaller one is what float32 left of a direction that no row has
ROWS = 8192  # classes whose distances are held at once


class Groups(NamedTuple):
    """order: [m] positions of classes, group by group; starts: [G + 1] where groups begin in it."""

    order: Tensor
    starts: Tensor

    @property
    def sizes(self) -> Tensor:
        """[G]: classes of each group."""
        return self.starts.diff()

    def block_starts(self) -> Tensor:
        """[B + 1]: where blocks begin in `order`: every `BLOCK` classes from the start of each group."""
        ends = zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)
        return torch.tensor([start for first, end in ends for start in range(first, end, BLOCK)] + [len(self.order)])


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
    return Groups(group.argsort(stable=True), torch.cat([sizes.new_zeros(1), sizes[kept].cumsum(0)]))


def similar_classes(preview: Tensor, bias: Tensor | None, count: int, seed: int) -> Groups:
    """Groups of classes whose logits are alike: of the rows `preview` [m, W] and, where there is one, of `bias` [m].

    A bias is a column for which every context has 1: without it, the few classes that win by their bias alone would be
    in groups of others that do not, and never be looked at.
    """
    rows = preview if bias is None else torch.column_stack([preview, bias])
    groups = k_means(rows, count, seed)
    parts = [in_blocks(rows, classes) for classes in torch.split(groups.order, groups.sizes.tolist())]
    return groups._replace(order=torch.cat(parts))


def in_blocks(rows: Tensor, classes: Tensor) -> Tensor:
    """`classes` [n] in an order in which every `BLOCK` of them are similar: by halves, halved again."""
    blocks = -(-len(classes) // BLOCK)
    if blocks <= 1:
        return classes
    first = blocks // 2 * BLOCK
    ranked = classes[along_difference(rows[classes], first)]
    return torch.cat([in_blocks(rows, ranked[:first]), in_blocks(rows, ranked[first:])])


def along_difference(rows: Tensor, first: int) -> Tensor:
    """[n]: `rows` [n, W] ranked so that the first `first` and the others are two groups, as by k-means.

    From the direction in which rows differ most, by powers; then along the line between the means of both.
    """
    centred = rows - rows.mean(dim=0)
    direction = centred[(centred**2).sum(dim=1).argmax()]
    for _ in range(HALVINGS):
        direction = torch.nn.functional.normalize(centred.T @ (centred @ direction), dim=0)
    for _ in range(HALVINGS):
        ranked = (centred @ direction).argsort(stable=True)
        direction = centred[ranked[first:]].mean(dim=0) - centred[ranked[:first]].mean(dim=0)
    return (centred @ direction).argsort(stable=True)


def nearest(rows: Tensor, centres: Tensor) -> Tensor:
    """[m, W], [G, W] -> [m]: the nearest centre of each row."""
    half = 0.5 * (centres**2).sum(dim=1)
    return torch.cat([(part @ centres.T - half).argmax(dim=1) for part in torch.split(rows, ROWS)])


class Widths(NamedTuple):
    """How much is looked at; see GroupedSoftmax."""

    int8_width: int
    centre_width: int
    opened: int
    previewed: int
    candidates: int
    full_view: int


def evened(basis: Basis, edges: Sequence[int], seed: int) -> Basis:
    """The same products by columns that are alike, but for those before the first of `edges`.

    What rows have more of in one column than in another goes to the context; then columns from edge to edge are turned
    into each other at random. One scale for a class's 2 bits in all columns then fits each of them.
    """
    size = (basis.preview**2).mean(dim=0).sqrt()
    size[: edges[0]] = 0  # these stay
    live = size > DEAD * size.max()
    size = torch.where(live, size / size[live].mean(), 1.0)
    preview, projection = basis.preview / size, basis.projection * size
    generator = torch.Generator().manual_seed(seed)
    for start, end in pairwise(edges):
        turn = torch.linalg.qr(torch.randn(end - start, end - start, generator=generator))[0]
        preview[:, start:end], projection[:, start:end] = preview[:, start:end] @ turn, projection[:, start:end] @ turn
    return basis._replace(preview=preview, projection=projection)


class Centres(NamedTuple):
    """Of groups or of blocks, n of them: mean rows in int8, and how much more than the mean the best class may have.

    codes: [n, c] whole numbers -127..127, scale: [n, 1], reach: [n].
    """

    codes: Tensor
    scale: Tensor
    reach: Tensor

    def scores(self, levels: Tensor, row_scale: Tensor) -> Tensor:
        """Contexts in int8, `levels` [B, W] times `row_scale` [B, 1] -> [B, n]."""
        products = levels[:, : self.codes.shape[1]] @ self.codes.T * self.scale.T * row_scale
        return products + self.reach


def centres_of(rows: Tensor, compared: Tensor, bias: Tensor | None, sizes: Tensor) -> Centres:
    """Of parts of `sizes` [n] of `rows` [m, W], which follow each other, and of `bias` [m].

    compared: [m, c], what contexts are multiplied with; rows say how far a part's classes are from their mean.
    """
    part = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    biases = torch.zeros(len(rows)) if bias is None else bias
    centres, level = mean_by_part(rows, part, sizes), mean_by_part(biases, part, sizes)
    squared = ((rows - centres[part]) ** 2).sum(dim=1) + (biases - level[part]) ** 2
    reach = level + SPREAD * mean_by_part(squared, part, sizes).sqrt()
    return Centres(*quantize_rows(mean_by_part(compared, part, sizes)), reach)


def mean_by_part(values: Tensor, part: Tensor, sizes: Tensor) -> Tensor:
    """[m, ...] -> [n, ...]: means of the `values` of each part."""
    sums = torch.zeros(len(sizes), *values.shape[1:], dtype=values.dtype).index_add_(0, part, values)
    return sums / sizes.reshape(-1, *[1] * (values.dim() - 1))


class GroupedSoftmax(RescoredSoftmax):
    """order: [m] ids group by group, padding left out; starts: [G + 1]; block_starts: [B + 1]; see Groups.

    groups, blocks: their Centres, by the first `centre_width` columns of contexts in the basis. The groups that score
    best and hold `opened` classes are opened; of their blocks, those that score best and hold `previewed` are
    previewed: preview, scale: [m, C] and [m, 1], the first columns in int8, fine, fine_scale: [m, W - C] and [m, 1],
    the others in 2 bits. Contexts are in int8. candidates: how many of the previews go on.
    projection: [d, W], its columns rounded to int8: projection_codes [W, d] times projection_scale [W, 1].
    For the rest see RescoredSoftmax; contexts are not rounded where they meet int8 rows.
    """

    def __init__(
        self, dense: FullSoftmax, basis: Basis, real: Tensor, groups: Groups, widths: Widths, seed: int
    ) -> None:
        """Quantise; `real` [m] are the ids that `groups` are of. No tail is known until `fit_tail`."""
        super().__init__(dense, real[groups.order], widths.full_view)
        self.opened, self.previewed, self.candidates = widths.opened, widths.previewed, widths.candidates
        self.starts, self.block_starts = groups.starts, groups.block_starts()
        wide, compared, width = widths.int8_width, widths.centre_width, basis.preview.shape[1]
        rows = basis.preview[self.order]
        even = evened(basis._replace(preview=rows), sorted({wide, max(wide, compared), width}), seed)
        columns = even.preview
        self.preview, self.scale = quantize_rows(columns[:, :wide])
        self.fine, self.fine_scale = quantize_two_bits(columns[:, wide:])
        self.projection_codes, self.projection_scale = quantize_rows(even.projection.T)
        self.projection = (self.projection_codes * self.projection_scale).T
        parts = self.starts.diff(), self.block_starts.diff()
        self.groups, self.blocks = (centres_of(rows, columns[:, :compared], self.bias, sizes) for sizes in parts)

    def by_codes(self, contexts: Tensor) -> Tensor:
        """See RescoredSoftmax."""
        found = contexts @ self.codes.T * self.code_scale.T
        return found if self.bias is None else found + self.bias

    def previews(self, contexts: Tensor) -> Tensor:
        """[B, d] -> [B, m], before logit scale and soft-cap; -inf where the class's block is not looked at."""
        projected = contexts @ self.projection
        levels, row_scale = quantize_rows(projected)
        wide = self.preview.shape[1]
        previews = levels[:, :wide] @ self.preview.T * self.scale.T
        previews = (previews + levels[:, wide:] @ self.fine.T * self.fine_scale.T) * row_scale
        previews = previews if self.bias is None else previews + self.bias
        return previews.masked_fill(~self.looked_at(levels, row_scale), -torch.inf)

    def looked_at(self, levels: Tensor, row_scale: Tensor) -> Tensor:
        """[B, W] -> [B, m]: which classes are previewed."""
        sizes, block_sizes = self.starts.diff(), self.block_starts.diff()
        opened = best_holding(self.groups.scores(levels, row_scale), sizes, self.opened)
        inside = opened.repeat_interleave(sizes, dim=1)[:, self.block_starts[:-1]]
        scores = self.blocks.scores(levels, row_scale).masked_fill(~inside, -torch.inf)
        best = best_holding(scores, block_sizes, self.previewed) & inside
        return best.repeat_interleave(block_sizes, dim=1)

    def choose(self, preview: Tensor) -> Tensor:
        """Positions of one row's candidates, ascending, by its previews [m]."""
        bar = preview.topk(min(self.candidates, len(preview))).values[-1]
        return ((preview >= bar) & preview.isfinite()).nonzero()[:, 0]

    def candidates_of(self, contexts: Tensor) -> Iterator[Tensor]:
        """See RescoredSoftmax."""
        return map(self.choose, self.previews(contexts))


def best_holding(scores: Tensor, sizes: Tensor, wanted: int) -> Tensor:
    """[B, n] -> [B, n]: which score best, until together they hold `wanted` classes, or all there are."""
    ranked = scores.sort(dim=1, descending=True)
    reached = sizes[ranked.indices].cumsum(dim=1) >= min(wanted, int(sizes.sum()))
    return scores >= ranked.values.gather(1, reached.int().argmax(dim=1, keepdim=True))
