"""Groups of similar classes, previews by some columns, by all, int8 rows, exact scores; each stage feeds the next.

Not of one paper. From inverted files (Jegou et al. 2011, "Product quantization for nearest neighbor search"): classes
in groups by k-means, of which the few that score best are opened; here each group is in blocks of sixteen similar
classes, as many as compiled loops score side by side. From SVD-softmax (Shim et al. 2017): previews
over a low rank, here in the basis that contexts use, in which groups are made too. From quantised search: candidates
are scored again by whole rows in int8 before the best few are scored exactly. In that basis contexts' components are
all of one size, while rows' fall: the first few columns are in int8, the others, much smaller ones, are made alike
(`even_columns`) and in 2 bits; and the first two fifths of all columns tell nearly as well as all of them how good a
group may be, or which blocks hold the best classes. Columns are made alike as for SmoothQuant (Xiao et al. 2023), and
rotated as for QuIP (Chee et al. 2023).
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

GROUPING_ROUNDS = 12
BLOCK_CLASSES = 16  # the last block of a group may have fewer
LINE_COLUMNS = 16  # of 2 bits, which compiled loops take at once
MIN_COARSE_COLUMNS = 64  # of 2 bits, by which all classes of a group that is opened are previewed
HALVING_ROUNDS = 6  # in which the two halves of a group are made more similar within themselves
BEST_CLASS_DEVIATIONS = 1.5  # standard deviations by which the best class of a group is over its mean
DEAD_COLUMN_SHARE = 1e-3  # of the largest column's size: a smaller column is float32 rounding
CHUNK_CLASSES = 8192  # whose distances are computed at once


class Groups(NamedTuple):
    """order: [m] positions of classes, group by group. starts: [G + 1], where groups begin in it."""

    order: Tensor
    starts: Tensor

    @property
    def sizes(self) -> Tensor:
        """How many classes each group has, [G]."""
        return self.starts.diff()

    def block_starts(self) -> Tensor:
        """Where blocks begin in `order`, [B + 1]: every `BLOCK_CLASSES` classes from the start of each group."""
        ends = zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)
        return torch.tensor(
            [start for first, end in ends for start in range(first, end, BLOCK_CLASSES)] + [len(self.order)]
        )


def cluster_rows(rows: Tensor, count: int, seed: int) -> Groups:
    """Put `rows` [m, W] into up to `count` groups by Lloyd's k-means; groups that end empty are left out."""
    first = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:count]
    centres = rows[first].clone()
    for _ in range(GROUPING_ROUNDS):
        group = find_nearest(rows, centres)
        sizes = torch.bincount(group, minlength=len(centres))
        nonempty = sizes > 0
        centres = (torch.zeros_like(centres).index_add_(0, group, rows) / sizes[:, None])[nonempty]
    group = find_nearest(rows, centres)
    sizes = torch.bincount(group)
    return Groups(group.argsort(stable=True), torch.cat([sizes.new_zeros(1), sizes[sizes > 0].cumsum(0)]))


def group_similar_classes(preview: Tensor, bias: Tensor | None, count: int, seed: int) -> Groups:
    """Group classes whose logits are alike, by the rows `preview` [m, W] and, where there is one, `bias` [m].

    A bias is a column for which every context has 1: without it, the few classes that win by their bias alone would be
    in groups of others that do not, and would never be opened.
    """
    rows = preview if bias is None else torch.column_stack([preview, bias])
    groups = cluster_rows(rows, count, seed)
    parts = [order_in_blocks(rows, classes) for classes in torch.split(groups.order, groups.sizes.tolist())]
    return groups._replace(order=torch.cat(parts))


