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

import numpy as np
import torch
from torch import Tensor

from shortlist_models.full import FullSoftmax
from shortlist_models.svd import (
    CHUNK_CLASSES,
    ROUNDED_CLASSES,
    Basis,
    compute_second_moment,
    multiply_integers,
    quantize_rows,
    quantize_two_bits,
)

from .base import RescoredSoftmax
from .centres import Addends, make_centres
from .groups import Groups, limit_biases

LINE_COLUMNS = 16  # of 2 bits, which compiled loops take at once
MIN_COARSE_COLUMNS = 64  # of 2 bits, by which all classes of a group that is opened are previewed
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


class ColumnChange(NamedTuple):
    """Other columns for the same products: rows / size @ rotation for a row of a preview. size: [W]. rotation: [W, W].

    The projection's rows are multiplied by the sizes instead, and turned in the same way.
    """

    size: Tensor
    rotation: Tensor

    def change_preview(self, rows: Tensor) -> Tensor:
        """Rows [n, W] of a preview -> the same in the other columns."""
        return rows / self.size @ self.rotation

    def change_projection(self, projection: Tensor) -> Tensor:
        """The projection [d, W] -> that onto the other columns."""
        return projection * self.size @ self.rotation


def find_even_columns(preview: Tensor, order: Tensor, edges: Sequence[int], seed: int) -> ColumnChange:
    """Columns that are alike in the rows `order` of `preview` [V, W], but for those before the first of `edges`.

    What rows have more of in one column than in another goes to the context; then columns from edge to edge are turned
    into each other at random. One scale for a class's 2 bits in all columns then fits each of them.
    """
    squares = sum((preview[part].double() ** 2).sum(dim=0) for part in torch.split(order, CHUNK_CLASSES))
    assert isinstance(squares, Tensor)
    size = (squares / len(order)).sqrt().float()
    size[: edges[0]] = 0  # these stay
    live = size > DEAD_COLUMN_SHARE * size.max()
    size = torch.where(live, size / size[live].mean(), 1.0)
    generator, rotation = torch.Generator().manual_seed(seed), torch.eye(len(size))
    for start, end in pairwise(edges):
        turn = torch.linalg.qr(torch.randn(end - start, end - start, generator=generator))[0]
        rotation[start:end, start:end] = turn
    return ColumnChange(size, rotation)


def factor_errors(second_moment: Tensor) -> Tensor:
    """The factor [d, d] by which a row that previews lose is as long as its root mean square error on contexts.

    second_moment: [d, d] float64, of contexts that the basis was fitted to. Text of other kinds has more of the
    directions that these hardly use, so `ISOTROPIC_SHARE` of the second moment is taken to be alike in all directions
    (shrinkage: Ledoit and Wolf 2004, "A well-conditioned estimator for large-dimensional covariance matrices").
    """
    size = second_moment.diagonal().mean()
    isotropic = (size if size > 0 else torch.ones_like(size)) * torch.eye(len(second_moment), dtype=torch.float64)
    factor: Tensor = torch.linalg.cholesky(second_moment.lerp(isotropic, ISOTROPIC_SHARE)).float()
    return factor


def measure_errors(weight: Tensor, previews: Tensor, projection: Tensor, factor: Tensor) -> Tensor:
    """Root mean square errors [m] of the previews of `weight` [m, d], which are contexts @ projection @ previews^T.

    previews: [m, W]. projection: [d, W]. factor: [d, d], of `factor_errors`.
    """
    errors: Tensor = ((weight - previews @ projection.T) @ factor).norm(dim=1)
    return errors


