"""Groups of similar classes for `grouped`, each in blocks of sixteen.

By k-means (Lloyd 1982); large numbers of groups in two levels, as a vocabulary tree (Nister and Stewenius 2006). Then
by angles, as in spherical k-means (Dhillon and Modha 2001).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

GROUPING_ROUNDS = 12
MAX_FLAT_GROUPS = 1024  # that every row is compared with
MAX_TRAINING_ROWS = 1 << 18  # by which centres are found: of more rows a sample
MIN_ROWS_PER_CENTRE = 256  # of the sample
BLOCK_CLASSES = 16  # the last block of a group may have fewer
HALVING_ROUNDS = 6  # in which the two halves of a group are made more similar within themselves
CHUNK_CLASSES = 8192  # whose distances are computed at once
ANGLE_ROUNDS = 12  # in which rows go to the mean at the smallest angle
MAX_COMPARISONS = 1 << 31  # of a row with a mean, in all of these rounds
MAX_GROUPED_BIAS = 1e15  # of float32, of which hundreds of millions of squares can be added up
HALVED_NUMBERS = 1 << 22  # of rows of parts of one size that are halved at once


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


Cluster = Callable[[Tensor, int, int], Groups]


def cluster_rows(rows: Tensor, count: int, seed: int) -> Groups:
    """Put `rows` [m, W] into about `count` groups by k-means; groups that end empty are left out.

    More than `MAX_FLAT_GROUPS` are found in two levels: groups of groups first, then those within each, so many as it
    has rows. So the time grows as m times the root of `count`, not as m times `count`.
    """
    if count <= MAX_FLAT_GROUPS:
        return cluster_at_once(rows, count, seed)
    parents = cluster_at_once(rows, round(count**0.5), seed)
    orders, sizes = [], []
    for members in torch.split(parents.order, parents.sizes.tolist()):
        share = min(max(1, round(count * len(members) / len(rows))), count - 1)
        groups = cluster_rows(rows[members], share, seed)
        orders.append(members[groups.order])
        sizes.append(groups.sizes)
    return Groups(torch.cat(orders), add_sizes(torch.cat(sizes)))


def cluster_at_once(rows: Tensor, count: int, seed: int) -> Groups:
    """As `cluster_rows`, by Lloyd's algorithm from random rows, each row compared with all centres in every round.

    The centres of more than `MAX_TRAINING_ROWS` rows are those of a random sample of them, as large as that or with
    `MIN_ROWS_PER_CENTRE` for each centre; then each row is compared with them once.
    """
    shuffled = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    centres = rows[shuffled[:count]].clone()
    sample = max(MAX_TRAINING_ROWS, MIN_ROWS_PER_CENTRE * count)
    training = rows if len(rows) <= sample else rows[shuffled[:sample]]
    for _ in range(GROUPING_ROUNDS):
        group = find_nearest(training, centres)
        sizes = torch.bincount(group, minlength=len(centres))
        centres = (torch.zeros_like(centres).index_add_(0, group, training) / sizes[:, None])[sizes > 0]
    group = find_nearest(rows, centres)
    sizes = torch.bincount(group, minlength=len(centres))
    return Groups(group.argsort(stable=True), add_sizes(sizes[sizes > 0]))


def add_sizes(sizes: Tensor) -> Tensor:
    """Where each of the groups of `sizes` [G] begins, and the last one ends, [G + 1]."""
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def group_similar_classes(
    preview: Tensor, bias: Tensor | None, count: int, seed: int, alone: Tensor | None = None
) -> Groups:
    """Group classes whose logits are alike, by the rows `preview` [m, W] and, where there is one, `bias` [m].

    A bias is a column for which every context has 1: without it, the few classes that win by their bias alone would be
    in groups of others that do not, and would never be opened. Layers without biases are grouped by angles at last,
    which a column of biases, of any size, would decide alone. alone: positions of classes that are a group each, [a],
    in front of the `count` of the others.
    """
    rows = preview if bias is None else torch.column_stack([preview, limit_biases(bias)])
    cluster = cluster_by_angle if bias is None else cluster_rows
    if alone is None or len(alone) == 0:
        groups = cluster(rows, count, seed)
    else:
        groups = cluster_others(cluster, rows, count, seed, alone)
    return groups._replace(order=order_in_blocks(rows, groups))


def cluster_others(cluster: Cluster, rows: Tensor, count: int, seed: int, alone: Tensor) -> Groups:
    """A group of each of the positions `alone` [a], then those of the other `rows` [m, W], by `cluster`."""
    is_other = torch.ones(len(rows), dtype=torch.bool).index_fill(0, alone, False)
    others = is_other.nonzero()[:, 0]
    groups = cluster(rows[others], count, seed)
    starts = torch.cat([torch.arange(len(alone)), groups.starts + len(alone)])
    return Groups(torch.cat([alone, others[groups.order]]), starts)


def cluster_by_angle(rows: Tensor, count: int, seed: int) -> Groups:
    """As `cluster_rows`; then rows [m, W] go to the mean at the smallest angle, in rounds after which means are new.

    k-means puts a short row that is like no other where the mean is short, too. Where the row wins, such a mean scores
    hardly more than others. Layers of many groups take fewer rounds, the largest none.
    """
    groups = cluster_rows(rows, count, seed)
    part = torch.repeat_interleave(torch.arange(len(groups.sizes)), groups.sizes)[groups.order.argsort()]
    for _ in range(min(ANGLE_ROUNDS, MAX_COMPARISONS // (len(rows) * count))):
        sums = torch.zeros(int(part.max()) + 1, rows.shape[1]).index_add_(0, part, rows)
        part = find_nearest_direction(rows, sums)
    sizes = torch.bincount(part)
    return Groups(part.argsort(stable=True), add_sizes(sizes[sizes > 0]))


def limit_biases(bias: Tensor) -> Tensor:
    """`bias` [m] without values whose squares overflow, as those that mask classes: any so large decides alone."""
    return bias.clamp(-MAX_GROUPED_BIAS, MAX_GROUPED_BIAS)


def order_in_blocks(rows: Tensor, groups: Groups) -> Tensor:
    """The `order` [m] of groups so that every `BLOCK_CLASSES` of each are similar: split in halves again and again."""
    order, starts, sizes = groups.order.clone(), groups.starts[:-1], groups.sizes
    while len(sizes):
        first = -(-sizes // BLOCK_CLASSES) // 2 * BLOCK_CLASSES  # classes of the first half, whole blocks
        for size in torch.unique(sizes).tolist():
            if size > BLOCK_CLASSES:
                halve_parts(rows, order, starts[sizes == size], size)
        starts, sizes = torch.cat([starts, starts + first]), torch.cat([first, sizes - first])
        starts, sizes = starts[sizes > BLOCK_CLASSES], sizes[sizes > BLOCK_CLASSES]
    return order


def halve_parts(rows: Tensor, order: Tensor, starts: Tensor, size: int) -> None:
    """Order parts of `size` classes, one of which begins in `order` at each of `starts`, as two halves that differ."""
    first = -(-size // BLOCK_CLASSES) // 2 * BLOCK_CLASSES
    for some in torch.split(starts, max(1, HALVED_NUMBERS // (size * rows.shape[1]))):
        positions = some[:, None] + torch.arange(size)
        classes = order[positions]
        order[positions] = classes.gather(1, rank_along_difference(rows[classes], first))


def rank_along_difference(rows: Tensor, first: int) -> Tensor:
    """Rank the n rows of each part [p, n, W] so that the first `first` and the others are two groups, as by k-means.

    Returns [p, n]. Begins with the direction in which rows differ most, by power iteration; then goes by the line
    between both means.
    """
    centred = rows - rows.mean(dim=1, keepdim=True)
    longest = (centred**2).sum(dim=2).argmax(dim=1)
    direction = centred[torch.arange(len(rows)), longest][:, :, None]
    for _ in range(HALVING_ROUNDS):
        direction = torch.nn.functional.normalize(centred.mT @ (centred @ direction), dim=1)
    count = rows.shape[1]
    for _ in range(HALVING_ROUNDS):
        ranking = (centred @ direction)[:, :, 0].argsort(dim=1, stable=True)
        shares = torch.full(ranking.shape, 1 / (count - first)).scatter_(1, ranking[:, :first], -1 / first)
        direction = centred.mT @ shares[:, :, None]  # from the mean of the first to that of the others
    return (centred @ direction)[:, :, 0].argsort(dim=1, stable=True)


def find_nearest(rows: Tensor, centres: Tensor) -> Tensor:
    """The number [m] of the centre [G, W] that is nearest to each row [m, W]."""
    half = 0.5 * (centres**2).sum(dim=1)
    return torch.cat([(part @ centres.T - half).argmax(dim=1) for part in torch.split(rows, CHUNK_CLASSES)])


def find_nearest_direction(rows: Tensor, centres: Tensor) -> Tensor:
    """The number [m] of the centre [G, W] that is at the smallest angle to each row [m, W]."""
    directions = torch.nn.functional.normalize(centres)
    return torch.cat([(part @ directions.T).argmax(dim=1) for part in torch.split(rows, CHUNK_CLASSES)])
