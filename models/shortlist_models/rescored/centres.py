"""Centres of groups of classes, by which the groups are chosen that are opened, as those of an inverted file."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist_models.svd import CHUNK_CLASSES, quantize_rows

BEST_CLASS_DEVIATIONS = 2.0  # standard deviations by which the best class of a group is over its mean


class Centres(NamedTuple):
    """Centres of n groups: mean rows in int8, and how far over the mean the best class may score.

    wide, fine: [n, .] whole numbers -127..127, of the first columns and of the others, which are much smaller: in the
    steps of the first ones they would hardly be told apart. scale, fine_scale: [n, 1]. raises: [n], what grows with
    the context, in units of its row's scale. reach: [n], what does not, of biases; 0 without them.
    """

    wide: Tensor
    scale: Tensor
    fine: Tensor
    fine_scale: Tensor
    raises: Tensor
    reach: Tensor

    @property
    def codes(self) -> Tensor:
        """The whole numbers of all columns, [n, c]."""
        return torch.cat([self.wide, self.fine], dim=1)

    def scores(self, levels: Tensor, row_scale: Tensor) -> Tensor:
        """Scores [B, n] of contexts in int8: whole numbers `levels` [B, W] times `row_scale` [B, 1]."""
        first, last = self.wide.shape[1], self.wide.shape[1] + self.fine.shape[1]
        products = levels[:, :first] @ self.wide.T * self.scale.T
        products += levels[:, first:last] @ self.fine.T * self.fine_scale.T
        return (products + self.raises) * row_scale + self.reach


ReadRows = Callable[[slice], Tensor]  # positions -> rows [n, ...] at them, so that never all of them are there


class Addends(NamedTuple):
    """What is added to the products of m classes. raises, biases: [m], for contexts of the usual row scale, and all."""

    raises: Tensor
    biases: Tensor
    row_scale: float


def make_centres(rows: ReadRows, centre_columns: ReadRows, addends: Addends, sizes: Tensor, wide: int) -> Centres:
    """Centres of consecutive parts, of `sizes` [n], of m rows [W] and their `addends`.

    centre_columns: rows [c], the columns that contexts are multiplied with; `rows` say how far classes are from their
    mean. wide: how many of the columns come first.
    """
    part = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    means = average_parts(rows, part, sizes)
    distances = average_parts(lambda some: ((rows(some) - means[part[some]]) ** 2).sum(dim=1), part, sizes)
    raises, raise_variance = describe_parts(addends.raises, part, sizes)
    level, _ = describe_parts(addends.biases, part, sizes)
    _, variance = describe_parts(addends.raises + addends.biases, part, sizes)
    centres = average_parts(centre_columns, part, sizes)
    left_out = (means[:, centres.shape[1] :] ** 2).sum(dim=1)
    distances = torch.where(sizes == 1, left_out, distances)  # a class alone differs from its centre by these columns
    deviation = (distances + raise_variance).sqrt()  # of the usual row scale; what biases add is the same for any
    raises += BEST_CLASS_DEVIATIONS * deviation
    reach = level + BEST_CLASS_DEVIATIONS * ((distances + variance).sqrt() - deviation)
    first, others = centres[:, :wide], centres[:, wide:]
    quantized = quantize_rows(others) if others.shape[1] else (others, torch.ones(len(others), 1))
    return Centres(*quantize_rows(first), *quantized, raises / addends.row_scale, reach)


def describe_parts(values: Tensor, part: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Means [n] and variances [n] of the parts of `values` [m]."""
    means = average_parts(values.__getitem__, part, sizes)
    return means, average_parts(lambda some: (values[some] - means[part[some]]) ** 2, part, sizes)


def average_parts(values: ReadRows, part: Tensor, sizes: Tensor) -> Tensor:
    """Means [n, ...] of the values of each part, given each value's part [m] and the parts' sizes [n]."""
    sums = torch.zeros(len(sizes), *values(slice(0)).shape[1:])
    for start in range(0, len(part), CHUNK_CLASSES):
        chunk = slice(start, start + CHUNK_CLASSES)
        sums.index_add_(0, part[chunk], values(chunk))
    return sums / sizes.reshape(-1, *[1] * (sums.dim() - 1))