def order_in_blocks(rows: Tensor, classes: Tensor) -> Tensor:
    """Order `classes` [n] so that every `BLOCK_CLASSES` of them are similar: split in halves again and again."""
    blocks = -(-len(classes) // BLOCK_CLASSES)
    if blocks <= 1:
        return classes
    first = blocks // 2 * BLOCK_CLASSES
    ranking = classes[rank_along_difference(rows[classes], first)]
    return torch.cat([order_in_blocks(rows, ranking[:first]), order_in_blocks(rows, ranking[first:])])


def rank_along_difference(rows: Tensor, first: int) -> Tensor:
    """Rank `rows` [n, W] so that the first `first` of them and the others are two groups, as by k-means; returns [n].

    Begins with the direction in which rows differ most, by power iteration; then goes by the line between both means.
    """
    centred = rows - rows.mean(dim=0)
    direction = centred[(centred**2).sum(dim=1).argmax()]
    for _ in range(HALVING_ROUNDS):
        direction = torch.nn.functional.normalize(centred.T @ (centred @ direction), dim=0)
    for _ in range(HALVING_ROUNDS):
        ranking = (centred @ direction).argsort(stable=True)
        direction = centred[ranking[first:]].mean(dim=0) - centred[ranking[:first]].mean(dim=0)
    return (centred @ direction).argsort(stable=True)


def find_nearest(rows: Tensor, centres: Tensor) -> Tensor:
    """The number [m] of the centre [G, W] that is nearest to each row [m, W]."""
    half = 0.5 * (centres**2).sum(dim=1)
    return torch.cat([(part @ centres.T - half).argmax(dim=1) for part in torch.split(rows, CHUNK_CLASSES)])


class Widths(NamedTuple):
    """How far each stage looks; the fields are those of GroupedSoftmax, in columns or classes."""

    int8_width: int
    centre_width: int
    opened: int
    previewed: int
    candidates: int
    full_view: int


def even_columns(basis: Basis, edges: Sequence[int], seed: int) -> Basis:
    """The same products by columns that are alike, but for those before the first of `edges`.

    What rows have more of in one column than in another goes to the context; then columns from edge to edge are turned
    into each other at random. One scale for a class's 2 bits in all columns then fits each of them.
    """
    size = (basis.preview**2).mean(dim=0).sqrt()
    size[: edges[0]] = 0  # these stay
    live = size > DEAD_COLUMN_SHARE * size.max()
    size = torch.where(live, size / size[live].mean(), 1.0)
    preview, projection = basis.preview / size, basis.projection * size
    generator = torch.Generator().manual_seed(seed)
    for start, end in pairwise(edges):
        rotation = torch.linalg.qr(torch.randn(end - start, end - start, generator=generator))[0]
        preview[:, start:end], projection[:, start:end] = (
            preview[:, start:end] @ rotation,
            projection[:, start:end] @ rotation,
        )
    return basis._replace(preview=preview, projection=projection)


class Centres(NamedTuple):
    """Centres of n groups: mean rows in int8, and how far over the mean the best class may score.

    codes: [n, c] whole numbers -127..127. scale: [n, 1]. reach: [n].
    """

    codes: Tensor
    scale: Tensor
    reach: Tensor

    def scores(self, levels: Tensor, row_scale: Tensor) -> Tensor:
        """Scores [B, n] of contexts in int8: whole numbers `levels` [B, W] times `row_scale` [B, 1]."""
        products = levels[:, : self.codes.shape[1]] @ self.codes.T * self.scale.T * row_scale
        return products + self.reach


def make_centres(rows: Tensor, centre_columns: Tensor, bias: Tensor | None, sizes: Tensor) -> Centres:
    """Centres of consecutive parts, of `sizes` [n], of `rows` [m, W] and `bias` [m].

    centre_columns: [m, c], the columns that contexts are multiplied with; `rows` say how far classes are from their
    mean.
    """
    part = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    biases = torch.zeros(len(rows)) if bias is None else bias
    centres, level = average_parts(rows, part, sizes), average_parts(biases, part, sizes)
    distances = ((rows - centres[part]) ** 2).sum(dim=1) + (biases - level[part]) ** 2
    reach = level + BEST_CLASS_DEVIATIONS * average_parts(distances, part, sizes).sqrt()
    return Centres(*quantize_rows(average_parts(centre_columns, part, sizes)), reach)


def average_parts(values: Tensor, part: Tensor, sizes: Tensor) -> Tensor:
    """Means [n, ...] of the `values` [m, ...] of each part, given each value's part [m] and the parts' sizes [n]."""
    sums = torch.zeros(len(sizes), *values.shape[1:], dtype=values.dtype).index_add_(0, part, values)
    return sums / sizes.reshape(-1, *[1] * (values.dim() - 1))


class GroupedSoftmax(RescoredSoftmax):
    """order: [m] ids group by group, padding left out; starts: [G + 1]; block_starts: [B + 1]; see Groups.

    groups: their Centres, by the first `centre_width` columns of contexts in the basis. The groups that score best and
    hold `opened` classes are opened, and these previewed by as many columns; of their blocks, those whose best preview
    is best and that hold `previewed` classes are previewed by all: preview, scale: [m, C] and [m, 1], the first columns
    in int8, fine, fine_scale: [m, W - C] and [m, 1], the others in 2 bits, of which `coarse_fine_width` are among the
    first, some more than groups are compared by. Contexts are in int8. candidates: how many of the previews go on.
    projection: [d, W], its columns rounded to int8: projection_codes [W, d] times projection_scale [W, 1].
    The other attributes are those of RescoredSoftmax; contexts are not rounded where they meet int8 rows.
    """

    def __init__(
        self, dense: FullSoftmax, basis: Basis, real: Tensor, groups: Groups, widths: Widths, seed: int
    ) -> None:
        """Quantise weights, previews and centres. real: [m] ids of all classes but padding, which `groups` order."""
        super().__init__(dense, real[groups.order], widths.full_view)
        self.opened, self.previewed, self.candidates = widths.opened, widths.previewed, widths.candidates
        self.starts, self.block_starts = groups.starts, groups.block_starts()
        wide, compared, width = widths.int8_width, widths.centre_width, basis.preview.shape[1]
        rows = basis.preview[self.order]
        even = even_columns(basis._replace(preview=rows), sorted({wide, max(wide, compared), width}), seed)
        columns = even.preview
        self.preview, self.scale = quantize_rows(columns[:, :wide])
        self.fine, self.fine_scale = quantize_two_bits(columns[:, wide:])
        self.projection_codes, self.projection_scale = quantize_rows(even.projection.T)
        self.projection = (self.projection_codes * self.projection_scale).T
        self.coarse_fine_width = min(max(round_up(compared - wide), MIN_COARSE_COLUMNS), self.fine.shape[1])
        self.groups = make_centres(rows, columns[:, :compared], self.bias, self.starts.diff())

    def multiply_codes(self, contexts: Tensor) -> Tensor:
        products = contexts @ self.codes.T * self.code_scale.T
        return products if self.bias is None else products + self.bias

    def previews(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> previews [B, m] by position, before logit scale and soft-cap.

        -inf in blocks that are not previewed by all columns.
        """
        levels, row_scale = quantize_rows(contexts @ self.projection)
        wide, coarse = self.preview.shape[1], self.preview.shape[1] + self.coarse_fine_width
        fine, rest = self.fine[:, : self.coarse_fine_width], self.fine[:, self.coarse_fine_width :]
        first = levels[:, :wide] @ self.preview.T * self.scale.T
        first = (first + levels[:, wide:coarse] @ fine.T * self.fine_scale.T) * row_scale
        first = first if self.bias is None else first + self.bias
        previews = first + levels[:, coarse:] @ rest.T * self.fine_scale.T * row_scale
        return previews.masked_fill(~self.choose_preview_classes(levels, row_scale, first), -torch.inf)

    def choose_preview_classes(self, levels: Tensor, row_scale: Tensor, first: Tensor) -> Tensor:
        """Mask [B, m] of the classes that are previewed by all columns.

        Contexts are in int8: `levels` times `row_scale`. first: [B, m], previews by some columns.
        """
        sizes, block_sizes = self.starts.diff(), self.block_starts.diff()
        in_open_group = choose_best_holding(self.groups.scores(levels, row_scale), sizes, self.opened)
        opened = first.masked_fill(~in_open_group.repeat_interleave(sizes, dim=1), -torch.inf)
        block = torch.repeat_interleave(torch.arange(len(block_sizes)), block_sizes).expand(len(first), -1)
        peaks = opened.new_full((len(first), len(block_sizes)), -torch.inf).scatter_reduce(1, block, opened, "amax")
        best = choose_best_holding(peaks, block_sizes, self.previewed) & (peaks > -torch.inf)
        return best.repeat_interleave(block_sizes, dim=1)

    def choose_from_preview(self, preview: Tensor) -> Tensor:
        """Positions of one context's candidates, ascending, by its previews [m]."""
        bar = preview.topk(min(self.candidates, len(preview))).values[-1]
        return ((preview >= bar) & preview.isfinite()).nonzero()[:, 0]

    def choose_candidates(self, contexts: Tensor) -> Iterator[Tensor]:
        return map(self.choose_from_preview, self.previews(contexts))


def round_up(columns: int) -> int:
    """So many columns in 2 bits that they fill whole lines of compiled loops."""
    return columns + -columns % LINE_COLUMNS


def choose_best_holding(scores: Tensor, sizes: Tensor, classes: int) -> Tensor:
    """Mask [B, n] of the parts that score best and together hold at least `classes` classes, or all there are.

    scores: [B, n]. sizes: [n], classes of each part.
    """
    ranking = scores.sort(dim=1, descending=True)
    enough = sizes[ranking.indices].cumsum(dim=1) >= min(classes, int(sizes.sum()))
    return scores >= ranking.values.gather(1, enough.int().argmax(dim=1, keepdim=True))