class GroupedSoftmax(RescoredSoftmax):
    """order: [m] ids group by group, padding left out; starts: [G + 1]; block_starts: [B + 1]; see Groups.

    groups: their Centres, by the first `centre_width` columns of contexts in the basis. The groups that score best and
    hold `opened` classes are opened, and these previewed by as many columns; of their blocks, those whose best preview
    is best and that hold `previewed` classes are previewed by all: preview, scale: [m, C] and [m, 1], the first columns
    in int8, fine, fine_scale: [m, W - C] and [m, 1], the others in 2 bits, of which `coarse_fine_width` are among the
    first, some more than groups are compared by. Both are kept in int8, and contexts are rounded to it. candidates: how
    many of the previews go on.
    projection: [d, W], its columns rounded to int8: projection_codes [W, d] times projection_scale [W, 1].
    preview_raise: [m], added to previews in units of the row's scale: more for classes whose previews are less sure.
    Previews and centres are of rows less `row_mean`, too: where rows have much in common it would be the largest number
    of a context in the basis.
    The other attributes are those of RescoredSoftmax; contexts are not rounded where they meet int8 rows.
    """

    row_mean: Tensor

    def __init__(
        self,
        dense: FullSoftmax,
        basis: Basis,
        real: Tensor,
        groups: Groups,
        widths: Widths,
        contexts: Tensor,
        seed: int,
        row_mean: Tensor,
    ) -> None:
        """Quantise weights, previews and centres.

        basis: of the rows less `row_mean` [d]. real: [m] ids of all classes but padding, which `groups` order.
        contexts: [n, d], a sample.
        """
        super().__init__(dense, real[groups.order], widths.full_view, row_mean)
        self.opened, self.previewed, self.candidates = widths.opened, widths.previewed, widths.candidates
        self.starts, self.block_starts = groups.starts, groups.block_starts()
        wide, compared, width = widths.int8_width, widths.centre_width, basis.preview.shape[1]
        edges = sorted({wide, max(wide, compared), width})
        change = find_even_columns(basis.preview, self.order, edges, seed)
        self.projection_codes, self.projection_scale = quantize_rows(change.change_projection(basis.projection).T)
        self.projection = (self.projection_codes * self.projection_scale).T
        errors = self.pack_previews(basis, change, wide, factor_errors(compute_second_moment(contexts)))
        self.coarse_fine_width = min(max(round_up(compared - wide), MIN_COARSE_COLUMNS), self.fine.shape[1])
        row_scale = float(quantize_rows(contexts @ self.projection)[1].mean())
        self.preview_raise = ERROR_BONUS * errors / row_scale
        biases = torch.zeros(len(errors)) if self.bias is None else limit_biases(self.bias)
        self.groups = make_centres(
            lambda part: basis.preview[self.order[part]],
            lambda part: change.change_preview(basis.preview[self.order[part]])[:, :compared],
            Addends(ERROR_BONUS * errors, biases, row_scale),
            self.starts.diff(),
            wide,
        )

    def pack_previews(self, basis: Basis, change: ColumnChange, wide: int, error_factor: Tensor) -> Tensor:
        """Make the previews in 8 and 2 bits, a chunk of rows at a time; returns their errors [m]."""
        classes, width = len(self.order), basis.preview.shape[1]
        self.preview, self.scale = torch.empty(classes, wide, dtype=torch.int8), torch.empty(classes, 1)
        self.fine, self.fine_scale = torch.empty(classes, width - wide, dtype=torch.int8), torch.empty(classes, 1)
        errors = torch.empty(classes)
        for start in range(0, classes, ROUNDED_CLASSES):
            part = slice(start, start + ROUNDED_CLASSES)
            columns = change.change_preview(basis.preview[self.order[part]])
            preview, self.scale[part] = quantize_rows(columns[:, :wide])
            fine, self.fine_scale[part] = quantize_two_bits(columns[:, wide:])
            self.preview[part], self.fine[part] = preview.to(torch.int8), fine.to(torch.int8)
            previews = torch.cat([preview * self.scale[part], fine * self.fine_scale[part]], dim=1)
            rows = self.dense.weight[self.order[part]] - self.row_mean
            errors[part] = measure_errors(rows, previews, self.projection, error_factor)
        return errors

    def multiply_codes(self, contexts: Tensor) -> Tensor:
        products = multiply_integers(contexts, self.codes) * self.code_scale.T + (contexts @ self.row_mean)[:, None]
        return products if self.bias is None else products + self.bias

    def previews(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> previews [B, m] by position, before logit scale and soft-cap, of rows less `row_mean`.

        -inf in blocks that are not previewed by all columns.
        """
        levels, row_scale = quantize_rows(contexts @ self.projection)
        wide, coarse = self.preview.shape[1], self.preview.shape[1] + self.coarse_fine_width
        fine, rest = self.fine[:, : self.coarse_fine_width], self.fine[:, self.coarse_fine_width :]
        first = multiply_integers(levels[:, :wide], self.preview).mul_(self.scale[:, 0])
        if coarse > wide:
            first += multiply_integers(levels[:, wide:coarse], fine).mul_(self.fine_scale[:, 0])
        first = first.add_(self.preview_raise).mul_(row_scale)
        first = first if self.bias is None else first.add_(self.bias)
        hidden = ~self.choose_preview_classes(levels, row_scale, first)
        if rest.shape[1]:
            first += multiply_integers(levels[:, coarse:], rest).mul_(self.fine_scale[:, 0]).mul_(row_scale)
        return first.masked_fill_(hidden, -torch.inf)

    def choose_preview_classes(self, levels: Tensor, row_scale: Tensor, first: Tensor) -> Tensor:
        """Mask [B, m] of the classes that are previewed by all columns.

        Contexts are in int8: `levels` times `row_scale`. first: [B, m], previews by some columns.
        """
        sizes, block_sizes = self.starts.diff(), self.block_starts.diff()
        in_open_group = choose_best_holding(self.groups.scores(levels, row_scale), sizes, self.opened)
        opened = first.masked_fill(~repeat_columns(in_open_group, sizes), -torch.inf)
        peaks = find_peaks(opened, self.block_starts)
        best = choose_best_holding(peaks, block_sizes, self.previewed) & (peaks > -torch.inf)
        return repeat_columns(best, block_sizes)

    def choose_from_preview(self, preview: Tensor) -> Tensor:
        """Positions of one context's candidates, ascending, by its previews [m]."""
        visible = preview > -torch.inf
        values = preview[visible]
        if len(values) <= self.candidates:
            return torch.from_numpy(np.flatnonzero(visible.numpy()))
        bar = values.topk(self.candidates).values[-1]
        return torch.from_numpy(np.flatnonzero((preview >= bar).numpy()))

    def choose_candidates(self, contexts: Tensor) -> Iterator[Tensor]:
        return map(self.choose_from_preview, self.previews(contexts))


def round_up(columns: int) -> int:
    """So many columns in 2 bits that they fill whole lines of compiled loops."""
    return columns + -columns % LINE_COLUMNS


def repeat_columns(values: Tensor, times: Tensor) -> Tensor:
    """Each column of `values` [B, n] so often as `times` [n] says, as torch's repeat_interleave, in less time."""
    return torch.from_numpy(np.repeat(values.numpy(), times.numpy(), axis=1))


def find_peaks(values: Tensor, starts: Tensor) -> Tensor:
    """The largest [B, n] of the `values` [B, m] of each part, given where the n parts begin and end, [n + 1]."""
    return torch.from_numpy(np.maximum.reduceat(values.numpy(), starts[:-1].numpy(), axis=1))


def choose_best_holding(scores: Tensor, sizes: Tensor, classes: int) -> Tensor:
    """Mask [B, n] of the parts that score best and together hold at least `classes` classes, or all there are.

    scores: [B, n]. sizes: [n], classes of each part.
    """
    ranking = scores.sort(dim=1, descending=True)
    enough = sizes[ranking.indices].cumsum(dim=1) >= min(classes, int(sizes.sum()))
    return scores >= ranking.values.gather(1, enough.int().argmax(dim=1, keepdim=True))
