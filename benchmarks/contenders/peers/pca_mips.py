"""PCA-MIPS (Bachrach et al., RecSys 2014).

"Speeding Up the Xbox Recommender System Using a Euclidean Transformation for Inner-Product Spaces": rows are lifted to
[x; sqrt(U^2 - |x|^2)], U the largest norm, queries to [q; 0], and the largest inner products are the nearest
neighbours. A binary tree halves the lifted rows at the median, level i along the i-th principal axis.

The paper scores the leaf that a query falls into, and those one wrong turn away. Here leaves are opened in the order
of a lower bound on their distance: the axes are orthogonal, so squared distances to the thresholds that lie between
add up. One leaf opened is the paper's plain tree. Queries are scaled to norm U, which changes no order.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import ClassVar

import numpy as np
from shortlist_exporter.inputs.sources import Dense

from benchmarks.contenders.base import Contender, FloatArray, IdArray, Options, spread_settings
from benchmarks.contenders.basis import BASES, lift_rows, load_basis, rescore_candidates

LEAF_ROWS = (256, 64, 16)  # about so many in a leaf
OPENING_DIVISORS = (256, 128, 64, 32, 16, 8, 4, 2)  # leaves / leaves opened


@dataclass(frozen=True)
class Tree:
    """A full binary tree in breadth-first order.

    thresholds: for each level i, [2^i] float32. leaves: [2^depth, m] positions of rows; -1 pads.
    """

    thresholds: tuple[FloatArray, ...]
    leaves: IdArray

    def bounds(self, point: FloatArray) -> FloatArray:
        """[2^depth]: squared distances from `point` [depth] that no row of a leaf can be under."""
        bound = np.zeros(1, np.float32)
        for along, threshold in zip(point, self.thresholds, strict=True):
            beyond = along - threshold
            left, right = bound + np.maximum(beyond, 0) ** 2, bound + np.minimum(beyond, 0) ** 2
            bound = np.column_stack([left, right]).ravel()
        return bound

    def nearest(self, point: FloatArray, count: int) -> IdArray:
        """Positions of rows in the `count` leaves of the least bounds; -1 pads."""
        bounds = self.bounds(point)
        if count >= bounds.size:
            return self.leaves.ravel()
        return self.leaves[np.argpartition(bounds, count - 1)[:count]].ravel()


def grow_tree(points: FloatArray) -> Tree:
    """The tree of `points` [V, depth], V >= 2^depth: level i splits along column i."""
    groups, thresholds = [np.arange(len(points))], []
    for along in points.T:
        halves, level = [], []
        for group in groups:
            ordered = group[np.argsort(along[group], kind="stable")]
            middle = len(group) // 2
            level.append(along[ordered[middle - 1 : middle + 1]].mean())
            halves += [ordered[:middle], ordered[middle:]]
        groups = halves
        thresholds.append(np.array(level, np.float32))
    return Tree(tuple(thresholds), pad_groups(groups))


def pad_groups(groups: list[IdArray]) -> IdArray:
    """[len(groups), largest size], -1 at the end of smaller ones."""
    table = np.full((len(groups), max(map(len, groups))), -1, np.int64)
    for row, group in zip(table, groups, strict=True):
        row[: len(group)] = group
    return table


def principal_axes(points: FloatArray, count: int) -> FloatArray:
    """[D, count] orthonormal directions in which `points` [V, D] vary most, strongest first."""
    centred = points - points.mean(axis=0)
    return np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :count].astype(np.float32)


class PcaMips(Contender):
    """Setting `opened`: leaves whose rows are scored exactly."""

    name: ClassVar[str] = "PCA-MIPS"
    quick: ClassVar[bool] = False

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        """The authors of GreedyMIPS tried depths of 2 to 11."""
        depths = {max(0, min(round(log2(dense.classes / rows)), dense.dim)) for rows in LEAF_ROWS}
        return [{"basis": basis, "depth": depth} for depth in sorted(depths) for basis in BASES]

    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        self.dense = dense
        self.basis = load_basis(self.build["basis"], dense, contexts)
        points = lift_rows(self.basis.rows)
        axes = principal_axes(points, self.build["depth"])
        self.tree = grow_tree(points @ axes)
        self.norm = np.linalg.norm(points[0])
        self.axes = np.ascontiguousarray(axes[:-1])  # a lifted query ends in 0

    def settings(self) -> list[Options]:
        """Up to half of the leaves."""
        return spread_settings("opened", len(self.tree.leaves), OPENING_DIVISORS)

    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        queries = self.basis.queries(contexts)
        norms = np.linalg.norm(queries, axis=1, keepdims=True)
        points = queries @ self.axes * (self.norm / np.maximum(norms, np.finfo(np.float32).tiny))
        opened = self.setting.get("opened", 1)
        positions = np.stack([self.tree.nearest(point, opened) for point in points])
        return rescore_candidates(self.dense, contexts, self.basis.classes(positions), k)

    def size(self) -> int:
        tree = self.tree.leaves.nbytes + sum(level.nbytes for level in self.tree.thresholds)
        return tree + self.axes.nbytes + self.basis.change_bytes + self.dense.weight.nbytes
