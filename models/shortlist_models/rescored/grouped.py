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
from shortlist_models.svd import Basis, compute_second_moment, quantize_rows, quantize_two_bits

from .base import RescoredSoftmax
from .groups import CHUNK_CLASSES, Groups

LINE_COLUMNS = 16  # of 2 bits, which compiled loops take at once
MIN_COARSE_COLUMNS = 64  # of 2 bits, by which all classes of a group that is opened are previewed
BEST_CLASS_DEVIATIONS = 1.5  # standard deviations by which the best class of a group is over its mean
ISOTROPIC_SHARE = 0.3  # of the contexts that errors are measured by
ERROR_BONUS = 4.0  # root mean square errors that a preview is raised by: what is less sure is worth a look
DEAD_COLUMN_SHARE = 1e-3  # of the largest column's size: a smaller column is float32 rounding


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


def make_centres(rows: Tensor, centre_columns: Tensor, biases: Tensor, sizes: Tensor) -> Centres:
    """Centres of consecutive parts, of `sizes` [n], of `rows` [m, W] and `biases` [m].

    centre_columns: [m, c], the columns that contexts are multiplied with; `rows` say how far classes are from their
    mean.
    """
    part = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    centres, level = average_parts(rows, part, sizes), average_parts(biases, part, sizes)
    distances = ((rows - centres[part]) ** 2).sum(dim=1) + (biases - level[part]) ** 2
    reach = level + BEST_CLASS_DEVIATIONS * average_parts(distances, part, sizes).sqrt()
    return Centres(*quantize_rows(average_parts(centre_columns, part, sizes)), reach)


def average_parts(values: Tensor, part: Tensor, sizes: Tensor) -> Tensor:
    """Means [n, ...] of the `values` [m, ...] of each part, given each value's part [m] and the parts' sizes [n]."""
    sums = torch.zeros(len(sizes), *values.shape[1:], dtype=values.dtype).index_add_(0, part, values)
    return sums / sizes.reshape(-1, *[1] * (values.dim() - 1))


def measure_errors(weight: Tensor, previews: Tensor, projection: Tensor, second_moment: Tensor) -> Tensor:
    """Root mean square errors [m] of the previews of `weight` [m, d], which are contexts @ projection @ previews^T.

    previews: [m, W]. projection: [d, W]. second_moment: [d, d] float64, of contexts that the basis was fitted to. Text
    of other kinds has more of the directions that these hardly use, so `ISOTROPIC_SHARE` of the second moment is taken
    to be alike in all directions (shrinkage: Ledoit and Wolf 2004, "A well-conditioned estimator for large-dimensional
    covariance matrices").
    """
    size = second_moment.diagonal().mean()
    isotropic = (size if size > 0 else torch.ones_like(size)) * torch.eye(len(second_moment), dtype=torch.float64)
    factor = torch.linalg.cholesky(second_moment.lerp(isotropic, ISOTROPIC_SHARE)).float()
    parts = zip(torch.split(weight, CHUNK_CLASSES), torch.split(previews, CHUNK_CLASSES), strict=True)
    return torch.cat([((rows - part @ projection.T) @ factor).norm(dim=1) for rows, part in parts])


class GroupedSoftmax(RescoredSoftmax):
    """order: [m] ids group by group, padding left out; starts: [G + 1]; block_starts: [B + 1]; see Groups.

    groups: their Centres, by the first `centre_width` columns of contexts in the basis. The groups that score best and
    hold `opened` classes are opened, and these previewed by as many columns; of their blocks, those whose best preview
    is best and that hold `previewed` classes are previewed by all: preview, scale: [m, C] and [m, 1], the first columns
    in int8, fine, fine_scale: [m, W - C] and [m, 1], the others in 2 bits, of which `coarse_fine_width` are among the
    first, some more than groups are compared by. Contexts are in int8. candidates: how many of the previews go on.
    projection: [d, W], its columns rounded to int8: projection_codes [W, d] times projection_scale [W, 1].
    preview_raise: [m], added to previews in units of the row's scale: more for classes whose previews are less sure.
    The other attributes are those of RescoredSoftmax; contexts are not rounded where they meet int8 rows.
    """

    def __init__(
        self,
        dense: FullSoftmax,
        basis: Basis,
        real: Tensor,
        groups: Groups,
        widths: Widths,
        contexts: Tensor,
        seed: int,
    ) -> None:
        """Quantise weights, previews and centres.

        real: [m] ids of all classes but padding, which `groups` order. contexts: [n, d], a sample.
        """
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
        previews = torch.cat([self.preview * self.scale, self.fine * self.fine_scale], dim=1)
        second_moment, row_scale = compute_second_moment(contexts), quantize_rows(contexts @ self.projection)[1].mean()
        raises = ERROR_BONUS * measure_errors(dense.weight[self.order], previews, self.projection, second_moment)
        self.preview_raise = raises / row_scale
        biases = raises if self.bias is None else raises + self.bias
        self.groups = make_centres(rows, columns[:, :compared], biases, self.starts.diff())

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
        first = (first + levels[:, wide:coarse] @ fine.T * self.fine_scale.T + self.preview_raise) * row_scale
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
